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

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from msgspec.structs import replace

from volery.architectures.pigeon.messages import Declared, Granted, Lineup, VoteRequest
from volery.core.component import Handler, Sends, sent_to
from volery.core.events import Event, PeerBack, PeerLost, TimerFired
from volery.core.model import NEVER, Address, Time
from volery.core.port import Port
from volery.roles.node import NO_EPOCH
from volery.roles.recovery.channel import Renewed
from volery.roles.recovery.election import CLAIM, LEADERSHIP, Led, placed
from volery.roles.recovery.leases import GuardedNode, Lead, LeaderStatus, Lease, Result, StaleEpoch, Status, Unseat

Election = Literal["time", "power"]
Rank = tuple[int, Time, int]
"""Rank of a declaration: power or zero, time, place."""
SUCCESSION: Final[Mapping[type, Handler]] = dict.fromkeys((Granted, Lineup, Declared), LEADERSHIP[LeaderStatus])
"""The events of a candidate, beside those of `LEADERSHIP`."""
SUCCESSION_SENDS: Final[Sends] = (
    sent_to("master", LeaderStatus, Lineup, Declared)
    | sent_to("node", Lead, LeaderStatus, Unseat)
    | sent_to("distributor", VoteRequest, LeaderStatus)
)


class GroupNode(GuardedNode):
    """A worker of a group that many may lead: it sends results to the one that does, and to the owner."""

    __slots__ = ()

    def _tell(self, result: Result) -> None:
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
    """The part of one candidate in the leadership of its group; `volery.roles.recovery.election.Leadership` is for two.

    Args:
        master: The component, which is called back; it gives `bind` its port.
        seats: The candidates; the first leads in the beginning, the second is its second.
        me: The candidate's place among them.
        powers: Processing power of each candidate's worker.
        nodes: The machines of the group.
        distributors: The distributors, which promise epochs.
        lease: The lease of the nodes.
        election: Which claims of those that have lost both masters: the first to declare, or the most powerful.

    Attributes:
        epoch: The highest epoch that is known.
        leading, opened, settled: See `Leadership`.
        second: The second master; empty: none is known.
    """

    _port: Port

    def __init__(
        self,
        master: Led,
        seats: Sequence[Address],
        me: int,
        powers: Sequence[int],
        nodes: Iterable[Address],
        distributors: Sequence[Address],
        lease: Lease,
        election: Election,
        incarnation: int,
    ) -> None:
        self._master = master
        self._seats = tuple(seats)
        self._me = me
        self._powers = dict(zip(seats, powers, strict=True))
        self._nodes = dict.fromkeys(nodes)
        self._distributors = tuple(distributors)
        self._lease = lease
        self._by_power = election == "power"
        self._restarted = incarnation > 0

        self.epoch = NO_EPOCH if incarnation else 0
        self.leading = self.opened = self.settled = not incarnation and me == 0
        self.second: Address = "" if incarnation or len(seats) == 1 else seats[1]

        self._claiming = False
        self._own_rank: Rank | None = None
        self._best_rival: Rank | None = None
        self._election_us = lease.detection_us // 2

        self._votes: dict[Address, None] = {}
        self._formers: dict[Address, None] = {}
        self._unconfirmed_formers: dict[Address, None] = {}
        self._lost_candidates: dict[Address, None] = {}
        self._unreported_nodes: dict[Address, None] = {}
        self._reset_nodes: dict[Address, None] = {}
        self._silent_nodes = dict.fromkeys(self._nodes if incarnation else ())
        self._lost_nodes: dict[Address, None] = {}
        self._expired_at_us: dict[Address, Time] = {}
        self._open_questions: dict[Address, LeaderStatus] = {}
        self._pending_formers: dict[Address, dict[Address, None]] = {}
        self._confirmations: dict[Address, tuple[Time, dict[Address, None]]] = {}

        self._handlers: dict[type, Callable[[Any, Address, Time], None]] = {
            Granted: self.on_granted,
            Lineup: self.on_lineup,
            Declared: self.on_declared,
            LeaderStatus: self.on_standing,
            StaleEpoch: self.on_deposed,
            Status: self.on_status,
            PeerLost: self.on_peer_lost,
            PeerBack: self.on_peer_back,
            Renewed: self.on_renewed,
        }

    def bind(self, port: Port) -> None:
        """Take the master's port."""
        self._port = port

    def handle(self, event: Event, source: Address, now: Time) -> None:
        """Take one of the events of `LEADERSHIP` and `SUCCESSION`."""
        self._handlers[type(event)](event, source, now)

    def start(self, now: Time) -> None:
        """A restarted candidate asks who leads."""
        if self._restarted:
            for address in (*self._others(), *self._distributors):
                self._port.send(address, LeaderStatus(self.epoch, False))

    def reachable(self, node: Address) -> bool:
        """Find out whether a node is known to be there."""
        return not (node in self._unreported_nodes or node in self._reset_nodes or node in self._lost_nodes)

    usable = reachable

    def _others(self) -> list[Address]:
        return [seat for seat in self._seats if seat != self._seats[self._me]]

    def _leader(self) -> Address:
        return self._seats[self.epoch % len(self._seats)]

    def _claim(self, above: int) -> None:
        """Ask the distributors to promise the next epoch of this candidate."""
        was_leading = self.leading
        count = len(self._seats)

        # Candidates own epochs in turn, so that no two ever claim the same one: the next of this one above `above`.
        self.epoch = above + 1 + (self._me - above - 1) % count
        self.leading = self.opened = self.settled = False

        self._claiming = True
        self._own_rank = None
        self.second = ""

        self._votes.clear()
        self._formers.clear()
        self._confirmations.clear()
        self._port.cancel_timer(CLAIM)

        if was_leading:
            self._master.forget_all()

        for distributor in self._distributors:
            self._port.send(distributor, VoteRequest(self.epoch))

    def on_granted(self, message: Granted, source: Address, now: Time) -> None:
        """Lead when a majority has promised the epoch."""
        if message.epoch != self.epoch:
            return

        if message.node:
            self._confirmed(message, source)
        elif self._claiming:
            self._votes[source] = None
            self._formers.update(dict.fromkeys(message.formers))
            self._formers.pop(self._seats[self._me], None)

            if self._is_majority(self._votes):
                self._lead(now)

    def _is_majority(self, votes: Mapping[Address, None]) -> bool:
        return 2 * len(votes) > len(self._distributors)

    def _lead(self, now: Time) -> None:
        self._claiming = False
        self.leading = True

        self._unconfirmed_formers = dict(self._formers)
        self._unreported_nodes = dict(self._nodes)
        self._reset_nodes.clear()
        self._pending_formers.clear()

        self._master.forget_all()
        for node in self._nodes:
            self._call(node)

        self._appoint()

        # Leases count only from the time when no former leader can have led a node any more.
        if not self._unconfirmed_formers:
            self._renew_leases(now)

        self._look()

    def _appoint(self) -> None:
        """Choose the second master: of those that are there the most powerful, then the first."""
        reachable_seats = [seat for seat in self._others() if seat not in self._lost_candidates]
        self.second = max(reachable_seats, key=lambda seat: self._powers[seat], default="")

        for seat in self._others():
            self._port.send(seat, Lineup(self.epoch, self.second))

    def _follow(self, epoch: int, now: Time) -> None:
        """Another leads, or an earlier incarnation of this one did."""
        was_leading = self.leading
        self.epoch = epoch
        self.second = ""
        self._best_rival = self._own_rank = None
        self.leading = self.opened = self.settled = self._claiming = False

        self._confirmations.clear()
        self._port.cancel_timer(CLAIM)

        if was_leading:
            self._master.forget_all()

        # An earlier incarnation of this candidate owned the epoch. It cannot go on in it: its nodes know another state.
        if self._leader() == self._seats[self._me]:
            self._claim(epoch)
        # The leader is lost already: no `PeerLost` will come that would start the election.
        elif self._leader() in self._lost_candidates:
            self._port.set_timer(CLAIM, now + self._lease.lease_us)

    def on_lineup(self, message: Lineup, source: Address, now: Time) -> None:
        """Follow the leader, and note who is its second."""
        if message.epoch < self.epoch:
            self._port.send(source, LeaderStatus(self.epoch, False))
            return

        if message.epoch > self.epoch:
            self._follow(message.epoch, now)

        self.second = message.second
        self._port.send(source, LeaderStatus(self.epoch, False))
        self._consider(now)

    def on_deposed(self, message: StaleEpoch, source: Address, now: Time) -> None:
        """A node obeys, or a distributor has promised, a later epoch, or this one of an earlier incarnation."""
        self._silent_nodes.pop(source, None)
        if message.epoch > self.epoch:
            self._follow(message.epoch, now)
        elif message.epoch == self.epoch and (self.leading or self._claiming):
            self._claim(self.epoch)
        elif self.leading and source in self._nodes:
            self._met(source, message.epoch, now)

    def on_standing(self, message: LeaderStatus, source: Address, now: Time) -> None:
        """A candidate follows, asks who leads, or asks or answers about a node."""
        if message.epoch > self.epoch:
            self._follow(message.epoch, now)

        if message.is_leading:
            if message.epoch == self.epoch:
                self._answer(message, source)
        elif not self.leading or message.epoch > self.epoch:
            return
        elif message.epoch < self.epoch:
            self._port.send(source, Lineup(self.epoch, self.second))
        elif message.node:
            # The last former leader that answers completes the proof that nobody else leads the node.
            formers = self._pending_formers.get(message.node)
            if formers is not None and self._expired_at_us.get(message.node) == message.at_us:
                formers.pop(source, None)
                if not formers:
                    self._confirm(message.node, message.at_us)
        elif source in self._unconfirmed_formers:
            del self._unconfirmed_formers[source]
            if not self._unconfirmed_formers:
                self._renew_leases(now)

    def _answer(self, question: LeaderStatus, leader: Address) -> None:
        """Send the leader that a node was lost to this one for a lease; keep the question until it was."""
        if question.node in self._expired_at_us:
            self._port.send(leader, replace(question, is_leading=False))
        else:
            self._open_questions[question.node] = question

    def _confirm(self, node: Address, at_us: Time) -> None:
        """Ask the distributors whether this one still leads."""
        self._confirmations[node] = (at_us, {})
        for distributor in self._distributors:
            self._port.send(distributor, VoteRequest(self.epoch, node, at_us))

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
        if node in self._lost_nodes and self._expired_at_us.get(node) == at_us:
            self._unreported_nodes.pop(node, None)
            self._pending_formers.pop(node, None)
            self._reset_nodes[node] = None
            self._master.node_dead(node)
            self._look()

        self._call(node)

    def _call(self, node: Address) -> None:
        """Lead a node; one that this incarnation has received nothing from is asked for its epoch first."""
        self._port.send(
            node, LeaderStatus(self.epoch, True) if node in self._silent_nodes else Lead(self.epoch, is_confirmed=True)
        )

    def _met(self, node: Address, epoch: int, now: Time) -> None:
        """Lead a node that obeys an earlier epoch; if it has restarted, confirm first that this candidate leads."""
        if epoch == NO_EPOCH:
            self._confirm(node, now)
        else:
            self._call(node)

    def on_status(self, message: Status, source: Address, now: Time) -> None:
        """Adopt the status of a node, unless its epoch is another."""
        self._silent_nodes.pop(source, None)
        if not self.leading:
            return
        if message.epoch != self.epoch:
            if message.epoch > self.epoch:
                self._follow(message.epoch, now)
            else:
                self._met(source, message.epoch, now)
            return

        # A task that found no unit is unseated first; the node's next status will be without it.
        placed_tasks = placed(self._master, source, message.running)
        if len(placed_tasks) < len(message.running):
            homeless = {active.task for active in message.running} - {active.task for active in placed_tasks}
            self._port.send(source, Unseat(self.epoch, tuple(sorted(homeless))))
            return

        self._unreported_nodes.pop(source, None)
        self._reset_nodes.pop(source, None)
        self._expired_at_us.pop(source, None)
        self._pending_formers.pop(source, None)
        self._confirmations.pop(source, None)
        self._port.cancel_timer(("lease", source))

        self._master.node_reported(source, replace(message, running=tuple(placed_tasks)))
        self._look()

    def _look(self) -> None:
        """Open when every node has reported or is lost, and settle when every one has reported."""
        has_reports = len(self._unreported_nodes) < len(self._nodes)
        if (
            self.leading
            and not self.opened
            and has_reports
            and all(node in self._lost_nodes for node in self._unreported_nodes)
        ):
            self.opened = True
            self.settled = not self._unreported_nodes
            self._master.all_reachable_reported()
        elif self.leading and not self.settled and not self._unreported_nodes:
            self.settled = True
            self._master.all_reported()

    def _consider(self, now: Time) -> None:
        """Claim the lead as the second of a leader that is lost; declare oneself where both are."""
        if self.leading or self._claiming or self.epoch == NO_EPOCH or self._leader() not in self._lost_candidates:
            return
        if self.second == self._seats[self._me]:
            self._claim(self.epoch)
        elif (not self.second or self.second in self._lost_candidates) and self._own_rank is None:
            me = self._seats[self._me]
            self._own_rank = self._rank(me, now)
            for seat in self._others():
                self._port.send(seat, Declared(self._powers[me], now))
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

            if self.leading and peer == self.second:
                self._appoint()
            self._consider(now)
            return

        self._lost_nodes[peer] = None
        self._port.set_timer(("lease", peer), now + self._lease.lease_us)

        if self.leading:
            self._master.node_away(peer)
            self._look()

    def on_peer_back(self, event: PeerBack, source: Address, now: Time) -> None:
        """Tell a candidate who leads; go on with a node that has kept its session."""
        peer = event.peer
        if peer in self._powers:
            self._lost_candidates.pop(peer, None)

            if self.leading:
                self._appoint() if not self.second else self._port.send(peer, Lineup(self.epoch, self.second))
            return
        self._lost_nodes.pop(peer, None)
        self._expired_at_us.pop(peer, None)
        self._port.cancel_timer(("lease", peer))

        if self.leading and self.reachable(peer):
            self._master.node_back(peer)

    def on_renewed(self, message: Renewed, source: Address, now: Time) -> None:
        """Take note of a node or candidate that has restarted, and knows nothing.

        What distributors have granted until then proves nothing for the node: another may have led it since.
        """
        peer = message.peer
        if peer in self._nodes and self.leading:
            self._reset_nodes[peer] = None
            self._master.node_away(peer)
            at_us, _ = self._confirmations.pop(peer, (NEVER, {}))

            # The question was asked for an earlier life of the node: ask again, with a new time that old answers miss.
            if self._expired_at_us.get(peer) == at_us:
                self._expired_at_us[peer] = now
                self._confirm(peer, now)
        elif peer in self._nodes and self._claiming:
            # Votes may have come before the restart, which the claim must not build on: take a new epoch.
            self._claim(self.epoch)
        elif peer in self._powers and self.leading:
            self._appoint()
            for node, formers in self._pending_formers.items():
                if peer in formers:
                    self._port.send(peer, LeaderStatus(self.epoch, True, node, self._expired_at_us[node]))
        elif peer in self._powers and peer == self.second:
            self.second = ""
            self._consider(now)
        # The leader has forgotten that it leads, and this second knows it first: it need not wait for the election.
        elif self.second == self._seats[self._me] and peer == self._leader() and not self._claiming:
            self._claim(self.epoch)

    def on_lease_timer(self, event: TimerFired, now: Time) -> None:
        """A lease has expired, or it is time to claim what nobody leads."""
        if event.key == CLAIM:
            self._on_claim_timer(now)
            return

        assert isinstance(event.key, tuple), "a timer of the candidacy"
        node = str(event.key[1])

        if node not in self._lost_nodes:
            return

        self._expired_at_us[node] = now

        if not self.leading:
            question = self._open_questions.pop(node, None)
            if question is not None and question.epoch == self.epoch:
                self._answer(question, self._leader())
        elif not self._unconfirmed_formers:
            # A node that never answered this leader may have been led by a former one since: those are asked first.
            formers = self._formers if node in self._unreported_nodes else {}
            self._pending_formers[node] = dict(formers)
            for former in formers:
                self._port.send(former, LeaderStatus(self.epoch, True, node, now))
            if not formers:
                self._confirm(node, now)

    def _on_claim_timer(self, now: Time) -> None:
        has_declared = self._own_rank is not None
        self._own_rank = None
        is_led = self.leading or self._claiming or self._leader() not in self._lost_candidates

        if has_declared and not is_led and (not self.second or self.second in self._lost_candidates):
            # Nobody better has claimed meanwhile.
            self._claim(self.epoch)
        else:
            self._consider(now)

    def _renew_leases(self, now: Time) -> None:
        """Restart the leases: until now a former leader may have led the nodes."""
        self._expired_at_us.clear()

        for node in self._lost_nodes:
            self._port.set_timer(("lease", node), now + self._lease.lease_us)
