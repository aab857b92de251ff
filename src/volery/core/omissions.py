"""Counts of all that a run omits of a trace, by effect and reason, and in words why a task fits no machine.

A reader that drops or changes something, or cannot resolve it, counts it here, so that every run states it. The types
are in core because workload, metrics, report and live need them, and share nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

import msgspec

from volery.core.model import Amounts, Cluster, TaskId
from volery.core.trace import Trace

LARGE: Final = 0.01
"""A share of jobs, tasks, waits or machine time above which a run states in its first line what it omits."""
Effect = Literal["left-out", "changed", "waits", "requests"]
LEFT_OUT: Final = "left-out"
"""Tasks that are not replayed."""
CHANGED: Final = "changed"
"""Tasks that are replayed otherwise than the source states."""
WAITS: Final = "waits"
"""Tasks that do not wait for all that the source states."""
REQUESTS: Final = "requests"
"""Tasks that ask for nothing of a resource, as the source does not state their request."""
EFFECTS: Final[tuple[Effect, ...]] = (LEFT_OUT, WAITS, REQUESTS, CHANGED)
UNITS: Final = {
    "cpu_milli": ("core-seconds", 1e-3),
    "memory_mb": ("MB-seconds", 1.0),
    "gpu_milli": ("GPU-seconds", 1e-3),
}


def machine_unit(resources: Sequence[str]) -> tuple[str, float]:
    """The unit of machine time, and how many of it are a second of one unit of the first resource.

    Args:
        resources: Resources that a trace asks for, by any names; empty: tasks are counted alike.
    """
    if not resources:
        return "task-seconds", 1.0
    return UNITS.get(resources[0], (f"{resources[0]}-seconds", 1.0))


class Omission(msgspec.Struct, frozen=True):
    """Tasks of a trace that are omitted, in whole or in part, for one reason.

    Args:
        reason: Reason in plain words, to be read after "left out:".
        jobs: Count of jobs that have such a task.
        tasks: Count of such tasks.
        machine_time: Machine time of these tasks as far as it is known, in the unit of `Omissions`.
        machine_share: Machine time as a share of all machine time, 0 to 1.
        unmeasured: Count of tasks among these whose machine time is not known, or only in part.
        waits: Count of waits of these tasks for others that are not heeded.
        effect: Effect on the tasks.
    """

    reason: str
    jobs: int
    tasks: int
    machine_time: float = 0.0
    machine_share: float = 0.0
    unmeasured: int = 0
    waits: int = 0
    effect: Effect = LEFT_OUT


class Omissions(msgspec.Struct, frozen=True):
    """The omissions of a run from a trace, and the size of the whole trace.

    Args:
        jobs, tasks: Counts of the trace, with those that are left out.
        machine_time: Machine time of all tasks where it is known, with those that are left out.
        unit: Unit of machine time, for example "core-seconds".
        jobs_left_out: Count of jobs of which no task is left.
        reasons: Reasons for omissions, the largest machine time first; empty: nothing is omitted.
        waits: Count of waits of a task for another that the source states, with those that are not heeded.
    """

    jobs: int
    tasks: int
    machine_time: float
    unit: str
    jobs_left_out: int = 0
    reasons: tuple[Omission, ...] = ()
    waits: int = 0

    def of(self, *effects: Effect) -> Omissions:
        """The omissions that have one of these effects."""
        reasons = tuple([omission for omission in self.reasons if omission.effect in effects])
        jobs = self.jobs_left_out if LEFT_OUT in effects else 0
        return msgspec.structs.replace(self, reasons=reasons, jobs_left_out=jobs)

    @property
    def tasks_omitted(self) -> int:
        """Tasks that are omitted, over all reasons; one may have several."""
        return min(sum(omission.tasks for omission in self.reasons), self.tasks)

    @property
    def waits_omitted(self) -> int:
        """Waits that are not heeded, over all reasons."""
        return sum(omission.waits for omission in self.reasons)

    @property
    def machine_share(self) -> float:
        """Share of the machine time that is omitted, as far as it is known."""
        return min(sum(omission.machine_share for omission in self.reasons), 1.0)

    @property
    def unmeasured(self) -> int:
        """Tasks that are omitted and whose machine time is not known."""
        return sum(omission.unmeasured for omission in self.reasons)

    @property
    def is_large(self) -> bool:
        """True if an effect concerns over 1 % of the jobs, tasks, waits or machine time."""
        return any(self.of(effect)._is_large for effect in EFFECTS)

    @property
    def _is_large(self) -> bool:
        jobs = max(self.jobs_left_out, sum(omission.jobs for omission in self.reasons))
        counts = ((jobs, self.jobs), (self.tasks_omitted, self.tasks), (self.waits_omitted, self.waits))
        return self.machine_share > LARGE or any(part > LARGE * total for part, total in counts)


GB_MB = 1024
MILLI = 1000


def nearest_miss(cluster: Cluster, constraints: int, request: Amounts, words: str = "") -> str:
    """Why no machine can ever run a task; empty where one can.

    Args:
        cluster: Machines of the run.
        constraints: Constraints that the task needs, as bits.
        request: Amounts that it asks for; nothing on a cluster of slots.
        words: Text of the constraints, as "cores >= 4"; their numbers by default.
    """
    kinds = dict.fromkeys(zip(cluster.constraints, cluster.capacities or ((),) * len(cluster.slots), strict=True))
    offers = [amounts for bits, amounts in kinds if not constraints & ~bits]

    if not offers:
        best = max(cluster.constraints, key=lambda bits: (constraints & bits).bit_count())
        lacking = _numbers(constraints & ~best)
        return f"no machine meets {_constraints_text(constraints, words)}; the nearest lacks {lacking}"

    if not request or any(_holds(amounts, request) for amounts in offers):
        return ""

    meets = f" that meets {_constraints_text(constraints, words)}" if constraints or words else ""
    largest = f"the largest machine{meets}"
    # One resource alone may be too large for any machine; else it is their combination.
    shortages = [
        f"needs {amount_text(name, request[k])}; {largest} has {amount_text(name, max(offer[k] for offer in offers))}"
        for k, name in enumerate(cluster.resources)
        if request[k] > max(offer[k] for offer in offers)
    ]

    if shortages:
        return ", and ".join(shortages)

    # Nearest is the machine whose scarcest resource covers most of the request.
    nearest = max(offers, key=lambda offer: min(a / b for a, b in zip(offer, request, strict=True) if b))
    request_text, offered_text = (
        " with ".join(amount_text(name, amount) for name, amount in zip(cluster.resources, amounts, strict=True))
        for amounts in (request, nearest)
    )
    return f"needs {request_text}; the nearest machine{meets} has {offered_text}"


def misses(trace: Trace, cluster: Cluster, tasks: Iterable[TaskId]) -> Iterator[tuple[TaskId, str]]:
    """The first task of each kind that no machine can run, and the reason.

    Each kind is held against every machine: let the caller stop after a few.
    """
    kinds: set[tuple[int, Amounts]] = set()
    for task in tasks:
        mask = trace.constraints[task] if trace.constraints else 0
        request = trace.requests[trace.request[task]] if trace.request else ()
        # A trace has millions of tasks and few kinds; the comparison with all machines is dear.
        if (mask, request) in kinds:
            continue
        kinds.add((mask, request))
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


def _holds(offered: Amounts, requested: Amounts) -> bool:
    return all(a >= b for a, b in zip(offered, requested, strict=True))


def _constraints_text(constraints: int, words: str) -> str:
    plural = "s" if constraints & (constraints - 1) else ""
    return words or f"constraint{plural} {_numbers(constraints)}"


def _numbers(constraints: int) -> str:
    return ", ".join(str(k) for k in range(constraints.bit_length()) if constraints >> k & 1)
