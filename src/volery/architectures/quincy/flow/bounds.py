"""Equal shares of the slots for jobs, in whole tasks (Quincy, section on fairness)."""

from __future__ import annotations

from collections.abc import Mapping

from volery.core.model import JobId


def fair_floors(wanted: Mapping[JobId, int], running: Mapping[JobId, int], slots: int) -> dict[JobId, int]:
    """Per job, with how many tasks it has its share: those that have least are given one more until all is given.

    Args:
        wanted: how many tasks each job has that could run, those that do included; what is left over when all have as
            many goes to the first of these.
        running: how many of these keep what they have, whatever their share is.
        slots: in all, those of `running` included.
    """
    floors = {job: min(running.get(job, 0), count) for job, count in wanted.items()}
    left = slots - sum(floors.values())
    level = 0
    while left > 0:
        short = [job for job, count in wanted.items() if floors[job] <= level and floors[job] < count]
        if not short:
            above = [floors[job] for job, count in wanted.items() if floors[job] < count]
            if not above:
                break
            level = min(above)
            continue
        for job in short[:left]:
            floors[job] += 1
        left -= len(short)
        level += 1
    return floors
