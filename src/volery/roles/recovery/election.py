"""Election of the leader of a pair of masters, active and standby: epochs, takeover, what the partner has to confirm.

Epochs    The first of the pair leads in even epochs, the second in odd ones; a master that takes over takes the next of
          its own above all that it knows. Nodes obey the highest (see `leases`), and `leadership` holds their states.
Takeover  A follower that receives the loss of its partner leads at once; a restarted master asks partner, nodes and
          clients for the epoch that they know: one that its partner has never received has to be exceeded.
Partner   It is the voter: a leader gives up a lost node, and launches on a restarted one, only while it is sure that
          its partner follows it. Without its partner it waits until node or partner answer.
Moves     Jobs may be moved from one client to another (`volery.core.events.Moved`). A leader has every node store the
          moves that it knows, and learns from nodes those that it does not. When all nodes that are not given up have
          stored a move, the pair is *fenced* up to it: no master of the pair launches for its origin any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from volery.core.component import Handler, Sends, sent_to
from volery.core.events import Counted, Drain, Event, PeerBack, PeerLost, Reassignment, TimerFired
from volery.core.model import NEVER, Address, Time
from volery.core.port import Port
from volery.roles.node import NO_EPOCH
from volery.roles.recovery.channel import Renewed
from volery.roles.recovery.leadership import LeaderEvent, Leadership, NodeEvent, NodeState
from volery.roles.recovery.leases import Fence, Fenced, Lead, LeaderStatus, StaleEpoch, Status, Unseat

CLAIM: Final = "claim"


def pair_sends(own: str, client: str) -> Sends:
    """Return the messages that each master of a pair sends.

    Args:
        own: Role of the masters.
        client: Role of those that place tasks on their nodes.
    """
    return sent_to(own, LeaderStatus) | sent_to("node", Lead, LeaderStatus, Unseat) | sent_to(client, LeaderStatus)


class PairElection:
    """Election of one master of a pair, with the moves of jobs that its nodes store.

    Args:
        leadership: State of the leadership and of the nodes; the election binds it to the master's port.
        pair: Addresses of the two.

    Attributes:
        fenced: Epoch of the last move that all nodes have stored; 0: none.
        moves: Moves that are known.
    """

    _port: Port

    def __init__(self, leadership: Leadership, pair: tuple[Address, Address]) -> None:
        self.leadership = leadership
        self._partner = pair[1 - leadership.place]

        # What this master knows of its partner, and has asked it about restarted nodes.
        self._is_followed = True
        self._partner_lost = False
        self._last_question_us: Time = NEVER
        self._question_us_of: dict[Address, Time] = {}

        # What a restarted master has to find out before it answers its partner, and the question that waits for it.
        self._nodes_without_epoch = dict.fromkeys(leadership.nodes if leadership.is_restarted else ())
        self._is_epoch_uncertain = leadership.is_restarted
        self._open_question: LeaderStatus | None = None

        self.moves: tuple[Reassignment, ...] = ()
        self._nodes_to_fence: dict[Address, None] = {}
        self.fenced = 0

        self._handlers: dict[type, Callable[[Any, Address, Time], None]] = {
            LeaderStatus: self.on_leader_status,
            StaleEpoch: self.on_stale_epoch,
            Status: self.on_status,
            Fenced: self.on_fenced,
            Drain: leadership.on_drain,
            PeerLost: self.on_peer_lost,
            PeerBack: self.on_peer_back,
            Renewed: self.on_renewed,
        }

    def bind(self, port: Port) -> None:
        """Take the master's port."""
        self._port = port
        self.leadership.bind(port)

    def handle(self, event: Event, source: Address, now: Time) -> None:
        """Take one of the events of `ELECTION` and `MOVES_AND_DRAINS`."""
        self._handlers[type(event)](event, source, now)
        self._maybe_fenced()

    def start(self, now: Time) -> None:
        """A restarted master asks who leads."""
        leadership = self.leadership
        if leadership.is_restarted:
            for address in (self._partner, *leadership.nodes, *leadership.clients):
                self._port.send(address, LeaderStatus(leadership.epoch, False))

    # The lead.

    def _claim(self, above: int) -> None:
        """Lead in the next epoch of this master's own."""
        leadership = self.leadership
        self._is_followed = False
        self._question_us_of.clear()
        self._nodes_to_fence = dict(leadership.nodes) if self.moves else {}
        self.fenced = 0

        # The partner's consent is not asked: it is lost, or follows. The nodes' obedience keeps two leaders apart.
        leadership.on(LeaderEvent.ELECTED, leadership.next_epoch(above))
        for node in leadership.nodes:
            self._port.send(node, Lead(leadership.epoch))
        self._port.send(self._partner, LeaderStatus(leadership.epoch, True))
        leadership.advance()

    def _give_way(self, epoch: int, now: Time) -> None:
        """A node or client knows a later epoch, or this one of an earlier incarnation."""
        leadership = self.leadership
        if not leadership.leading:
            leadership.epoch = epoch
            self._port.send(self._partner, LeaderStatus(epoch, False))

        # A leader that has not opened has placed nothing, and one whose own epoch is remembered was restarted: both
        # exceed it.
        elif not leadership.opened or epoch == leadership.epoch:
            self._claim(epoch)

        # An established leader was deposed: the partner leads, unless it is lost, and then nobody does for a lease. Two
        # that cannot reach each other would otherwise outbid each other for ever.
        else:
            leadership.on(LeaderEvent.DEPOSED, epoch)
            if self._partner_lost:
                self._port.set_timer(CLAIM, now + leadership.lease.lease_us)
            else:
                self._port.send(self._partner, LeaderStatus(epoch, False))

    # The partner.

    def on_leader_status(self, message: LeaderStatus, source: Address, now: Time) -> None:
        """Settle with the partner who leads."""
        leadership = self.leadership
        if message.is_leading:
            if message.epoch > leadership.epoch:
                leadership.on(LeaderEvent.DEPOSED, message.epoch)
            elif leadership.leading:
                self._port.send(source, LeaderStatus(leadership.epoch, True))
            if not leadership.leading and message.epoch == leadership.epoch:
                self._answer(message)
        elif leadership.leading and message.epoch > leadership.epoch:
            # The partner knows of an epoch that this leader does not: nodes may obey it, so it has to be exceeded.
            self._claim(message.epoch)
        elif leadership.leading:
            self._on_follower(message, now)
        elif leadership.place == 0:
            # Nobody leads: the first does.
            self._claim(max(leadership.epoch, message.epoch))
        else:
            self._port.send(source, LeaderStatus(max(leadership.epoch, message.epoch), False))

    def _on_follower(self, message: LeaderStatus, now: Time) -> None:
        """The partner follows, in this epoch or an earlier one."""
        leadership = self.leadership

        # It follows in this epoch, so it has no nodes of its own: leases can expire again, from now on.
        if not self._is_followed and message.epoch == leadership.epoch:
            self._is_followed = True
            leadership.doubt_ends(now)

        if message.epoch < leadership.epoch:
            # It was restarted and has forgotten all questions.
            self._port.send(self._partner, LeaderStatus(leadership.epoch, True))
            for node in [node for node in leadership.lease_over_us if self._is_unreported(node)]:
                self._ask(node)
            if self._question_us_of:
                self._port.send(self._partner, LeaderStatus(leadership.epoch, True, "", self._last_question_us))
        elif not message.node:
            self._confirm(message.at_us)

        # An answer to an earlier question proves nothing: a message that the partner sent before it was deposed may
        # have made it the master of that node since.
        elif self._is_unreported(message.node) and leadership.lease_over_us.get(message.node) == message.at_us:
            self._give_up(message.node)

    def _is_unreported(self, node: Address) -> bool:
        return self.leadership.node_states.get(node) is NodeState.UNREPORTED

    def _ask(self, node: Address) -> None:
        """Ask the partner if a node that was lost to this leader for a lease was lost to the partner for as long."""
        question = LeaderStatus(self.leadership.epoch, True, node, self.leadership.lease_over_us[node])
        self._port.send(self._partner, question)

    def _answer(self, question: LeaderStatus) -> None:
        """Send the partner that this master follows it; keep a question until the answer is yes."""
        if question.node:
            self.leadership.answer(question, self._partner)
        elif not self.knows_claims():
            # A claim of the same epoch asks nothing: it does not replace a question.
            earlier = self._open_question
            if earlier is None or earlier.epoch != question.epoch or earlier.at_us < question.at_us:
                self._open_question = question
        elif question.epoch == self.leadership.epoch:
            # Clients may know the next epoch, and have given up what waits at the leader. So it answers as if it had
            # claimed that; the leader claims a later one, what waits is void, and clients send it again.
            if self.may_have_claimed():
                self._is_epoch_uncertain = False
                self._port.send(self._partner, LeaderStatus(self.leadership.epoch + 1, False))
            else:
                self._port.send(self._partner, replace(question, is_leading=False))

    def knows_claims(self) -> bool:
        """Find out whether a restarted master knows what it had claimed.

        Each node has sent it an epoch, or was lost to it for a lease and so runs nothing.
        """
        return not self._nodes_without_epoch

    def may_have_claimed(self) -> bool:
        """Find out whether a restarted master may have claimed the next epoch, since no node remembers one."""
        return self._is_epoch_uncertain

    def _note_epoch(self, node: Address, epoch: int) -> None:
        """Note the epoch that a node remembers; after the last one the partner may be answered."""
        self._nodes_without_epoch.pop(node, None)
        self._is_epoch_uncertain = self._is_epoch_uncertain and epoch == NO_EPOCH

        if self._open_question is not None and self.knows_claims() and not self.leadership.leading:
            question, self._open_question = self._open_question, None
            self._answer(question)

    def on_stale_epoch(self, message: StaleEpoch, source: Address, now: Time) -> None:
        """A node obeys, or a client knows, a later epoch, or this one of an earlier incarnation."""
        leadership = self.leadership
        if message.epoch > leadership.epoch or (message.epoch == leadership.epoch and leadership.leading):
            self._give_way(message.epoch, now)
        if source in leadership.nodes:
            self._note_epoch(source, message.epoch)

    # Nodes.

    def on_status(self, message: Status, source: Address, now: Time) -> None:
        """Adopt the status of a node, unless its epoch is another."""
        leadership = self.leadership
        if is_later := message.epoch > leadership.epoch:
            self._give_way(message.epoch, now)
        self._note_epoch(source, NO_EPOCH if message.is_restarted else message.epoch)
        if is_later or not leadership.leading:
            return

        # The status is from before the node obeyed this master: it may launch for the older one until it answers
        # `Lead`.
        if message.epoch < leadership.epoch:
            self._port.send(source, Lead(leadership.epoch))
            return

        status = leadership.seat(source, message)
        if status is None:
            return
        if message.is_restarted:
            self._ask_to_confirm(source, now)
        self._fence_again(source, status)
        leadership.on_node(source, NodeEvent.RESTARTED_REPORT if message.is_restarted else NodeEvent.REPORT, status)

    def _ask_to_confirm(self, node: Address, now: Time) -> None:
        """Ask the partner if it follows now: whatever it claims later, this incarnation of the node has to answer."""
        self._question_us_of[node] = self._last_question_us = max(now, self._last_question_us + 1)
        self._port.send(self._partner, LeaderStatus(self.leadership.epoch, True, "", self._last_question_us))
        if self._partner_lost:
            self._port.observe(Counted("nodes_unconfirmed"))

    def _confirm(self, asked_us: Time) -> None:
        """Lead the restarted nodes that had answered before the question."""
        for node in [node for node, question_us in self._question_us_of.items() if question_us <= asked_us]:
            del self._question_us_of[node]
            self._port.send(node, Lead(self.leadership.epoch, is_confirmed=True))
            self.leadership.on_node(node, NodeEvent.CONFIRMED)

    def _give_up(self, node: Address) -> None:
        self._question_us_of.pop(node, None)
        self._nodes_to_fence.pop(node, None)
        self.leadership.on_node(node, NodeEvent.IDLE)

    def on_peer_lost(self, event: PeerLost, source: Address, now: Time) -> None:
        """Take over from a lost partner; wait for a lost node."""
        if event.peer != self._partner:
            self.leadership.lose(event.peer, now)
            return

        self._partner_lost = True
        self._is_followed = False

        # Its nodes end what runs only after their grace: so the epoch, not the lease, keeps two leaders apart.
        if not self.leadership.leading:
            self._claim(self.leadership.epoch)
        elif self._question_us_of:
            self._port.observe(Counted("nodes_unconfirmed", len(self._question_us_of)))

    def on_peer_back(self, event: PeerBack, source: Address, now: Time) -> None:
        """Settle with a partner; go on with a node that has kept its session."""
        if event.peer != self._partner:
            self.leadership.regain(event.peer, now)
            return
        self._partner_lost = False
        self._port.send(self._partner, LeaderStatus(self.leadership.epoch, self.leadership.leading))

    def on_renewed(self, message: Renewed, source: Address, now: Time) -> None:
        """A node was restarted: its status follows. A partner was: it asks."""
        if message.peer in self.leadership.nodes and self.leadership.leading:
            self._question_us_of.pop(message.peer, None)
            self.leadership.on_node(message.peer, NodeEvent.RENEWED)

    def on_lease_timer(self, event: TimerFired, now: Time) -> None:
        """A lease has expired, or it is time to claim what nobody leads."""
        leadership = self.leadership
        if event.key == CLAIM:
            if not leadership.leading and self._partner_lost:
                self._claim(leadership.epoch)
            return

        assert isinstance(event.key, tuple), "a timer of the pair's"
        node = str(event.key[1])
        self._note_epoch(node, NO_EPOCH)
        leadership.expire(node, now, self._partner)

        # A node that never answered this leader may have the partner as its master: the partner is asked. Any other has
        # ended what ran there, unless the partner has got it: and then the partner has lost this leader, which has
        # received the loss of the partner, and waits.
        if leadership.leading and self._is_followed:
            (self._ask if self._is_unreported(node) else self._give_up)(node)
        self._maybe_fenced()

    @staticmethod
    def is_lease(event: TimerFired) -> bool:
        """Find out whether a timer is one of the election."""
        return event.key == CLAIM or (isinstance(event.key, tuple) and event.key[0] == "lease")

    # Moves of jobs.

    def learn(self, moves: Iterable[Reassignment]) -> None:
        """Take over the moves that are new, and have the nodes store them."""
        epochs = {move.epoch for move in self.moves}
        new_moves = [move for move in moves if move.epoch not in epochs]
        if not new_moves:
            return
        self.moves = tuple(sorted([*self.moves, *new_moves], key=lambda move: move.epoch))
        self.leadership.master.adopt_moves(new_moves)

        # Nodes that were given up run nothing, and cannot answer; when they come back, they are fenced first.
        leadership = self.leadership
        if leadership.leading:
            self._nodes_to_fence = {node: None for node in leadership.nodes if not leadership.given_up(node)}
            for node in leadership.nodes:
                self._port.send(node, Fence(leadership.epoch, self.moves))

    def on_fenced(self, message: Fenced, source: Address, now: Time) -> None:
        """A node has stored moves."""
        leadership = self.leadership
        if leadership.leading and message.epoch == leadership.epoch and message.move == self.moves[-1].epoch:
            self._nodes_to_fence.pop(source, None)

    def _fence_again(self, node: Address, status: Status) -> None:
        """Learn the moves that a node stores; have it store the others."""
        self.learn(status.moves)
        if self.moves and (not status.moves or status.moves[-1].epoch < self.moves[-1].epoch):
            self._nodes_to_fence[node] = None
            self._port.send(node, Fence(self.leadership.epoch, self.moves))
        else:
            self._nodes_to_fence.pop(node, None)

    def _maybe_fenced(self) -> None:
        is_fenced = self.leadership.settled and not self._nodes_to_fence
        if self.moves and is_fenced and self.fenced < self.moves[-1].epoch:
            self.fenced = self.moves[-1].epoch
            self.leadership.master.all_fenced()


def _elect(master: Any, event: Event, source: Address, now: Time) -> None:
    """Hand an event to a master's election."""
    master.election.handle(event, source, now)


ELECTION: Final[Mapping[type, Handler]] = dict.fromkeys(
    (LeaderStatus, StaleEpoch, Status, PeerLost, PeerBack, Renewed), _elect
)
"""Rows for the table `receives` of a master with an attribute `election`, for one of a pair or one of many."""
MOVES_AND_DRAINS: Final[Mapping[type, Handler]] = dict.fromkeys((Fenced, Drain), _elect)
"""Further rows, where jobs of clients can be moved and nodes drained."""
