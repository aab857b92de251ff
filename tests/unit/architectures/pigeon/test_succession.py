"""Succession of masters: who claims, whom distributors let lead, and what a leader may give up (section 6.1)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.effects import RecordingPort, Sent

from volery.architectures import configure, lookup
from volery.architectures.pigeon.messages import Declared, Granted, Lineup, Report, Resume, Update, VoteRequest
from volery.architectures.pigeon.succession import Promises
from volery.core.capabilities import CrashRecovery
from volery.core.events import PeerBack, PeerLost, TimerFired
from volery.core.model import Address, Cluster, Task, Time
from volery.core.streams import Streams
from volery.roles.recovery.channel import Linked, Renewed
from volery.roles.recovery.election import CLAIM
from volery.roles.recovery.leases import Lead, LeaderStatus, Run, StaleEpoch, Status

FIRST, SECOND, THIRD, FOURTH = "master/0", "master/0/standby", "master/0/2", "master/0/3"
DEALERS = [f"distributor/{number}" for number in range(3)]


class Candidate:
    """A candidate of a group of four workers without its link: events in, messages out."""

    def __init__(self, address: Address, incarnation: int = 0, **parameters: Any) -> None:
        given = {"groups": 1, "reserved": 0, "distributors": 3, "reliable": True, "candidates": 4, **parameters}
        cluster = Cluster((0,) * 4, (1, 1, 1, 2))
        pigeon = lookup("pigeon")
        recovery = pigeon.build(cluster, configure(pigeon, given), Streams(0)).capability(CrashRecovery)
        assert recovery is not None
        linked = recovery.rebuild(address, incarnation)
        assert isinstance(linked, Linked)
        self.component = linked.inner
        self.port = RecordingPort.under(self.component, address)
        self.component.start(0)

    def hear(self, event: Any, source: Address = "", now: Time = 0) -> list[tuple[Address, Any]]:
        self.component.handle(event, source, now)
        self.component.check()
        return [(effect.to, effect.message) for effect in self.port.drain() if isinstance(effect, Sent)]

    def lead(self, epoch: int) -> list[tuple[Address, Any]]:
        """Two of three distributors grant the epoch."""
        self.hear(Granted(epoch, (FIRST,)), DEALERS[0])
        return self.hear(Granted(epoch, (FIRST,)), DEALERS[1])


def test_a_distributor_grants_an_epoch_once_and_refuses_lower_ones() -> None:
    promises = Promises([FIRST])
    assert promises.answer(0, VoteRequest(2), THIRD) == Granted(2, (FIRST, THIRD))
    assert promises.answer(0, VoteRequest(1), SECOND) == StaleEpoch(2)
    assert promises.answer(0, VoteRequest(2), THIRD) == StaleEpoch(2), "of an earlier incarnation"
    assert promises.answer(0, VoteRequest(2, "node/0", 5), THIRD) == Granted(2, (FIRST, THIRD), "node/0", 5)
    assert promises.answer(0, VoteRequest(1, "node/0", 5), SECOND) == StaleEpoch(2), "it leads no more"


def test_the_second_claims_and_leads_when_a_majority_has_granted() -> None:
    one = Candidate(SECOND)
    assert one.hear(PeerLost(FIRST)) == [(dealer, VoteRequest(1)) for dealer in DEALERS]
    assert not one.hear(Granted(1, (FIRST,)), DEALERS[0])
    effects = one.hear(Granted(1, (FIRST,)), DEALERS[1])
    led = [to for to, message in effects if message == Lead(1, is_confirmed=True)]
    assert led == [f"node/{number}" for number in range(4)]
    assert {(to, message.second) for to, message in effects if isinstance(message, Lineup)} == {
        (FIRST, FOURTH),
        (THIRD, FOURTH),
        (FOURTH, FOURTH),
    }, "of those that are there the strongest becomes second"


def test_a_leader_replaces_a_second_that_is_lost() -> None:
    one = Candidate(FIRST)
    assert one.hear(PeerLost(SECOND))[0][1] == Lineup(0, FOURTH)
    assert one.hear(PeerLost(FOURTH))[0][1] == Lineup(0, THIRD)
    assert {message.second for _, message in one.hear(PeerLost(THIRD))} == {""}


def test_a_worker_waits_for_the_second_and_declares_itself_when_both_are_lost() -> None:
    one = Candidate(THIRD)
    assert not one.hear(PeerLost(FIRST)), "the second will claim"
    declared = one.hear(PeerLost(SECOND), now=7)
    assert declared == [(seat, Declared(1, 7)) for seat in (FIRST, SECOND, FOURTH)]
    assert one.hear(TimerFired(CLAIM))[0][1] == VoteRequest(2)


@pytest.mark.parametrize(("election", "behind"), [("time", False), ("power", True)])
def test_the_first_or_the_strongest_of_those_that_declared_claims(election: str, behind: bool) -> None:
    one = Candidate(THIRD, election=election)
    one.hear(PeerLost(FIRST))
    one.hear(PeerLost(SECOND), now=1_000)
    one.port.drain()
    one.component.handle(Declared(2, 2_000), FOURTH, 2_000)
    waits_longer = bool(one.port.drain())
    assert waits_longer == behind, "the other is later, and stronger"


def test_a_claimant_follows_whom_distributors_have_promised_a_later_epoch() -> None:
    one = Candidate(SECOND)
    one.hear(PeerLost(FIRST))
    assert not one.hear(StaleEpoch(2), DEALERS[0])
    assert not one.lead(1), "the grants are of an epoch that it has given up"
    assert one.hear(Lineup(2, FOURTH), THIRD) == [(THIRD, LeaderStatus(2, False))]


def test_a_leader_asks_the_distributors_before_it_leads_a_restarted_node() -> None:
    one = Candidate(FIRST)
    one.hear(Renewed("node/1"))
    assert one.hear(Status(-1, (), ()), "node/1", now=9) == [
        (dealer, VoteRequest(0, "node/1", 9)) for dealer in DEALERS
    ]
    one.hear(Granted(0, (FIRST,), "node/1", 9), DEALERS[0])
    assert one.hear(Granted(0, (FIRST,), "node/1", 9), DEALERS[2]) == [("node/1", Lead(0, is_confirmed=True))]


def test_a_candidate_that_began_anew_leads_a_node_once_it_has_received_something_from_it() -> None:
    """What it sends before waits in the link, and may reach a node that has begun anew under another since."""
    one = Candidate(SECOND, incarnation=1)
    one.hear(Lineup(0, SECOND), FIRST)
    one.hear(PeerLost(FIRST))
    asked = [(to, message) for to, message in one.lead(1) if to.startswith("node")]
    assert asked == [(f"node/{number}", LeaderStatus(1, True)) for number in range(4)]
    assert one.hear(StaleEpoch(0), "node/0") == [("node/0", Lead(1, is_confirmed=True))]
    assert one.hear(StaleEpoch(-1), "node/1", now=9) == [(dealer, VoteRequest(1, "node/1", 9)) for dealer in DEALERS]


def test_what_was_granted_before_a_node_began_anew_does_not_lead_it() -> None:
    one = Candidate(FIRST)
    one.hear(Renewed("node/1"))
    one.hear(Status(-1, (), ()), "node/1", now=9)
    one.hear(Granted(0, (FIRST,), "node/1", 9), DEALERS[0])
    one.hear(Renewed("node/1"), now=10)
    assert not one.hear(Granted(0, (FIRST,), "node/1", 9), DEALERS[2]), "another may have led it since"
    assert one.hear(Status(-1, (), ()), "node/1", now=11) == [
        (dealer, VoteRequest(0, "node/1", 11)) for dealer in DEALERS
    ]


def test_a_lost_node_that_begins_anew_is_given_up_after_another_confirmation() -> None:
    one = Candidate(FIRST)
    one.hear(PeerLost("node/1"))
    assert one.hear(TimerFired(("lease", "node/1")), now=9) == [
        (dealer, VoteRequest(0, "node/1", 9)) for dealer in DEALERS
    ]
    assert one.hear(Renewed("node/1"), now=10) == [(dealer, VoteRequest(0, "node/1", 10)) for dealer in DEALERS]
    one.hear(Granted(0, (FIRST,), "node/1", 9), DEALERS[0])
    assert not one.hear(Granted(0, (FIRST,), "node/1", 9), DEALERS[1])
    one.hear(Granted(0, (FIRST,), "node/1", 10), DEALERS[0])
    assert one.hear(Granted(0, (FIRST,), "node/1", 10), DEALERS[1]) == [("node/1", Lead(0, is_confirmed=True))]


def test_a_claimant_claims_a_later_epoch_when_a_node_begins_anew() -> None:
    one = Candidate(SECOND)
    one.hear(PeerLost(FIRST))
    assert one.hear(Renewed("node/1")) == [(dealer, VoteRequest(5)) for dealer in DEALERS]
    assert not one.lead(1), "another may have led the node since"
    assert one.lead(5)


def test_a_node_that_never_answered_is_given_up_when_former_leaders_have_lost_it_too() -> None:
    one = Candidate(SECOND)
    one.hear(PeerLost(FIRST))
    one.hear(PeerLost("node/3"))
    one.lead(1)
    for number in range(3):
        one.hear(Status(1, (), ()), f"node/{number}")
    lease = TimerFired(("lease", "node/3"))
    assert not one.hear(lease, now=20), "the former leader may lead it"
    assert not one.hear(LeaderStatus(1, False), FIRST, now=30)
    assert one.hear(lease, now=40) == [(FIRST, LeaderStatus(1, True, "node/3", 40))]
    asked = one.hear(LeaderStatus(1, False, "node/3", 40), FIRST)
    assert asked == [(dealer, VoteRequest(1, "node/3", 40)) for dealer in DEALERS]
    one.hear(Granted(1, (FIRST,), "node/3", 40), DEALERS[0])
    effects = one.hear(Granted(1, (FIRST,), "node/3", 40), DEALERS[1])
    assert {to for to, message in effects if isinstance(message, Report) and message.settled} == set(DEALERS)


def test_a_former_leader_that_restarts_is_not_asked_about_a_node_that_is_back() -> None:
    one = Candidate(SECOND)
    one.hear(PeerLost(FIRST))
    one.hear(PeerLost("node/3"))
    one.lead(1)
    one.hear(LeaderStatus(1, False), FIRST)
    assert (FIRST, LeaderStatus(1, True, "node/3", 40)) in one.hear(TimerFired(("lease", "node/3")), now=40)
    one.hear(PeerBack("node/3"))
    assert {type(message) for _, message in one.hear(Renewed(FIRST))} == {Lineup}


def test_a_new_leader_resumes_the_tasks_of_its_copy_that_distributors_name() -> None:
    one = Candidate(SECOND)
    one.hear(Update(0, (Task(5, 0), Task(6, 0)), (0, 0), (0, 0), (DEALERS[0], DEALERS[1])), FIRST)
    one.hear(PeerLost(FIRST))
    one.lead(1)
    effects = [effect for number in range(4) for effect in one.hear(Status(1, (), ()), f"node/{number}")]
    assert {(to, message.kept) for to, message in effects if isinstance(message, Report)} == {
        (DEALERS[0], ((5, 0),)),
        (DEALERS[1], ((6, 0),)),
        (DEALERS[2], ()),
    }
    ((_, run),) = one.hear(Resume(1, (5,), (1,)), DEALERS[0])
    assert isinstance(run, Run)
    assert (run.task.id, run.attempt, run.owner) == (5, 1, DEALERS[0])
