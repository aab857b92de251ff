"""Phoenix's parts of a worker: one reports a crowded queue, the other lets scarce constraints go first.

Thinakaran, Gunasekaran, Sharma, Kandemir, Das: Phoenix, ICDCS 2017, sections III and IV.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from volery.architectures.hybrid.entry import Entry
from volery.architectures.hybrid.messages import Crowded
from volery.architectures.hybrid.monitor import BEAT, NONE, WatchSetting, next_beat
from volery.architectures.hybrid.scarcity import RecentService
from volery.core.model import TaskId, Time
from volery.core.port import Port


class CrowdReport:
    """Reports to the monitor, at a heartbeat, that a worker's queue has become crowded or is no longer so.

    Args:
        setting: the parameters.
        slots: of the worker.
    """

    __slots__ = ("_armed", "_begun", "_recent", "_sent", "_setting", "_slots")

    def __init__(self, setting: WatchSetting, slots: int) -> None:
        self._setting = setting
        self._slots = slots
        self._recent: RecentService | None = None
        self._begun: dict[TaskId, tuple[Time, Time]] = {}
        self._armed = self._sent = False

    def began(self, task: TaskId, came: Time, now: Time) -> None:
        """Note the start of a task, and the time at which its reservation came."""
        self._begun[task] = (came, now)

    def ended(self, task: TaskId, port: Port, now: Time) -> None:
        """Learn from the run time of a task; report at the heartbeat if that changes the verdict."""
        came, began = self._begun.pop(task)
        if self._recent is None:
            self._recent = RecentService(self._slots)
        self._recent.add(came, now - began)
        if not self._armed and self._wait_us()[0] != self._sent:
            self._armed = True
            port.set_timer(BEAT, next_beat(now, self._setting.heartbeat_us))

    def _wait_us(self) -> tuple[bool, Time]:
        """The verdict (the estimated wait is above the threshold), and the wait."""
        if self._recent is None:
            return False, 0
        wait_us = self._recent.wait_us(self._recent.load())
        return wait_us > self._recent.wait_us(self._setting.wait_load), round(wait_us)

    def send(self, port: Port) -> None:
        """Report a change at the heartbeat."""
        self._armed = False
        crowded, wait_us = self._wait_us()
        if crowded != self._sent:
            self._sent = crowded
            port.send(self._setting.monitor, Crowded(crowded, wait_us))


class ScarceFirst:
    """Lets reservations that ask for the scarcest constraint pass others, each of which is passed a few times at most.

    Long reservations neither pass nor are passed.

    Args:
        setting: the parameters.

    Attributes:
        constraint: the scarcest, or `NONE`: then the queue has its usual order.
    """

    __slots__ = ("_jumped", "_passed", "constraint", "setting")

    def __init__(self, setting: WatchSetting) -> None:
        self.setting = setting
        self.constraint = NONE
        self._passed: dict[int, int] = {}
        self._jumped = 0

    def follow(self, constraint: int, waiting: Container[int]) -> int:
        """Follow the monitor's order; returns the tasks that have passed others since the last one."""
        self.constraint = constraint
        if constraint == NONE:
            self._passed = {number: times for number, times in self._passed.items() if number in waiting}
        jumped, self._jumped = self._jumped, 0
        return jumped

    def pick(self, queue: Iterable[Entry]) -> tuple[Entry | None, bool]:
        """The first that asks for the constraint, if those in front of it may be passed once more; and True.

        A reservation that may not be passed is picked itself. Where none asks for the constraint, the first one and
        False.
        """
        asks, passed, reorder_max = 1 << self.constraint, self._passed, self.setting.reorder_max
        in_front: list[int] = []
        first: Entry | None = None
        for entry in queue:
            if entry.asking:
                continue
            if first is None:
                first = entry
            if entry.long:
                break
            if entry.needs & asks:
                for number in in_front:
                    passed[number] = passed.get(number, 0) + 1
                self._jumped += bool(in_front)
                return entry, True
            if passed.get(entry.number, 0) >= reorder_max:
                return first, True
            in_front.append(entry.number)
        return first, False

    def served(self, number: int) -> None:
        """Forget a reservation that has left the queue."""
        self._passed.pop(number, None)

    def check(self) -> None:
        """Raise where a reservation was passed more often than allowed."""
        most, allowed = max(self._passed.values(), default=0), self.setting.reorder_max
        assert most <= allowed, f"passed {most} times, more than {allowed}"
