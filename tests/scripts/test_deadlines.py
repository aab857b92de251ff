"""Scripts of designs that heed deadlines."""

from __future__ import annotations

from array import array

import msgspec
from tests.scripts.register import case, responses, script
from tests.scripts.transcript import transcript

from volery.core.model import NEVER, SECOND

PLAN_AHEAD = """Tumanov et al. 2016, the example of plan-ahead: three equal machines, quanta of 10 s
job 0: two tasks of one quantum, due after one; job 1: one of two, due after four; job 2: three of one, due after two"""
QUANTUM_US = 9_900_000
"""Tasks are a little shorter than a quantum: messages take time, too."""
UNDUE = case([0, 0, 0], [[QUANTUM_US] * 2, [QUANTUM_US + 10 * SECOND], [QUANTUM_US] * 3], [0] * 3)
DUE_US = (10 * SECOND, 40 * SECOND, 20 * SECOND)
DUE = msgspec.structs.replace(UNDUE, trace=msgspec.structs.replace(UNDUE.trace, deadline_us=array("q", DUE_US)))


def planned(ahead_s: float) -> str:
    """The transcript; what the solver says of its own work is not in it, because that changes with its version."""
    parameters = {"quantum_s": 10.0, "cycle_s": 10.0, "plan_ahead_s": ahead_s}
    return transcript(
        PLAN_AHEAD, "tetrisched", DUE, parameters=parameters, quiet=frozenset({"JobAccepted", "Computed"})
    )


@script
def tetrisched_plans_ahead() -> str:
    """The machine that is idle in the first quantum is kept for the third job, which needs all three."""
    return planned(20.0)


@script
def tetrisched_lives_for_the_day() -> str:
    """Without plan-ahead the second job starts at once, and the third misses its deadline."""
    return planned(0.0)


def test_only_plan_ahead_meets_all_three_deadlines() -> None:
    due_s = [due / SECOND for due in DUE_US]
    ahead, today = responses(tetrisched_plans_ahead()), responses(tetrisched_lives_for_the_day())
    assert [took <= due for took, due in zip(ahead, due_s, strict=True)] == [True, True, True]
    assert [took <= due for took, due in zip(today, due_s, strict=True)] == [True, True, False]


GUARANTEED = """Ferguson et al. 2012: tokens are guaranteed to a job with a deadline, what is left is spare
four slots; job 0: twelve tasks of 4 s; job 1, just after: six tasks of 4 s in 15 s, 4 + 24 / 3 = 12 by Amdahl's law"""
UNDUE_JOBS = case([0, 1000], [[4 * SECOND] * 12, [4 * SECOND] * 6], [0] * 4)
DUE_JOBS = msgspec.structs.replace(
    UNDUE_JOBS, trace=msgspec.structs.replace(UNDUE_JOBS.trace, deadline_us=array("q", (NEVER, 15 * SECOND)))
)
EXACTLY = {"tokens_step": 1, "slack": 1.0, "dead_zone_s": 0.0, "period_s": 60.0}


@script
def jockey_guarantees_tokens() -> str:
    """Job 1 gets three of the four tokens that come free, twice, and job 0 the spare one."""
    return transcript(GUARANTEED, "jockey", DUE_JOBS, parameters=EXACTLY, quiet=frozenset({"JobAccepted"}))


def test_a_guarantee_meets_the_deadline_that_an_even_share_misses() -> None:
    even = transcript(GUARANTEED, "jockey", UNDUE_JOBS, parameters=EXACTLY, quiet=frozenset({"JobAccepted"}))
    guaranteed_s, even_s = responses(jockey_guarantees_tokens())[1], responses(even)[1]
    assert guaranteed_s < 15 < even_s
