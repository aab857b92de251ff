"""Election of the leader of a pair of masters, and its account of nodes: active and standby, epochs, leases.

Epochs    The first of the pair leads in even epochs, the second in odd ones; a master that takes over takes the next of
          its own above all that it knows. Nodes obey the highest (see `leases`). A master leads a node when the node
          has answered `Lead` with its status, and not before: from then on the node refuses the older master.
Takeover  A follower that receives the loss of its partner leads at once; a restarted master asks partner,
          nodes and clients for the epoch that they know: one that its partner has never received has to be exceeded.
          When all nodes that it can reach, one at least, have answered, a leader is *open*; when all have, it is
          *settled*: only then are tasks that no node knows of known to be lost.
Leases    A node that was lost for `Lease.lease_us` has ended what ran there, unless it has got another master since.
          That can only be the partner, and only if the partner has lost this one, which then has received the
          loss of the partner. So a leader gives a node's tasks up only while it is sure of its partner, and otherwise
          waits until node or partner answer. A restarted partner makes it sure when it answers as below. A node that
          has never answered a leader may have the partner as its master. When such a node was lost to the leader for a
          lease, the leader asks its partner, which answers once the node is lost to it, too, and has been for a lease.
          An answer to an earlier question proves nothing: a message that the partner sent before it was deposed may
          since have made it the master of that node.
Restarts  A restarted node has forgotten whom it obeyed: perhaps the partner, which may have deposed this leader and
          launched elsewhere what waits here. So the leader adopts the status of such a node and gives up what ran
          there, but launches nothing there until the partner has answered, to a question that was asked since, that it
          follows: whatever it claims later, this incarnation of the node has to answer, too. A restarted partner has
          forgotten what it claimed. It answers when each node has sent it an epoch, or was lost to it for a lease and
          so runs nothing. If no node remembers an epoch either, it may have claimed the next one, and perhaps clients
          have given up what waits at the leader. Then it answers so, and the leader claims a later epoch: what waits is
          void, and clients send it again. Without its partner a leader uses no restarted node.
Moves     Jobs may be moved from one client to another (`volery.core.events.Moved`). A leader has every node store the
          moves that it knows, and learns from nodes those that it does not. When all nodes that are not given up have
          stored a move, the pair is *fenced* up to it: no master of the pair launches for its origin any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from msgspec.structs import replace

from volery.core.component import Handler, Sends, sent_to
from volery.core.events import Counted, Drain, Event, PeerBack, PeerLost, Reassignment, TimerFired
from volery.core.model import NEVER, Address, TaskId, Time
from volery.core.port import Port
from volery.roles.node import NO_EPOCH
from volery.roles.recovery.channel import Renewed
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

CLAIM: Final = "claim"


def pair_sends(own: str, client: str) -> Sends:
    """Return the messages that each master of a pair sends.

    Args:
        own: their role.
        client: the role of those that place tasks on their nodes.
    """
    return sent_to(own, LeaderStatus) | sent_to("node", Lead, LeaderStatus, Unseat) | sent_to(client, LeaderStatus)


class Led(Protocol):
    """A master of a pair, as its leadership calls it: the account of its nodes, and of its clients' tasks there."""

    def known_at(self, node: Address) -> Mapping[TaskId, RunningAttempt]:
        """The attempts at a node that the master has an account of."""

    def seats(self, node: Address, running: Sequence[RunningAttempt]) -> list[RunningAttempt]:
        """The attempts that the present cluster has a place for, each at a unit of its node; see `seated`."""

    def forget_all(self) -> None:
        """It begins to lead and knows nothing of any node, or another leads."""

    def node_away(self, node: Address) -> None:
        """Send nothing there; what runs there may go on."""

    def node_reported(self, node: Address, status: Status) -> None:
        """Adopt all that is there; what else was there is dead. `Leadership.usable`: whether tasks may be placed."""

    def node_back(self, node: Address) -> None:
        """It is there again and what ran there goes on; tasks may be placed there if it is usable."""

    def node_dead(self, node: Address) -> None:
        """Give up all attempts that ran there."""

    def all_reachable_reported(self) -> None:
        """Begin to place tasks: the leader has opened."""

    def all_reported(self) -> None:
        """Give up attempts that no node has reported: the leader has settled."""

    def adopt_moves(self, fresh: Sequence[Reassignment]) -> None:
        """Account for these moves from now on, the nodes' included."""

    def all_fenced(self) -> None:
        """It is fenced up to the last move."""


def seated(running: Sequence[RunningAttempt], units: Iterable[int]) -> list[RunningAttempt]:
    """As many of the attempts as there are units, each at one: its own where it can be."""
    places = dict.fromkeys(units)
    found: dict[int, RunningAttempt] = {}
    for active in running:
        if active.unit in places:
            found.setdefault(active.unit, active)
    free = [unit for unit in places if unit not in found]
    for active in running:
        if found.get(active.unit) is not active and free:
            unit = free.pop(0)
            found[unit] = replace(active, unit=unit)
    return list(found.values())


def placed(master: Led, node: Address, running: Iterable[RunningAttempt]) -> list[RunningAttempt]:
    """The attempts of a node's status that have a place; those that the master knows are as in its account."""
    known = master.known_at(node)
    both = ((active, known.get(active.task, active)) for active in running)
    return master.seats(node, [mine if mine.attempt == active.attempt else active for active, mine in both])


class Leadership:
    """The leadership of one master of a pair: epochs, takeover, leases of nodes, moves of jobs.

    Args:
        master: the component, which is called back; it gives `bind` its port.
        pair: the addresses of the two.
        me: its place in the pair; the first leads in the beginning.
        nodes: the machines that the pair leads.
        clients: the components that place tasks on them.
        lease: of the nodes.

    Attributes:
        epoch: the highest known.
        leading, opened, settled: see above.
        fenced: the last move that all nodes have stored; 0: none.
        drained: the nodes on which nothing is placed by order.
        moves: all that are known.
    """

    _port: Port

    def __init__(
        self,
        master: Led,
        pair: tuple[Address, Address],
        me: int,
        nodes: Iterable[Address],
        clients: Iterable[Address],
        lease: Lease,
        incarnation: int,
    ) -> None:
        self._master = master
        self._partner = pair[1 - me]
        self._me = me
        self._nodes = dict.fromkeys(nodes)
        self._clients = dict.fromkeys(clients)
        self._lease = lease
        self._restarted = incarnation > 0
        self.epoch = NO_EPOCH if incarnation else 0
        self.leading = self.opened = self.settled = not incarnation and me == 0
        self._is_followed = True
        self._partner_lost = False
        self._nodes_without_status: dict[Address, None] = {}
        self._nodes_without_session: dict[Address, None] = {}
        self._unreachable_nodes: dict[Address, None] = {}
        self._lease_expired_at: dict[Address, Time] = {}
        self._questions: dict[Address, LeaderStatus] = {}
        self._unconfirmed_nodes: dict[Address, Time] = {}
        self._last_question_us: Time = NEVER
        self._nodes_without_epoch = dict.fromkeys(self._nodes if incarnation else ())
        self._is_epoch_uncertain = incarnation > 0
        self.drained: dict[Address, None] = {}
        self.moves: tuple[Reassignment, ...] = ()
        self._nodes_to_fence: dict[Address, None] = {}
        self.fenced = 0
        self._handlers: dict[type, Callable[[Any, Address, Time], None]] = {
            LeaderStatus: self.on_leader_status,
            StaleEpoch: self.on_stale_epoch,
            Status: self.on_status,
            Fenced: self.on_fenced,
            Drain: self.on_drain,
            PeerLost: self.on_peer_lost,
            PeerBack: self.on_peer_back,
            Renewed: self.on_renewed,
        }

    def bind(self, port: Port) -> None:
        """Take the master's port."""
        self._port = port

    def handle(self, event: Event, source: Address, now: Time) -> None:
        """Take one of the events of `LEADERSHIP` and `MOVES_AND_DRAINS`."""
        self._handlers[type(event)](event, source, now)

    def start(self, now: Time) -> None:
        """A restarted master asks who leads."""
        if self._restarted:
            for address in (self._partner, *self._nodes, *self._clients):
                self._port.send(address, LeaderStatus(self.epoch, False))

    def reachable(self, node: Address) -> bool:
        """Find out whether a node is known to be there, and to obey nobody else."""
        return not (
            node in self._nodes_without_status
            or node in self._nodes_without_session
            or node in self._unreachable_nodes
            or node in self._unconfirmed_nodes
        )

    def usable(self, node: Address) -> bool:
        """Find out whether tasks may be placed on a node."""
        return self.reachable(node) and node not in self.drained

    def on_drain(self, message: Drain, source: Address, now: Time) -> None:
        """Place nothing on a node, or again; a standby notes it. Nodes that are not there follow later."""
        node = message.node
        if message.drained == (node in self.drained):
            return
        if message.drained:
            self.drained[node] = None
        else:
            del self.drained[node]

        # A node that is not there is drained, or usable, when it comes back.
        if self.leading and self.reachable(node):
            (self._master.node_away if message.drained else self._master.node_back)(node)

    def learn(self, moves: Iterable[Reassignment]) -> None:
        """Take over the moves that are new, and have the nodes store them."""
        known = {move.epoch for move in self.moves}
        fresh = [move for move in moves if move.epoch not in known]
        if not fresh:
            return
        self.moves = tuple(sorted([*self.moves, *fresh], key=lambda move: move.epoch))
        self._master.adopt_moves(fresh)

        # Nodes that were given up run nothing, and cannot answer; when they come back, they are fenced first.
        if self.leading:
            self._nodes_to_fence = {node: None for node in self._nodes if not self.given_up(node)}
            for node in self._nodes:
                self._port.send(node, Fence(self.epoch, self.moves))

    def given_up(self, node: Address) -> bool:
        """Find out whether what ran on a node was given up with it."""
        return node in self._unreachable_nodes and node in self._nodes_without_session

    def on_fenced(self, message: Fenced, source: Address, now: Time) -> None:
        """A node has stored moves."""
        if self.leading and message.epoch == self.epoch and message.move == self.moves[-1].epoch:
            self._nodes_to_fence.pop(source, None)
            self._advance()

    def _fence_again(self, node: Address, status: Status) -> None:
        """Learn the moves that a node stores; have it store the others."""
        self.learn(status.moves)
        if self.moves and (not status.moves or status.moves[-1].epoch < self.moves[-1].epoch):
            self._nodes_to_fence[node] = None
            self._port.send(node, Fence(self.epoch, self.moves))
        else:
            self._nodes_to_fence.pop(node, None)

    def _claim(self, above: int) -> None:
        epoch = above + 1
        # The masters own epochs in turn, so that two never claim the same one.
        self.epoch = epoch if epoch % 2 == self._me else epoch + 1
        self.leading, self.opened, self.settled, self._is_followed = True, False, False, False
        self._nodes_without_status = dict(self._nodes)
        self._nodes_without_session.clear()
        self._unconfirmed_nodes.clear()
        self._nodes_to_fence = dict(self._nodes) if self.moves else {}
        self.fenced = 0
        self._master.forget_all()
        for node in self._nodes:
            self._port.send(node, Lead(self.epoch))
        self._port.send(self._partner, LeaderStatus(self.epoch, True))
        self._advance()

    def _step_down(self, epoch: int) -> None:
        self.epoch = epoch
        if self.leading:
            self.leading = self.opened = self.settled = False
            self._master.forget_all()

    def on_leader_status(self, message: LeaderStatus, source: Address, now: Time) -> None:
        """Settle with the partner who leads."""
        if message.is_leading:
            if message.epoch > self.epoch:
                self._step_down(message.epoch)
            elif self.leading:
                self._port.send(source, LeaderStatus(self.epoch, True))
            if not self.leading and message.epoch == self.epoch:
                self._answer(message)
        elif self.leading and message.epoch > self.epoch:
            # The partner has heard of an epoch that this leader has not: nodes may obey it, so it has to be exceeded.
            self._claim(message.epoch)
        elif self.leading:
            # The partner follows in this epoch, so it has no nodes of its own: leases can expire again, from now on.
            if not self._is_followed and message.epoch == self.epoch:
                self._is_followed = True
                self._renew_leases(now)
            if message.epoch < self.epoch:
                self._port.send(source, LeaderStatus(self.epoch, True))
                for node in [node for node in self._lease_expired_at if node in self._nodes_without_status]:
                    self._ask(node)  # the partner has begun anew and has forgotten the question
                if self._unconfirmed_nodes:
                    self._port.send(source, LeaderStatus(self.epoch, True, "", self._last_question_us))
            elif not message.node:
                self._confirm(message.at_us)
            elif (
                message.node in self._nodes_without_status and self._lease_expired_at.get(message.node) == message.at_us
            ):
                del self._nodes_without_status[message.node]
                self._write_off(message.node)
        elif self._me == 0:
            self._claim(max(self.epoch, message.epoch))
        else:
            self._port.send(source, LeaderStatus(max(self.epoch, message.epoch), False))

    def _ask(self, node: Address) -> None:
        """Ask the partner if a node that was lost to this leader for a lease was lost to the partner for as long."""
        self._port.send(self._partner, LeaderStatus(self.epoch, True, node, self._lease_expired_at[node]))

    def _answer(self, asked: LeaderStatus) -> None:
        """Send the partner that this master follows it; keep a question until the answer is yes."""
        if asked.node not in self._lease_expired_at if asked.node else self._nodes_without_epoch:
            before = self._questions.get(asked.node, asked)
            at_us = max(asked.at_us, before.at_us) if before.epoch == asked.epoch else asked.at_us
            self._questions[asked.node] = replace(asked, at_us=at_us)
        elif asked.epoch == self.epoch:
            if vague := self._is_epoch_uncertain and not asked.node:
                self._is_epoch_uncertain = False
            self._port.send(
                self._partner, LeaderStatus(self.epoch + 1, False) if vague else replace(asked, is_leading=False)
            )

    def _note_epoch(self, node: Address, epoch: int) -> None:
        """Note the epoch that a node remembers; after the last one the partner may be answered."""
        self._nodes_without_epoch.pop(node, None)
        self._is_epoch_uncertain = self._is_epoch_uncertain and epoch == NO_EPOCH
        if not self._nodes_without_epoch and not self.leading and (asked := self._questions.pop("", None)) is not None:
            self._answer(asked)

    def on_stale_epoch(self, message: StaleEpoch, source: Address, now: Time) -> None:
        """A node obeys, or a client knows, a later epoch, or this one of an earlier incarnation.

        A beginner goes beyond it, an established leader steps down, a follower informs its partner.
        """
        if message.epoch > self.epoch or (message.epoch == self.epoch and self.leading):
            self._give_way(message.epoch, now)
        if source in self._nodes:
            self._note_epoch(source, message.epoch)

    def _give_way(self, epoch: int, now: Time) -> None:
        if not self.leading:
            self.epoch = epoch
            self._port.send(self._partner, LeaderStatus(self.epoch, False))
            return

        # One that has not opened has placed nothing, and one whose own epoch is remembered has begun anew: both go
        # beyond it.
        if not self.opened or epoch == self.epoch:
            self._claim(epoch)
            return

        # An established leader was deposed: the partner leads, unless it is lost, and then nobody does for a lease.
        self._step_down(epoch)
        if self._partner_lost:
            self._port.set_timer(CLAIM, now + self._lease.lease_us)
        else:
            self._port.send(self._partner, LeaderStatus(self.epoch, False))

    def on_status(self, message: Status, source: Address, now: Time) -> None:
        """Adopt the status of a node, unless its epoch is another."""
        if is_later := message.epoch > self.epoch:
            self._give_way(message.epoch, now)
        self._note_epoch(source, NO_EPOCH if message.is_restarted else message.epoch)
        if is_later or not self.leading:
            return

        # The status is from before the node obeyed this master: it may launch for the older one until it answers
        # `Lead`.
        if message.epoch < self.epoch:
            self._port.send(source, Lead(self.epoch))
            return

        running = [active for active in message.running if active.owner in self._clients]
        found = placed(self._master, source, running)
        if len(found) < len(message.running):  # its next status will be without the others
            left = {active.task for active in message.running} - {active.task for active in found}
            self._port.observe(Counted("attempts_unseated", len(left)))
            self._port.send(source, Unseat(self.epoch, tuple(sorted(left))))
            return

        message = replace(message, running=tuple(found))
        self._nodes_without_status.pop(source, None)
        self._nodes_without_session.pop(source, None)

        # It has forgotten whom it obeyed: perhaps the partner, which may have deposed this leader.
        if message.is_restarted:
            self._confirm_node(source, now)
        self._port.cancel_timer(("lease", source))
        self._fence_again(source, message)
        self._master.node_reported(source, message)
        self._advance()

    def _confirm_node(self, node: Address, now: Time) -> None:
        """Launch nothing on a restarted node until the partner has answered that it follows."""
        self._unconfirmed_nodes[node] = self._last_question_us = max(now, self._last_question_us + 1)
        self._port.send(self._partner, LeaderStatus(self.epoch, True, "", self._last_question_us))
        if self._partner_lost:
            self._port.observe(Counted("nodes_unconfirmed"))

    def _confirm(self, asked_us: Time) -> None:
        """Lead the restarted nodes that had answered before the question."""
        for node in [node for node, since in self._unconfirmed_nodes.items() if since <= asked_us]:
            del self._unconfirmed_nodes[node]
            self._port.send(node, Lead(self.epoch, is_confirmed=True))
            if self.reachable(node):
                self._master.node_back(node)

    def _advance(self) -> None:
        # A leader opens when all nodes that it can reach, and one at least, have answered; it settles when all have,
        # and only then is what no node has mentioned known to be lost.
        reported = len(self._nodes_without_status) < len(self._nodes)
        if (
            self.leading
            and not self.opened
            and reported
            and all(node in self._unreachable_nodes for node in self._nodes_without_status)
        ):
            self.opened = True
            self.settled = not self._nodes_without_status
            self._master.all_reachable_reported()
        elif self.leading and not self.settled and not self._nodes_without_status:
            self.settled = True
            self._master.all_reported()
        if self.settled and self.moves and not self._nodes_to_fence and self.fenced < self.moves[-1].epoch:
            self.fenced = self.moves[-1].epoch
            self._master.all_fenced()

    def on_peer_lost(self, event: PeerLost, source: Address, now: Time) -> None:
        """Take over from a lost partner; wait for a lost node."""
        peer = event.peer
        if peer == self._partner:
            self._partner_lost, self._is_followed = True, False

            # Its nodes end what runs only after their grace: so the epoch, not the lease, keeps two leaders apart.
            if not self.leading:
                self._claim(self.epoch)
            elif self._unconfirmed_nodes:
                self._port.observe(Counted("nodes_unconfirmed", len(self._unconfirmed_nodes)))
            return
        self._unreachable_nodes[peer] = None
        self._port.set_timer(("lease", peer), now + self._lease.lease_us)
        if self.leading:
            self._master.node_away(peer)
            self._advance()

    def on_peer_back(self, event: PeerBack, source: Address, now: Time) -> None:
        """Settle with a partner; go on with a node that has kept its session."""
        peer = event.peer
        if peer == self._partner:
            self._partner_lost = False
            self._port.send(peer, LeaderStatus(self.epoch, self.leading))
            return
        self._unreachable_nodes.pop(peer, None)
        self._lease_expired_at.pop(peer, None)
        self._port.cancel_timer(("lease", peer))
        if self.leading and self.reachable(peer):
            self._master.node_back(peer)

    def on_renewed(self, message: Renewed, source: Address, now: Time) -> None:
        """A node has begun anew: its status follows. A partner has: it asks."""
        peer = message.peer
        if peer in self._nodes and self.leading:
            self._nodes_without_session[peer] = None
            self._unconfirmed_nodes.pop(peer, None)
            self._master.node_away(peer)

    def on_lease_timer(self, event: TimerFired, now: Time) -> None:
        """A lease has expired, or it is time to claim what nobody leads."""
        if event.key == CLAIM:
            if not self.leading and self._partner_lost:
                self._claim(self.epoch)
            return
        assert isinstance(event.key, tuple), "a timer of the pair's"
        node = str(event.key[1])
        if node not in self._unreachable_nodes:
            return
        self._lease_expired_at[node] = now
        self._note_epoch(node, NO_EPOCH)
        if not self.leading:
            if (asked := self._questions.pop(node, None)) is not None:
                self._answer(asked)
        elif self._is_followed:
            # A node that never answered this leader may have the partner as its master: the partner is asked. Any other
            # has ended what ran there, unless the partner has got it, and then the partner would not follow.
            (self._ask if node in self._nodes_without_status else self._write_off)(node)

    def _write_off(self, node: Address) -> None:
        """Take it that nothing runs at a node."""
        self._nodes_without_session[node] = None
        self._master.node_dead(node)
        self._nodes_to_fence.pop(node, None)
        self._advance()

    def _renew_leases(self, now: Time) -> None:
        # While this leader was not sure of its partner, a node may have had the partner as its master: it waits again.
        self._lease_expired_at.clear()
        for node in self._unreachable_nodes:
            self._port.set_timer(("lease", node), now + self._lease.lease_us)

    @staticmethod
    def is_lease(event: TimerFired) -> bool:
        """Find out whether a timer is one of the leadership."""
        return event.key == CLAIM or (isinstance(event.key, tuple) and event.key[0] == "lease")


def _lead(master: Any, event: Event, source: Address, now: Time) -> None:
    """Hand an event to a master's leadership."""
    master.leadership.handle(event, source, now)


LEADERSHIP: Final[Mapping[type, Handler]] = dict.fromkeys(
    (LeaderStatus, StaleEpoch, Status, PeerLost, PeerBack, Renewed), _lead
)
"""For the table of a master that keeps its leadership in this attribute."""
MOVES_AND_DRAINS: Final[Mapping[type, Handler]] = dict.fromkeys((Fenced, Drain), _lead)
"""Beside it, where clients' jobs can be moved and nodes drained."""
