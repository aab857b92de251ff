"""Megha's Local Master where components may crash: one of a pair, rebuilt from its nodes whenever it begins to lead.

The nodes are the record: what runs where, and what has finished and is not forgotten. The standby receives every
result, too. A leader hands tasks of dead nodes, from its list of active tasks, back to the GMs that own them, which
alone number attempts. What is allocated, units or amounts, and how GMs are told of it, is the business of the roles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

from msgspec.structs import replace

from volery.architectures.megha.local_master import (
    HEARTBEAT,
    NEWS,
    NEWS_US,
    NOTICES,
    Answering,
)
from volery.architectures.megha.messages import Ask, Update, Withdraw
from volery.architectures.megha.surviving_messages import UNIT_SHIFT, Join, Lost, Place, Report
from volery.architectures.megha.vector_messages import StateUpdate
from volery.core.component import sent_to
from volery.core.events import Drain, Move, Moved, PeerBack, PeerLost, TimerFired
from volery.core.model import Address, Task, TaskId, Time
from volery.roles.recovery.channel import Renewed
from volery.roles.recovery.election import PairedMaster, Standing, pair_sends
from volery.roles.recovery.leases import Active, Deposed, Fence, Fenced, Forget, Lease, Result, Run, Status, Stop


def pair_of(lm: int) -> tuple[Address, Address]:
    """The addresses of the two masters of a cluster."""
    return f"lm/{lm}", f"lm/{lm}/standby"


class PairedLocalMaster(PairedMaster, Answering):
    """A mixin (without slots) before a Local Master: what the two of a cluster do, whatever they allocate.

    It validates while it leads, and follows the results while its partner does. `join_cluster` takes the place of its
    constructor.
    """

    _layout: Any
    _partitions: range
    _gms: dict[Address, Any]
    _armed: bool

    def join_cluster(self, lm: int, me: int, lease: Lease, incarnation: int) -> None:
        """Become one of the pair of a cluster.

        Args:
            lm: its number.
            me: 0, or 1 for the standby.
            lease: of its nodes.
            incarnation: of this component.
        """
        nodes = list(dict.fromkeys(node for partition in self._partitions for node in self._layout.nodes[partition]))
        self.join_pair(pair_of(lm), me, nodes, list(self._gms), lease, incarnation)
        self._there: dict[Address, dict[TaskId, Active]] = {node: {} for node in nodes}
        self._results: dict[TaskId, tuple[Active, Address]] = {}
        self._relieved: dict[Address, int] = {}
        self._terms: dict[Address, int] = {}
        if not self.leading:
            self.stop_leading()

    # What the roles differ in.

    def _take_note(self, told: Any, message: Place) -> None:
        """Take note of what the GM believes from now on."""
        raise NotImplementedError

    def _has_room(self, active: Active, node: Address) -> bool:
        """Whether the attempt can have what it asks for."""
        raise NotImplementedError

    def _refuse(self, told: Any, refused: list[Active]) -> None:
        """Answer invalid placements with the news that the GM lacks."""
        raise NotImplementedError

    def _holds(self, task: TaskId) -> bool:
        """Whether something is allocated to the task."""
        raise NotImplementedError

    def _allot(self, active: Active, node: Address) -> None:
        """The attempt has what it asked for."""
        raise NotImplementedError

    def _give_back(self, active: Active, node: Address) -> None:
        """What the attempt had is free if its node is usable."""
        raise NotImplementedError

    def _note(self, active: Active, now: Time) -> None:
        """The owner is to be told of the end in this instant."""
        raise NotImplementedError

    def _forget_notices(self) -> None:
        """Tell nobody of ends."""
        raise NotImplementedError

    def _clear(self) -> None:
        """Nothing is allocated, nothing is free, and no GM has been told anything."""
        raise NotImplementedError

    def _meet_anew(self, told: Any) -> None:
        """The GM has begun anew."""
        raise NotImplementedError

    def _news_for(self, told: Any) -> Update | StateUpdate:
        """What the GM lacks; from now on it has been told."""
        raise NotImplementedError

    def _state_for(self, told: Any) -> Update | StateUpdate:
        """Everything; from now on it has been told."""
        raise NotImplementedError

    def _hand_over(self, active: Active) -> None:
        """What the attempt has is its present owner's."""
        raise NotImplementedError

    def _tell_nothing(self, told: Any) -> None:
        """The GM hears nothing before it joins again, and is told everything then."""
        raise NotImplementedError

    def _maybe_arm(self, now: Time) -> None:
        """Set the heartbeat where it is not."""
        raise NotImplementedError

    def _on_own_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """What a Local Master does that stands alone."""
        raise NotImplementedError

    # What they have in common.

    def begin_to_lead(self) -> None:
        """All counts as taken until the nodes have answered."""
        self.stop_leading()

    def stop_leading(self) -> None:
        """Forget all but results."""
        for known in self._there.values():
            known.clear()
        self._askers.clear()
        self._clear()

    def on_place(self, message: Place, source: Address, now: Time) -> None:
        """Validate each placement and launch it; answer the invalid ones with the news that the GM lacks."""
        if not self.opened or message.epoch != self.epoch or self._is_void(source, message.term):
            return
        told, partition = self._gms[source], message.partition
        self._take_note(told, message)
        nodes, refused = self._layout.nodes[partition], []
        wanted = zip(message.tasks, message.positions, message.attempts, strict=True)
        for (task, position, attempt), account in zip(wanted, message.accounts or repeat(0), strict=False):
            unit, node = partition << UNIT_SHIFT | position, nodes[position]
            active = Active(task.id, task.job, attempt, source, unit, task.request, account, message.term)
            if node not in self._drained and self._has_room(active, node):
                self._begin(task, active, node)
            else:
                refused.append(active)
        if refused:
            self._refuse(told, refused)
        self._maybe_arm(now)

    def _is_void(self, gm: Address, term: int) -> bool:
        """Whether what a GM of a term asks for is void: its jobs were moved to another since."""
        return bool(self._relieved) and term < self._relieved.get(gm, 0)

    def _begin(self, task: Task, active: Active, node: Address) -> None:
        self._take_on(active, node)
        self._run(task, active, node)

    def _run(self, task: Task, active: Active, node: Address) -> None:
        self._port.send(node, Run(self.epoch, task, *_run_of(active)))

    def _take_on(self, active: Active, node: Address) -> None:
        self._there[node][active.task] = active
        self._allot(active, node)

    def _let_go(self, active: Active, node: Address) -> None:
        """The attempt has ended."""
        del self._there[node][active.task]
        self._give_back(active, node)

    def on_result(self, message: Result, source: Address, now: Time) -> None:
        """Keep the result; the leader frees the unit and tells the owner."""
        self._end(self._with_owner(message.active), source, now)

    def _with_owner(self, active: Active) -> Active:
        """An attempt as its present owner's, when its job was moved since it was placed."""
        owner, term = active.owner, active.term
        for move in self._moves:
            if move.origin == owner and move.epoch > term and move.heir in self._gms:
                owner, term = move.heir, move.epoch
        return active if term == active.term else replace(active, owner=owner, term=term)

    def _end(self, active: Active, node: Address, now: Time) -> bool:
        """Keep a result; whether the owner is sent a notice of it."""
        earlier = self._results.get(active.task)
        if earlier is None or earlier[0].attempt <= active.attempt:
            self._results[active.task] = (active, node)
        known = self._there[node].get(active.task)
        if known is None or known.attempt != active.attempt:
            return False
        self._let_go(known, node)
        self._note(known, now)
        self._tell_askers_soon(now)
        return True

    def on_withdraw(self, message: Withdraw, source: Address, now: Time) -> None:
        """Stop what still runs; the node reports the end."""
        if self._is_void(source, self._terms.get(source, 0)):
            return
        wanted = frozenset(message.tasks)
        for node, active in self._there.items():
            for task in active:
                if task in wanted:
                    self._port.send(node, Stop(task))

    def on_forget(self, message: Forget, source: Address, now: Time) -> None:
        """Drop results, here and, as the leader, at their nodes; of jobs that were moved the heir will say so."""
        if self._is_void(source, self._terms.get(source, 0)):
            return
        at: dict[Address, list[TaskId]] = {}
        for task in message.tasks:
            known = self._results.pop(task, None)
            if known is not None:
                at.setdefault(known[1], []).append(task)
        for node, tasks in at.items() if self.leading else ():
            self._port.send(node, Forget(tuple(tasks)))

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """The pair's timers, and a Local Master's own while it leads."""
        if self.is_lease(event):
            self.on_lease_timer(event, now)
        elif self.opened:
            for address, told in self._gms.items() if self._relieved else ():
                if self._is_void(address, self._terms.get(address, 0)):
                    self._tell_nothing(told)  # frames for one that never comes back would be kept for ever
            self._on_own_timer(event, source, now)
        elif event.key == NEWS:
            self._counting = False
        elif event.key == NOTICES:  # the first report tells them
            self._forget_notices()
        else:
            self._armed = False

    def _arm_soon(self) -> None:
        """The GMs are to hear of it with the next heartbeat, those that have asked at once."""
        self._tell_askers_soon(-NEWS_US)
        if not self._armed and self.opened:
            self._armed = True
            self._port.set_timer(HEARTBEAT, 0)

    def known_at(self, node: Address) -> Mapping[TaskId, Active]:
        """All that runs there, as far as is known."""
        return self._there[node]

    def node_reported(self, node: Address, status: Status) -> None:
        """Take over what runs there; what does not, and has not finished, is lost."""
        running = {active.task for active in status.running}
        finished = [active for active in map(self._with_owner, status.finished) if not self._end(active, node, 0)]
        self._hand_back(node, [active for task, active in self._there[node].items() if task not in running])
        fresh = [self._with_owner(active) for active in status.running if not self._holds(active.task)]
        for active in fresh:
            self._take_on(active, node)
        if self.reachable(node):
            self.node_back(node)
        if self.opened:
            for address in self._gms:
                self._report(address, fresh, finished, whole=False)

    def node_dead(self, node: Address) -> None:
        """Its tasks go back to their owners."""
        self._hand_back(node, list(self._there[node].values()))

    def _hand_back(self, node: Address, dead: list[Active]) -> None:
        owners: dict[Address, list[Active]] = {}
        for active in dead:
            self._let_go(active, node)
            owners.setdefault(active.owner, []).append(active)
        for owner, attempts in owners.items():
            self._port.send(owner, Lost(tuple(attempts)))
        self._arm_soon()

    def all_reachable_reported(self) -> None:
        """Tell every GM what the cluster looks like now."""
        for address in self._gms:
            self._report_whole(address)

    def all_reported(self) -> None:
        """Tell every GM that nothing else runs here."""
        for address in self._gms:
            self._report(address, (), (), whole=False)

    def on_join(self, message: Join, source: Address, now: Time) -> None:
        """A GM has begun anew; one that does not know yet that its jobs were moved comes again."""
        self._terms[source] = message.term
        if self.opened and not self._is_void(source, message.term):
            self._meet_anew(self._gms[source])
            self._report_whole(source)

    def on_deposed(self, message: Deposed, source: Address, now: Time) -> None:
        """A GM tells the term that this life of the master has not heard of, too."""
        if source in self._gms and message.term > self._terms.get(source, 0):
            self.on_join(Join(message.term), source, now)
        super().on_deposed(message, source, now)

    def on_ask(self, message: Ask, source: Address, now: Time) -> None:
        """As the leader; who asks another will ask again when it hears of this one."""
        if self.opened and not self._is_void(source, self._terms.get(source, 0)):
            super().on_ask(message, source, now)

    def on_moved(self, message: Moved, source: Address, now: Time) -> None:
        """Jobs were moved between GMs; an heir that asks again is answered again."""
        self.learn(message.moves)
        if self.opened and self.fenced:
            self._report(source, (), (), whole=False)

    def adopt_moves(self, fresh: Sequence[Move]) -> None:
        """Hand all attempts of the origins over to the heirs, and refuse what the origins asked for before."""
        for move in fresh:
            if move.origin not in self._gms:  # stored by nodes when the federation had more GMs
                continue
            self._askers.pop(move.origin, None)
            self._relieved[move.origin] = max(move.epoch, self._relieved.get(move.origin, 0))
            self._meet_anew(self._gms[move.origin])
        running, finished = [], []
        for known in self._there.values():
            for task, active in known.items():
                now_owned = self._with_owner(active)
                if now_owned is not active:
                    known[task] = now_owned
                    self._hand_over(now_owned)
                    running.append(now_owned)
        for task, (active, node) in self._results.items():
            now_owned = self._with_owner(active)
            if now_owned is not active:
                self._results[task] = now_owned, node
                finished.append(now_owned)
        for heir in dict.fromkeys(active.owner for active in (*running, *finished)) if self.opened else ():
            self._report(heir, running, finished, whole=False)

    def all_fenced(self) -> None:
        """Tell every GM that no origin of a move can have anything started here."""
        for address in self._gms:
            self._report(address, (), (), whole=False)

    def _report_whole(self, address: Address) -> None:
        running = [active for known in self._there.values() for active in known.values()]
        self._report(address, running, [active for active, _ in self._results.values()], whole=True)

    def _report(self, address: Address, running: Iterable[Active], finished: Iterable[Active], *, whole: bool) -> None:
        if self._is_void(address, self._terms.get(address, 0)):
            return
        told = self._gms[address]
        update = self._state_for(told) if whole else self._news_for(told)
        mine = [tuple(active for active in actives if active.owner == address) for actives in (running, finished)]
        self._port.send(address, Report(self.epoch, whole, self.settled, update, mine[0], mine[1], self.fenced))

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Place: on_place,
        Withdraw: on_withdraw,
        Result: on_result,
        Forget: on_forget,
        Join: on_join,
        Ask: on_ask,
        Moved: on_moved,
        Fenced: PairedMaster.on_fenced,
        Drain: PairedMaster.on_drain,
        Standing: PairedMaster.on_standing,
        Deposed: on_deposed,
        Status: PairedMaster.on_status,
        PeerLost: PairedMaster.on_peer_lost,
        PeerBack: PairedMaster.on_peer_back,
        Renewed: PairedMaster.on_renewed,
        TimerFired: on_timer,
    }
    sends = pair_sends("lm", "gm") | sent_to("node", Run, Stop, Forget, Fence) | sent_to("gm", Report, Lost)


def _run_of(active: Active) -> tuple[int, Address, int, int, int]:
    """The fields of a `Run` that an attempt gives."""
    return active.attempt, active.owner, active.unit, active.account, active.term
