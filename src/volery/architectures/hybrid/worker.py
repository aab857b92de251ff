"""The workers of the hybrid designs: a queue of reservations, shortest remaining work first, stealing, rejection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

from volery.architectures.hybrid.layout import HybridConfig, Layout
from volery.architectures.hybrid.messages import (
    Assign,
    Crowded,
    Ended,
    Entry,
    LongProbe,
    Probe,
    Rejected,
    Reorder,
    Steal,
    Stolen,
)
from volery.architectures.hybrid.phoenix import NONE, CrowdReport, ScarceFirst
from volery.core.component import sent_to
from volery.core.events import Counted, PeerLost, TaskFinished, TimerFired
from volery.core.model import Address, TaskId, Time
from volery.policies.match import SmallRandom
from volery.roles.reservations import Completed, Kill, NoTask, SlotKeeper, TaskRequest, Withdraw

FOREVER: Final = float("inf")
PHOENIX: Final[frozenset[type]] = frozenset({Reorder, TimerFired, PeerLost})
"""The events that only Phoenix's workers receive."""


class Worker(SlotKeeper):
    """Queues reservations on one machine, and asks for a task when a slot is free.

    The last request is kept in fields, and others that are under way in a dict that few workers ever need: ten thousand
    dicts would be memory traffic.
    """

    __slots__ = (
        "_attempts",
        "_crowd",
        "_draws",
        "_entry",
        "_layout",
        "_least_estimate_us",
        "_least_work_us",
        "_long_active",
        "_long_count",
        "_offered",
        "_open_request",
        "_other_entries",
        "_queue",
        "_requests",
        "_running_long",
        "_scarce",
        "_setting",
        "_vector",
        "_version",
        "_work_counts",
    )

    def __init__(
        self,
        slots: int,
        offered: int,
        layout: Layout,
        config: HybridConfig,
        draws: SmallRandom,
        crowd: CrowdReport | None = None,
        scarce: ScarceFirst | None = None,
    ) -> None:
        super().__init__(slots)
        self._crowd = crowd
        self._scarce = scarce
        self._offered = offered
        self._layout = layout
        self._setting = config
        self._draws = draws
        self._queue: dict[int, Entry] = {}
        self._open_request = 0
        self._entry: Entry | None = None
        self._other_entries: dict[int, Entry] | None = None
        self._requests = 0
        self._attempts = 0
        self._long_count = 0
        self._least_estimate_us = FOREVER
        self._least_work_us = FOREVER
        self._work_counts: dict[Time, int] | None = {} if config.order == "srpt" else None
        self._long_active = 0
        self._running_long: dict[TaskId, int] | None = None
        self._version = 0
        self._vector = b""

    def takes(self) -> Collection[type]:
        return self.receives.keys() - (PHOENIX if self._crowd is None else frozenset())

    def on_probe(self, message: Probe, source: Address, now: Time) -> None:
        """Reject it where a long task runs or waits, unless it is final or here already; else serve or queue it."""
        # A repeated probe of a reservation that waits here is not answered twice: `_enqueue` ignores it.
        if self._long_count and not message.final and message.number not in self._queue:
            self._port.send(source, Rejected(message.batch, message.number, self._version, self._vector))
            return

        self._enqueue(message, message.needs, False, now)

    def on_long_probe(self, message: LongProbe, source: Address, now: Time) -> None:
        """Queue it, and keep the newest knowledge of where long tasks are."""
        if message.version > self._version:
            self._version = message.version
            self._vector = message.vector
        if message.number not in self._queue:
            self._long_count += 1
            self._enqueue(message, 0, True, now)

    def _enqueue(self, probe: Probe | LongProbe, needs: int, is_long: bool, now: Time) -> None:
        number = probe.number
        queue = self._queue
        # Repeated probes: the first one counts.
        if number in queue:
            return

        queue[number] = Entry(
            probe, needs, is_long, now, self._blocked_us + now if self._blocking else self._blocked_us
        )

        if probe.estimate_us < self._least_estimate_us:
            self._least_estimate_us = probe.estimate_us

        if self._work_counts is not None:
            self._count_work(self._work_counts, probe.remaining_us)

        if self._idle:
            self._idle -= 1
            self._next(now)

    def _next(self, now: Time) -> None:
        """A slot is free: serve the next reservation, or look for work elsewhere."""
        entry = self._take() if self._queue else None
        if entry is None:
            self._idle += 1
            # One search at a time is under way: slots that fall idle meanwhile share what is stolen.
            if self._setting.stealing != "off" and not self._attempts:
                self._attempts = self._setting.steal_attempts
                self._maybe_steal()
            return

        batch = entry.batch
        schedulers = self._layout.schedulers
        if self._entry is not None:
            if self._other_entries is None:
                self._other_entries = {}
            self._other_entries[self._open_request] = self._entry

        request = self._requests + 1
        self._requests = self._open_request = request
        self._entry = entry

        blocked_us = 0
        if entry.long:
            self._long_active += 1
        else:
            blocked_us = self._blocked_us + now * self._blocking - entry.blocked_us

        entry.came = now - entry.came

        queued_count = len(self._queue)
        task_request = TaskRequest(batch, entry.number, request, queued_count, blocked_us)
        self._port.send(schedulers[batch % len(schedulers)], task_request)

    def _take(self) -> Entry | None:
        """The reservation that is served next; it leaves the queue unless it is sticky.

        While a constraint is scarce no reservation sticks.
        """
        queue, setting = self._queue, self._setting
        # The monitor's order comes before the worker's own, for as long as the constraint is scarce.
        if self._scarce is not None and self._scarce.constraint != NONE:
            return self._take_scarce(self._scarce)

        if setting.order == "srpt":
            entry = self._shortest()
        elif setting.sticky:
            entry = next((waiting for waiting in queue.values() if not waiting.asking), None)
        else:
            return queue.pop(next(iter(queue)))

        if entry is None:
            return None

        # A sticky reservation stays in the queue while its task is asked for, and serves its batch again (Eagle).
        if entry.long or not setting.sticky:
            self._drop(entry)
        else:
            entry.asking = True
        return entry

    def _take_scarce(self, scarce: ScarceFirst) -> Entry | None:
        entry, settled = scarce.pick(self._queue.values())
        # The first reservation is no decision of `pick`: where nothing scarce waits, the usual order holds.
        if not settled and entry is not None and not entry.long and self._setting.order != "fifo":
            entry = self._shortest()

        if entry is not None:
            self._drop(entry)
            scarce.served(entry.number)
        return entry

    def _drop(self, entry: Entry) -> None:
        del self._queue[entry.number]
        self._discount_work(entry)

    def _count_work(self, work_counts: dict[Time, int], work_us: Time) -> None:
        work_counts[work_us] = work_counts.get(work_us, 0) + 1
        if work_us < self._least_work_us:
            self._least_work_us = work_us

    def _discount_work(self, entry: Entry) -> None:
        work_counts = self._work_counts
        work_us = entry.remaining_us

        if work_counts is None:
            return

        work_counts[work_us] -= 1
        if not work_counts[work_us]:
            del work_counts[work_us]
            if work_us == self._least_work_us:
                self._least_work_us = min(work_counts, default=FOREVER)

    def _shortest(self) -> Entry | None:
        """Least remaining work first, as far as those in front may be passed (Eagle, section 3; its public code).

        A long reservation at the head is taken, and one further back competes like any other but is not passed. The
        search ends at the first with as little work left as any that waits has: a queue of one job costs one look for
        each reservation.
        """
        best: Entry | None = None
        least_us = slack_us = FOREVER
        reservations = self._queue.values()

        # With one slot no reservation is asking now; where none is long either, both tests are left out of the loop.
        is_plain = self._slots == 1 and self._long_count == self._long_active
        bypass_max, at_head = self._setting.bypass_max, True
        bound_us, least_seen_us = self._least_estimate_us, FOREVER
        enough_us = self._least_work_us

        for entry in reservations:
            if not is_plain:
                if entry.asking:
                    continue
                if entry.long:
                    if at_head or (entry.remaining_us < least_us and entry.estimate_us <= slack_us):
                        return entry
                    break
                at_head = False

            estimate_us = entry.estimate_us
            if entry.remaining_us < least_us and estimate_us <= slack_us:
                best, least_us = entry, entry.remaining_us
                # No reservation that waits has less work left: the rest of the queue cannot win.
                if least_us <= enough_us:
                    break

            room_us = bypass_max * estimate_us - entry.delayed_us
            if estimate_us < least_seen_us:
                least_seen_us = estimate_us

            if room_us < slack_us:
                slack_us = room_us
                # Even the shortest task of the queue is too long to pass the entries so far.
                if slack_us < bound_us:
                    break
        else:
            self._least_estimate_us = least_seen_us

        if best is not None:
            estimate_us = best.estimate_us
            # All that stand in front are passed by the chosen one, for as long as it runs.
            for entry in reservations:
                if entry is best:
                    break
                if is_plain or not entry.asking:
                    entry.delayed_us += estimate_us
        return best

    def _take_answered(self, request: int) -> Entry | None:
        """The reservation of a request that is answered for the first time, else None."""
        if request == self._open_request:
            entry = self._entry
            self._entry = None
            self._open_request = 0

            return entry
        return self._other_entries.pop(request, None) if self._other_entries else None

    def on_assign(self, message: Assign, source: Address, now: Time) -> None:
        """Run the task in the slot that was kept; a repeated answer is ignored."""
        entry = self._take_answered(message.request)
        if entry is None:
            return

        task, waited_us = message.task, entry.came
        if self._crowd is not None:
            self._crowd.began(task.id, now - waited_us, now)

        if entry.long:
            if self._running_long is None:
                self._running_long = {}
            self._running_long[task.id] = entry.number
            self._long_starts(now)
        elif entry.asking:
            if message.left:
                # The batch has tasks left: the reservation competes again, as if it came now.
                entry.asking = False
                self._discount_work(entry)
                entry.remaining_us = entry.estimate_us * message.left
                if self._work_counts is not None:
                    self._count_work(self._work_counts, entry.remaining_us)
                entry.came = now
                entry.blocked_us = self._blocked_us + now * self._blocking
            else:
                self._drop(entry)

        self._port.launch(task, 0, waited_us)

        # With several slots, one may have found nothing to do while this reservation was asking.
        if self._idle and self._queue:
            self._idle -= 1
            self._next(now)

    def on_no_task(self, message: NoTask, source: Address, now: Time) -> None:
        entry = self._take_answered(message.request)
        if entry is None:
            return

        if entry.long:
            self._long_active -= 1
            self._long_count -= 1
        elif entry.asking:
            self._drop(entry)

        # Requests in vain are many on an idle cluster, and each search for something to steal costs messages.
        if self._queue or self._setting.steal_after_vain:
            self._next(now)
        else:
            self._idle += 1

    def on_withdraw(self, message: Withdraw, source: Address, now: Time) -> None:
        """Drop the reservation if it still waits; one that was asked for is answered by the scheduler."""
        entry = self._queue.get(message.number)
        if entry is not None and not entry.asking:
            self._drop(entry)

    def on_kill(self, message: Kill, source: Address, now: Time) -> None:
        self._port.kill(message.task, 0)

    def on_task_finished(self, event: TaskFinished, source: Address, now: Time) -> None:
        """Report the result and serve the next reservation."""
        task = event.task
        schedulers = self._layout.schedulers

        if self._running_long and task.id in self._running_long:
            self._long_ends(now)
            self._long_active -= 1
            self._long_count -= 1
            self._port.send(schedulers[-1], Ended(self._running_long.pop(task.id), task.id, task.job))
        self._port.send(schedulers[task.job % (len(schedulers) - 1)], Completed(task.id, task.job))
        self._next(now)

        if self._crowd is not None:
            self._crowd.ended(task.id, self._port, now)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        if self._crowd is not None:
            self._crowd.send(self._port)

    def on_reorder(self, message: Reorder, source: Address, now: Time) -> None:
        self._follow(message.constraint)

    def on_peer_lost(self, event: PeerLost, source: Address, now: Time) -> None:
        """Serve the queue in its usual order while there is no monitor."""
        # Otherwise the monitor's last order would hold for ever.
        if self._scarce is not None and event.peer == self._scarce.setting.monitor:
            self._follow(NONE)

    def _follow(self, constraint: int) -> None:
        jumped = self._scarce.follow(constraint, self._queue) if self._scarce is not None else 0
        if jumped:
            self._port.observe(Counted("reordered_tasks", jumped))

    def _maybe_steal(self) -> None:
        """Ask the next victim, any worker of the general part; asking itself yields nothing, as asking an idle one."""
        general = self._layout.general
        if not general:
            self._attempts = 0
            return

        self._attempts -= 1
        self._port.send(general[self._draws.below(len(general))], Steal(self._offered))

    def on_steal(self, message: Steal, source: Address, now: Time) -> None:
        """Give what the thief can run of the reservations that wait behind a long task."""
        setting = self._setting

        stolen_probes: list[Probe] = []
        if self._queue and setting.stealing == "behind-long":
            stolen_probes = self._behind_long()
        elif self._queue and setting.stealing == "random":
            short_probes = [entry.probe() for entry in self._queue.values() if not entry.long]
            while short_probes and len(stolen_probes) < setting.steal_max:
                stolen_probes.append(short_probes.pop(self._draws.below(len(short_probes))))

        stolen_probes = [probe for probe in stolen_probes if not probe.needs & ~message.offered][: setting.steal_max]
        for probe in stolen_probes:
            self._drop(self._queue[probe.number])

        self._port.send(source, Stolen(tuple(stolen_probes)))

    def _behind_long(self) -> list[Probe]:
        """The first group of short reservations that wait behind a long one (Hawk, section 3.6; its public code)."""
        group: list[Probe] = []
        is_behind_long = self._long_active > 0

        for entry in self._queue.values():
            if entry.long:
                if group:
                    break
                is_behind_long = True
            elif is_behind_long:
                group.append(entry.probe())

        return group

    def on_stolen(self, message: Stolen, source: Address, now: Time) -> None:
        """Serve what was given, or ask the next victim if there is still nothing to serve."""
        if message.probes:
            self._attempts = 0
            self._port.observe(Counted("stolen_probes", len(message.probes)))
            for probe in message.probes:
                self._enqueue(probe, probe.needs, False, now)
        elif self._attempts > 0:
            if self._idle and not self._queue:
                self._maybe_steal()
            else:
                # A reservation came meanwhile: the rest of the attempts is dropped.
                self._attempts = 0

    def check(self) -> None:
        waiting_count = sum(not entry.asking for entry in self._queue.values())
        long_entries = sum(entry.long for entry in self._queue.values())
        assert 0 <= self._idle <= self._slots, f"{self._idle} of {self._slots} slots idle"
        open_requests = (self._entry is not None) + len(self._other_entries or ())
        assert self._idle + open_requests <= self._slots, "more requests than slots"

        assert not (self._idle and waiting_count), f"{self._idle} idle slots while {waiting_count} reservations wait"
        assert self._long_count == long_entries + self._long_active, "lost count of long tasks"
        if self._work_counts is not None:
            work_counts = Counter(entry.remaining_us for entry in self._queue.values())
            assert self._work_counts == work_counts, "lost count of the work that is left"
            assert self._least_work_us == min(work_counts, default=FOREVER), "lost the least work that is left"

        if self._scarce is not None:
            self._scarce.check()

        for entry in self._queue.values():
            # Nothing passes a long reservation, so that it needs no bound.
            bound_us = self._setting.bypass_max * entry.estimate_us
            assert entry.long or entry.delayed_us <= bound_us, f"passed for {entry.delayed_us} us, more than {bound_us}"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Probe: on_probe,
        LongProbe: on_long_probe,
        Assign: on_assign,
        NoTask: on_no_task,
        Withdraw: on_withdraw,
        Steal: on_steal,
        Stolen: on_stolen,
        Kill: on_kill,
        TaskFinished: on_task_finished,
        Reorder: on_reorder,
        TimerFired: on_timer,
        PeerLost: on_peer_lost,
    }
    sends = (
        sent_to("scheduler", TaskRequest, Rejected, Completed)
        | sent_to("central", TaskRequest, Ended)
        | sent_to("node", Steal, Stolen)
        | sent_to("monitor", Crowded)
    )
