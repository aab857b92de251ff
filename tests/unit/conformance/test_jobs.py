"""Every rule of the checks of jobs rejects records that violate it, and accepts those beside them."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.conformance.made import records_of

from volery.architectures import lookup
from volery.conformance import NonconformanceError
from volery.conformance.cases import Case, trace_of
from volery.conformance.jobs import Cancels, _demand_ended, _demand_others_untouched, _demand_together
from volery.core.model import NEVER, Cluster

CASE = Case("two jobs", 0, trace_of("two jobs", [0, 0], [[4_000, 4_000], [4_000]]), Cluster.uniform(3))
CANCELLED_AT, GRACE = 2_000, 1_000


@pytest.mark.parametrize(
    ("start", "end", "killed", "problem"),
    [
        (1_000, NEVER, 3_000, ""),
        (1_000, 3_000, None, ""),
        (3_000, NEVER, 3_000, ""),
        (3_001, NEVER, 3_001, "started at 3001 us"),
        (1_000, NEVER, 3_001, "was not killed in time"),
        (1_000, NEVER, None, "was not killed in time"),
        (1_000, 3_001, None, "ran on until 3001 us"),
    ],
)
def test_nothing_of_a_cancelled_job_goes_on_longer_than_messages_are_under_way(
    start: int, end: int, killed: int | None, problem: str
) -> None:
    """The second task of the job never ran."""
    records = records_of(CASE, {0: (0, start, end)}, {}, {})
    if killed is not None:
        records.killed[0, 0] = killed
    if not problem:
        _demand_ended(CASE, records, 0, CANCELLED_AT, GRACE)
        return
    with pytest.raises(NonconformanceError, match=f"task 0 of job 0, cancelled at 2000 us, {problem}"):
        _demand_ended(CASE, records, 0, CANCELLED_AT, GRACE)


@pytest.mark.parametrize(
    ("answers", "end", "problem"),
    [
        ([5_000], 4_000, ""),
        ([], 4_000, "job 1 was not cancelled and was reported done 0 times"),
        ([5_000, 5_500], 4_000, "job 1 was not cancelled and was reported done 2 times"),
        ([5_000], NEVER, "task 2 of job 1, which was not cancelled, did not finish"),
    ],
)
def test_jobs_that_are_not_cancelled_end_as_ever(answers: list[int], end: int, problem: str) -> None:
    cancels = Cancels()
    cancels.cancelled_at[0] = CANCELLED_AT
    cancels.answers[1] = answers
    records = records_of(CASE, {2: (0, 0, end)}, {}, {})
    if not problem:
        _demand_others_untouched(CASE, records, cancels, lookup("oracle"))
        return
    with pytest.raises(NonconformanceError, match=problem):
        _demand_others_untouched(CASE, records, cancels, lookup("oracle"))


def test_a_gang_starts_at_one_instant_or_never() -> None:
    gangs = msgspec.structs.replace(CASE, gangs=True)
    _demand_together(gangs, records_of(gangs, {0: (0, 500, 4_500), 1: (1, 500, 4_500), 2: (2, 700, 4_700)}, {}, {}))
    _demand_together(gangs, records_of(gangs, {}, {}, {}))
    with pytest.raises(NonconformanceError, match="the tasks of gang 0 started at 2 different times"):
        _demand_together(gangs, records_of(gangs, {0: (0, 500, 4_500), 1: (1, 501, 4_501)}, {}, {}))
