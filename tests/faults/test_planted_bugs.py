"""A storm that finds nothing proves nothing: bugs planted in what bears faults are found within 200 seeds each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from tests.faults.splits import split

from volery.architectures import lookup
from volery.architectures.hydra.messages import Register
from volery.architectures.hydra.proxy import Proxy
from volery.architectures.hydra.recovery import Registration, Registrations
from volery.architectures.megha.allocations import SlotAllocations
from volery.architectures.megha.amounts.allocations import AmountAllocations
from volery.architectures.megha.amounts.view import CapacityView
from volery.architectures.megha.messages import place_of
from volery.architectures.megha.recovery.messages import ResyncReply
from volery.architectures.megha.recovery.pair import Paired
from volery.architectures.megha.recovery.reports import ReportRecovery
from volery.architectures.megha.shares.fairness import WeightedFairness
from volery.architectures.megha.shares.preemptions import ClaimTable
from volery.architectures.pigeon.recovery import MasterRecovery
from volery.core.component import Architecture
from volery.core.events import PeerLost
from volery.core.model import Address, Time
from volery.faults import Failure, draw, run_scenario, shrink
from volery.faults.scenario import Scenario
from volery.roles.recovery.channel import Linked
from volery.roles.recovery.election import PairElection
from volery.roles.recovery.leadership import LEADER, NODE, LeaderEvent, LeaderState, NodeEvent, NodeState
from volery.roles.recovery.leases import GuardedNode, Lease, Result

SEEDS = 200
Plant = Callable[[pytest.MonkeyPatch], None]


def never_retried(patch: pytest.MonkeyPatch) -> None:
    """A lost message is not sent again."""
    patch.setattr(Linked, "_send_again", lambda self, end, peer, count: setattr(end, "sent_at", self.now))


def no_lease(patch: pytest.MonkeyPatch) -> None:
    """A master gives a lost node's tasks to others at once: the node may still run them."""
    patch.setattr(Lease, "lease_us", property(lambda self: 0))


def no_fence(patch: pytest.MonkeyPatch) -> None:
    """A node that is cut off goes on."""
    patch.setattr(GuardedNode, "_watch_master", lambda self, now: None)


def unconfirmed(patch: pytest.MonkeyPatch) -> None:
    """A leader leads a machine that was restarted before its partner, which may have deposed it, has answered."""
    _, adopt = NODE[NodeState.UNREPORTED, NodeEvent.REPORT]
    for state in NodeState:
        patch.setitem(NODE, (state, NodeEvent.RESTARTED_REPORT), (NodeState.REPORTED, adopt))
    patch.setitem(NODE, (NodeState.REPORTED, NodeEvent.CONFIRMED), (NodeState.REPORTED, lambda *_: None))


def rash_partner(patch: pytest.MonkeyPatch) -> None:
    """A master that was restarted confirms an epoch before it knows which ones its nodes obey."""
    patch.setattr(PairElection, "knows_claims", lambda self: True)
    patch.setattr(PairElection, "may_have_claimed", lambda self: False)


def any_epoch(patch: pytest.MonkeyPatch) -> None:
    """A node obeys a master that was deposed."""
    patch.setattr(GuardedNode, "obeys", lambda self, epoch: True)


def any_assignment(patch: pytest.MonkeyPatch) -> None:
    """A Local Master starts what a Global Master asks for whose jobs were moved to another."""
    patch.setattr(Paired, "_is_void", lambda self, gm, term: False)


def unfenced_heir(patch: pytest.MonkeyPatch) -> None:
    """A Global Master schedules jobs that were moved to it before the clusters have told what runs of them."""
    patch.setattr(ReportRecovery, "submitted", lambda self, message: None)


def double_release(patch: pytest.MonkeyPatch) -> None:
    """A result frees its unit whatever runs there by now."""
    heard = Paired.on_result

    def frees(self: Paired, message: Result, node: Address, now: Time) -> None:
        heard(self, message, node, now)
        allocations = self.allocations
        if isinstance(allocations, SlotAllocations):
            partition, position = place_of(message.active.unit)
            allocations._busy[partition] &= ~(1 << position)

    patch.setattr(Paired, "on_result", frees)


def early_relaunch(patch: pytest.MonkeyPatch) -> None:
    """What a new leader has not heard of is placed again although some nodes have not answered: it still runs."""
    heard = ReportRecovery.on_resync_reply

    def believes(self: ReportRecovery, message: ResyncReply, source: Address) -> None:
        settled = ResyncReply(
            message.epoch, message.is_whole, True, message.update, message.running_attempts, message.finished_attempts
        )
        heard(self, settled, source)

    patch.setattr(ReportRecovery, "on_resync_reply", believes)


def forgotten_snapshot(patch: pytest.MonkeyPatch) -> None:
    """A Global Master that has begun anew is told nothing."""
    patch.setattr(Paired, "on_resync_request", lambda self, message, source, now: None)


def forgotten_status(patch: pytest.MonkeyPatch) -> None:
    """A second master does not wait for its workers' reports."""
    _, open_at_once = LEADER[LeaderState.COLLECTING, LeaderEvent.ALL_REPORTED]
    for state in LeaderState:
        patch.setitem(LEADER, (state, LeaderEvent.ELECTED), (LeaderState.SETTLED, open_at_once))


def lost_queue(patch: pytest.MonkeyPatch) -> None:
    """A second master does not say what runs, so that distributors do not send again what waited."""
    patch.setattr(MasterRecovery, "all_reported", lambda self: None)
    patch.setattr(MasterRecovery, "all_reachable_reported", lambda self: None)


def double_return(patch: pytest.MonkeyPatch) -> None:
    """The end of a logical node is counted for the machine whatever was counted before."""
    heard = Paired.on_result

    def returns(self: Paired, message: Result, node: Address, now: Time) -> None:
        heard(self, message, node, now)
        if isinstance(self.allocations, AmountAllocations):
            self.allocations.free(message.active)

    patch.setattr(Paired, "on_result", returns)


def forgotten_amounts(patch: pytest.MonkeyPatch) -> None:
    """A new leader does not count what its machines have free, and what runs there."""
    patch.setattr(AmountAllocations, "allot", lambda self, attempt, is_lent: None)
    patch.setattr(AmountAllocations, "recount", lambda self, node: True)


def forgotten_requests(patch: pytest.MonkeyPatch) -> None:
    """A Global Master goes on to wait for what it has asked of a leader that is gone."""
    patch.setattr(CapacityView, "start_epoch", lambda self, lm: None)


def no_share_kept(patch: pytest.MonkeyPatch) -> None:
    """A user within its share loses tasks."""
    patch.setattr(WeightedFairness, "_can_lose", lambda self, user, tasks: True)


def weights_unheard(patch: pytest.MonkeyPatch) -> None:
    """A Global Master goes on with the weights of the beginning."""
    patch.setattr(WeightedFairness, "on_reweigh", lambda self, message: None)


def claims_outlive_leaders(patch: pytest.MonkeyPatch) -> None:
    """A Global Master goes on to wait for preemptions that a leader has taken with it."""
    patch.setattr(WeightedFairness, "start_epoch", lambda self, lm, tasks: None)


def spoils_given_away(patch: pytest.MonkeyPatch) -> None:
    """What is set aside for who preempts counts as free."""
    patch.setattr(ClaimTable, "reserved", lambda self, here, position: 0)


def any_term(patch: pytest.MonkeyPatch) -> None:
    """A machine runs what it was given before it registered anew."""
    patch.setattr(Registration, "admits", lambda self, start, proxy: True)


def no_expiry(patch: pytest.MonkeyPatch) -> None:
    """A machine that is cut off from its resource manager goes on."""
    patch.setitem(Registration.receives, PeerLost, lambda self, event, source, now: None)


def nothing_taken_over(patch: pytest.MonkeyPatch) -> None:
    """A resource manager takes every machine that registers for empty."""
    register = Registrations.on_register

    def forgets(self: Registrations, message: Register, source: Address, now: Time) -> None:
        register(self, Register(message.number, ()), source, now)

    patch.setitem(Registrations.receives, Register, forgets)


def not_asked_again(patch: pytest.MonkeyPatch) -> None:
    """A proxy goes on to wait for what it has asked of a resource manager that is gone."""
    patch.setattr(Proxy, "_ask_again", lambda self, sub, has_request: None)


PLANTED = [
    ("hydra", any_term),
    ("hydra", no_expiry),
    ("hydra", nothing_taken_over),
    ("hydra", not_asked_again),
    ("hydra", never_retried),
    ("megha-2021", claims_outlive_leaders),
    ("megha-2021", spoils_given_away),
    ("megha-2021", never_retried),
    ("megha-2021", no_lease),
    ("megha-2021", any_epoch),
    ("megha-2021", double_return),
    ("megha-2021", forgotten_amounts),
    ("megha-2021", forgotten_requests),
    ("megha-2021", no_share_kept),
    ("megha-2021", weights_unheard),
    ("megha", never_retried),
    ("sparrow", never_retried),
    ("megha", no_lease),
    ("pigeon", no_lease),
    ("megha", no_fence),
    ("megha", any_epoch),
    ("megha", any_assignment),
    ("megha", unfenced_heir),
    ("megha", double_release),
    ("megha", early_relaunch),
    ("megha", forgotten_snapshot),
    ("megha", forgotten_status),
    ("pigeon", lost_queue),
]


SPLIT = [("pigeon", unconfirmed), ("pigeonc", unconfirmed), ("pigeonc", rash_partner)]
"""Bugs that splits find, and storms hardly ever."""


def first_failure(name: str, drawn: Callable[[Architecture, int], Scenario] = draw) -> tuple[Scenario, Failure]:
    """The first of the seeds whose storm the design does not weather.

    Raises:
        AssertionError: it weathers all of them.
    """
    architecture = lookup(name)
    for seed in range(SEEDS):
        scenario = drawn(architecture, seed)
        try:
            run_scenario(architecture, scenario)
        except Failure as failure:
            return scenario, failure
    raise AssertionError(f"{name} weathers {SEEDS} storms")


@pytest.mark.parametrize(("name", "plant"), PLANTED, ids=lambda value: getattr(value, "__name__", value))
def test_a_planted_bug_is_found(name: str, plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    _, failure = first_failure(name)
    assert failure.kind


@pytest.mark.parametrize(("name", "plant"), SPLIT, ids=lambda value: getattr(value, "__name__", value))
def test_a_planted_bug_is_found_by_splits(name: str, plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    _, failure = first_failure(name, partial(split, candidates=0))
    assert failure.kind


def test_a_failure_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """With retries gone, one lost message of one job is enough."""
    never_retried(monkeypatch)
    scenario, failure = first_failure("sparrow")
    sparrow = lookup("sparrow")

    def fails(candidate: Scenario) -> bool:
        try:
            run_scenario(sparrow, candidate)
        except Failure as other:
            return other.kind == failure.kind
        return False

    small = shrink(scenario, fails)
    assert fails(small)
    plan = small.plan
    assert len(plan.messages) + len(plan.partitions) == 1
    assert len(small.jobs) == 1
    assert len(small.slots) < len(scenario.slots)
