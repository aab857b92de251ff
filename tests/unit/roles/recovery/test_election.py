"""Paired masters: who leads, in which epoch, and when a node's tasks are given up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace
from tests.unit.effects import Observed, RecordingPort, TimerCancelled, TimerSet

from volery.core.component import Component
from volery.core.events import Counted, PeerBack, PeerLost, Reassignment, TimerFired
from volery.core.model import SECOND, Address, Message, TaskId, Time
from volery.core.port import Port
from volery.roles.recovery.channel import Renewed
from volery.roles.recovery.election import ELECTION, MOVES_AND_DRAINS, PairElection
from volery.roles.recovery.leadership import Leadership, seated
from volery.roles.recovery.leases import (
    Fence,
    Fenced,
    Lead,
    LeaderStatus,
    Lease,
    RunningAttempt,
    StaleEpoch,
    Status,
    Unseat,
)

PAIR = ("m/0", "m/0/standby")
NODES = ("node/0", "node/1")
LEASE = Lease(SECOND)


class Pupil(Component):
    """Notes what it is told of its nodes."""

    def __init__(self, me: int, incarnation: int = 0) -> None:
        self.notes: list[str] = []
        self.leadership = Leadership(self, me, len(PAIR), NODES, ("gm/0",), LEASE, incarnation)
        self.election = PairElection(self.leadership, PAIR)

    def bind(self, port: Port) -> None:
        super().bind(port)
        self.election.bind(port)

    def start(self, now: Time) -> None:
        self.election.start(now)

    def seats(self, node: Address, running: Sequence[RunningAttempt]) -> list[RunningAttempt]:
        return seated(running, (NODES.index(node),))

    def known_at(self, node: Address) -> Mapping[TaskId, RunningAttempt]:
        return {}

    def forget_all(self) -> None:
        self.notes.append("forget")

    def node_away(self, node: Address) -> None:
        self.notes.append(f"away {node}")

    def node_reported(self, node: Address, status: Status) -> None:
        self.notes.append(f"reported {node}")

    def node_back(self, node: Address) -> None:
        self.notes.append(f"back {node}")

    def node_dead(self, node: Address) -> None:
        self.notes.append(f"dead {node}")

    def all_reachable_reported(self) -> None:
        self.notes.append("open")

    def all_reported(self) -> None:
        self.notes.append("settled")

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        assert self.election.is_lease(event)
        self.election.on_lease_timer(event, now)

    def adopt_moves(self, new_moves: Sequence[Reassignment]) -> None:
        pass

    def all_fenced(self) -> None:
        pass

    receives = {  # noqa: RUF012 - the table
        **ELECTION,
        **MOVES_AND_DRAINS,
        TimerFired: on_timer,
    }


class Bench:
    """One master under a recording port."""

    def __init__(self, me: int, incarnation: int = 0) -> None:
        self.master = Pupil(me, incarnation)
        self.port = RecordingPort.under(self.master, PAIR[me])
        self.master.start(0)

    def take(self, event: object, source: Address, now: Time = 0) -> list[str]:
        """What the master notes."""
        self.master.notes.clear()
        self.master.handle(event, source, now)  # type: ignore[arg-type]  # any event
        return list(self.master.notes)

    def sent(self) -> list[tuple[Address, Message]]:
        return [(effect.to, effect.message) for effect in self.port.sent()]


def leading(epoch: int = 0) -> Bench:
    bench = Bench(epoch % 2, 1 if epoch else 0)
    if epoch:
        bench.take(LeaderStatus(epoch - 1, False), PAIR[1 - epoch % 2])
    bench.port.drain()
    return bench


def claimed() -> Bench:
    """The second master, just after its partner was lost."""
    bench = Bench(1)
    assert bench.take(PeerLost(PAIR[0]), PAIR[1]) == ["forget"]
    return bench


def test_the_first_leads_and_the_second_follows() -> None:
    assert (Bench(0).master.leadership.opened, Bench(1).master.leadership.leading) == (True, False)


def test_a_follower_takes_over_with_the_next_epoch_of_its_own() -> None:
    bench = claimed()
    assert bench.master.leadership.epoch == 1
    assert bench.sent() == [*((node, Lead(1)) for node in NODES), (PAIR[0], LeaderStatus(1, True))]
    assert bench.take(Status(1, (), ()), NODES[0]) == ["reported node/0"]
    assert bench.take(Status(1, (), ()), NODES[1]) == ["reported node/1", "open"]
    assert bench.master.leadership.settled


def test_it_opens_without_nodes_that_are_lost_but_settles_with_the_last() -> None:
    bench = claimed()
    bench.take(Status(1, (), ()), NODES[0])
    assert bench.take(PeerLost(NODES[1]), PAIR[1]) == ["away node/1", "open"]
    assert not bench.master.leadership.settled
    assert bench.take(Status(1, (), ()), NODES[1]) == ["reported node/1", "settled"]


def test_it_does_not_open_without_any_node() -> None:
    bench = claimed()
    for node in NODES:
        bench.take(PeerLost(node), PAIR[1])
    assert not bench.master.leadership.opened


def test_a_beginner_goes_beyond_the_epoch_that_a_node_obeys_and_a_leader_steps_down() -> None:
    bench = claimed()
    assert bench.take(StaleEpoch(4), NODES[0]) == ["forget"]
    assert bench.master.leadership.epoch == 5
    leader = leading()
    assert leader.take(StaleEpoch(1), NODES[0]) == ["forget"]
    assert leader.sent() == [(PAIR[1], LeaderStatus(1, False))]


def test_of_two_leaders_the_one_of_the_lower_epoch_steps_down() -> None:
    leader = leading()
    assert leader.take(LeaderStatus(1, True), PAIR[1]) == ["forget"]
    assert not leader.master.leadership.leading
    follower = claimed()
    follower.port.drain()
    follower.take(LeaderStatus(0, True), PAIR[0])
    assert follower.sent() == [(PAIR[0], LeaderStatus(1, True))]


def test_a_restarted_master_asks_everybody_and_of_two_that_follow_the_first_leads() -> None:
    bench = Bench(0, incarnation=1)
    assert bench.sent() == [(to, LeaderStatus(-1, False)) for to in (PAIR[1], *NODES, "gm/0")]
    assert bench.take(LeaderStatus(3, False), PAIR[1]) == ["forget"]
    assert bench.master.leadership.epoch == 4
    second = Bench(1, incarnation=1)
    second.port.drain()
    assert not second.take(LeaderStatus(-1, False), PAIR[0])
    assert second.sent() == [(PAIR[0], LeaderStatus(-1, False))]


def test_an_epoch_that_the_partner_never_heard_of_is_gone_beyond() -> None:
    """A standby led a while behind a partition, clients believed it, and it crashed."""
    restarted = Bench(1, incarnation=1)
    restarted.take(LeaderStatus(0, True), PAIR[0])
    restarted.port.drain()
    restarted.take(StaleEpoch(1), "gm/0")
    assert restarted.sent() == [(PAIR[0], LeaderStatus(1, False))]
    leader = leading()
    assert leader.take(LeaderStatus(1, False), PAIR[1]) == ["forget"]
    assert leader.master.leadership.epoch == 2


def test_a_lost_nodes_tasks_are_given_up_after_the_lease_while_the_partner_is_sure() -> None:
    leader = leading()
    assert leader.take(PeerLost(NODES[0]), PAIR[0], now=7) == ["away node/0"]
    assert leader.port.drain() == [TimerSet(("lease", NODES[0]), 7 + LEASE.lease_us)]
    assert leader.take(TimerFired(("lease", NODES[0])), PAIR[0]) == ["dead node/0"]


def test_without_its_partner_a_leader_waits_for_the_node() -> None:
    """The partner may have become the node's master; then its tasks run on."""
    leader = leading()
    leader.take(PeerLost(NODES[0]), PAIR[0])
    leader.take(PeerLost(PAIR[1]), PAIR[0])
    assert not leader.take(TimerFired(("lease", NODES[0])), PAIR[0])
    leader.take(PeerBack(PAIR[1]), PAIR[0])
    leader.port.drain()
    leader.take(LeaderStatus(0, False), PAIR[1], now=9)
    assert leader.port.drain() == [TimerSet(("lease", NODES[0]), 9 + LEASE.lease_us)]


def asking() -> tuple[Bench, LeaderStatus]:
    """A new leader to which the first node was lost for a lease before it ever answered, and its question."""
    leader = leading(2)
    epoch = leader.master.leadership.epoch
    assert leader.take(Status(epoch, (), ()), NODES[1]) == ["reported node/1"]
    assert leader.take(PeerLost(NODES[0]), PAIR[0]) == ["away node/0", "open"]
    assert not leader.take(LeaderStatus(epoch, False), PAIR[1], now=5)
    leader.port.drain()
    assert not leader.take(TimerFired(("lease", NODES[0])), PAIR[0], now=9), "the partner may be its master"
    question = LeaderStatus(epoch, True, NODES[0], 9)
    assert leader.sent() == [(PAIR[1], question)]
    return leader, question


def test_a_node_that_never_answers_a_new_leader_is_given_up_once_it_was_lost_to_both_masters_for_the_lease() -> None:
    """A cold start without one machine held every job of a Global Master until that machine was back."""
    leader, question = asking()
    answer = replace(question, is_leading=False)
    assert leader.take(answer, PAIR[1]) == ["dead node/0", "settled"]
    assert leader.take(PeerBack(NODES[0]), PAIR[0]) == []
    assert leader.take(Status(question.epoch, (), ()), NODES[0]) == ["reported node/0"]


def test_an_answer_to_a_question_before_the_node_was_lost_again_gives_nothing_up() -> None:
    """Meanwhile a message of the partner, sent before it was deposed, may have made it the master of that node."""
    leader, question = asking()
    leader.take(PeerBack(NODES[0]), PAIR[0])
    assert not leader.take(replace(question, is_leading=False), PAIR[1])
    leader.take(PeerLost(NODES[0]), PAIR[0], now=20)
    leader.take(TimerFired(("lease", NODES[0])), PAIR[0], now=30)
    assert leader.sent()[-1] == (PAIR[1], replace(question, at_us=30))
    assert not leader.take(replace(question, is_leading=False), PAIR[1])
    assert leader.take(replace(question, is_leading=False, at_us=30), PAIR[1]) == ["dead node/0", "settled"]


def test_a_partner_that_begins_anew_is_asked_again() -> None:
    leader, question = asking()
    assert not leader.take(LeaderStatus(-1, False), PAIR[1])
    assert leader.sent() == [(PAIR[1], LeaderStatus(question.epoch, True)), (PAIR[1], question)]


def test_a_follower_answers_once_the_node_was_lost_to_it_for_the_lease_too() -> None:
    follower = Bench(1, incarnation=1)
    question = LeaderStatus(4, True, NODES[0], 3)
    follower.take(question, PAIR[0])
    follower.port.drain()
    follower.take(PeerLost(NODES[0]), PAIR[1], now=7)
    assert follower.port.drain() == [TimerSet(("lease", NODES[0]), 7 + LEASE.lease_us)]
    follower.take(TimerFired(("lease", NODES[0])), PAIR[1])
    assert follower.sent() == [(PAIR[0], replace(question, is_leading=False))]
    later = replace(question, epoch=6, at_us=8)
    follower.take(later, PAIR[0])
    assert follower.sent() == [(PAIR[0], replace(later, is_leading=False))]
    follower.take(PeerBack(NODES[0]), PAIR[1])
    follower.take(later, PAIR[0])
    assert not follower.sent()


def test_a_node_that_is_back_in_its_session_goes_on_and_one_that_began_anew_reports_first() -> None:
    leader = leading()
    leader.take(PeerLost(NODES[0]), PAIR[0])
    leader.port.drain()
    assert leader.take(PeerBack(NODES[0]), PAIR[0]) == ["back node/0"]
    assert leader.port.drain() == [TimerCancelled(("lease", NODES[0]))]
    assert leader.take(Renewed(NODES[0]), NODES[0]) == ["away node/0"]
    assert not leader.take(PeerBack(NODES[0]), PAIR[0])
    assert leader.take(Status(-1, (), ()), NODES[0]) == []
    assert leader.sent() == [(NODES[0], Lead(0))]
    assert leader.take(Status(0, (), ()), NODES[0]) == ["reported node/0"]


def test_nobody_who_is_deposed_behind_a_partition_claims_at_once() -> None:
    """Two that cannot hear each other would outbid each other for ever."""
    leader = leading()
    leader.take(PeerLost(PAIR[1]), PAIR[0])
    leader.port.drain()
    assert leader.take(StaleEpoch(1), NODES[0], now=3) == ["forget"]
    assert leader.port.drain() == [TimerSet("claim", 3 + LEASE.lease_us)]
    assert leader.take(TimerFired("claim"), PAIR[0]) == ["forget"]


def test_what_the_cluster_has_no_place_for_is_ended_before_its_node_counts_as_reported() -> None:
    bench = Bench(1)
    bench.take(PeerLost("m/0"), PAIR[1])
    running = [RunningAttempt(task, 0, 1, "gm/0", 0) for task in (0, 1)]
    assert not bench.take(Status(1, tuple(running), ()), NODES[0])
    assert (NODES[0], Unseat(1, (1,))) in [(sent.to, sent.message) for sent in bench.port.sent()]
    assert bench.take(Status(1, (running[0],), ()), NODES[0]) == ["reported node/0"]


def test_a_master_is_fenced_when_each_node_stores_the_move_and_tells_it_to_nodes_that_do_not() -> None:
    bench = Bench(0)
    move = Reassignment(1, "gm/0", "gm/1")
    bench.master.election.learn([move])
    assert [(node, Fence(0, (move,))) for node in NODES] == [(sent.to, sent.message) for sent in bench.port.sent()]
    bench.take(Fenced(0, 1), NODES[0])
    assert bench.master.election.fenced == 0
    bench.take(Fenced(0, 1), NODES[1])
    assert bench.master.election.fenced == 1


def doubting() -> tuple[Bench, LeaderStatus]:
    """A leader of a node that has begun anew, and its question to the partner."""
    leader = leading()
    leader.take(Renewed(NODES[0]), NODES[0])
    leader.take(Status(-1, (), (), is_restarted=True), NODES[0])
    leader.port.drain()
    assert leader.take(Status(0, (), (), is_restarted=True), NODES[0], now=7) == ["reported node/0"]
    question = LeaderStatus(0, True, "", 7)
    assert leader.sent() == [(PAIR[1], question)]
    return leader, question


def usable(leader: Bench) -> list[Address]:
    return [node for node in NODES if leader.master.leadership.usable(node)]


def test_a_node_that_began_anew_is_used_once_the_partner_has_confirmed_that_it_follows() -> None:
    """Else a deposed leader would launch there what the new one has launched elsewhere."""
    leader, question = doubting()
    assert usable(leader) == [NODES[1]]
    assert not leader.take(replace(question, is_leading=False, at_us=6), PAIR[1])
    assert not leader.take(LeaderStatus(0, False), PAIR[1])
    leader.port.drain()
    assert leader.take(replace(question, is_leading=False), PAIR[1]) == ["back node/0"]
    assert usable(leader) == list(NODES)
    assert leader.sent() == [(NODES[0], Lead(0, is_confirmed=True))]


def test_an_answer_from_before_a_node_began_anew_again_does_not_confirm_it() -> None:
    leader, question = doubting()
    leader.take(Renewed(NODES[0]), NODES[0])
    leader.take(Status(0, (), (), is_restarted=True), NODES[0], now=7)
    assert not leader.take(replace(question, is_leading=False), PAIR[1])
    assert leader.take(replace(question, is_leading=False, at_us=8), PAIR[1]) == ["back node/0"]


def test_a_partner_that_begins_anew_is_asked_again_about_nodes_and_one_that_leads_deposes() -> None:
    leader, question = doubting()
    leader.port.drain()
    assert not leader.take(LeaderStatus(-1, False), PAIR[1])
    assert leader.sent() == [(PAIR[1], LeaderStatus(0, True)), (PAIR[1], question)]
    new = claimed()
    new.port.drain()
    assert not new.take(question, PAIR[0])
    ((to, answer),) = new.sent()
    assert (to, leader.take(answer, PAIR[1])) == (PAIR[0], ["forget"])


def test_a_partner_that_began_anew_confirms_nothing_before_each_node_sent_its_epoch_or_was_lost_for_a_lease() -> None:
    """It may itself have claimed a later epoch, and what it launched may run on."""
    question = LeaderStatus(0, True, "", 7)
    partner = Bench(1, incarnation=1)
    partner.take(question, PAIR[0])
    partner.take(Status(-1, (), (), is_restarted=True), NODES[0])
    assert (PAIR[0], replace(question, is_leading=False)) not in partner.sent()
    partner.port.drain()
    partner.take(StaleEpoch(0), NODES[1])
    assert partner.sent() == [(PAIR[0], replace(question, is_leading=False))]
    partner = Bench(1, incarnation=1)
    partner.take(question, PAIR[0])
    partner.take(StaleEpoch(-1), NODES[0])
    partner.port.drain()
    partner.take(StaleEpoch(1), NODES[1])
    assert partner.sent() == [(PAIR[0], LeaderStatus(1, False))], (
        "the leader has to exceed what the partner had claimed"
    )
    partner = Bench(1, incarnation=1)
    partner.take(question, PAIR[0])
    partner.take(StaleEpoch(0), NODES[0])
    partner.take(PeerLost(NODES[1]), PAIR[1])
    partner.port.drain()
    partner.take(TimerFired(("lease", NODES[1])), PAIR[1])
    assert partner.sent() == [(PAIR[0], replace(question, is_leading=False))]


def test_nodes_that_wait_for_a_lost_partner_are_counted() -> None:
    leader, question = doubting()
    leader.take(PeerLost(PAIR[1]), PAIR[0])
    assert leader.port.drain() == [Observed(Counted("nodes_unconfirmed", 1))]
    assert usable(leader) == [NODES[1]]
    leader.take(PeerBack(PAIR[1]), PAIR[0])
    assert leader.take(replace(question, is_leading=False), PAIR[1]) == ["back node/0"]


def settle(first: Bench, second: Bench) -> None:
    """Carry what the two of a pair send each other, until they send nothing."""
    waiting = [(first, second), (second, first)]
    while any(waits := [(to, sent) for one, to in waiting for sent in one.sent() if isinstance(sent[1], LeaderStatus)]):
        for to, (address, message) in waits:
            if address in PAIR:
                to.take(message, PAIR[1 - PAIR.index(address)], now=5)


def test_a_pair_that_begins_anew_with_all_its_nodes_comes_up_again() -> None:
    """Nobody remembers anything: the second has its answer from the nodes, and supposes that it has claimed."""
    first, second = Bench(0, incarnation=1), Bench(1, incarnation=1)
    for node in NODES:
        second.take(Status(-1, (), (), is_restarted=True), node)
    settle(first, second)
    assert first.master.leadership.epoch == 2
    for node in NODES:
        first.take(Status(2, (), (), is_restarted=True), node, now=3)
    assert not usable(first)
    settle(first, second)
    assert (first.master.leadership.settled, usable(first)) == (True, list(NODES))


def test_a_leader_is_sure_of_a_partner_that_began_anew_once_that_knows_what_its_nodes_obey() -> None:
    """It may be the master of the lost node, which runs on."""
    leader, partner = leading(), Bench(1, incarnation=1)
    leader.take(PeerLost(NODES[0]), PAIR[0])
    leader.take(PeerLost(PAIR[1]), PAIR[0])
    leader.take(TimerFired(("lease", NODES[0])), PAIR[0])
    leader.port.drain()
    leader.take(LeaderStatus(-1, False), PAIR[1], now=9)
    ((_, claim),) = leader.sent()
    partner.port.drain()
    partner.take(claim, PAIR[0])
    partner.take(StaleEpoch(0), NODES[1])
    assert not partner.sent()
    assert not leader.take(TimerFired(("lease", NODES[0])), PAIR[0], now=9)
    partner.take(StaleEpoch(0), NODES[0])
    ((_, answer),) = partner.sent()
    leader.take(answer, PAIR[1], now=10)
    assert leader.port.drain() == [TimerSet(("lease", NODES[0]), 10 + LEASE.lease_us)]
    assert leader.take(TimerFired(("lease", NODES[0])), PAIR[0]) == ["dead node/0"]


def test_a_partner_that_began_anew_answers_the_last_question_though_a_claim_came_later() -> None:
    partner = Bench(1, incarnation=1)
    partner.take(LeaderStatus(0, True, "", 7), PAIR[0])
    partner.take(LeaderStatus(0, True), PAIR[0])
    partner.take(StaleEpoch(0), NODES[0])
    partner.port.drain()
    partner.take(StaleEpoch(0), NODES[1])
    assert partner.sent() == [(PAIR[0], LeaderStatus(0, False, "", 7))]


def test_a_partner_that_began_anew_with_all_nodes_may_have_claimed_the_next_epoch() -> None:
    """Clients may know it, and have given up what waits at the leader."""
    leader, question = doubting()
    partner = Bench(1, incarnation=1)
    for node in NODES:
        partner.take(StaleEpoch(-1), node)
    partner.port.drain()
    partner.take(question, PAIR[0])
    assert partner.sent() == [(PAIR[0], LeaderStatus(1, False))]
    assert leader.take(LeaderStatus(1, False), PAIR[1]) == ["forget"]
    assert leader.sent()[-1] == (PAIR[1], LeaderStatus(2, True))
    partner.take(LeaderStatus(2, True), PAIR[0])
    assert partner.sent() == [(PAIR[0], LeaderStatus(2, False))]
