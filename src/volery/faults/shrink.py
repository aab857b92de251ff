"""Shrinking of a scenario that fails: fewer faults, jobs, tasks and machines, with the same failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import msgspec

from volery.faults.scenario import Scenario

RUNS_MAX: Final = 400

Item = TypeVar("Item")
replace = msgspec.structs.replace


def shrink(scenario: Scenario, fails: Callable[[Scenario], bool], runs_max: int = RUNS_MAX) -> Scenario:
    """The smallest scenario found that still fails.

    Args:
        scenario: one that fails.
        fails: True if another fails in the same way.
        runs_max: number of runs that may be tried.
    """
    runs = 0
    progress = True
    while progress:
        progress = False
        for candidate in _smaller(scenario):
            if runs >= runs_max:
                return scenario
            runs += 1
            if fails(candidate):
                scenario, progress = candidate, True
                break
    return scenario


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Smaller candidates, the smallest first."""
    plan = scenario.plan
    for jobs in _fewer(scenario.jobs):
        if jobs:
            yield replace(scenario, jobs=jobs)
    for messages in _fewer(plan.messages):
        yield replace(scenario, plan=replace(plan, messages=messages))
    for partitions in _fewer(plan.partitions):
        yield replace(scenario, plan=replace(plan, partitions=partitions))
    for crashes in _fewer(plan.crashes):
        yield replace(scenario, plan=replace(plan, crashes=crashes))
    for reweighs in _fewer(scenario.reweighs):
        yield replace(scenario, reweighs=reweighs)
    if scenario.jitter_us:
        yield replace(scenario, jitter_us=0)
    if scenario.tie_shuffle is not None:
        yield replace(scenario, tie_shuffle=None)
    for keep in (len(scenario.slots) // 2, len(scenario.slots) - 1):
        if keep:
            yield _on_fewer_machines(scenario, keep)
    for place, job in enumerate(scenario.jobs):
        for keep in (1, len(job.durations_us) // 2):
            if 0 < keep < len(job.durations_us):
                smaller = replace(
                    job,
                    durations_us=job.durations_us[:keep],
                    needs=job.needs[:keep],
                    parents=job.parents[:keep],
                    requests=job.requests[:keep],
                )
                yield replace(scenario, jobs=(*scenario.jobs[:place], smaller, *scenario.jobs[place + 1 :]))
        if job.parents:
            free = replace(job, parents=())
            yield replace(scenario, jobs=(*scenario.jobs[:place], free, *scenario.jobs[place + 1 :]))
    for place, partition in enumerate(plan.partitions):
        for one in _fewer(partition.one):
            if one:
                others = (*plan.partitions[:place], replace(partition, one=one), *plan.partitions[place + 1 :])
                yield replace(scenario, plan=replace(plan, partitions=others))


def _fewer(items: tuple[Item, ...]) -> Iterator[tuple[Item, ...]]:
    """The items without a half, then without a quarter, and so on to single items."""
    size = len(items)
    while size:
        size = size // 2 if size > 1 else 0
        for at in range(0, len(items), max(1, size)) if size or len(items) == 1 else ():
            yield (*items[:at], *items[at + max(1, size) :])


def _on_fewer_machines(scenario: Scenario, keep: int) -> Scenario:
    """The scenario on its first machines, without faults of the others' nodes."""
    gone = {f"node/{machine}" for machine in range(keep, len(scenario.slots))}
    plan = scenario.plan
    partitions = [
        replace(
            partition,
            one=tuple(address for address in partition.one if address not in gone),
            other=tuple(address for address in partition.other if address not in gone),
        )
        for partition in plan.partitions
        if not partition.other or set(partition.other) - gone
    ]
    plan = replace(
        plan,
        partitions=tuple(partition for partition in partitions if partition.one),
        crashes=tuple(crash for crash in plan.crashes if crash.address not in gone),
    )
    return replace(
        scenario,
        constraints=scenario.constraints[:keep],
        slots=scenario.slots[:keep],
        capacities=scenario.capacities[:keep],
        plan=plan,
    )
