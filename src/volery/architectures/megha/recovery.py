"""Recovery of a cluster when a master or a node crashes: one Local Master alone, or one of a pair.

A pair is rebuilt from its nodes whenever one of it begins to lead. The nodes are the record: what runs where, and what
has finished and is not forgotten. The standby receives every result, too. A leader hands tasks of dead nodes, from its
list of active tasks, back to the GMs that own them, which alone number attempts.

As printed (arXiv 2103.08413, section IV-D) a leader relaunches the tasks of a failed worker itself, there, once it is
restarted: both masters receive what GMs request, and so both have the list of tasks. What is not on it goes back to its
GM, and so does what is cancelled, or waits for a machine that is drained. A relaunched task is no victim of preemptions
any more. And a GM that has begun anew receives its report with the next heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from msgspec.structs import replace

from volery.architectures.megha.allocations import GmSyncState
from volery.architectures.megha.messages import ATTEMPTS, AttemptsLost, ResyncReply, ResyncRequest
from volery.core.component import Sends, sent_to
from volery.core.events import Counted, Drain, Moved, Reassignment, TimerFired
from volery.core.model import Address, Task, TaskId, Time
from volery.core.port import Port
from volery.roles.node import Completed, Kill, Launch
from volery.roles.recovery.election import LEADERSHIP, MOVES_AND_DRAINS, Leadership, pair_sends
from volery.roles.recovery.leases import Fence, Forget, Lease, Result, Run, RunningAttempt, StaleEpoch, Status

if TYPE_CHECKING:
    from volery.architectures.megha.local_master import LocalMaster

HEARTBEAT: Final = "heartbeat"


def pair_of(lm: int) -> tuple[Address, Address]:
    """The addresses of the two masters of a cluster."""
    return f"lm/{lm}", f"lm/{lm}/standby"


class Alone:
    """The only master of a cluster, which never crashes.

    Attributes:
        opened: whether it leads, and knows what runs on all nodes that it can reach.
        drained: nodes on which nothing is placed by order.
    """

    takes: ClassVar[frozenset[type]] = frozenset({Completed})
    sends: ClassVar[Sends] = sent_to("node", Launch, Kill)
    paired = False
    opened = True

    def __init__(self) -> None:
        self.drained: set[Address] = set()

    def join(self, lm: LocalMaster) -> None:
        """Become the recovery of this Local Master."""
        self._lm = lm

    def bind(self, port: Port) -> None: ...
    def start(self, now: Time) -> None: ...

    def note_requested(self, tasks: Sequence[Task], gm: Address, term: int) -> None:
        """Note tasks that a GM requests in a term."""

    def heeds(self, gm: Address, epoch: int, term: int) -> bool:
        """Find out whether a request of a GM is valid."""
        return True

    def answers(self, gm: Address) -> bool:
        """Find out whether a GM is sent news of room."""
        return True

    def reachable(self, node: Address) -> bool:
        """Find out whether a node is known to be there."""
        return True

    def usable(self, node: Address) -> bool:
        """Find out whether tasks may be placed on a node."""
        return node not in self.drained

    def run(self, task: Task, active: RunningAttempt, node: Address) -> None:
        """Have a node launch an attempt."""
        self._lm.launch(task, active, node)

    def evict(self, node: Address, active: RunningAttempt) -> None:
        """Have a node end an attempt for another task's sake."""
        self._lm.send(node, Kill(active.task, active.attempt))

    def withdraw(self, tasks: tuple[TaskId, ...], gm: Address, now: Time) -> None:
        """Have nodes end what still runs of these."""
        for task in tasks:
            node = self._lm.allocations.node_of(task)
            if node:
                self._lm.send(node, Kill(task, self._lm.there[node][task].attempt))

    def on_drain(self, message: Drain, source: Address, now: Time) -> None:
        """Place nothing on a node, or again."""
        (self.drained.add if message.drained else self.drained.discard)(message.node)
        self._lm.close(message.node, closed=message.drained)
        self._lm.maybe_arm(now)
        self._lm.tell_askers_soon(now)

    def takes_timer(self, event: TimerFired, now: Time) -> bool:
        """Find out whether a timer is its own, or nothing is to be sent."""
        return False

    def term_of(self, gm: Address) -> int:
        """The term of a GM."""
        return 0

    def check_rest(self) -> None:
        """Nothing to check: news of what is free goes with the next heartbeat."""


class Paired:
    """One of the two masters of a cluster: it validates while it leads, and follows results while its partner does.

    Args:
        me: 0, or 1 for the standby.
        printed: whether it relaunches, and reports with heartbeats, as printed.

    Attributes:
        leadership: who leads, and the nodes.
    """

    takes: ClassVar[frozenset[type]] = frozenset({Result, Forget, ResyncRequest, Moved, *LEADERSHIP, *MOVES_AND_DRAINS})
    sends: ClassVar[Sends] = (
        pair_sends("lm", "gm") | sent_to("node", Run, Kill, Forget, Fence) | sent_to("gm", ResyncReply, AttemptsLost)
    )
    paired = True

    def __init__(self, lm: int, me: int, lease: Lease, incarnation: int, *, printed: bool = False) -> None:
        self._printed = printed
        self._listed_tasks: dict[TaskId, Task] = {}
        self._gms_to_report_to: dict[Address, None] = {}
        self._pair = pair_of(lm)
        self._me = me
        self._lease = lease
        self._incarnation = incarnation
        self._results: dict[TaskId, tuple[RunningAttempt, Address]] = {}
        self._move_epoch_of: dict[Address, int] = {}
        self._terms: dict[Address, int] = {}
        self._runs_to_send: dict[Address, list[tuple[Task, RunningAttempt]]] = {}

    def join(self, lm: LocalMaster) -> None:
        self._lm = lm
        lm.leadership = self.leadership = Leadership(
            self, self._pair, self._me, lm.there, lm.gms, self._lease, self._incarnation
        )
        self.drained = self.leadership.drained
        if not self.leadership.leading:
            self.forget_all()

    @property
    def opened(self) -> bool:
        return self.leadership.opened

    def bind(self, port: Port) -> None:
        self.leadership.bind(port)

    def start(self, now: Time) -> None:
        self.leadership.start(now)

    def forget_all(self) -> None:
        """Forget all but results."""
        self._runs_to_send.clear()
        self._gms_to_report_to.clear()
        self._lm.forget_all()

    # What Global Masters ask for.

    def note_requested(self, tasks: Sequence[Task], gm: Address, term: int) -> None:
        """See `Recovery`; what this master refuses is listed, too: one that follows does not know which is."""
        if self._printed and not self._is_void(gm, term):
            self._listed_tasks.update({task.id: task for task in tasks})

    def heeds(self, gm: Address, epoch: int, term: int) -> bool:
        """See `Recovery`; one whose jobs were moved to another is void."""
        return self.opened and epoch == self.leadership.epoch and not self._is_void(gm, term)

    def answers(self, gm: Address) -> bool:
        """Answer as the leader; a GM that asks another asks again when this one reports."""
        return self.opened and not self._is_void(gm, self.term_of(gm))

    def term_of(self, gm: Address) -> int:
        return self._terms.get(gm, 0)

    def _is_void(self, gm: Address, term: int) -> bool:
        """Find out whether a request of a GM in a term is void: its jobs were moved to another since."""
        return bool(self._move_epoch_of) and term < self._move_epoch_of.get(gm, 0)

    def reachable(self, node: Address) -> bool:
        return self.leadership.reachable(node)

    def usable(self, node: Address) -> bool:
        return self.leadership.usable(node)

    def run(self, task: Task, active: RunningAttempt, node: Address) -> None:
        """Run an attempt; what asks for nothing fits on a machine that is away, too: there it waits."""
        if self.leadership.reachable(node):
            self._run(task, active, node)
        else:
            self._runs_to_send.setdefault(node, []).append((task, active))

    def _run(self, task: Task, active: RunningAttempt, node: Address) -> None:
        epoch, term = self.leadership.epoch, active.term
        self._lm.send(node, Run(epoch, task, active.attempt, active.owner, active.unit, active.account, term))

    def _is_there(self, active: RunningAttempt, node: Address) -> bool:
        known = self._lm.there[node].get(active.task)
        return known is not None and known.attempt == active.attempt

    def evict(self, node: Address, active: RunningAttempt) -> None:
        self._lm.send(node, Kill(active.task, active.attempt, self.leadership.epoch))

    def withdraw(self, tasks: tuple[TaskId, ...], gm: Address, now: Time) -> None:
        """Stop what runs; what waits for a machine that is away is dropped."""
        wanted = frozenset(tasks)
        for number in tasks:
            self._listed_tasks.pop(number, None)
        for node, unsent in self._runs_to_send.items():
            for task, active in unsent:
                if task.id in wanted and self._is_there(active, node):
                    known = self._lm.there[node][task.id]
                    self._lm.note_ended(self._lm.allocations.ended(known), task.id, now)
                    self._lm.let_go(active, node)
        for node in self._lm.there:
            self._maybe_hand_back(node)
        if self._is_void(gm, self.term_of(gm)):
            return
        for node, there in self._lm.there.items():
            for number in there:
                if number in wanted:
                    self._lm.send(node, Kill(number))

    def on_drain(self, message: Drain, source: Address, now: Time) -> None:
        self.leadership.on_drain(message, source, now)
        self._maybe_hand_back(message.node)

    def takes_timer(self, event: TimerFired, now: Time) -> bool:
        if self.leadership.is_lease(event):
            self.leadership.on_lease_timer(event, now)
            return True
        if not self.opened:
            self._lm.sleep(event)
            return True
        if event.key == HEARTBEAT:
            joining, self._gms_to_report_to = self._gms_to_report_to, {}
            for gm in joining:
                self._report_whole(gm)
        for address, state in self._lm.gms.items() if self._move_epoch_of else ():
            if self._is_void(address, self.term_of(address)):
                self._skip(state)  # frames for one that never comes back would be kept for ever
        return False

    def _skip(self, gm: GmSyncState) -> None:
        self._lm.allocations.skip(gm)
        self._lm.shares.skip(gm)
        gm.ended = []

    # Results.

    def on_result(self, message: Result, node: Address, now: Time) -> None:
        """Keep a result; an attempt that was evicted, or that its node could not begin, goes back to its own GM."""
        if not message.is_evicted:
            self._end(self._with_owner(message.active), node, now)
        else:
            known = self._lm.there[node].get(message.active.task)
            if known is None or known.attempt != message.active.attempt:
                return
            if self._lm.shares.evicted(known, now):
                self._lm.let_go(known, node)
            else:
                self._hand_back(node, [known])
        self._lm.shares.go_on(node, now)

    def _with_owner(self, active: RunningAttempt) -> RunningAttempt:
        """An attempt as its present owner's, when its job was moved since it was placed."""
        owner, term = active.owner, active.term
        for move in self.leadership.moves:
            if move.origin == owner and move.epoch > term and move.heir in self._lm.gms:
                owner, term = move.heir, move.epoch
        return active if term == active.term else replace(active, owner=owner, term=term)

    def _end(self, active: RunningAttempt, node: Address, now: Time) -> bool:
        """Keep a result; whether the owner is sent a notice of it."""
        earlier = self._results.get(active.task)
        if earlier is None or earlier[0].attempt <= active.attempt:
            self._results[active.task] = (active, node)
        known = self._lm.there[node].get(active.task)
        if known is None or known.attempt != active.attempt:
            return False
        self._lm.let_go(known, node)
        self._lm.note_ended(self._lm.allocations.ended(known), known.task, now)
        self._lm.tell_askers_soon(now)
        return True

    def on_forget(self, message: Forget, gm: Address, now: Time) -> None:
        """Drop results, here and, as the leader, at their nodes; of jobs that were moved the heir sends it.

        Of a task that was requested here and ran elsewhere there is no result: it is listed no more.
        """
        if self._is_void(gm, self.term_of(gm)):
            return
        at: dict[Address, list[TaskId]] = {}
        for task in message.tasks:
            self._listed_tasks.pop(task, None)
            known = self._results.pop(task, None)
            if known is not None:
                at.setdefault(known[1], []).append(task)
        for node, tasks in at.items() if self.leadership.leading else ():
            self._lm.send(node, Forget(tuple(tasks)))

    # Nodes; see `Led`.

    def known_at(self, node: Address) -> Mapping[TaskId, RunningAttempt]:
        return self._lm.there[node]

    def seats(self, node: Address, running: Sequence[RunningAttempt]) -> list[RunningAttempt]:
        return self._lm.allocations.seats(node, [self._lm.shares.named(active) for active in running])

    def node_away(self, node: Address) -> None:
        """It has nothing free."""
        self._lm.allocations.node_changed(node)
        self._lm.arm_soon()

    def node_back(self, node: Address) -> None:
        """Free what no task has there, unless the node is drained, and go on with claims there."""
        for task, active in self._runs_to_send.pop(node, ()):
            if self._is_there(active, node):
                self._run(task, active, node)
        if self._lm.allocations.node_changed(node):
            self._lm.arm_soon()
        self._lm.shares.go_on(node, 0)

    def node_reported(self, node: Address, status: Status) -> None:
        """Take over what runs there; what does not, and has not finished, is lost."""
        there = self._lm.there[node]
        running = {active.task for active in status.running}
        finished = [active for active in map(self._with_owner, status.finished) if not self._end(active, node, 0)]
        gone = [active for task, active in there.items() if task not in running]
        self._hand_back(node, [active for active in gone if self._to_relaunch(active, node) is None])
        again = [self._relaunch(active, node) for active in list(there.values()) if active.task not in running]
        holds = self._lm.allocations.holds
        fresh = [self._with_owner(active) for active in status.running if not holds(active.task)]
        for active in fresh:
            self._lm.take_on(active, node)
        if self.leadership.reachable(node):
            self.node_back(node)
        if self.opened:
            for address in self._lm.gms:
                self._report(address, [*again, *fresh], finished, whole=False)

    def node_dead(self, node: Address) -> None:
        """Its tasks go back to their owners, or wait for it, and nobody gets their places."""
        self._hand_back(node, self._not_waiting(node))
        self._lm.shares.node_dead(node)

    def _not_waiting(self, node: Address) -> list[RunningAttempt]:
        return [active for active in self._lm.there[node].values() if self._to_relaunch(active, node) is None]

    def _maybe_hand_back(self, node: Address) -> None:
        """Hand back what waits for a dead node no longer."""
        if self._printed and self.leadership.given_up(node):
            self._hand_back(node, self._not_waiting(node))

    def _to_relaunch(self, active: RunningAttempt, node: Address) -> Task | None:
        if node in self.drained or self._lm.shares.is_victim(active.task):
            return None
        return self._listed_tasks.get(active.task)

    def _relaunch(self, active: RunningAttempt, node: Address) -> RunningAttempt:
        """Launch a dead attempt's task again where it was; its GM numbers attempts below these."""
        task, low = self._to_relaunch(active, node), active.attempt % ATTEMPTS
        assert task is not None, "a task that was handed back"
        again = replace(active, attempt=active.attempt + max(1, ATTEMPTS // 2 - low))
        self._lm.there[node][active.task] = again
        self._lm.observe(Counted("relaunches"))
        self.run(task, again, node)
        return again

    def _hand_back(self, node: Address, dead: list[RunningAttempt]) -> None:
        owners: dict[Address, list[RunningAttempt]] = {}
        for active in dead:
            self._lm.let_go(active, node)
            owners.setdefault(active.owner, []).append(active)
        for owner, attempts in owners.items():
            self._lm.send(owner, AttemptsLost(tuple(attempts)))
        self._lm.arm_soon()

    # Reports.

    def all_reachable_reported(self) -> None:
        """Send every GM the whole state of the cluster."""
        for address in self._lm.gms:
            self._report_whole(address)

    def all_reported(self) -> None:
        """Report to every GM that nothing else runs here."""
        for address in self._lm.gms:
            self._report(address, (), (), whole=False)

    def all_fenced(self) -> None:
        """Report to every GM that no origin of a move can have anything started here."""
        self.all_reported()

    def on_resync_request(self, message: ResyncRequest, gm: Address, now: Time) -> None:
        """A GM has begun anew; one that does not know yet that its jobs were moved comes again."""
        self._terms[gm] = message.term
        if self.opened and not self._is_void(gm, message.term):
            self._meet_anew(self._lm.gms[gm])
            if self._printed:
                self._gms_to_report_to[gm] = None
                self._lm.maybe_arm(now)
            else:
                self._report_whole(gm)

    def _meet_anew(self, gm: GmSyncState) -> None:
        gm.request = 0
        gm.ended = []
        self._lm.shares.met_anew(gm)

    def on_stale_epoch(self, message: StaleEpoch, source: Address, now: Time) -> None:
        """Adopt the term of a GM that this incarnation did not know, too."""
        if source in self._lm.gms and message.term > self.term_of(source):
            self.on_resync_request(ResyncRequest(message.term), source, now)
        self.leadership.on_stale_epoch(message, source, now)

    def on_moved(self, message: Moved, source: Address, now: Time) -> None:
        """Jobs were moved between GMs; an heir that asks again is answered again."""
        self.leadership.learn(message.moves)
        if self.opened and self.leadership.fenced:
            self._report(source, (), (), whole=False)

    def adopt_moves(self, fresh: Sequence[Reassignment]) -> None:
        """Hand all attempts of the origins over to the heirs, and refuse what the origins asked for before."""
        for move in fresh:
            if move.origin not in self._lm.gms:  # stored by nodes when the federation had more GMs
                continue
            self._lm.forget_asker(move.origin)
            self._move_epoch_of[move.origin] = max(move.epoch, self._move_epoch_of.get(move.origin, 0))
            self._meet_anew(self._lm.gms[move.origin])
        running, finished = [], []
        for known in self._lm.there.values():
            for task, active in known.items():
                now_owned = self._with_owner(active)
                if now_owned is not active:
                    known[task] = now_owned
                    self._lm.allocations.hand_over(now_owned)
                    running.append(now_owned)
        for task, (active, node) in self._results.items():
            now_owned = self._with_owner(active)
            if now_owned is not active:
                self._results[task] = now_owned, node
                finished.append(now_owned)
        for heir in dict.fromkeys(active.owner for active in (*running, *finished)) if self.opened else ():
            self._report(heir, running, finished, whole=False)

    def _report_whole(self, address: Address) -> None:
        running = [active for known in self._lm.there.values() for active in known.values()]
        self._lm.shares.tell_picture(self._lm.gms[address], running)
        self._report(address, running, [active for active, _ in self._results.values()], whole=True)

    def _report(
        self, address: Address, running: Iterable[RunningAttempt], finished: Iterable[RunningAttempt], *, whole: bool
    ) -> None:
        if self._is_void(address, self.term_of(address)):
            return
        gm, allocations, leadership = self._lm.gms[address], self._lm.allocations, self.leadership
        update = allocations.whole(gm) if whole else allocations.delta(gm)
        mine = [tuple(active for active in actives if active.owner == address) for actives in (running, finished)]
        epoch, settled, fenced = leadership.epoch, leadership.settled, leadership.fenced
        self._lm.send(address, ResyncReply(epoch, whole, settled, update, mine[0], mine[1], fenced))

    def check_rest(self) -> None:
        assert not any(self._lm.there.values()), "tasks are still active"
        if self.leadership.leading:
            assert self.leadership.settled, "nodes have not answered"
            self._lm.allocations.check_rest()
            self._lm.shares.check_rest()


Recovery = Alone | Paired
