"""The files of a results folder: their names, the types of the JSON files, the columns of the tables."""

from __future__ import annotations

from typing import Annotated, Any, Final, Generic, Literal, TypeVar

import msgspec

from volery.core.flow import Flow
from volery.core.limits import LimitSummary
from volery.core.omissions import Omissions
from volery.core.stages import Stage
from volery.integrity import SUMS
from volery.metrics import RunSummary
from volery.statistics import ComparedJobs, ComparedMeans, InterimLook

MANIFEST: Final = "manifest.json"
SUMMARY: Final = "summary.json"
STAGE_TIMES: Final = "stage_times.json"
FLOWS: Final = "flows.json"
JOBS: Final = "jobs.parquet"
UTILISATION: Final = "utilisation.parquet"
CONSTRAINT_LOAD: Final = "constraint_load.parquet"
CONFLICTS: Final = "conflicts.parquet"
TASK_RUNS: Final = "task_runs.parquet"
HEAT: Final = "heat.parquet"
REPORT: Final = "report.html"
RUNS: Final = "runs"
LOCK: Final = ".lock"
FORMAT: Final = 1

Study = TypeVar("Study")
Reason = Literal["decided", "limit", "budget"]
DECIDED: Final = "decided"
LIMIT: Final = "limit"
BUDGET: Final = "budget"


class TraceFacts(msgspec.Struct, frozen=True):
    """The input of a run as it was read.

    Args:
        name: name that the trace gives itself.
        sha256: digest over all its columns, task constraints included.
        jobs: number of jobs.
        tasks: number of tasks.
        read_s: wall time to read or draw it with its constraints; 0 where the run before had read it.
        left_out: omissions from the file, by effect and reason; None for synthetic work and `.tr` files.
        in_one_slot: tasks that ask for more than the one slot that each of them takes; None where none does.
        cutoff_s: between short and long jobs for designs that are given none: 90 % of the jobs have tasks of at most
            this mean.
        unheeded_resources: resources that tasks of the file ask for, and that do not count.
        limits: limits of the file, and the tasks whose durations exceed theirs; None where it states none.
    """

    name: str
    sha256: str
    jobs: int
    tasks: int
    read_s: float = 0.0
    left_out: Omissions | None = None
    in_one_slot: Omissions | None = None
    cutoff_s: float | None = None
    unheeded_resources: tuple[str, ...] = ()
    limits: LimitSummary | None = None


class FinishedRun(msgspec.Struct, frozen=True):
    """A line of the manifest.

    Args:
        key: name of its files in `runs`: a digest of all that the run depends on.
        architecture: registry name.
        parameters: parameters that differ from the defaults.
        label: name in tables of runs that differ in the seed alone.
        seed: seed of all random streams.
        digest: SHA-256 of what happened to every task.
        trace_sha256: Digest of the input, task constraints included.
    """

    key: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]  # names files: a foreign manifest gives no path
    architecture: str
    parameters: dict[str, Any]
    label: str
    seed: int
    digest: str
    trace_sha256: str


class StudyLook(InterimLook, frozen=True, kw_only=True):
    """One judgement of the comparisons of a study that adds seeds; all looks together keep 95 % confidence.

    Args:
        undecided: number of comparisons that are not decided.
    """

    undecided: int


class StudyEnd(msgspec.Struct, frozen=True):
    """The end of a study that adds seeds.

    Args:
        reason: "decided" (every comparison), "limit" (of seeds) or "budget".
        baseline: label of the architecture that the others were compared with.
        comparisons: number of those that decide: each other architecture, each setting, median, mean and p99 delay of
            all jobs.
        looks: looks in the order of seeds.
        seeds_max: limit of the seeds.
        budget_s: limit of the CPU seconds of all runs together; None: none.
    """

    reason: Reason
    baseline: str
    comparisons: int
    looks: tuple[StudyLook, ...]
    seeds_max: int
    budget_s: float | None = None


class ResultsManifest(msgspec.Struct, Generic[Study], frozen=True, kw_only=True):
    """The content of manifest.json: the study, its inputs and its finished runs.

    Args:
        format: layout of the folder.
        volery_version: version of the package.
        code_sha256: Digest of the sources that results depend on.
        python: version of the interpreter.
        numpy: version of the library that draws synthetic work.
        created: when the folder was begun (ISO 8601, UTC).
        command: the command that ran the study.
        config: the study; a `StudySpec` where it is run again, a plain table where it is only shown.
        trace: the input of the first finished run; jobs and tasks.
        cluster: machines of the first setting.
        seeds: seeds of the study.
        planned: number of runs of the study.
        inputs: SHA-256 of the bytes of every file that the study names; a file is recognised by it wherever it lies.
        runs: the finished ones, in the order of the tables.
        stopping: the reason why a study that adds seeds has ended; unset while it has not.
    """

    format: int = FORMAT
    volery_version: str
    code_sha256: str
    python: str
    numpy: str
    created: str
    command: str
    config: Study
    trace: TraceFacts | None = None
    cluster: dict[str, Any] = {}
    seeds: tuple[int, ...]
    planned: int
    inputs: dict[str, str] = {}
    runs: tuple[FinishedRun, ...] = ()
    stopping: StudyEnd | msgspec.UnsetType = msgspec.UNSET


class StoredRun(msgspec.Struct, frozen=True):
    """The JSON part of a finished run.

    Args:
        columns_sha256: Digest of its columns' file; empty: an earlier version wrote it.
    """

    key: str
    summary: RunSummary
    trace: TraceFacts
    columns_sha256: str = ""


class StudySummary(msgspec.Struct, frozen=True):
    """The measures of all finished runs, and their comparisons; a folder of an earlier version has none by job."""

    runs: list[RunSummary]
    differences: list[ComparedMeans] = []
    on_days_like_this: list[ComparedJobs] | None = None


class MethodTime(msgspec.Struct, frozen=True):
    """The time of a method that realises one or more stages; declared methods that it calls count there.

    Args:
        stages: stages that it realises; where there are several, their times cannot be told apart.
        method: its name as declared.
        calls: number of its calls.
        cycles: number of cycles with a call: a cycle is an event that a component handles, as far as it enters
            declared methods.
        cpu_s: CPU time of one thread, with the cost of measuring.
        wall_s: the same by the wall clock.
        call_s: CPU time of a single call at the percentiles of the profile; empty: no calls.
    """

    stages: tuple[Stage, ...]
    method: str
    calls: int
    cycles: int
    cpu_s: float
    wall_s: float
    call_s: tuple[float, ...] = ()


class StageProfile(msgspec.Struct, frozen=True):
    """The time per stage of one run (`--profile stages`).

    Args:
        label: label of the run.
        cpu_s: all of it, measuring included.
        own_costs_s: the cost of measuring, per call and per declared method that makes the call, CPU seconds.
        times: per declared method.
        key: key of the run.
        percentiles: percentiles of single calls that `times` has.
    """

    label: str
    cpu_s: float
    own_costs_s: tuple[float, float]
    times: list[MethodTime]
    key: str = ""
    percentiles: tuple[int, ...] = ()


class StageTimes(msgspec.Struct, frozen=True):
    """The content of stage_times.json."""

    profiles: list[StageProfile]


class LabelledFlow(msgspec.Struct, frozen=True):
    """The message flow of the runs of one label."""

    label: str
    flow: Flow


class Flows(msgspec.Struct, frozen=True):
    """The content of flows.json."""

    flows: list[LabelledFlow]


FILES: Final = {
    MANIFEST: "what was run: code, study, trace, cluster, one line per finished run with its digest",
    SUMMARY: "`runs`: the measures of every finished run; `differences`: the baseline with the others, over "
    "seeds; `on_days_like_this`: the same job by job, in runs of the first seed",
    JOBS: "a row per job and run",
    UTILISATION: "a row per interval and run: utilisation, tasks that wait, and refused placements",
    TASK_RUNS: "a row per attempt of runs that are small enough: at most 2,000 attempts on 200 lanes",
    HEAT: "a row per group of machines and interval of larger runs",
    CONSTRAINT_LOAD: "demand and load per constraint, where constraints are used",
    CONFLICTS: "scheduling conflicts over time of an idealised schedule, where constraints are used",
    STAGE_TIMES: "what `--profile stages` has measured",
    FLOWS: "who says what to whom in each architecture that was compared",
    REPORT: "all of it to read, in one file without network",
    SUMS: "digests of the tables and the page, as the program sha256sum checks them",
    RUNS: "`KEY.json`: one finished run, `KEY.npz`: its columns; `KEY.load`, `KEY.conflicts`: of an input",
    LOCK: "held by the one study that writes here",
}
_RUN: Final = {
    "run": "key of the run, as in the manifest",
    "architecture": "registry name",
    "label": "what tables call runs that differ in the seed alone",
    "seed": "of all random streams",
    "trace": "the workload as the study names it; further axes that vary follow as columns of their own",
    "workers": "machines of the setting",
}
_OF_SECONDS: Final = ("mean", "p50", "p95", "p99")
COLUMNS: Final[dict[str, dict[str, str]]] = {
    JOBS: _RUN
    | {
        "job": "its place in the trace, from 0",
        "submit_s": "submission, s since the run began",
        "tasks": "how many it has",
        "unsatisfiable": "tasks that never ran, because they fit no machine or were given up",
        "ideal_s": "ideal JRT, s: the longest task that ran, or the critical path; null where none ran",
        "jrt_s": "job response time, s: answer - submission; null where there was no answer",
        "delay_s": "jrt_s - ideal_s, s; null where there was no answer",
        "is_short": "whether its estimate is at most the cutoff; false for all without a cutoff",
        "counted": "whether it counts: it was submitted within the measurement window; true for all without one",
        "wait_s": "longest time for which one of its tasks was ready and had not started, s; null where none did",
    },
    UTILISATION: _RUN
    | {
        "time_s": "beginning of the interval, s since the run began",
        "utilisation": "mean over the interval of what is in use / what there is, 0 to 1; of the resource used most",
        "waiting_tasks": "mean over the interval of tasks that could start and have not; null in old runs",
        "refused_tasks": "placements that were refused in the interval; null where the run tells of none",
    },
    TASK_RUNS: _RUN
    | {
        "task": "its number in the trace, from 0",
        "job": "that it belongs to, from 0",
        "machine": "where it ran, from 0",
        "lane": "the lowest of the machine's lanes that was free when the attempt began",
        "lanes": "of this machine: one per slot; with amounts of resources as many as tasks ran there at once",
        "start_us": "us since the run began",
        "finish_us": "us since the run began",
        "attempt": "0 is the first",
        "killed": "whether the attempt was ended before its time",
        "share": "1 / slots, or the dominant share of the machine, 0 to 1",
    },
    HEAT: _RUN
    | {
        "machine": "the first of the group",
        "machines": "how many stand in it",
        "begin_us": "of the interval, us since the run began",
        "end_us": "likewise",
        "percent": "exact mean of what was in use, rounded, 0 to 100",
    },
    CONSTRAINT_LOAD: {
        "trace": "name of the input",
        "workers": "machines of the setting; a column `load` follows where the study sets one",
        "seed": "that drew constraints",
        "constraint": "its number, from 0",
        "mean": "over seconds: tasks that need it / machines that have it, when every task starts on arrival",
        "median": "likewise",
        "p95": "likewise",
        "p99": "likewise",
    },
    CONFLICTS: {
        "trace": "name of the input",
        "workers": "machines of the setting; a column `load` follows where the study sets one",
        "seed": "that drew constraints",
        "begin_s": "of the interval, whole s since the run began",
        "end_s": "likewise",
        "waiting": "mean over the seconds of the interval: tasks that no schedule can run at once with the others",
        "waiting_max": "of the worst second of the interval",
        "collisions": "mean: expected tasks that find their slot taken when each draws one that it fits",
        "collisions_max": "likewise",
    }
    | {f"{kind}_{name}": "of all seconds of the input" for kind in ("waiting", "collisions") for name in _OF_SECONDS},
}
