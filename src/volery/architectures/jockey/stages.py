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
        parents: Numbers of the stages that its tasks wait for, all below its own.
        work_us: Sum of the run times of its tasks.
        queued_us: Sum of the times from being ready to the start.
        after_us: Longest path of stages after it, each as long as its longest task.
        begin, end: Begin and end of the stage, as shares of the job's response time.
        ideal_begin, ideal_end: The same where no task ever waits for a token.
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
    """The stage of each task: neighbours belong together whose parents, and whose children, do.

    Two stages that follow each other in the numbering, wait for the same stages and are awaited by the same, are one:
    from the graph alone nobody can tell them apart.
    """
    upper_numbers = _cut([frozenset[int]()] * len(waits), waits)

    lower_numbers: list[set[int]] = [set() for _ in waits]
    for child, parents in enumerate(waits):
        for parent in parents:
            lower_numbers[parent].add(upper_numbers[child])

    stage = -1
    stage_of: list[int] = []
    for place, children in enumerate(lower_numbers):
        if not place or upper_numbers[place] != upper_numbers[place - 1] or children != lower_numbers[place - 1]:
            stage += 1
        stage_of.append(stage)

    return tuple(stage_of)


def _cut(keys: list[frozenset[int]], waits: Places) -> list[int]:
    """A number for each task, which grows where its parents' stages are others than its neighbour's."""
    numbers: list[int] = []
    for place, parents in enumerate(waits):
        keys[place] = frozenset([numbers[parent] for parent in parents])
        is_same = bool(place) and keys[place] == keys[place - 1]
        numbers.append(numbers[-1] if is_same else len(numbers) and numbers[-1] + 1)

    return numbers


def sizes(stage_of: Sequence[int]) -> list[int]:
    """The number of tasks of each stage."""
    counts = [0] * (max(stage_of, default=-1) + 1)
    for stage in stage_of:
        counts[stage] += 1
    return counts


def parents_of(waits: Places, stage_of: Sequence[int]) -> list[tuple[int, ...]]:
    """The other stages that the tasks of each stage wait for."""
    parents: list[set[int]] = [set() for _ in sizes(stage_of)]

    for child, tasks in enumerate(waits):
        parents[stage_of[child]].update([stage_of[task] for task in tasks])

    return [tuple(sorted(stage_parents - {stage})) for stage, stage_parents in enumerate(parents)]


def with_paths(stages: Sequence[JobStage]) -> tuple[JobStage, ...]:
    """The stages with the longest path after each."""
    after_us = [0] * len(stages)

    for number in reversed(range(len(stages))):
        through = after_us[number] + stages[number].longest_us
        for parent in stages[number].parents:
            after_us[parent] = max(after_us[parent], through)

    return tuple([msgspec.structs.replace(stage, after_us=us) for stage, us in zip(stages, after_us, strict=True)])


def progress(indicator: Indicator, stages: Sequence[JobStage], done_shares: Sequence[float]) -> float:
    """The progress of a job, from 0 to 1.

    Args:
        indicator: `totalworkWithQ` (default of the paper) weighs stages by queueing and run time, `totalwork` by run
            time, `vertexfrac` by tasks; `cp` is the share of the critical path that is done; `minstage` the earliest
            relative time at which the profile was, in the stage that is furthest behind; `minstage-inf` the same with
            times of a run without waiting.
        done_shares: Per stage, the share of its tasks that have finished.
    """
    if all(share >= 1.0 for share in done_shares):
        return 1.0

    if indicator == "cp":
        critical_path_us = max(stage.longest_us + stage.after_us for stage in stages)
        if critical_path_us:
            return 1.0 - critical_us(stages, done_shares) / critical_path_us
        # Tasks without a duration have no critical path: their number is all that is known.
        return _weighed([stage.tasks for stage in stages], done_shares)

    if indicator.startswith("minstage"):
        is_ideal = indicator == "minstage-inf"
        spans = [(stage.ideal_begin, stage.ideal_end) if is_ideal else (stage.begin, stage.end) for stage in stages]
        return min(
            begin + part * (end - begin) for (begin, end), part in zip(spans, done_shares, strict=True) if part < 1.0
        )

    if indicator == "vertexfrac":
        return _weighed([stage.tasks for stage in stages], done_shares)

    counts_queueing = indicator == "totalworkWithQ"
    return _weighed([stage.work_us + stage.queued_us * counts_queueing for stage in stages], done_shares)


def _weighed(weights: Sequence[int], done_shares: Sequence[float]) -> float:
    total = sum(weights)
    return sum([weight * share for weight, share in zip(weights, done_shares, strict=True)]) / total if total else 0.0


def critical_us(stages: Sequence[JobStage], done_shares: Sequence[float]) -> float:
    """The rest of the longest path: S = max over unfinished stages of (1 - f) * longest task + path after it."""
    rest_of_paths = [
        (1.0 - share) * stage.longest_us + stage.after_us
        for stage, share in zip(stages, done_shares, strict=True)
        if share < 1.0
    ]
    return max(rest_of_paths, default=0.0)


def amdahl_us(stages: Sequence[JobStage], done_shares: Sequence[float], tokens: float) -> Time:
    """The model without a simulator, Amdahl's law: S + W / tokens, W = work that is left."""
    work_us = sum([(1.0 - share) * stage.work_us for stage, share in zip(stages, done_shares, strict=True)])
    return round(critical_us(stages, done_shares) + work_us / tokens)
