"""The queues of stage T2: tasks by equivalence class, in the order of a key, by turns of lines, or drawn.

The cost of a decision depends on how many classes may fit (`classes`), and not on how many tasks wait.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Container, Hashable, Mapping
from random import Random
from typing import Any, Final, Protocol

from volery.architectures.pipeline.classes import EquivalenceClasses
from volery.architectures.pipeline.policies import FAR, Kind, State, Turn, View, Waiting
from volery.architectures.pipeline.policies.policy import Keyed, TakingTurns
from volery.core.model import NEVER, TaskId, Time

BLOCK: Final = 256
"""Size of a block: an insertion moves so many at most, a search for a short task looks at one block in full."""

Entry = tuple[Any, Any, int, Waiting]
"""Key by stage T2, key by stage J3, number; the numbers differ, so that no comparison comes to the task itself."""


class SortedQueue:
    """Tasks of one class in the order of their keys: blocks of entries, each with its shortest planned time."""

    __slots__ = ("_blocks", "_lasts", "_shortest")

    def __init__(self) -> None:
        self._blocks: list[list[Entry]] = []
        self._lasts: list[Entry] = []
        self._shortest: list[Time] = []

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    @property
    def head(self) -> Entry:
        """The first; there has to be one."""
        return self._blocks[0][0]

    def push(self, entry: Entry) -> None:
        blocks = self._blocks
        planned_us = entry[3].planned_us

        # A long run of ordered pushes fills blocks to their size, instead of halves of twice the size.
        if not blocks or (entry > self._lasts[-1] and len(blocks[-1]) >= BLOCK):
            blocks.append([entry])
            self._lasts.append(entry)
            self._shortest.append(planned_us)
            return

        block_number = len(blocks) - 1 if entry > self._lasts[-1] else bisect_left(self._lasts, entry)

        block = blocks[block_number]
        insort(block, entry)
        self._lasts[block_number] = block[-1]
        if planned_us < self._shortest[block_number]:
            self._shortest[block_number] = planned_us

        if len(block) > 2 * BLOCK:
            low, high = block[:BLOCK], block[BLOCK:]
            blocks[block_number : block_number + 1] = [low, high]
            self._lasts[block_number : block_number + 1] = [low[-1], high[-1]]
            self._shortest[block_number : block_number + 1] = [_shortest(low), _shortest(high)]

    def remove(self, entry: Entry) -> bool:
        """Remove an entry, which has to be there; returns whether others stay."""
        block_number = bisect_left(self._lasts, entry)

        block = self._blocks[block_number]
        place = bisect_left(block, entry)

        assert block[place] is entry
        del block[place]

        if not block:
            del self._blocks[block_number]
            del self._lasts[block_number]
            del self._shortest[block_number]
            return bool(self._blocks)

        self._lasts[block_number] = block[-1]
        if self._shortest[block_number] == entry[3].planned_us:
            # The shortest is looked for on demand.
            self._shortest[block_number] = -1
        return True

    def first_within(self, left_us: Time, estimate_us: Time) -> Entry | None:
        """The first entry that ends within some time.

        Args:
            left_us: That time, which no limit may exceed.
            estimate_us: The largest estimate of a task without a limit that ends within that time.
        """
        if left_us < 0:
            return None
        longest_us = max(left_us, estimate_us)
        for block_number, shortest in enumerate(self._shortest):
            if shortest < 0:
                shortest = self._shortest[block_number] = _shortest(self._blocks[block_number])
            if shortest > longest_us:
                continue
            for entry in self._blocks[block_number]:
                if is_within(entry[3], left_us, estimate_us):
                    return entry
        return None


def _shortest(block: list[Entry]) -> Time:
    return min([entry[3].planned_us for entry in block], default=FAR)


def is_within(waiting: Waiting, left_us: Time, estimate_us: Time) -> bool:
    """True if a task ends within some time, as `SortedQueue.first_within` has it."""
    limit_us = waiting.job.limit_us
    return waiting.task.estimate_us <= estimate_us if limit_us == NEVER else limit_us <= left_us


class Queue(Protocol):
    """The tasks that wait, in the order in which they are tried."""

    classes: EquivalenceClasses

    def push(self, waiting: Waiting) -> None:
        """Add a task to those that wait."""

    def remove(self, waiting: Waiting) -> None:
        """Take a task out of those that wait."""

    def best(self, *, blocked: bool = False) -> Waiting | None:
        """The next task of the classes that may fit; with `blocked`, of all."""

    def begin(self) -> None:
        """Prepare for the tries of a cycle."""

    def served(self, waiting: Waiting) -> None:
        """Note that a task, which has left, was given a machine."""

    def check(self) -> None:
        """Raise AssertionError where the classes disagree with the tasks."""


class KeyedQueue:
    """Tasks by their keys, the smallest first.

    Args:
        tasks: Order of stage T2.
        jobs: Order of stage J3, which decides between equal keys.
    """

    __slots__ = ("_entries", "_jobs", "_sorted", "_tasks", "_view", "classes")

    def __init__(self, view: View, tasks: Keyed, jobs: Keyed, classes: EquivalenceClasses) -> None:
        self._view = view
        self._tasks = tasks
        self._jobs = jobs
        self._sorted: dict[Kind, SortedQueue] = {}
        self._entries: dict[TaskId, Entry] = {}
        self.classes = classes

    def push(self, waiting: Waiting) -> None:
        kind = waiting.kind
        entry = (self._tasks.key(self._view, waiting), self._jobs.key(self._view, waiting), waiting.number, waiting)

        tasks = self._sorted.get(kind)
        if tasks is None:
            tasks = self._sorted[kind] = SortedQueue()

        tasks.push(entry)
        self._entries[waiting.task.id] = entry
        self.classes.joined(kind)

    def remove(self, waiting: Waiting) -> None:
        kind = waiting.kind
        if not self._sorted[kind].remove(self._entries.pop(waiting.task.id)):
            del self._sorted[kind]
        self.classes.left(kind)

    def best(self, *, blocked: bool = False) -> Waiting | None:
        tasks = self._sorted
        kinds = tasks if blocked else self.classes.unblocked

        # Few classes wait in most cycles: one needs no comparison.
        if len(kinds) == 1:
            return tasks[next(iter(kinds))].head[3]
        return min([tasks[kind].head for kind in kinds])[3] if kinds else None

    def of_class(self, kind: Kind) -> SortedQueue:
        """The tasks of a class that waits."""
        return self._sorted[kind]

    def ordered(self) -> list[Waiting]:
        """All tasks that wait, in their order."""
        return [entry[3] for entry in sorted(self._entries.values())]

    def begin(self) -> None:
        pass

    def served(self, waiting: Waiting) -> None:
        pass

    def check(self) -> None:
        self.classes.check()
        assert self._sorted.keys() == self.classes.counts.keys()
        assert len(self._entries) == sum(map(len, self._sorted.values()))


class _TurnLine:
    __slots__ = ("given", "lines", "served", "waiting")

    def __init__(self) -> None:
        self.lines: dict[Kind, SortedQueue] = {}
        self.waiting = self.served = self.given = 0


def _turns(lines: Mapping[Hashable, _TurnLine]) -> list[Turn]:
    return [Turn(name, turning.waiting, turning.served, turning.given) for name, turning in lines.items()]


class TurnsQueue:
    """Lines take turns; inside a line the order of jobs decides, then who came first.

    A line that has run empty is forgotten when the next cycle begins, and its turns with it.

    Args:
        jobs: Order of stage J3 inside a line; None: who came first.
    """

    __slots__ = ("_entries", "_jobs", "_lines", "_order", "_turns", "_view", "_weighs_blocked", "classes")

    def __init__(self, view: View, order: TakingTurns, jobs: Keyed | None, classes: EquivalenceClasses) -> None:
        self._view = view
        self._order = order
        self._weighs_blocked = bool(getattr(order, "weighs_blocked", False))
        self._jobs = jobs
        self._lines: dict[Hashable, _TurnLine] = {}
        self._entries: dict[TaskId, tuple[Hashable, Entry]] = {}
        self._turns = 0
        self.classes = classes

    def push(self, waiting: Waiting) -> None:
        name = self._order.line(waiting)
        kind = waiting.kind

        key = self._jobs.key(self._view, waiting) if self._jobs else 0
        entry = (0, key, waiting.number, waiting)
        turning = self._lines.get(name)
        if turning is None:
            turning = self._lines[name] = _TurnLine()

        line = turning.lines.get(kind)
        if line is None:
            line = turning.lines[kind] = SortedQueue()
        line.push(entry)

        turning.waiting += 1
        self._entries[waiting.task.id] = name, entry
        self.classes.joined(kind)

    def remove(self, waiting: Waiting) -> None:
        name, entry = self._entries.pop(waiting.task.id)
        turning = self._lines[name]
        kind = waiting.kind

        turning.waiting -= 1
        if not turning.lines[kind].remove(entry):
            del turning.lines[kind]
        self.classes.left(kind)

    def best(self, *, blocked: bool = False) -> Waiting | None:
        """The first of the line whose turn it is."""
        classes = self.classes
        if not (classes.unblocked or (blocked and classes.blocked)):
            return None

        allowed_kinds = classes.counts.keys() if blocked else classes.unblocked.keys()
        fitting_lines = {
            name: turning for name, turning in self._lines.items() if not allowed_kinds.isdisjoint(turning.lines)
        }

        # With one line there are no turns to ask the policy for.
        if len(fitting_lines) == 1:
            name = next(iter(fitting_lines))
        else:
            turns = self._all_turns(fitting_lines) if self._weighs_blocked else _turns(fitting_lines)
            name = next(iter(self._order.turns(self._view, turns)))

        return min([line.head for kind, line in self._lines[name].lines.items() if kind in allowed_kinds])[3]

    def _all_turns(self, fitting_lines: Container[Hashable]) -> list[Turn]:
        """The turns of all lines with tasks, each with the least that these ask for."""
        amounts_of = self.classes.amounts_of
        return [
            Turn(
                name,
                turning.waiting,
                turning.served,
                turning.given,
                tuple(map(min, zip(*map(amounts_of, turning.lines), strict=True))),
                name not in fitting_lines,
            )
            for name, turning in self._lines.items()
            if turning.lines
        ]

    def begin(self) -> None:
        """Begin a cycle in which no line has had a turn; lines that are empty are forgotten."""
        for name in [name for name, turning in self._lines.items() if not turning.lines]:
            del self._lines[name]

        for turning in self._lines.values():
            turning.given = 0

    def served(self, waiting: Waiting) -> None:
        """Count a turn of the line of a task that was given a machine."""
        turning = self._lines[self._order.line(waiting)]
        self._turns += 1
        turning.served = self._turns
        turning.given += 1

    def check(self) -> None:
        self.classes.check()
        assert {kind for turning in self._lines.values() for kind in turning.lines} == self.classes.counts.keys()
        assert len(self._entries) == sum(turning.waiting for turning in self._lines.values())


class RandomQueue:
    """Any task that waits, each with the same probability.

    That is what an order comes to that is drawn anew for every cycle: a task that does not fit takes all others of its
    kind out of the cycle with it.
    """

    __slots__ = ("_draw", "_drawn", "_lines", "_places", "classes")

    def __init__(self, draw: Random, classes: EquivalenceClasses) -> None:
        self._draw = draw
        self._drawn: Waiting | None = None
        self._lines: dict[Kind, list[Waiting]] = {}
        self._places: dict[TaskId, int] = {}
        self.classes = classes

    def push(self, waiting: Waiting) -> None:
        line = self._lines.setdefault(waiting.kind, [])
        self._places[waiting.task.id] = len(line)
        line.append(waiting)
        self.classes.joined(waiting.kind)

    def remove(self, waiting: Waiting) -> None:
        line = self._lines[waiting.kind]
        place = self._places.pop(waiting.task.id)
        last_task = line.pop()

        # The last one takes the place of the removed one: the order inside a line does not matter.
        if last_task is not waiting:
            line[place] = last_task
            self._places[last_task.task.id] = place

        if not line:
            del self._lines[waiting.kind]
        self.classes.left(waiting.kind)

    def best(self, *, blocked: bool = False) -> Waiting | None:
        lines = self._lines
        kinds = list(lines if blocked else self.classes.unblocked)

        place = int(self._draw.random() * sum([len(lines[kind]) for kind in kinds])) if kinds else 0

        for kind in kinds:
            if place < len(lines[kind]):
                return lines[kind][place]
            place -= len(lines[kind])
        return None

    def begin(self) -> None:
        pass

    def served(self, waiting: Waiting) -> None:
        pass

    def check(self) -> None:
        self.classes.check()
        assert self._lines.keys() == self.classes.counts.keys()
        assert len(self._places) == sum(map(len, self._lines.values()))


def queue_of(tasks: Any, jobs: Any, view: View, state: State, draw: Random) -> Queue:
    """The queue for an order of tasks (T2) and one of jobs (J3)."""
    classes = EquivalenceClasses(state.packing, state.cluster.constraints)

    if getattr(tasks, "drawn", False):
        return RandomQueue(draw, classes)
    if hasattr(tasks, "turns"):
        return TurnsQueue(view, tasks, jobs, classes)
    if hasattr(jobs, "turns"):
        return TurnsQueue(view, jobs, None, classes)
    return KeyedQueue(view, tasks, jobs, classes)
