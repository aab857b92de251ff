"""Splits: a leader that its partner deposes unnoticed, while machines that have obeyed the partner begin anew.

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
    drawn = draw(architecture, seed)
    jobs = tuple(
        msgspec.structs.replace(job, durations_us=tuple(LONGER * duration for duration in job.durations_us))
        for job in drawn.jobs
    )
    scenario = msgspec.structs.replace(drawn, parameters={**drawn.parameters, **parameters}, jobs=jobs)
    deployment = architecture.build(scenario.cluster(), scenario.config(architecture), Streams(seed))
    recovery = deployment.capability(CrashRecovery)
    assert recovery is not None
    stream = Streams(seed).of(f"split/{architecture.name}")
    pair = stream.choice([(a, b) for a, b in recovery.detector_pairs if role_of(a) == role_of(b)])
    nodes = [node for master, node in recovery.detector_pairs if master == pair[0] and role_of(node) == "node"]
    others = [address for address in deployment.components if address not in pair and role_of(address) != "node"]
    plan = _plan(stream, stream.sample(pair, 2), nodes, others)
    deadline_us = scenario.plan.deadline_us + (LONGER - 1) * sum(sum(job.durations_us) for job in drawn.jobs)
    plan = msgspec.structs.replace(plan, deadline_us=deadline_us)
    return msgspec.structs.replace(scenario, plan=plan)


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
