"""Leadership of a master: three tables of states, for the master itself and for each node that it leads.

Where masters may crash, several can lead the same nodes, one at a time, in an *epoch*: each leader has a higher one.

Voters   They decide who leads, elsewhere, and drive these tables. Of a pair of masters the partner is the voter
         (`election`); of many, as in Pigeon, the distributors are (`succession`).
Leader   A master that begins to lead knows nothing of its nodes. It is *open* when all nodes that it can reach, one at
         least, have answered `Lead` with their status, and places tasks then; it is *settled* when all nodes have, and
         only then are tasks that no node knows of known to be lost.
Nodes    A node obeys the highest epoch that it has received (see `leases`). A master leads it when it has answered
         `Lead`, and not before: from then on it refuses the older master. States of nodes count while it leads.
Contact  A node that was lost for `Lease.lease_us` has ended what ran there, unless it has got another master since.
         That none has got it is for the voters to prove, before the leader gives the node's tasks up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, Protocol, TypeVar

from msgspec.structs import replace

from volery.core.events import Counted, Drain, Reassignment
from volery.core.model import Address, TaskId, Time
from volery.core.port import Port
from volery.roles.node import NO_EPOCH
from volery.roles.recovery.leases import LeaderStatus, Lease, RunningAttempt, Status, Unseat

STORY_LENGTH: Final = 100
"""Number of transitions that are kept for the error that an illegal one raises."""


class LeaderState(Enum):
    FOLLOWING = "another master leads, or none"
    CLAIMING = "the voters have been asked for the lead"
    COLLECTING = "it leads, and places nothing before its nodes have reported"
    OPEN = "all nodes that can be reached have reported: tasks are placed there"
    SETTLED = "all nodes have reported, or were given up: what none has reported is lost"


class LeaderEvent(Enum):
    CLAIMED = "asks its voters"
    ELECTED = "the voters consent"
    DEPOSED = "a later epoch is known"
    REACHABLE_REPORTED = "the last reachable node reports"
    ALL_REPORTED = "the last node reports"


class NodeState(Enum):
    UNREPORTED = "the node has not answered this leader: an older master may lead it"
    REPORTED = "its attempts are in the leader's account; tasks may be placed there"
    UNCONFIRMED = "it has reported, but was restarted: the voters have to confirm the leader first"
    VOID = "what was in the account is void, since it was restarted or given up; its next status is adopted"


class NodeEvent(Enum):
    REPORT = "status of this epoch"
    RESTARTED_REPORT = "status of a restarted node that no confirmed master leads"
    CONFIRMED = "the voters confirm the leader"
    RENEWED = "the node opens a new session"
    IDLE = "the voters prove that nothing runs there"


class Contact(Enum):
    PRESENT = "the node can be reached"
    LOST = "it was lost, and its lease runs"
    EXPIRED = "it was lost for a lease"


class ContactEvent(Enum):
    LOSS = "an outage of the link is reported (`PeerLost`)"
    RETURN = "the end of the outage is reported (`PeerBack`)"
    LEASE_OVER = "the timer of the lease fires"
    DOUBT_ENDS = "other masters may have led it until now"


class Led(Protocol):
    """A master as its leadership calls it: the account of its nodes, and of its clients' tasks there."""

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

    def adopt_moves(self, new_moves: Sequence[Reassignment]) -> None:
        """Account for these moves from now on, the nodes' included."""

    def all_fenced(self) -> None:
        """It is fenced up to the last move."""


def seated(running: Sequence[RunningAttempt], units: Iterable[int]) -> list[RunningAttempt]:
    """As many of the attempts as there are units, each at one: its own where it can be."""
    places = dict.fromkeys(units)
    occupants: dict[int, RunningAttempt] = {}
    for active in running:
        if active.unit in places:
            occupants.setdefault(active.unit, active)

    free_units = [unit for unit in places if unit not in occupants]
    for active in running:
        if occupants.get(active.unit) is not active and free_units:
            unit = free_units.pop(0)
            occupants[unit] = replace(active, unit=unit)
    return list(occupants.values())


State = TypeVar("State", bound=Enum)
Happening = TypeVar("Happening", bound=Enum)
Action = TypeVar("Action")


class Leadership:
    """State of one master's leadership, of its nodes, and of the contact with them.

    Args:
        master: The component, which is called back.
        place, count: Place of the master among those that may lead, and their number; the first leads in the beginning.
        nodes: Machines that it leads.
        clients: Components that place tasks there; attempts of others are unseated.
        lease: Lease of the nodes.
        incarnation: Number of restarts of the master; a restarted one knows no epoch, and leads no node.

    Attributes:
        epoch: Highest epoch that is known.
        state: State of the master.
        leading, opened, settled: Whether the state is one of COLLECTING, OPEN, SETTLED; of the last two; the last.
        node_states: State of each node that is not REPORTED; it counts while this master leads.
        contacts: State of the contact with each node that is not PRESENT.
        lease_over_us: Time when the lease of each EXPIRED node was over.
        drained: Nodes on which nothing is placed by order.
    """

    _port: Port

    def __init__(
        self,
        master: Led,
        place: int,
        count: int,
        nodes: Iterable[Address],
        clients: Iterable[Address],
        lease: Lease,
        incarnation: int,
    ) -> None:
        self.master = master
        self.place = place
        self._count = count
        self.nodes = dict.fromkeys(nodes)
        self.clients = dict.fromkeys(clients)
        self.lease = lease
        self.is_restarted = incarnation > 0

        self.epoch = NO_EPOCH if incarnation else 0
        self._enter(LeaderState.SETTLED if not incarnation and place == 0 else LeaderState.FOLLOWING)
        self.node_states: dict[Address, NodeState] = {}
        self.contacts: dict[Address, Contact] = {}
        self.lease_over_us: dict[Address, Time] = {}
        self.drained: dict[Address, None] = {}
        self._unreported_count = 0
        self._open_questions: dict[Address, LeaderStatus] = {}
        self._story: deque[tuple[Address, str, str]] = deque(maxlen=STORY_LENGTH)

    def bind(self, port: Port) -> None:
        """Take the master's port."""
        self._port = port

    # What the master asks.

    def reachable(self, node: Address) -> bool:
        """Find out whether a node is known to be there, and to obey nobody else."""
        return node not in self.node_states and node not in self.contacts

    def usable(self, node: Address) -> bool:
        """Find out whether tasks may be placed on a node."""
        return node not in self.node_states and node not in self.contacts and node not in self.drained

    def given_up(self, node: Address) -> bool:
        """Find out whether what ran on a node was given up with it."""
        return node in self.contacts and self.node_states.get(node) is NodeState.VOID

    # What the voters decide.

    def next_epoch(self, above: int) -> int:
        """Return the next epoch of this master's own above one: the masters own them in turn, so no two claim one."""
        return above + 1 + (self.place - above - 1) % self._count

    def on(self, event: LeaderEvent, epoch: int) -> None:
        """Take a decision about who leads in an epoch, or a report that opens or settles it."""
        self.epoch = epoch
        state, action = self._row(LEADER, self._port.address, self.state, event)
        self._enter(state)
        action(self)

    def doubt_ends(self, now: Time) -> None:
        """Leases count from now on: until now a node may have had another master."""
        for node in list(self.contacts):
            self._on_contact(node, ContactEvent.DOUBT_ENDS, now)

    # What nodes do.

    def seat(self, node: Address, status: Status) -> Status | None:
        """Return a status in which each attempt has its place; None: those without one are to be ended first."""
        recorded = self.master.known_at(node)
        running = []
        for active in status.running:
            if active.owner in self.clients:
                own_record = recorded.get(active.task, active)
                running.append(own_record if own_record.attempt == active.attempt else active)

        seated_attempts = self.master.seats(node, running)
        homeless_tasks = {active.task for active in status.running} - {active.task for active in seated_attempts}
        if not homeless_tasks:
            return replace(status, running=tuple(seated_attempts))

        # The next status of the node will be without them.
        self._port.observe(Counted("attempts_unseated", len(homeless_tasks)))
        self._port.send(node, Unseat(self.epoch, tuple(sorted(homeless_tasks))))
        return None

    def lose(self, node: Address, now: Time) -> None:
        """Wait for a lost node for as long as its lease runs."""
        self._on_contact(node, ContactEvent.LOSS, now)
        if self.leading:
            self.master.node_away(node)
            self.advance()

    def regain(self, node: Address, now: Time) -> None:
        """Go on with a node that has kept its session."""
        self._on_contact(node, ContactEvent.RETURN, now)
        if self.leading and self.reachable(node):
            self.master.node_back(node)

    def expire(self, node: Address, now: Time, leader: Address) -> None:
        """The lease of a node is over: a leader that has asked about it is answered."""
        self._on_contact(node, ContactEvent.LEASE_OVER, now)

        question = self._open_questions.pop(node, None)
        if question is not None and not self.leading:
            self.answer(question, leader)

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
            (self.master.node_away if message.drained else self.master.node_back)(node)

    def answer(self, question: LeaderStatus, leader: Address) -> None:
        """Send the leader that a node was lost to this one for a lease; keep the question until it was."""
        if question.node not in self.lease_over_us:
            self._open_questions[question.node] = question
        elif question.epoch == self.epoch:
            self._port.send(leader, replace(question, is_leading=False))

    def advance(self) -> None:
        """Open when all nodes that can be reached, one at least, have reported; settle when all have."""
        if not self.leading or self.settled:
            return
        if not self._unreported_count:
            self.on(LeaderEvent.ALL_REPORTED, self.epoch)
        elif self.state is LeaderState.COLLECTING and self._unreported_count < len(self.nodes):
            lost_count = sum(self.node_states.get(node) is NodeState.UNREPORTED for node in self.contacts)
            if lost_count == self._unreported_count:
                self.on(LeaderEvent.REACHABLE_REPORTED, self.epoch)

    # Transitions.

    def _enter(self, state: LeaderState) -> None:
        self.state = state
        self.settled = state is LeaderState.SETTLED
        self.opened = self.settled or state is LeaderState.OPEN
        self.leading = self.opened or state is LeaderState.COLLECTING

    def on_node(self, node: Address, event: NodeEvent, status: Status | None = None) -> None:
        """Take what a node does, or the voters prove of it; in a status each attempt has its place, see `seat`."""
        old_state = self.node_states.get(node, NodeState.REPORTED)
        state, action = self._row(NODE, node, old_state, event)

        self._unreported_count += (state is NodeState.UNREPORTED) - (old_state is NodeState.UNREPORTED)
        if state is NodeState.REPORTED:
            self.node_states.pop(node, None)
        else:
            self.node_states[node] = state
        action(self, node, status)

    def _on_contact(self, node: Address, event: ContactEvent, now: Time) -> None:
        state, action = self._row(CONTACT, node, self.contacts.get(node, Contact.PRESENT), event)
        if state is Contact.PRESENT:
            self.contacts.pop(node, None)
        else:
            self.contacts[node] = state
        action(self, node, now)

    def _row(
        self, table: Table[State, Happening, Action], subject: Address, state: State, event: Happening
    ) -> tuple[State, Action]:
        """Return the row of a table.

        Raises:
            AssertionError: there is none; the last transitions of the master and of the node are in its text.
        """
        row = table.get((state, event))
        if row is None:
            address = self._port.address
            story = [f"{name} {old} {cause}" for name, old, cause in self._story if name in (subject, address)]
            raise AssertionError(
                f"{address}, epoch {self.epoch}: {subject} is {state.name} and cannot take {event.name}; "
                f"transitions before: {', '.join(story) or 'none'}"
            )
        self._story.append((subject, state.name, event.name))
        return row

    # Actions: what else a transition does.

    def _nothing(self) -> None:
        """Nothing else is done."""

    def _forget(self) -> None:
        """The master forgets its account of all nodes."""
        self.master.forget_all()

    def _begin(self) -> None:
        """All nodes are unreported, and the master forgets its account of them."""
        self.node_states = dict.fromkeys(self.nodes, NodeState.UNREPORTED)
        self._unreported_count = len(self.nodes)
        self.master.forget_all()

    def _open(self) -> None:
        """The master begins to place tasks."""
        self.master.all_reachable_reported()

    def _settle(self) -> None:
        """The master gives up attempts that no node has reported."""
        self.master.all_reported()

    def _adopt(self, node: Address, status: Status | None) -> None:
        """The account of the node becomes what its status says."""
        assert status is not None, "a report without a status"
        self._port.cancel_timer(("lease", node))
        self.master.node_reported(node, status)
        self.advance()

    def _admit(self, node: Address, status: Status | None) -> None:
        """Tasks may be placed there, if it can be reached."""
        if self.reachable(node):
            self.master.node_back(node)

    def _leave(self, node: Address, status: Status | None) -> None:
        """Nothing more is sent there, and what runs may go on."""
        self.master.node_away(node)

    def _bury(self, node: Address, status: Status | None) -> None:
        """The master gives up all attempts there."""
        self.master.node_dead(node)
        self.advance()

    def _start_lease(self, node: Address, now: Time) -> None:
        """The lease is counted from now on."""
        self._port.set_timer(("lease", node), now + self.lease.lease_us)

    def _restart_lease(self, node: Address, now: Time) -> None:
        """The lease is counted from now on, whatever has passed of it."""
        self.lease_over_us.pop(node, None)
        self._start_lease(node, now)

    def _end_lease(self, node: Address, now: Time) -> None:
        """The lease is counted no more."""
        self.lease_over_us.pop(node, None)
        self._port.cancel_timer(("lease", node))

    def _note_expiry(self, node: Address, now: Time) -> None:
        """The time is noted: it tells answers of the voters from those to earlier questions."""
        self.lease_over_us[node] = now


Table = dict[tuple[State, Happening], tuple[State, Action]]


def _table(*rows: tuple[Iterable[State], Happening, State, Action]) -> Table[State, Happening, Action]:
    """The table of rows, each for some states: an event, the state that follows, and what else is done."""
    return {(state, event): (following, action) for states, event, following, action in rows for state in states}


# Drawn in docs/architectures/leadership.md.
_FOLLOWS = (LeaderState.FOLLOWING, LeaderState.CLAIMING)
_LEADS = (LeaderState.COLLECTING, LeaderState.OPEN, LeaderState.SETTLED)
_CERTAIN = (NodeState.UNREPORTED, NodeState.REPORTED, NodeState.VOID)
_HAS_REPORTED = (NodeState.REPORTED, NodeState.UNCONFIRMED, NodeState.VOID)
_GONE = (Contact.LOST, Contact.EXPIRED)

LEADER: Final = _table(
    (_FOLLOWS, LeaderEvent.CLAIMED, LeaderState.CLAIMING, Leadership._nothing),
    (_LEADS, LeaderEvent.CLAIMED, LeaderState.CLAIMING, Leadership._forget),
    (LeaderState, LeaderEvent.ELECTED, LeaderState.COLLECTING, Leadership._begin),
    (_FOLLOWS, LeaderEvent.DEPOSED, LeaderState.FOLLOWING, Leadership._nothing),
    (_LEADS, LeaderEvent.DEPOSED, LeaderState.FOLLOWING, Leadership._forget),
    ([LeaderState.COLLECTING], LeaderEvent.REACHABLE_REPORTED, LeaderState.OPEN, Leadership._open),
    ([LeaderState.COLLECTING], LeaderEvent.ALL_REPORTED, LeaderState.SETTLED, Leadership._open),
    ([LeaderState.OPEN], LeaderEvent.ALL_REPORTED, LeaderState.SETTLED, Leadership._settle),
)

NODE: Final = _table(
    (_CERTAIN, NodeEvent.REPORT, NodeState.REPORTED, Leadership._adopt),
    # Only the voters confirm: what a node says may be the effect of an earlier confirmation.
    ([NodeState.UNCONFIRMED], NodeEvent.REPORT, NodeState.UNCONFIRMED, Leadership._adopt),
    # It has forgotten whom it obeyed: perhaps another, which may have deposed this leader and launched elsewhere what
    # waits here. So its status is adopted, but nothing is launched there yet.
    (NodeState, NodeEvent.RESTARTED_REPORT, NodeState.UNCONFIRMED, Leadership._adopt),
    ([NodeState.UNCONFIRMED], NodeEvent.CONFIRMED, NodeState.REPORTED, Leadership._admit),
    # Its answer to `Lead` is adopted as ever, and says itself that the node was restarted.
    ([NodeState.UNREPORTED], NodeEvent.RENEWED, NodeState.UNREPORTED, Leadership._leave),
    (_HAS_REPORTED, NodeEvent.RENEWED, NodeState.VOID, Leadership._leave),
    (NodeState, NodeEvent.IDLE, NodeState.VOID, Leadership._bury),
)

CONTACT: Final = _table(
    ([Contact.PRESENT, Contact.LOST], ContactEvent.LOSS, Contact.LOST, Leadership._start_lease),
    ([Contact.EXPIRED], ContactEvent.LOSS, Contact.EXPIRED, Leadership._start_lease),
    (Contact, ContactEvent.RETURN, Contact.PRESENT, Leadership._end_lease),
    (_GONE, ContactEvent.LEASE_OVER, Contact.EXPIRED, Leadership._note_expiry),
    (_GONE, ContactEvent.DOUBT_ENDS, Contact.LOST, Leadership._restart_lease),
)
