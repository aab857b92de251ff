"""Records made up for the tests of demands: of runs that no sound design has."""

from __future__ import annotations

from collections.abc import Mapping

from volery.conformance.cases import Case
from volery.core.model import Time
from volery.core.records import Records


def records_of(
    case: Case, runs: Mapping[int, tuple[int, Time, Time]], answers: Mapping[int, Time], given_up: Mapping[int, int]
) -> Records:
    """The records of a run.

    Args:
        runs: task -> machine, start and end; NEVER ends what was killed or goes on.
        answers: job -> time of its answer.
        given_up: job -> its tasks that were reported as never run.
    """
    records = Records(case.trace)
    for task, (machine, start, end) in runs.items():
        records.worker[task], records.start_us[task], records.finish_us[task] = machine, start, end
    for job, at in answers.items():
        records.answered_us[job] = at
    for job, count in given_up.items():
        records.unsatisfiable[job] = count
    return records
