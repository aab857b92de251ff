"""Studies: architectures x settings x seeds, run and kept in a results folder that can be continued and verified."""

from volery.report.schema import TraceFacts
from volery.study.file import read_costs, read_study, study_from_tables, write_costs
from volery.study.plan import PlannedRun, plan
from volery.study.results import ResultsFolder
from volery.study.runner import compare_spec, run_study
from volery.study.runs import RunOutcome, execute
from volery.study.spec import ArchitectureChoice, RunSpec, StudySpec
from volery.study.verify import Verification, verify
from volery.study.watcher import LostRunError, Watcher
from volery.study.writer import Results, load_results, write_results_report

__all__ = [
    "ArchitectureChoice",
    "LostRunError",
    "PlannedRun",
    "Results",
    "ResultsFolder",
    "RunOutcome",
    "RunSpec",
    "StudySpec",
    "TraceFacts",
    "Verification",
    "Watcher",
    "compare_spec",
    "execute",
    "load_results",
    "plan",
    "read_costs",
    "read_study",
    "run_study",
    "study_from_tables",
    "verify",
    "write_costs",
    "write_results_report",
]
