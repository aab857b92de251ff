"""Scripts of the first Megha as its paper prints it; test_scripts.py has ours."""

from __future__ import annotations

import msgspec
from tests.scripts.register import case, counter, responses, script
from tests.scripts.transcript import transcript

from volery.conformance.cases import Case
from volery.core.model import SECOND
from volery.sim.faults import Crash, FaultPlan

PRINTED = {"reliable": True, "gms": 2, "lms": 1, "heartbeat_s": 1.0, "recovery": "paper"}
"""Two GMs, one LM and its standby."""
QUIET = frozenset({"JobAccepted", "LeaderStatus", "StaleEpoch"})


@script
def megha_preemption_as_printed() -> str:
    """Two users with half of three machines each: whoever takes the third leaves the other below its share."""
    title = "Thiyyakat et al. 2021, algorithm 2 as printed: a machine goes to and fro between users of equal shares"
    taken = case([0, 5_000], [[20_000] * 3, [20_000] * 2], [0] * 3)
    shared = msgspec.structs.replace(taken.trace, user=("a", "b"))
    parameters = {"gms": 2, "lms": 1, "shares": "a:1+b:1", "heartbeat_s": 0.01, "preemption": "paper"}
    return transcript(title, "megha-2021", Case("script", 0, shared, taken.cluster), parameters=parameters)


def test_a_preemption_as_printed_asks_no_global_master_and_a_place_goes_back() -> None:
    text = megha_preemption_as_printed()
    steps = [text.index(step) for step in ("victims=[1]", "victims=[4]", "Preempt(number=5")]
    assert steps == sorted(steps)
    assert counter(text, "preemptions") == 4
    assert "PreemptionRequest(" not in text


@script
def megha2021_worker_dies_as_printed() -> str:
    """The same with the recovery of the paper: the LM itself launches the task again, on the restarted machine."""
    title = "Thiyyakat et al. 2021, section IV-D as printed: the LM relaunches what ran on a worker, from its list"
    plan = FaultPlan(crashes=(Crash(400_000, "node/1", 700_000),))
    two = case([0], [[SECOND, SECOND]], [0] * 2)
    return transcript(title, "megha-2021", two, parameters=PRINTED, plan=plan, quiet=QUIET)


@script
def megha2021_masters_die_as_printed() -> str:
    """The GM begins anew with a heartbeat; then a worker dies, and the standby, which has heard of its task, leads."""
    title = "Thiyyakat et al. 2021, section IV-D as printed: a GM is rebuilt from heartbeats, both LMs hear GMs"
    crashes = (
        Crash(100_000, "lm/0", 60 * SECOND),
        Crash(round(3.2 * SECOND), "gm/0", round(3.4 * SECOND)),
        Crash(6 * SECOND, "node/1", round(6.3 * SECOND)),
    )
    two = case([0], [[8 * SECOND, 8 * SECOND]], [0] * 2)
    return transcript(title, "megha-2021", two, parameters=PRINTED, plan=FaultPlan(crashes=crashes), quiet=QUIET)


def test_a_local_master_relaunches_as_printed_what_its_gm_would_have_placed_at_once_elsewhere() -> None:
    """Its own numbers of attempts begin in the middle; the machine has to be there again first."""
    text = megha2021_worker_dies_as_printed()
    steps = [text.index(step) for step in ("attempt=8", "PeerBack(peer=node/1)", "Run(epoch=0, task=t1, attempt=8")]
    assert steps == sorted(steps)
    assert "  AttemptsLost(" not in text
    assert responses(text) == [2.8295], "2.003 where the GM places it again (megha2021_worker_dies.txt)"


def test_a_gm_is_rebuilt_from_a_heartbeat_as_printed_and_the_standby_has_the_list_of_tasks() -> None:
    text = megha2021_masters_die_as_printed()
    joined = text[text.index("ResyncRequest()") :]
    assert joined.index("timer heartbeat") < joined.index("ResyncReply(epoch=1, is_whole=True")
    assert "lm/0/standby > node/1  Run(epoch=1, task=t1, attempt=8" in text
    assert "  AttemptsLost(" not in text


@script
def megha2021_waits_for_answers() -> str:
    """Two GMs with two tasks each: the second is matched on the answer to the first, as printed, and ends wait."""
    title = "Thiyyakat et al. 2021, sections IV-A and V-D as printed: synchronous requests, answered with the state"
    two = case([0, 1_000], [[5_000] * 2, [5_000] * 2], [0] * 4)
    return transcript(title, "megha-2021-printed", two, parameters={"gms": 2, "lms": 1, "heartbeat_s": 0.01})


def test_a_gm_waits_as_printed_for_an_answer_that_shows_what_the_other_has_taken() -> None:
    text = megha2021_waits_for_answers()
    steps = ["gm/0 > lm/0  Request(number=1", "lm/0 > gm/0  StateUpdate(number=1", "gm/0 > lm/0  Request(number=2"]
    places = [text.index(step) for step in steps]
    assert places == sorted(places)
    assert "inconsistencies" not in text, "gm/1 has the answer to its first request before it looks for more"
    assert text.index("timer heartbeat") < text.index("TasksEnded("), "ends come with updates"
    assert "timer notices" not in text
