"""Other weights while work runs: who is due what from then on, and who takes what from whom."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.architectures.megha.shares.test_shares import (
    FOUR_OF_A,
    A,
    B,
    busy_lm,
    contended,
    job,
    preempt,
    sent,
    task,
)

from volery.architectures import configure, lookup
from volery.architectures.megha.shares.messages import Preempt, PreemptionRequest, PreemptionVote
from volery.conformance.cases import trace_of
from volery.core.capabilities import DueShares
from volery.core.component import Deployment
from volery.core.errors import InputError
from volery.core.events import Reweigh
from volery.core.model import SECOND, Cluster, Time
from volery.core.records import Records
from volery.core.streams import Streams
from volery.roles.node import Completed
from volery.sim import Options
from volery.sim.faults import Crash, FaultPlan
from volery.sim.kernel import Kernel
from volery.sim.network import Network
from volery.sim.orders import Reweighed

MACHINES = 8
LONG_US = 200 * SECOND
CONSTANT = Network()


def test_a_gm_claims_by_the_weights_that_it_has_heard_last() -> None:
    master = contended(*FOUR_OF_A)
    asked = sent(master.hear(job(1, 4, "b")), Preempt)
    assert len(asked) == 2, "half of four machines"
    more = sent(master.hear(Reweigh(2, (("b", 3),))), Preempt)
    assert [(one.user, one.loser, one.weights_number, one.gain.due) for one in more] == [(B, A, 2, 750_000)]
    assert not master.hear(Reweigh(2, (("b", 3),))), "a repeat"
    assert not master.hear(Reweigh(1, (("b", 9),))), "it is older"


def test_under_other_weights_a_place_may_be_taken_back() -> None:
    local = busy_lm()
    local.hear(preempt(1, 3), "gm/1")
    local.hear(PreemptionVote(1, True), "gm/0")
    local.hear(Completed(3, 0, killed=True), "node/3")
    back = Preempt(3, 1, 1, task(5), A, 0, B, (10,), weights_number=1)
    assert sent(local.hear(back, "gm/0"), PreemptionRequest)


def test_what_was_agreed_on_by_weights_of_before_bars_nobody() -> None:
    local = busy_lm()
    local.hear(preempt(1, 3), "gm/1")
    local.hear(PreemptionVote(1, True), "gm/0")
    local.hear(Preempt(3, 0, 0, task(6), B, 0, A, (0,), weights_number=1), "gm/1")
    local.hear(Completed(3, 0, killed=True), "node/3")
    back = Preempt(4, 1, 1, task(5), A, 0, B, (10,), weights_number=1)
    assert sent(local.hear(back, "gm/0"), PreemptionRequest)


def built(**parameters: Any) -> Deployment:
    megha = lookup("megha")
    given = {"gms": 2, "lms": 2, "heartbeat_s": 0.5, "shares": "a:1+b:1"} | parameters
    return megha.build(Cluster.uniform(MACHINES), configure(megha, given), Streams(5))


def played(
    deployment: Deployment,
    changes: tuple[Reweighed, ...],
    users: tuple[str, ...] = ("a", "b"),
    plan: FaultPlan | None = None,
    network: Network = CONSTANT,
    seed: int = 5,
) -> Records:
    """Each user has more long tasks than there are machines, from the beginning."""
    trace = trace_of("contended", [0] * len(users), [[LONG_US] * (MACHINES + 2)] * len(users))
    trace = msgspec.structs.replace(trace, user=users)
    options = Options(check=True, reweighs=changes, plan=plan)
    return Kernel(deployment, trace, Cluster.uniform(MACHINES), network, seed, options).run(None)


def had(records: Records, at: Time) -> dict[str, int]:
    """Per user, how many tasks run."""
    trace = records.trace
    runs = [*zip(range(trace.task_count), records.start_us, records.finish_us, strict=True)]
    until = {(one.task, one.attempt): one.at_us for one in records.preemptions}
    runs += [(lost.task, lost.start_us, until[lost.task, lost.attempt]) for lost in records.lost]
    counts = dict.fromkeys(trace.user, 0)
    for number, start, finish in runs:
        if start <= at < finish:
            counts[trace.user[number // (MACHINES + 2)]] += 1
    return counts


CHANGES = (Reweighed("a", 3, 20 * SECOND), Reweighed("a", 1, 60 * SECOND), Reweighed("b", 7, 90 * SECOND))


@pytest.mark.parametrize("parameters", [{}, {"reliable": True}, {"why": True}], ids=str)
def test_users_have_what_they_are_due_after_each_change(parameters: dict[str, Any]) -> None:
    records = played(built(**parameters), CHANGES)
    assert [had(records, at * SECOND) for at in (15, 40, 80, 110)] == [
        {"a": 4, "b": 4},
        {"a": 6, "b": 2},
        {"a": 4, "b": 4},
        {"a": 1, "b": 7},
    ]


@pytest.mark.parametrize("parameters", [{}, {"reliable": True}], ids=str)
def test_users_have_what_they_are_due_where_preemptions_outlast_heartbeats(parameters: dict[str, Any]) -> None:
    """Nothing else happens in the cluster: what a preemption has changed must be told by a heartbeat of its own."""
    slow = Network(delay_us=2_000, jitter_us=20_000)
    for seed in range(20):
        records = played(built(heartbeat_s=0.05, **parameters), CHANGES, network=slow, seed=seed)
        assert [had(records, at * SECOND) for at in (40, 80, 110)] == [
            {"a": 6, "b": 2},
            {"a": 4, "b": 4},
            {"a": 1, "b": 7},
        ]


def test_an_organisation_has_a_weight_too() -> None:
    deployment = built(shares="a:1+dev:1(b:1+c:1)")
    records = played(deployment, (Reweighed("dev", 3, 20 * SECOND),), ("a", "b", "c"))
    assert had(records, 15 * SECOND) == {"a": 4, "b": 2, "c": 2}
    assert had(records, 40 * SECOND) == {"a": 2, "b": 3, "c": 3}
    shares = deployment.capability(DueShares)
    assert shares is not None
    assert shares.under is not None
    told = [(one.name, one.within, one.weight, float(one.due), one.members) for one in shares.under({"dev": 3})]
    assert told == [
        ("a", (), 1, 0.25, 0),
        ("dev", (), 3, 0.75, 2),
        ("b", ("dev",), 1, 0.375, 0),
        ("c", ("dev",), 1, 0.375, 0),
    ]


@pytest.mark.parametrize("parameters", [{}, {"reliable": True}], ids=str)
def test_who_shares_a_gm_with_the_violator_is_not_starved(parameters: dict[str, Any]) -> None:
    """When c asks, a's GM has not heard of a's tasks, and cannot count on them; a has nothing to tell it later."""
    records = played(built(shares="a:1+dev:3(b:1+c:3)", **parameters), (), ("a", "b", "c"))
    assert had(records, 50 * SECOND) == {"a": 3, "b": 1, "c": 4}


def test_a_gm_that_begins_anew_is_told_again() -> None:
    crash = FaultPlan(crashes=(Crash(30 * SECOND, "gm/0", 32 * SECOND),))
    records = played(built(reliable=True, shares="a:3+b:1"), (Reweighed("a", 1, 10 * SECOND),), plan=crash)
    assert had(records, 25 * SECOND) == had(records, 55 * SECOND) == {"a": 4, "b": 4}


def test_what_cannot_be_weighed_is_told() -> None:
    with pytest.raises(InputError, match=r"shares\.an: is not in the tree of shares.*did you mean"):
        played(built(shares="ann:1+b:1"), (Reweighed("an", 2),))
    with pytest.raises(InputError, match=r"shares\.a: 0 is not a weight"):
        played(built(), (Reweighed("a", 0),))
    with pytest.raises(InputError, match="is the name of several organisations"):
        played(built(shares="x:1(d:1(a:1))+y:1(d:1(b:1))"), (Reweighed("d", 2),))
    with pytest.raises(InputError, match="no weights that change while it runs"):
        played(built(shares=""), (Reweighed("a", 2),))
