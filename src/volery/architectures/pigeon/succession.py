"""Succession of masters (Pigeon, section 6.1): any worker of a group may lead it; the leader chooses a second master.

Roles    The leader; its second, which receives the leader's state periodically; the other workers of the group.
Loss     The second claims the lead when it loses the leader; a leader that loses its second chooses another. A worker
         that has lost both declares itself to the others, and the best of those that declared claims: the earliest, or
         the one with the most processing power. It waits half a detection time for others, and twice that if one of
         these is better; nodes go on meanwhile.
Epochs   The candidates own epochs in turn. Each distributor promises an epoch to one claimant and refuses lower ones;
         a candidate leads when a majority has promised. Distributors do not crash, so no two leaders are unaware of
         each other for ever. Nodes obey the highest epoch that they have received (see `roles.recovery.leases`).
Leases   A leader gives up the tasks of a node that was lost for a lease once a majority of the distributors confirms
         that nobody has claimed the lead since. If the node has never answered this leader, all former leaders must
         first answer that they follow, and have lost that node for a lease, too. A node that was restarted is led after
         the same confirmation, so that a deposed leader never launches there. A restarted candidate sends `Lead` only
         to nodes that it has received something from: the link keeps what is for others until they answer, and would
         send it to a later incarnation of the node.
Deviates The paper elects by messages among workers alone; here these decide who claims, and distributors who leads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from volery.architectures.pigeon.messages import Declared, Granted, Lineup, VoteRequest
from volery.core.component import Handler, Sends, sent_to
from volery.core.events import Event, PeerBack, PeerLost, TaskFinished, TimerFired
from volery.core.model import NEVER, Address, TaskId, Time
from volery.core.port import Port
from volery.roles.node import NO_EPOCH, Kill
from volery.roles.recovery.channel import Renewed
from volery.roles.recovery.election import CLAIM, ELECTION
from volery.roles.recovery.leadership import LeaderEvent, Leadership, LeaderState, NodeEvent, NodeState
from volery.roles.recovery.leases import GuardedNode, Lead, LeaderStatus, Lease, Result, StaleEpoch, Status, Unseat

Election = Literal["time", "power"]
Rank = tuple[int, Time, int]
"""Rank of a declaration: power or zero, time, place."""
SUCCESSION: Final[Mapping[type, Handler]] = dict.fromkeys((Granted, Lineup, Declared), ELECTION[LeaderStatus])
"""The events of a candidate, beside those of `ELECTION`."""
SUCCESSION_SENDS: Final[Sends] = (
    sent_to("master", LeaderStatus, Lineup, Declared)
    | sent_to("node", Lead, LeaderStatus, Unseat)
    | sent_to("distributor", VoteRequest, LeaderStatus)
)


class GuardedWorker(GuardedNode):
    """A worker of a group: an attempt that ends early, and that nobody has withdrawn, is lost to its gang."""

    __slots__ = ("_withdrawn_tasks",)

    def __init__(self, pair: tuple[Address, ...], lease: Lease, incarnation: int) -> None:
        super().__init__(pair, lease, incarnation, sends_to_owner=True)
        self._withdrawn_tasks: set[TaskId] = set()

    def on_kill(self, message: Kill, source: Address, now: Time) -> None:
        """End the task, or the attempt alone, if it still runs."""
        if message.epoch == NO_EPOCH and message.task in self._running:
            self._withdrawn_tasks.add(message.task)
        super().on_kill(message, source, now)

    def on_task_finished(self, event: TaskFinished, source: Address, now: Time) -> None:
        """Send the result to both masters and the owner; an attempt that was ended for its gang has none."""
        if event.outcome == "killed" and event.task.id not in self._withdrawn_tasks:
            self._evicted_tasks.add(event.task.id)
        self._withdrawn_tasks.discard(event.task.id)
        super().on_task_finished(event, source, now)

    receives = {**GuardedNode.receives, Kill: on_kill, TaskFinished: on_task_finished}  # noqa: RUF012 - replaced


class GroupNode(GuardedWorker):
    """A worker of a group that many may lead: it sends results to the one that does, and to the owner."""

    __slots__ = ()

    def _send_result(self, result: Result) -> None:
        if self._master:
            self._port.send(self._master, result)
        self._port.send(result.active.owner, result)


class Promises:
    """The epochs that a distributor has promised, per group."""

    def __init__(self, first: Sequence[Address]) -> None:
        self._epochs = [0] * len(first)
        self._leaders = [{address: None} for address in first]

    def epoch(self, group: int) -> int:
        """The highest epoch that was promised."""
        return self._epochs[group]

    def answer(self, group: int, claim: VoteRequest, source: Address) -> Granted | StaleEpoch:
        """Promise a higher epoch, confirm the one that was promised last, or refuse."""
        promised = self._epochs[group]
        leaders = self._leaders[group]

        # An epoch goes to one claimant; the same epoch again only confirms, for a node, that nobody has claimed since.
        if claim.epoch > promised or (claim.node and claim.epoch == promised):
            self._epochs[group] = claim.epoch
            leaders[source] = None
            return Granted(claim.epoch, tuple(leaders), claim.node, claim.at_us)

        return StaleEpoch(promised)


class Candidacy:
    """The part of one candidate in the election of its group's leader; `volery.roles.recovery.election` is for two.

    Args:
        leadership: State of the leadership and of the nodes; its clients are the distributors, which promise epochs.
        seats: The candidates; the first leads in the beginning, the second is its second.
        powers: Processing power of each candidate's worker.
        election: Which claims of those that have lost both masters: the first to declare, or the most powerful.

    Attributes:
        second: The second master; empty: none is known.
    """

    _port: Port

    def __init__(
        self, leadership: Leadership, seats: Sequence[Address], powers: Sequence[int], election: Election
    ) -> None:
        self.leadership = leadership
        self._seats = tuple(seats)
        self._me = seats[leadership.place]
        self._others = [seat for seat in seats if seat != self._me]
        self._powers = dict(zip(seats, powers, strict=True))
        self._distributors = tuple(leadership.clients)
        self._by_power = election == "power"
        self.second: Address = "" if leadership.is_restarted or len(seats) == 1 else seats[1]

        self._own_rank: Rank | None = None
        self._best_rival: Rank | None = None
        self._election_us = leadership.lease.detection_us // 2

        self._votes: dict[Address, None] = {}
        self._formers: dict[Address, None] = {}
        self._unconfirmed_formers: dict[Address, None] = {}
        self._lost_candidates: dict[Address, None] = {}
        self._silent_nodes = dict.fromkeys(leadership.nodes if leadership.is_restarted else ())
        self._pending_formers: dict[Address, dict[Address, None]] = {}
        self._confirmations: dict[Address, tuple[Time, dict[Address, None]]] = {}

        self._handlers: dict[type, Callable[[Any, Address, Time], None]] = {
            Granted: self.on_granted,
            Lineup: self.on_lineup,
            Declared: self.on_declared,
            LeaderStatus: self.on_leader_status,
            StaleEpoch: self.on_stale_epoch,
            Status: self.on_status,
            PeerLost: self.on_peer_lost,
            PeerBack: self.on_peer_back,
            Renewed: self.on_renewed,
        }

    def bind(self, port: Port) -> None:
        """Take the master's port."""
        self._port = port
        self.leadership.bind(port)

    def handle(self, event: Event, source: Address, now: Time) -> None:
        """Take one of the events of `ELECTION` and `SUCCESSION`."""
        self._handlers[type(event)](event, source, now)

    def start(self, now: Time) -> None:
        """A restarted candidate asks who leads."""
        if self.leadership.is_restarted:
            for address in (*self._others, *self._distributors):
                self._port.send(address, LeaderStatus(self.leadership.epoch, False))

    def _leader(self) -> Address:
        return self._seats[self.leadership.epoch % len(self._seats)]

    def _is_claiming(self) -> bool:
        return self.leadership.state is LeaderState.CLAIMING

    # The lead.

    def _claim(self, above: int) -> None:
        """Ask the distributors to promise the next epoch of this candidate."""
        self._own_rank = None
        self.second = ""

        self._votes.clear()
        self._formers.clear()
        self._confirmations.clear()
        self._port.cancel_timer(CLAIM)

        leadership = self.leadership
        leadership.on(LeaderEvent.CLAIMED, leadership.next_epoch(above))
        for distributor in self._distributors:
            self._port.send(distributor, VoteRequest(leadership.epoch))

    def on_granted(self, message: Granted, source: Address, now: Time) -> None:
        """Lead when a majority has promised the epoch."""
        if message.epoch != self.leadership.epoch:
            return

        if message.node:
            self._confirmed(message, source)
        elif self._is_claiming():
            self._votes[source] = None
            self._formers.update(dict.fromkeys(message.formers))
            self._formers.pop(self._me, None)

            if self._is_majority(self._votes):
                self._lead(now)

    def _is_majority(self, votes: Mapping[Address, None]) -> bool:
        return 2 * len(votes) > len(self._distributors)

    def _lead(self, now: Time) -> None:
        leadership = self.leadership
        self._unconfirmed_formers = dict(self._formers)
        self._pending_formers.clear()

        leadership.on(LeaderEvent.ELECTED, leadership.epoch)
        for node in leadership.nodes:
            self._call(node)

        self._appoint()

        # Leases count only from the time when no former leader can have led a node any more.
        if not self._unconfirmed_formers:
            leadership.doubt_ends(now)

        leadership.advance()

    def _appoint(self) -> None:
        """Choose the second master: of those that are there the most powerful, then the first."""
        reachable_seats = [seat for seat in self._others if seat not in self._lost_candidates]
        self.second = max(reachable_seats, key=lambda seat: self._powers[seat], default="")

        for seat in self._others:
            self._port.send(seat, Lineup(self.leadership.epoch, self.second))

    def _follow(self, epoch: int, now: Time) -> None:
        """Another leads, or an earlier incarnation of this one did."""
        self.second = ""
        self._best_rival = self._own_rank = None

        self._confirmations.clear()
        self._port.cancel_timer(CLAIM)
        self.leadership.on(LeaderEvent.DEPOSED, epoch)

        # An earlier incarnation of this candidate owned the epoch. It cannot go on in it: its nodes know another state.
        if self._leader() == self._me:
            self._claim(epoch)
        # The leader is lost already: no `PeerLost` will come that would start the election.
        elif self._leader() in self._lost_candidates:
            self._port.set_timer(CLAIM, now + self.leadership.lease.lease_us)

    # The other candidates.

    def on_lineup(self, message: Lineup, source: Address, now: Time) -> None:
        """Follow the leader, and note who is its second."""
        leadership = self.leadership
        if message.epoch >= leadership.epoch:
            if message.epoch > leadership.epoch:
                self._follow(message.epoch, now)
            self.second = message.second

        self._port.send(source, LeaderStatus(leadership.epoch, False))
        if message.epoch >= leadership.epoch:
            self._consider(now)

    def on_stale_epoch(self, message: StaleEpoch, source: Address, now: Time) -> None:
        """A node obeys, or a distributor has promised, a later epoch, or this one of an earlier incarnation."""
        leadership = self.leadership
        self._silent_nodes.pop(source, None)
        if message.epoch > leadership.epoch:
            self._follow(message.epoch, now)
        elif message.epoch == leadership.epoch and (leadership.leading or self._is_claiming()):
            self._claim(message.epoch)
        elif leadership.leading and source in leadership.nodes:
            self._met(source, message.epoch, now)

    def on_leader_status(self, message: LeaderStatus, source: Address, now: Time) -> None:
        """A candidate follows, asks who leads, or asks or answers about a node."""
        leadership = self.leadership
        if message.epoch > leadership.epoch:
            self._follow(message.epoch, now)

        if message.is_leading:
            if message.epoch == leadership.epoch:
                leadership.answer(message, source)
        elif not leadership.leading:
            return
        elif message.epoch < leadership.epoch:
            self._port.send(source, Lineup(leadership.epoch, self.second))
        elif message.node:
            # The last former leader that answers completes the proof that nobody else leads the node.
            formers = self._pending_formers.get(message.node)
            if formers is not None and leadership.lease_over_us.get(message.node) == message.at_us:
                formers.pop(source, None)
                if not formers:
                    self._confirm(message.node, message.at_us)
        elif source in self._unconfirmed_formers:
            del self._unconfirmed_formers[source]
            if not self._unconfirmed_formers:
                leadership.doubt_ends(now)

    # Nodes.

    def _confirm(self, node: Address, at_us: Time) -> None:
        """Ask the distributors whether this one still leads."""
        self._confirmations[node] = (at_us, {})
        for distributor in self._distributors:
            self._port.send(distributor, VoteRequest(self.leadership.epoch, node, at_us))

    def _confirmed(self, message: Granted, source: Address) -> None:
        at_us, votes = self._confirmations.get(message.node, (0, {}))
        if message.node not in self._confirmations or at_us != message.at_us:
            return
        votes[source] = None
        if not self._is_majority(votes):
            return
        node = message.node
        del self._confirmations[node]

        # The lease was over when this was asked, and a majority knows no later claim: its tasks cannot run unknown.
        if self.leadership.lease_over_us.get(node) == at_us:
            self._pending_formers.pop(node, None)
            self.leadership.on_node(node, NodeEvent.IDLE)

        self._call(node)

    def _call(self, node: Address) -> None:
        """Lead a node; one that this incarnation has received nothing from is asked for its epoch first."""
        epoch = self.leadership.epoch
        is_silent = node in self._silent_nodes
        self._port.send(node, LeaderStatus(epoch, True) if is_silent else Lead(epoch, is_confirmed=True))

    def _met(self, node: Address, epoch: int, now: Time) -> None:
        """Lead a node that obeys an earlier epoch; if it has restarted, confirm first that this candidate leads."""
        if epoch == NO_EPOCH:
            self._confirm(node, now)
        else:
            self._call(node)

    def on_status(self, message: Status, source: Address, now: Time) -> None:
        """Adopt the status of a node, unless its epoch is another."""
        leadership = self.leadership
        self._silent_nodes.pop(source, None)
        if not leadership.leading:
            return
        if message.epoch > leadership.epoch:
            self._follow(message.epoch, now)
        elif message.epoch < leadership.epoch:
            self._met(source, message.epoch, now)
        elif (status := leadership.seat(source, message)) is not None:
            self._pending_formers.pop(source, None)
            self._confirmations.pop(source, None)
            leadership.on_node(source, NodeEvent.REPORT, status)

    # The election among those that have lost both masters.

    def _consider(self, now: Time) -> None:
        """Claim the lead as the second of a leader that is lost; declare oneself where both are."""
        leadership = self.leadership
        is_led = leadership.epoch == NO_EPOCH or self._leader() not in self._lost_candidates
        if leadership.state is not LeaderState.FOLLOWING or is_led:
            return
        if self.second == self._me:
            self._claim(leadership.epoch)
        elif (not self.second or self.second in self._lost_candidates) and self._own_rank is None:
            self._own_rank = self._rank(self._me, now)
            for seat in self._others:
                self._port.send(seat, Declared(self._powers[self._me], now))
            is_outranked = self._best_rival is not None and self._best_rival < self._own_rank

            # Wait for the declarations of others to come; a better one claims first, and gets as long again for it.
            self._port.set_timer(CLAIM, now + (2 if is_outranked else 1) * self._election_us)

    def _rank(self, seat: Address, at_us: Time) -> Rank:
        """The place of a declaration: the smallest claims."""
        return (-self._powers[seat] if self._by_power else 0, at_us, self._seats.index(seat))

    def on_declared(self, message: Declared, source: Address, now: Time) -> None:
        """A candidate has lost both masters; a better one goes first."""
        rank = self._rank(source, message.at_us)
        self._best_rival = rank if self._best_rival is None else min(rank, self._best_rival)

        if self._own_rank is not None and rank < self._own_rank:
            self._port.set_timer(CLAIM, now + 2 * self._election_us)

    def on_peer_lost(self, event: PeerLost, source: Address, now: Time) -> None:
        """Replace a second; claim or declare without a leader; wait for a lost node."""
        peer = event.peer
        if peer in self._powers:
            self._lost_candidates[peer] = None

            if self.leadership.leading and peer == self.second:
                self._appoint()
            self._consider(now)
        else:
            self.leadership.lose(peer, now)

    def on_peer_back(self, event: PeerBack, source: Address, now: Time) -> None:
        """Tell a candidate who leads; go on with a node that has kept its session."""
        peer, leadership = event.peer, self.leadership
        if peer not in self._powers:
            # What former leaders have been asked is void with the lease; a restarted one is not asked again.
            self._pending_formers.pop(peer, None)
            leadership.regain(peer, now)
            return

        self._lost_candidates.pop(peer, None)
        if leadership.leading:
            self._appoint() if not self.second else self._port.send(peer, Lineup(leadership.epoch, self.second))

    def on_renewed(self, message: Renewed, source: Address, now: Time) -> None:
        """Take note of a node or candidate that has restarted, and knows nothing.

        What distributors have granted until then proves nothing for the node: another may have led it since.
        """
        peer, leadership = message.peer, self.leadership
        if peer in leadership.nodes and leadership.leading:
            leadership.on_node(peer, NodeEvent.RENEWED)
            at_us, _ = self._confirmations.pop(peer, (NEVER, {}))

            # The question was asked for an earlier session of the node: ask again, with a time that old answers miss.
            if leadership.lease_over_us.get(peer) == at_us:
                leadership.lease_over_us[peer] = now
                self._confirm(peer, now)
        elif peer in leadership.nodes and self._is_claiming():
            # Votes may have come before the restart, which the claim must not build on: take a new epoch.
            self._claim(leadership.epoch)
        elif peer in self._powers and leadership.leading:
            self._appoint()
            for node, formers in self._pending_formers.items():
                if peer in formers:
                    question = LeaderStatus(leadership.epoch, True, node, leadership.lease_over_us[node])
                    self._port.send(peer, question)
        elif peer in self._powers and peer == self.second:
            self.second = ""
            self._consider(now)
        # The leader has forgotten that it leads, and this second knows it first: it need not wait for the election.
        elif self.second == self._me and peer == self._leader() and not self._is_claiming():
            self._claim(leadership.epoch)

    def on_lease_timer(self, event: TimerFired, now: Time) -> None:
        """A lease has expired, or it is time to claim what nobody leads."""
        if event.key == CLAIM:
            self._on_claim_timer(now)
            return

        assert isinstance(event.key, tuple), "a timer of the candidacy"
        node, leadership = str(event.key[1]), self.leadership
        leadership.expire(node, now, self._leader())

        if leadership.leading and not self._unconfirmed_formers:
            # A node that never answered this leader may have been led by a former one since: those are asked first.
            is_unreported = leadership.node_states.get(node) is NodeState.UNREPORTED
            formers = self._formers if is_unreported else {}
            self._pending_formers[node] = dict(formers)
            for former in formers:
                self._port.send(former, LeaderStatus(leadership.epoch, True, node, now))
            if not formers:
                self._confirm(node, now)

    def _on_claim_timer(self, now: Time) -> None:
        has_declared = self._own_rank is not None
        self._own_rank = None
        is_leaderless = self.leadership.state is LeaderState.FOLLOWING and self._leader() in self._lost_candidates

        if has_declared and is_leaderless and (not self.second or self.second in self._lost_candidates):
            # Nobody better has claimed meanwhile.
            self._claim(self.leadership.epoch)
        else:
            self._consider(now)
