"""Splits: a leader that its partner deposes unnoticed, while machines that have obeyed the partner begin anew.

Or, *parted*: a scheduler and a part of a cluster that are cut off together, while its jobs are moved to another.
Storms cut sets of addresses at random, and hardly ever the two of a pair from each other and one machine from one of
them. A split draws its machines and jobs as a storm does, and its faults for one pair of masters.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from volery.core.capabilities import CrashRecovery
from volery.core.component import Architecture, role_of
from volery.core.model import SECOND, Address, Time
from volery.core.streams import Streams
from volery.faults import Scenario, draw
from volery.faults.scenario import HEAL_US
from volery.sim.faults import Crash, FaultPlan, Partition

LONGER = 4
"""Tasks are so many times as long as a storm's: some wait when a master is deposed."""


def split(architecture: Architecture, seed: int, **parameters: Any) -> Scenario:
    """The split of a seed."""
    scenario, recovery = _with_longer_tasks(architecture, seed, parameters)
    stream = Streams(seed).of(f"split/{architecture.name}")
    pair = stream.choice(_pairs(recovery))
    nodes = _nodes_of(recovery, pair)
    deployment = scenario.build(architecture)
    others = [address for address in deployment.components if address not in pair and role_of(address) != "node"]
    return _with_plan(scenario, _plan(stream, stream.sample(pair, 2), nodes, others))


def parted(architecture: Architecture, seed: int) -> Scenario:
    """A scheduler, one master of a pair and some of its machines, cut off together for so long that jobs are moved."""
    scenario, recovery = _with_longer_tasks(architecture, seed, {})
    stream = Streams(seed).of(f"parted/{architecture.name}")
    pair = stream.choice(_pairs(recovery))
    nodes = _nodes_of(recovery, pair)
    scheduler, master = stream.choice(recovery.standins), stream.choice(pair)
    cut_off = stream.sample(nodes, stream.choice((len(nodes), len(nodes) // 2, 1)))
    start_us = int(SECOND * stream.uniform(0.1, 4))
    end_us = min(HEAL_US, start_us + int(SECOND * stream.uniform(3.5, 9)))
    crashes: list[Crash] = []
    if stream.random() < 0.4:
        crash_us = stream.randint(start_us, end_us)
        back_us = min(HEAL_US, crash_us + int(SECOND * stream.random()))
        crashes = [Crash(crash_us, address, back_us) for address in stream.sample(pair, stream.choice((1, 2)))]
    partition = Partition(start_us, end_us, (scheduler, master, *cut_off))
    return _with_plan(scenario, FaultPlan(partitions=(partition,), crashes=tuple(crashes)))


def _with_longer_tasks(
    architecture: Architecture, seed: int, parameters: dict[str, Any]
) -> tuple[Scenario, CrashRecovery]:
    drawn = draw(architecture, seed)
    jobs = tuple(
        msgspec.structs.replace(job, durations_us=tuple(LONGER * duration for duration in job.durations_us))
        for job in drawn.jobs
    )
    scenario = msgspec.structs.replace(drawn, parameters={**drawn.parameters, **parameters}, jobs=jobs)
    deployment = scenario.build(architecture)
    recovery = deployment.capability(CrashRecovery)
    assert recovery is not None
    return scenario, recovery


def _pairs(recovery: CrashRecovery) -> list[tuple[Address, Address]]:
    return [(a, b) for a, b in recovery.detector_pairs if role_of(a) == role_of(b)]


def _nodes_of(recovery: CrashRecovery, pair: tuple[Address, Address]) -> list[Address]:
    return [node for master, node in recovery.detector_pairs if master == pair[0] and role_of(node) == "node"]


def _with_plan(scenario: Scenario, plan: FaultPlan) -> Scenario:
    """A scenario with these faults, and with the time that its longer tasks need."""
    work_us = sum(sum(job.durations_us) for job in scenario.jobs)
    deadline_us = scenario.plan.deadline_us + (LONGER - 1) * work_us // LONGER
    return msgspec.structs.replace(scenario, plan=msgspec.structs.replace(plan, deadline_us=deadline_us))


def _plan(stream: Random, masters: list[Address], nodes: list[Address], others: list[Address]) -> FaultPlan:
    """One master is cut off, its partner deposes it; then machines restart that reach the one and not the other."""
    old, new = masters
    cut_us = int(SECOND * stream.uniform(0.1, 4))
    anew_us = cut_us + int(SECOND * stream.uniform(1, 5))
    parted_us = min(HEAL_US, anew_us + int(SECOND * stream.uniform(0, 8)))
    restarting = stream.sample(nodes, min(len(nodes), stream.choice((1, 1, 2, 4))))
    stay = [node for node in nodes if node not in restarting]
    apart = [*stream.sample(stay, stream.choice((len(stay), len(stay) // 2))), *stream.choice((others, others, ()))]
    partitions = [
        Partition(cut_us, parted_us, (old,), (new,)),
        Partition(cut_us, parted_us, (old,), tuple(apart)),
        Partition(cut_us, stream.choice((anew_us, anew_us, cut_us + SECOND // 2)), (old,), tuple(restarting)),
        Partition(anew_us, parted_us, (new,), tuple(node for node in restarting if stream.random() < 0.8)),
    ]
    crashes = [Crash(anew_us, node, _later(stream, anew_us, SECOND)) for node in restarting]
    if stream.random() < 0.3:
        crashes.append(Crash(anew_us, new, _later(stream, anew_us, 2 * SECOND)))
    if stream.random() < 0.2:
        crashes += [Crash(anew_us + 1, node, _later(stream, anew_us + 1, 3 * SECOND)) for node in stay[:2]]
    whole = [partition for partition in partitions if partition.other]
    return FaultPlan(partitions=tuple(whole), crashes=tuple(crashes))


def _later(stream: Random, at_us: Time, longest_us: Time) -> Time:
    return min(HEAL_US, at_us + int(longest_us * stream.random()))
