"""The stages of a job: which tasks do the same, read from who waits for whom, and how much of each is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from volery.core.model import Time

Indicator = Literal["totalworkWithQ", "totalwork", "vertexfrac", "cp", "minstage", "minstage-inf"]
Places = Sequence[Sequence[int]]
"""Per task of a job, places of the tasks that it waits for, all before its own."""


class JobStage(msgspec.Struct, frozen=True):
    """A stage as a profile, or an estimate, has it.

    Args:
        parents: numbers of the stages that its tasks wait for, all below its own.
        work_us: run times of its tasks, summed.
        queued_us: times from being ready to the start, summed.
        after_us: longest path of stages after it, each as long as its longest task.
        begin, end: when it began and ended, as a share of the job's response time.
        ideal_begin, ideal_end: the same where no task ever waits for a token.
    """

    tasks: int
    parents: tuple[int, ...]
    work_us: Time
    queued_us: Time
    longest_us: Time
    after_us: Time = 0
    begin: float = 0.0
    end: float = 1.0
    ideal_begin: float = 0.0
    ideal_end: float = 1.0


def stages_of(waits: Places) -> tuple[int, ...]:
    """Per task, the number of its stage: neighbours belong together whose parents, and whose children, do.

    Two stages that follow each other in the numbering, wait for the same stages and are awaited by the same, are one:
    from the graph alone nobody can tell them apart.
    """
    above = _cut([frozenset[int]()] * len(waits), waits)
    below: list[set[int]] = [set() for _ in waits]
    for child, parents in enumerate(waits):
        for parent in parents:
            below[parent].add(above[child])
    stage, found = -1, list[int]()
    for place, children in enumerate(below):
        if not place or above[place] != above[place - 1] or children != below[place - 1]:
            stage += 1
        found.append(stage)
    return tuple(found)


def _cut(keys: list[frozenset[int]], waits: Places) -> list[int]:
    """Per task a number that grows wherever the stages of its parents are others than its neighbour's."""
    found: list[int] = []
    for place, parents in enumerate(waits):
        keys[place] = frozenset([found[parent] for parent in parents])
        same = bool(place) and keys[place] == keys[place - 1]
        found.append(found[-1] if same else len(found) and found[-1] + 1)
    return found


def sizes(stage_of: Sequence[int]) -> list[int]:
    """Per stage, how many tasks it has."""
    counts = [0] * (max(stage_of, default=-1) + 1)
    for stage in stage_of:
        counts[stage] += 1
    return counts


def parents_of(waits: Places, stage_of: Sequence[int]) -> list[tuple[int, ...]]:
    """Per stage, the other stages that its tasks wait for."""
    found: list[set[int]] = [set() for _ in sizes(stage_of)]
    for child, parents in enumerate(waits):
        found[stage_of[child]].update([stage_of[parent] for parent in parents])
    return [tuple(sorted(above - {stage})) for stage, above in enumerate(found)]


def with_paths(stages: Sequence[JobStage]) -> tuple[JobStage, ...]:
    """The stages with the longest path after each."""
    after_us = [0] * len(stages)
    for number in reversed(range(len(stages))):
        through = after_us[number] + stages[number].longest_us
        for parent in stages[number].parents:
            after_us[parent] = max(after_us[parent], through)
    return tuple([msgspec.structs.replace(one, after_us=us) for one, us in zip(stages, after_us, strict=True)])


def progress(indicator: Indicator, stages: Sequence[JobStage], done: Sequence[float]) -> float:
    """The progress of a job, from 0 to 1.

    Args:
        indicator: `totalworkWithQ` (default of the paper) weighs stages by queueing and run time, `totalwork` by run
            time, `vertexfrac` by tasks; `cp` is the share of the critical path that is done; `minstage` the earliest
            relative time at which the profile was, in the stage that is furthest behind; `minstage-inf` the same with
            times of a run without waiting.
        done: per stage, the share of its tasks that have finished.
    """
    if all(share >= 1.0 for share in done):
        return 1.0
    if indicator == "cp":
        whole = max(one.longest_us + one.after_us for one in stages)
        return 1.0 - critical_us(stages, done) / whole if whole else _weighed([one.tasks for one in stages], done)
    if indicator.startswith("minstage"):
        ideal = indicator == "minstage-inf"
        spans = [(one.ideal_begin, one.ideal_end) if ideal else (one.begin, one.end) for one in stages]
        return min(begin + f * (end - begin) for (begin, end), f in zip(spans, done, strict=True) if f < 1.0)
    if indicator == "vertexfrac":
        return _weighed([one.tasks for one in stages], done)
    queued = indicator == "totalworkWithQ"
    return _weighed([one.work_us + one.queued_us * queued for one in stages], done)


def _weighed(weights: Sequence[int], done: Sequence[float]) -> float:
    total = sum(weights)
    return sum([weight * share for weight, share in zip(weights, done, strict=True)]) / total if total else 0.0


def critical_us(stages: Sequence[JobStage], done: Sequence[float]) -> float:
    """The rest of the longest path: S = max over unfinished stages of (1 - f) * longest task + path after it."""
    left = [(1.0 - f) * one.longest_us + one.after_us for one, f in zip(stages, done, strict=True) if f < 1.0]
    return max(left, default=0.0)


def amdahl_us(stages: Sequence[JobStage], done: Sequence[float], tokens: float) -> Time:
    """The model without a simulator, Amdahl's law: S + W / tokens, W = work that is left."""
    work_us = sum([(1.0 - f) * one.work_us for one, f in zip(stages, done, strict=True)])
    return round(critical_us(stages, done) + work_us / tokens)
