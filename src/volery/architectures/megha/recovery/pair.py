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
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace

from volery.architectures.megha.allocations import Allocations, GmSyncState, Start
from volery.architectures.megha.config import MeghaConfig
from volery.architectures.megha.hosts import PairHost
from volery.architectures.megha.recovery.messages import ResyncReply, ResyncRequest
from volery.architectures.megha.shares.messages import ATTEMPTS, AttemptsLost
from volery.core.component import Attached, Sends, sent_to
from volery.core.events import Counted, Drain, Event, Moved, Reassignment, TimerFired
from volery.core.model import SECOND, Address, Task, TaskId, Time
from volery.core.port import Port
from volery.roles.node import Kill
from volery.roles.recovery.election import ELECTION, MOVES_AND_DRAINS, PairElection, pair_sends
from volery.roles.recovery.leadership import Leadership
from volery.roles.recovery.leases import Fence, Forget, Lease, Result, Run, RunningAttempt, StaleEpoch, Status

if TYPE_CHECKING:
    from volery.architectures.megha.shares.preemptions import WeightedShares


def lease_of(config: MeghaConfig) -> Lease:
    """The lease of a node."""
    return Lease(round(config.detection_s * SECOND))


def pair_of(lm: int) -> tuple[Address, Address]:
    """The addresses of the two masters of a cluster."""
    return f"lm/{lm}", f"lm/{lm}/standby"


class Paired(Attached):
    """One of the two masters of a cluster: it validates while it leads, and follows results while its partner does.

    Args:
        host: The Local Master.
        allocations: What is free in its cluster.
        preemptions: Preemptions there; None: users have no shares.
        nodes: Machines of the cluster.
        lm: Number of the cluster.
        me: Place of this master in the pair: 0, or 1 for the standby.

    Attributes:
        allocations: What is free in its cluster.
        leadership: State of its leadership and of the nodes.
        drained: Nodes on which nothing is placed by order.
        listed_tasks: Tasks that GMs have requested here and not forgotten, as printed; else none.
    """

    takes: ClassVar[frozenset[type]] = frozenset({Result, Forget, ResyncRequest, Moved, *ELECTION, *MOVES_AND_DRAINS})
    sends: ClassVar[Sends] = (
        pair_sends("lm", "gm") | sent_to("node", Run, Kill, Forget, Fence) | sent_to("gm", ResyncReply, AttemptsLost)
    )

    def __init__(
        self,
        host: PairHost,
        allocations: Allocations,
        preemptions: WeightedShares | None,
        *,
        nodes: Sequence[Address],
        lm: int,
        me: int,
        config: MeghaConfig,
        incarnation: int,
    ) -> None:
        self._host = host
        self.allocations = allocations
        self._preemptions = preemptions
        self._printed = config.recovery == "paper"
        self.listed_tasks: dict[TaskId, Task] = {}
        self._gms_to_report_to: dict[Address, None] = {}
        self._nodes = nodes

        # Results with the node that keeps each, and attempts that wait for a node that is away.
        self._results: dict[TaskId, tuple[RunningAttempt, Address]] = {}
        self._runs_to_send: dict[Address, list[tuple[Task, RunningAttempt]]] = {}
        # Per GM, the last move of its jobs to another, and its term when it last asked.
        self._move_epoch_of: dict[Address, int] = {}
        self._terms: dict[Address, int] = {}
        self.leadership = Leadership(self, me, 2, nodes, host.gms, lease_of(config), incarnation)
        self._election = PairElection(self.leadership, pair_of(lm))
        self.drained = self.leadership.drained
        if not self.leadership.leading:
            self.forget_all()

    @property
    def opened(self) -> bool:
        """True where this master leads, and knows what runs on all nodes that it can reach."""
        return self.leadership.opened

    def bind(self, port: Port) -> None:
        self._election.bind(port)

    def start(self, now: Time) -> None:
        self._election.start(now)

    def handle(self, event: Event, source: Address, now: Time) -> None:
        """Take an event of a Local Master that is one of a pair."""
        match event:
            case Result():
                self.on_result(event, source, now)
            case Forget():
                self.on_forget(event, source)
            case ResyncRequest():
                self.on_resync_request(event, source, now)
            case StaleEpoch():
                self.on_stale_epoch(event, source, now)
            case Moved():
                self.on_moved(event, source)
            case _:
                self._election.handle(event, source, now)

    def forget_all(self) -> None:
        """Forget all but results."""
        self._runs_to_send.clear()
        self._gms_to_report_to.clear()
        self._host.forget_all()

    # What Global Masters ask for.

    def note_requested(self, tasks: Sequence[Task], gm: Address, term: int) -> None:
        """Note tasks that a GM requests in a term, whether they are placed or not."""
        # What this master refuses is listed, too: one that follows does not know which is.
        if self._printed and not self._is_void(gm, term):
            self.listed_tasks.update({task.id: task for task in tasks})

    def accepts(self, gm: Address, epoch: int, term: int) -> bool:
        """Find out whether a request is valid: this master leads in its epoch, and the GM still has its jobs."""
        return self.opened and epoch == self.leadership.epoch and not self._is_void(gm, term)

    def answers(self, gm: Address) -> bool:
        """Answer as the leader; a GM that asks another asks again when this one reports."""
        return self.opened and not self._is_void(gm, self._term_of(gm))

    def _term_of(self, gm: Address) -> int:
        """Return the term of a GM, as it was when it last asked what runs here; see `Request`."""
        return self._terms.get(gm, 0)

    def _is_void(self, gm: Address, term: int) -> bool:
        """Find out whether a request of a GM in a term is void: its jobs were moved to another since."""
        return bool(self._move_epoch_of) and term < self._move_epoch_of.get(gm, 0)

    def is_reachable(self, node: Address) -> bool:
        """Find out whether a node is known to be there, and to obey this master."""
        return self.leadership.reachable(node)

    def is_usable(self, node: Address) -> bool:
        """Find out whether tasks may be placed on a node."""
        return self.leadership.usable(node)

    def launch(self, starts: Sequence[Start]) -> None:
        """Have nodes run attempts; what asks for nothing fits on a machine that is away, too: there it waits."""
        for task, active, node in starts:
            if self.leadership.reachable(node):
                self._run(task, active, node)
            else:
                self._runs_to_send.setdefault(node, []).append((task, active))

    def _run(self, task: Task, active: RunningAttempt, node: Address) -> None:
        epoch, term = self.leadership.epoch, active.term
        self._host.send(node, Run(epoch, task, active.attempt, active.owner, active.unit, active.account, term))

    def evict(self, node: Address, active: RunningAttempt) -> None:
        """Have a node end an attempt for another task's sake."""
        self._host.send(node, Kill(active.task, active.attempt, self.leadership.epoch))

    def withdraw(self, tasks: tuple[TaskId, ...], gm: Address, now: Time) -> None:
        """Stop what runs; what waits for a machine that is away is dropped."""
        task_set = frozenset(tasks)
        for number in tasks:
            self.listed_tasks.pop(number, None)
        for node, unsent in self._runs_to_send.items():
            for task, active in unsent:
                current = self._host.attempts.find(active, node) if task.id in task_set else None
                if current is not None:
                    self._host.note_end(self.allocations.credit(current), task.id, now)
                    self._host.release(current)
        # A task that is cancelled waits for its dead machine no longer.
        for node in self._nodes:
            self._maybe_hand_back(node)
        if self._is_void(gm, self._term_of(gm)):
            return
        for active in self._host.attempts:
            if active.task in task_set:
                self._host.send(self._host.attempts.node_of(active), Kill(active.task))

    def on_drain(self, message: Drain, source: Address, now: Time) -> None:
        """Place nothing on a node, or again."""
        self.leadership.on_drain(message, source, now)
        self._maybe_hand_back(message.node)

    def takes_timer(self, event: TimerFired, now: Time) -> bool:
        """Take a timer of the leadership; find out whether it was one."""
        if self._election.is_lease(event):
            self._election.on_lease_timer(event, now)
            return True
        if not self.opened:
            return False
        for address, state in self._host.gms.items() if self._move_epoch_of else ():
            if self._is_void(address, self._term_of(address)):
                self._skip(state)  # frames for one that never comes back would be kept for ever
        return False

    def report_to_restarted(self) -> None:
        """As printed, send its report with this heartbeat to each GM that has begun anew."""
        joining, self._gms_to_report_to = self._gms_to_report_to, {}
        for gm in joining:
            self._report_whole(gm)

    def _skip(self, gm: GmSyncState) -> None:
        self.allocations.skip(gm)
        if self._preemptions is not None:
            self._preemptions.skip(gm)
        gm.ended = []

    # Results.

    def on_result(self, message: Result, node: Address, now: Time) -> None:
        """Keep a result; an attempt that was evicted, or that its node could not begin, goes back to its own GM."""
        # An evicted attempt has no result: its task goes back to its GM, which alone numbers attempts.
        if not message.is_evicted:
            self._end(self._with_owner(message.active), node, now)
        else:
            current = self._host.attempts.find(message.active, node)
            if current is None:
                return
            if self._preemptions is not None and self._preemptions.evicted(current, now):
                self._host.release(current)
            else:
                self._hand_back([current])
        if self._preemptions is not None:
            self._preemptions.resume(node, now)

    def _with_owner(self, active: RunningAttempt) -> RunningAttempt:
        """An attempt as its present owner's, when its job was moved since it was placed."""
        owner, term = active.owner, active.term
        for move in self._election.moves:
            if move.origin == owner and move.epoch > term and move.heir in self._host.gms:
                owner, term = move.heir, move.epoch
        return active if term == active.term else replace(active, owner=owner, term=term)

    def _end(self, active: RunningAttempt, node: Address, now: Time) -> bool:
        """Keep a result; whether the owner is sent a notice of it."""
        # Results of attempts may overtake each other: the latest is kept.
        earlier = self._results.get(active.task)
        if earlier is None or earlier[0].attempt <= active.attempt:
            self._results[active.task] = (active, node)

        # It is not in the account of this master: it follows, or the attempt was given up.
        current = self._host.attempts.find(active, node)
        if current is None:
            return False
        self._host.release(current)
        self._host.note_end(self.allocations.credit(current), current.task, now)
        self._host.schedule_news(now)
        return True

    def on_forget(self, message: Forget, gm: Address) -> None:
        """Drop results, here and, as the leader, at their nodes; of jobs that were moved the heir sends it.

        Of a task that was requested here and ran elsewhere there is no result: it is listed no more.
        """
        if self._is_void(gm, self._term_of(gm)):
            return
        at: dict[Address, list[TaskId]] = {}
        for task in message.tasks:
            self.listed_tasks.pop(task, None)
            current = self._results.pop(task, None)
            if current is not None:
                at.setdefault(current[1], []).append(task)
        for node, tasks in at.items() if self.leadership.leading else ():
            self._host.send(node, Forget(tuple(tasks)))

    # Nodes; see `Led`.

    def known_at(self, node: Address) -> Mapping[TaskId, RunningAttempt]:
        return {attempt.task: attempt for attempt in self._host.attempts.at(node)}

    def seats(self, node: Address, running: Sequence[RunningAttempt]) -> list[RunningAttempt]:
        if self._preemptions is not None:
            running = [self._preemptions.named(active) for active in running]
        return self.allocations.seats(node, running)

    def node_away(self, node: Address) -> None:
        """It has nothing free."""
        self.allocations.recount(node)
        self._host.send_news_soon(by_heartbeat=self.opened)

    def node_back(self, node: Address) -> None:
        """Free what no task has there, unless the node is drained, and go on with claims there."""
        for task, active in self._runs_to_send.pop(node, ()):
            if self._host.attempts.find(active, node) is not None:
                self._run(task, active, node)
        if self.allocations.recount(node):
            self._host.send_news_soon(by_heartbeat=self.opened)
        if self._preemptions is not None:
            self._preemptions.resume(node, 0)

    def node_reported(self, node: Address, status: Status) -> None:
        """Take over what runs there; what does not, and has not finished, is lost."""
        attempts = self._host.attempts
        running = {active.task for active in status.running}
        finished = [active for active in map(self._with_owner, status.finished) if not self._end(active, node, 0)]
        missing_attempts = [active for active in attempts.at(node) if active.task not in running]
        self._hand_back([active for active in missing_attempts if self._to_relaunch(active, node) is None])
        relaunched = [self._relaunch(active, node) for active in list(attempts.at(node)) if active.task not in running]
        new_attempts = [self._with_owner(active) for active in status.running if active.task not in attempts.by_task]
        for active in new_attempts:
            self._host.adopt(active)
        if self.leadership.reachable(node):
            self.node_back(node)
        if self.opened:
            for address in self._host.gms:
                self._report(address, [*relaunched, *new_attempts], finished, whole=False)

    def node_dead(self, node: Address) -> None:
        """Its tasks go back to their owners, or wait for it, and nobody gets their places."""
        self._hand_back(self._not_waiting(node))
        if self._preemptions is not None:
            self._preemptions.node_dead(node)

    def _not_waiting(self, node: Address) -> list[RunningAttempt]:
        return [active for active in self._host.attempts.at(node) if self._to_relaunch(active, node) is None]

    def _maybe_hand_back(self, node: Address) -> None:
        """Hand back what waits for a dead node no longer."""
        if self._printed and self.leadership.given_up(node):
            self._hand_back(self._not_waiting(node))

    def _to_relaunch(self, active: RunningAttempt, node: Address) -> Task | None:
        is_victim = self._preemptions is not None and self._preemptions.is_victim(active.task)
        if node in self.drained or is_victim:
            return None
        return self.listed_tasks.get(active.task)

    def _relaunch(self, active: RunningAttempt, node: Address) -> RunningAttempt:
        """Launch a dead attempt's task again where it was; its GM numbers attempts below these."""
        task, low = self._to_relaunch(active, node), active.attempt % ATTEMPTS
        assert task is not None, "a task that was handed back"
        relaunched = replace(active, attempt=active.attempt + max(1, ATTEMPTS // 2 - low))
        self._host.attempts.put(relaunched)
        self._host.observe(Counted("relaunches"))
        self.launch(((task, relaunched, node),))
        return relaunched

    def _hand_back(self, dead: list[RunningAttempt]) -> None:
        owners: dict[Address, list[RunningAttempt]] = {}
        for active in dead:
            self._host.release(active)
            owners.setdefault(active.owner, []).append(active)
        for owner, attempts in owners.items():
            self._host.send(owner, AttemptsLost(tuple(attempts)))
        self._host.send_news_soon(by_heartbeat=self.opened)

    # Reports.

    def all_reachable_reported(self) -> None:
        """Send every GM the whole state of the cluster."""
        for address in self._host.gms:
            self._report_whole(address)

    def all_reported(self) -> None:
        """Report to every GM that nothing else runs here."""
        for address in self._host.gms:
            self._report(address, (), (), whole=False)

    def all_fenced(self) -> None:
        """Report to every GM that no origin of a move can have anything started here."""
        self.all_reported()

    def on_resync_request(self, message: ResyncRequest, gm: Address, now: Time) -> None:
        """A GM has begun anew; one that does not know yet that its jobs were moved comes again."""
        self._terms[gm] = message.term
        if self.opened and not self._is_void(gm, message.term):
            self._note_restart(self._host.gms[gm])
            if self._printed:
                # As printed: a GM that has begun anew is rebuilt from a heartbeat.
                self._gms_to_report_to[gm] = None
                self._host.set_heartbeat(now)
            else:
                self._report_whole(gm)

    def _note_restart(self, gm: GmSyncState) -> None:
        if self._host.gangs is not None:
            self._host.gangs.forget_gm(gm.address)
        gm.request = 0
        gm.ended = []
        if self._preemptions is not None:
            self._preemptions.gm_restarted(gm)

    def on_stale_epoch(self, message: StaleEpoch, source: Address, now: Time) -> None:
        """Adopt the term of a GM that this incarnation did not know, too."""
        if source in self._host.gms and message.term > self._term_of(source):
            self.on_resync_request(ResyncRequest(message.term), source, now)
        self._election.on_stale_epoch(message, source, now)

    def on_moved(self, message: Moved, source: Address) -> None:
        """Jobs were moved between GMs; an heir that asks again is answered again."""
        self._election.learn(message.moves)
        if self.opened and self._election.fenced:
            self._report(source, (), (), whole=False)

    def adopt_moves(self, new_moves: Sequence[Reassignment]) -> None:
        """Hand all attempts of the origins over to the heirs, and refuse what the origins asked for before."""
        for move in new_moves:
            if move.origin not in self._host.gms:  # stored by nodes when the federation had more GMs
                continue
            self._host.forget_update_request(move.origin)
            self._move_epoch_of[move.origin] = max(move.epoch, self._move_epoch_of.get(move.origin, 0))
            self._note_restart(self._host.gms[move.origin])
        running, finished = [], []
        for active in list(self._host.attempts):
            moved_attempt = self._with_owner(active)
            if moved_attempt is not active:
                self._host.attempts.put(moved_attempt)
                running.append(moved_attempt)
        for task, (active, node) in self._results.items():
            moved_attempt = self._with_owner(active)
            if moved_attempt is not active:
                self._results[task] = moved_attempt, node
                finished.append(moved_attempt)
        for heir in dict.fromkeys(active.owner for active in (*running, *finished)) if self.opened else ():
            self._report(heir, running, finished, whole=False)

    def _report_whole(self, address: Address) -> None:
        running = list(self._host.attempts)
        if self._preemptions is not None:
            self._preemptions.send_whole_holdings(self._host.gms[address], running)
        self._report(address, running, [active for active, _ in self._results.values()], whole=True)

    def _report(
        self, address: Address, running: Iterable[RunningAttempt], finished: Iterable[RunningAttempt], *, whole: bool
    ) -> None:
        if self._is_void(address, self._term_of(address)):
            return
        gm, allocations, leadership = self._host.gms[address], self.allocations, self.leadership
        update = allocations.whole(gm) if whole else allocations.delta(gm)
        mine = [tuple(active for active in actives if active.owner == address) for actives in (running, finished)]
        epoch, settled, fenced = leadership.epoch, leadership.settled, self._election.fenced
        self._host.send(address, ResyncReply(epoch, whole, settled, update, mine[0], mine[1], fenced))

    def check_rest(self) -> None:
        assert not self._host.attempts.by_task, "tasks are still active"
        if self.leadership.leading:
            assert self.leadership.settled, "nodes have not answered"
            self.allocations.check_rest()
            if self._preemptions is not None:
                self._preemptions.check_rest()
