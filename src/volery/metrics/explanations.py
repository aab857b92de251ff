"""The decisions of a run as columns, and the age of the views on which schedulers decided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from volery.core.reasons import Reason, Scope
from volery.core.records import Records

REASONS: tuple[tuple[Scope, Reason], ...] = tuple(
    (scope, reason) for scope in ("internal", "external") for reason in Reason
)
AGE_PERCENTILES = (50, 90, 99, 100)


class Staleness(msgspec.Struct, frozen=True):
    """Age of the views on which tasks were placed, and the refusals that followed.

    Args:
        placed, refused: Counts of decisions of this kind, those that are not kept included.
        view_age_s: Percentiles 50, 90, 99 and the largest over placements, seconds; empty without any.
        rates: (Scheduler, asked, placed, refused) for each pair that exchanged requests.
    """

    placed: int
    refused: int
    view_age_s: tuple[float, ...]
    rates: tuple[tuple[str, str, int, int], ...]


def explained(records: Records) -> dict[str, dict[str, Any]]:
    """The columns of a run whose schedulers explain themselves, by parts: why, task, pair, age; else nothing."""
    decisions = decision_columns(records)
    if not decisions:
        return {}
    pairs, ages = staleness_columns(records)
    return {"why": decisions, "task": task_columns(records), "pair": pairs, "age": ages}


def decision_columns(records: Records) -> dict[str, Any]:
    """One row per decision that is kept, by task and time; empty where no scheduler explained itself.

    Columns: task, job, time_us, by, chosen, partition, machine, asked, view_age_us, dropped (of its task before this
    row), and per scope and reason, as `internal_busy`, what was passed over.
    """
    log = records.decisions
    rows = [(logged, task, at) for task in sorted(log.of_task) for at, logged in enumerate(log.of_task[task])]
    if not rows:
        return {}

    decisions = [logged.decision for logged, _, _ in rows]
    columns: dict[str, Any] = {
        "task": np.array([decision.task for decision in decisions], dtype=np.int64),
        "job": np.array([decision.job for decision in decisions], dtype=np.int64),
        "time_us": np.array([logged.time_us for logged, _, _ in rows], dtype=np.int64),
        "by": np.array([logged.by for logged, _, _ in rows]),
        "chosen": np.array([decision.chosen for decision in decisions]),
        "partition": np.array([decision.partition for decision in decisions], dtype=np.int32),
        "machine": np.array([decision.machine for decision in decisions], dtype=np.int32),
        "asked": np.array([decision.asked for decision in decisions]),
        "view_age_us": np.array([decision.view_age_us for decision in decisions], dtype=np.int64),
        # A decision is dropped behind the first one, so that the second row states the gap.
        "dropped": np.array([log.dropped.get(task, 0) if at == 1 else 0 for _, task, at in rows], dtype=np.int64),
    }

    counts = np.zeros((len(REASONS), len(rows)), dtype=np.int32)
    place = {key: i for i, key in enumerate(REASONS)}
    for row, decision in enumerate(decisions):
        for rejected in decision.rejected:
            counts[place[rejected.scope, rejected.reason], row] += rejected.count

    columns |= {f"{scope}_{reason}": counts[i] for i, (scope, reason) in enumerate(REASONS)}
    return columns


def task_columns(records: Records) -> dict[str, Any]:
    """Job, submission, start, end (`NEVER` where it has none) and machine of each task."""
    trace = records.trace
    first = np.asarray(trace.first, dtype=np.int64)
    job = np.repeat(np.arange(trace.job_count), np.diff(first))
    return {
        "job": job,
        "submit_us": np.asarray(trace.arrival_us, dtype=np.int64)[job],
        "start_us": np.asarray(records.start_us, dtype=np.int64),
        "finish_us": np.asarray(records.finish_us, dtype=np.int64),
        "worker": np.asarray(records.worker, dtype=np.int32),
    }


def staleness_columns(records: Records) -> tuple[dict[str, Any], dict[str, Any]]:
    """Columns over all decisions: by, asked, placed, refused per pair; and age_us, count of views at placements."""
    log = records.decisions
    pairs, ages = sorted(log.pairs), sorted(log.ages)

    counts = np.array([log.pairs[pair] for pair in pairs], dtype=np.int64).reshape(-1, 2)
    return (
        {
            "by": np.array([by for by, _ in pairs]),
            "asked": np.array([asked_component for _, asked_component in pairs]),
            "placed": counts[:, 0],
            "refused": counts[:, 1],
        },
        {"age_us": np.array(ages, dtype=np.int64), "count": np.array([log.ages[age] for age in ages], dtype=np.int64)},
    )


def staleness(pairs: Mapping[str, Any], ages: Mapping[str, Any]) -> Staleness:
    """The staleness in these columns; a percentile is the first age that so many placements do not exceed."""
    below = np.cumsum(ages["count"])
    seconds = ages["age_us"] / 1e6
    ranks = [int(np.searchsorted(below, below[-1] * p / 100)) for p in AGE_PERCENTILES] if len(below) else []
    rates = zip(*(pairs[name].tolist() for name in ("by", "asked", "placed", "refused")), strict=True)
    return Staleness(
        int(pairs["placed"].sum()),
        int(pairs["refused"].sum()),
        tuple(float(seconds[rank]) for rank in ranks),
        tuple(rates),
    )
