"""The reason, in words, for which a task fits no machine: the machine that comes nearest.

It is here because live and metrics need it, and share nothing but core.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from volery.core.model import Amounts, Cluster, TaskId
from volery.core.trace import Trace

GB_MB = 1024
MILLI = 1000


def nearest_miss(cluster: Cluster, constraints: int, request: Amounts, words: str = "") -> str:
    """Why no machine can ever run a task; empty where one can.

    Args:
        cluster: the machines.
        constraints: that the task needs.
        request: what it asks for; nothing on a cluster of slots.
        words: how the constraints were written, as "cores >= 4"; their numbers by default.
    """
    kinds = dict.fromkeys(zip(cluster.constraints, cluster.capacities or ((),) * len(cluster.slots), strict=True))
    offers = [amounts for bits, amounts in kinds if not constraints & ~bits]
    if not offers:
        best = max(cluster.constraints, key=lambda bits: (constraints & bits).bit_count())
        return f"no machine meets {_listed(constraints, words)}; the nearest lacks {_numbers(constraints & ~best)}"
    if not request or any(_holds(amounts, request) for amounts in offers):
        return ""
    meets = f" that meets {_listed(constraints, words)}" if constraints or words else ""
    where = f"the largest machine{meets}"
    short = [
        f"needs {amount_text(name, request[k])}; {where} has {amount_text(name, max(one[k] for one in offers))}"
        for k, name in enumerate(cluster.resources)
        if request[k] > max(one[k] for one in offers)
    ]
    if short:
        return ", and ".join(short)
    nearest = max(offers, key=lambda one: min(a / b for a, b in zip(one, request, strict=True) if b))
    needs, has = (
        " with ".join(amount_text(name, amount) for name, amount in zip(cluster.resources, amounts, strict=True))
        for amounts in (request, nearest)
    )
    return f"needs {needs}; the nearest machine{meets} has {has}"


def misses(trace: Trace, cluster: Cluster, tasks: Iterable[TaskId]) -> Iterator[tuple[TaskId, str]]:
    """Of these tasks, the first of each kind that no machine can run, and why; the tasks of a run that never started.

    Each kind is held against every machine: let the caller stop after a few.
    """
    seen: set[tuple[int, Amounts]] = set()
    for task in tasks:
        mask = trace.constraints[task] if trace.constraints else 0
        request = trace.requests[trace.request[task]] if trace.request else ()
        if (mask, request) in seen:
            continue
        seen.add((mask, request))
        problem = nearest_miss(cluster, mask, request)
        if problem:
            yield task, problem


def amount_text(name: str, amount: int) -> str:
    """An amount in the units that people use: 96 GB, 1.5 CPUs, 2 gpus."""
    if name == "memory_mb":
        return f"{amount / GB_MB:g} GB" if amount >= GB_MB else f"{amount} MB"
    if name == "cpu_milli":
        return f"{amount / MILLI:g} CPUs"
    return f"{amount} {name}"


def _holds(offered: Amounts, asked: Amounts) -> bool:
    return all(a >= b for a, b in zip(offered, asked, strict=True))


def _listed(constraints: int, words: str) -> str:
    plural = "s" if constraints & (constraints - 1) else ""
    return words or f"constraint{plural} {_numbers(constraints)}"


def _numbers(constraints: int) -> str:
    return ", ".join(str(k) for k in range(constraints.bit_length()) if constraints >> k & 1)
