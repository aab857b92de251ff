"""Outages of a run: groups of neighbouring machines that crash together, as those behind one switch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from volery.core.capabilities import CrashRecovery
from volery.core.component import Deployment
from volery.core.errors import InputError
from volery.core.model import SECOND, Address, Time
from volery.core.streams import Streams
from volery.sim.faults import Crash, FaultPlan
from volery.workload.spec import Spec

OUTAGES: Final = "outages"


def outage_plan(text: str, deployment: Deployment, seed: int, until_us: Time) -> FaultPlan:
    """The crashes that `group=8,every=86400,down=600` describes, until the last job has arrived.

    Neighbouring machines are one group, as those behind one switch or fuse. A group crashes as a Poisson process does,
    so that the rate of a machine is the same for groups of any size; how long it is down is exponential. With `group=1`
    machines crash independently.

    Args:
        text: group size and mean times, seconds.
        deployment: the deployment whose nodes crash.
        seed: seed of the run; each group has a stream of its own.
        until_us: no crash begins later.

    Raises:
        InputError: a key or value is wrong, or the design bears no crash.
    """
    spec = Spec(f"{OUTAGES}:{text}", ("group", "every", "down"))
    group = spec.count("group", 1)
    every_s = spec.positive("every", 86_400.0)
    down_s = spec.positive("down", 600.0)

    if deployment.capability(CrashRecovery) is None:
        raise InputError(OUTAGES, "the design bears no crash of a machine; take another, or a parameter as T11=restart")

    at = sorted(deployment.machines, key=lambda address: deployment.machines[address])
    groups = [at[low : low + group] for low in range(0, len(at), group)]

    crashes = [
        crash
        for number, members in enumerate(groups)
        for crash in _of_group(members, Streams(seed), f"{OUTAGES}/{number}", (every_s, down_s), until_us)
    ]

    return FaultPlan(crashes=tuple(sorted(crashes, key=lambda crash: (crash.at_us, crash.address))))


def _of_group(
    members: list[Address], streams: Streams, name: str, means_s: tuple[float, float], until_us: Time
) -> Iterator[Crash]:
    stream, every_s, down_s = streams.of(name), *means_s
    at_us = round(stream.expovariate(1 / every_s) * SECOND)
    while at_us <= until_us:
        back_us = at_us + 1 + round(stream.expovariate(1 / down_s) * SECOND)
        for address in members:
            yield Crash(at_us, address, back_us)
        at_us = back_us + 1 + round(stream.expovariate(1 / every_s) * SECOND)
