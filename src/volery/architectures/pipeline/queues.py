"""The queue of stage T2: tasks by kind, so that what fits nowhere is passed over without a look at its tasks."""

from __future__ import annotations

from collections.abc import Hashable
from random import Random
from typing import Protocol

from volery.architectures.pipeline.kinds import Kinds
from volery.architectures.pipeline.lines import Entry, Line
from volery.architectures.pipeline.policies import Kind, Turn, View, Waiting
from volery.architectures.pipeline.policies.policy import Keyed, TakingTurns
from volery.core.model import TaskId


class Queue(Protocol):
    """What every queue can be asked."""

    kinds: Kinds

    def push(self, waiting: Waiting) -> None:
        """A task joins."""

    def remove(self, waiting: Waiting) -> None:
        """A task leaves."""

    def best(self, *, closed: bool = False) -> Waiting | None:
        """The task that is next, among those of open kinds; with `closed`, among all."""

    def begin(self) -> None:
        """A cycle begins."""

    def served(self, waiting: Waiting) -> None:
        """The task has been given a machine, and has left."""

    def check(self) -> None:
        """Raise AssertionError where the account of kinds is wrong."""


class KeyedQueue:
    """Smallest key first.

    Args:
        view: that keys are read from.
        tasks: order of stage T2.
        jobs: order of stage J3, which decides between equal keys.
        kinds: nothing waits yet.
    """

    __slots__ = ("_entries", "_jobs", "_lines", "_tasks", "_view", "kinds")

    def __init__(self, view: View, tasks: Keyed, jobs: Keyed, kinds: Kinds) -> None:
        self._view = view
        self._tasks = tasks
        self._jobs = jobs
        self._lines: dict[Kind, Line] = {}
        self._entries: dict[TaskId, Entry] = {}
        self.kinds = kinds

    def push(self, waiting: Waiting) -> None:
        """A task joins."""
        kind = waiting.kind
        entry = (self._tasks.key(self._view, waiting), self._jobs.key(self._view, waiting), waiting.number, waiting)
        line = self._lines.get(kind)
        if line is None:
            line = self._lines[kind] = Line()
        line.push(entry)
        self._entries[waiting.task.id] = entry
        self.kinds.joined(kind)

    def remove(self, waiting: Waiting) -> None:
        """A task leaves."""
        kind = waiting.kind
        if not self._lines[kind].remove(self._entries.pop(waiting.task.id)):
            del self._lines[kind]
        self.kinds.left(kind)

    def best(self, *, closed: bool = False) -> Waiting | None:
        """The smallest key."""
        lines = self._lines
        kinds = lines if closed else self.kinds.open
        if len(kinds) == 1:
            return lines[next(iter(kinds))].head[3]
        return min([lines[kind].head for kind in kinds])[3] if kinds else None

    def line(self, kind: Kind) -> Line:
        """The tasks of a kind that waits."""
        return self._lines[kind]

    def ordered(self) -> list[Waiting]:
        """All tasks that wait, in their order."""
        return [entry[3] for entry in sorted(self._entries.values())]

    def begin(self) -> None:
        """Nothing changes with a cycle."""

    def served(self, waiting: Waiting) -> None:
        """Nothing is kept of turns."""

    def check(self) -> None:
        """Raise AssertionError where the account of kinds is wrong."""
        self.kinds.check()
        assert self._lines.keys() == set(self.kinds)
        assert len(self._entries) == sum(map(len, self._lines.values()))


class _TurningLine:
    __slots__ = ("given", "lines", "served", "waiting")

    def __init__(self) -> None:
        self.lines: dict[Kind, Line] = {}
        self.waiting = self.served = self.given = 0


class TurnsQueue:
    """Lines take turns; inside a line the order of jobs decides, then who came first.

    A line that has run empty is forgotten when the next cycle begins, and its turns with it.

    Args:
        view: that the order reads.
        order: who is next.
        jobs: order of stage J3 inside a line; None: who came first.
        kinds: nothing waits yet.
    """

    __slots__ = ("_entries", "_jobs", "_lines", "_order", "_turns", "_view", "kinds")

    def __init__(self, view: View, order: TakingTurns, jobs: Keyed | None, kinds: Kinds) -> None:
        self._view = view
        self._order = order
        self._jobs = jobs
        self._lines: dict[Hashable, _TurningLine] = {}
        self._entries: dict[TaskId, tuple[Hashable, Entry]] = {}
        self._turns = 0
        self.kinds = kinds

    def push(self, waiting: Waiting) -> None:
        """A task joins."""
        name, kind = self._order.line(waiting), waiting.kind
        key = self._jobs.key(self._view, waiting) if self._jobs else 0
        entry = (0, key, waiting.number, waiting)
        turning = self._lines.get(name)
        if turning is None:
            turning = self._lines[name] = _TurningLine()
        line = turning.lines.get(kind)
        if line is None:
            line = turning.lines[kind] = Line()
        line.push(entry)
        turning.waiting += 1
        self._entries[waiting.task.id] = name, entry
        self.kinds.joined(kind)

    def remove(self, waiting: Waiting) -> None:
        """A task leaves."""
        name, entry = self._entries.pop(waiting.task.id)
        turning, kind = self._lines[name], waiting.kind
        turning.waiting -= 1
        if not turning.lines[kind].remove(entry):
            del turning.lines[kind]
        self.kinds.left(kind)

    def best(self, *, closed: bool = False) -> Waiting | None:
        """The first of the line whose turn it is."""
        kinds = self.kinds
        if not (kinds.open or (closed and kinds.closed)):
            return None
        allowed = set(kinds) if closed else kinds.open.keys()
        turns = [
            Turn(name, turning.waiting, turning.served, turning.given)
            for name, turning in self._lines.items()
            if not allowed.isdisjoint(turning.lines)
        ]
        name = turns[0].line if len(turns) == 1 else next(iter(self._order.turns(self._view, turns)))
        return min([line.head for kind, line in self._lines[name].lines.items() if kind in allowed])[3]

    def begin(self) -> None:
        """Nobody has had a turn in this cycle."""
        for name in [name for name, turning in self._lines.items() if not turning.lines]:
            del self._lines[name]
        for turning in self._lines.values():
            turning.given = 0

    def served(self, waiting: Waiting) -> None:
        """Its line has had a turn."""
        turning = self._lines[self._order.line(waiting)]
        self._turns += 1
        turning.served = self._turns
        turning.given += 1

    def check(self) -> None:
        """Raise AssertionError where the account of kinds is wrong."""
        self.kinds.check()
        assert {kind for turning in self._lines.values() for kind in turning.lines} == set(self.kinds)
        assert len(self._entries) == sum(turning.waiting for turning in self._lines.values())


class RandomQueue:
    """Any task that waits, each with the same probability.

    That is what an order comes to that is drawn anew for every cycle: a task that does not fit takes all others of its
    kind out of the cycle with it.

    Args:
        draw: the owner's stream.
        kinds: nothing waits yet.
    """

    __slots__ = ("_draw", "_drawn", "_lines", "_places", "kinds")

    def __init__(self, draw: Random, kinds: Kinds) -> None:
        self._draw = draw
        self._drawn: Waiting | None = None
        self._lines: dict[Kind, list[Waiting]] = {}
        self._places: dict[TaskId, int] = {}
        self.kinds = kinds

    def push(self, waiting: Waiting) -> None:
        """A task joins."""
        line = self._lines.setdefault(waiting.kind, [])
        self._places[waiting.task.id] = len(line)
        line.append(waiting)
        self.kinds.joined(waiting.kind)

    def remove(self, waiting: Waiting) -> None:
        """A task leaves."""
        line = self._lines[waiting.kind]
        place = self._places.pop(waiting.task.id)
        last = line.pop()
        if last is not waiting:
            line[place] = last
            self._places[last.task.id] = place
        if not line:
            del self._lines[waiting.kind]
        self.kinds.left(waiting.kind)

    def best(self, *, closed: bool = False) -> Waiting | None:
        """Drawn."""
        lines = self._lines
        kinds = list(lines if closed else self.kinds.open)
        place = int(self._draw.random() * sum([len(lines[kind]) for kind in kinds])) if kinds else 0
        for kind in kinds:
            if place < len(lines[kind]):
                return lines[kind][place]
            place -= len(lines[kind])
        return None

    def begin(self) -> None:
        """Nothing is kept of a cycle."""

    def served(self, waiting: Waiting) -> None:
        """Nothing is kept of turns."""

    def check(self) -> None:
        """Raise AssertionError where the account of kinds is wrong."""
        self.kinds.check()
        assert self._lines.keys() == set(self.kinds)
        assert len(self._places) == sum(map(len, self._lines.values()))
