"""Cost of machines that come and go, and supply against demand (stages R6 and R7).

The elasticity metrics are those of the SPEC Research Group as Ilyushkin et al. use them for workflows (ICPE 2017;
reference 14 of the reference architecture), integrated exactly instead of sampled. Units are processors, or slots;
where machines count thousandths of a processor, 1000 of these are one unit.
Supply s(t): units of machines that are on. Demand d(t): units that tasks ask for which are ready and have not ended, at
most those of all machines that come and go, since nobody can supply more; R: the units of all these machines; T: the
time from the first submission to the last answer or end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from volery.core.capabilities import HOUR, Billing
from volery.core.model import NEVER, Cluster, Time
from volery.core.records import Records
from volery.core.resources import units_per_processor, work_resource
from volery.metrics.columns import Floats, Longs, asked, ready_us, view


class ProvisioningSummary(msgspec.Struct, frozen=True):
    """Of a run in which machines came and went; shares and accuracies from 0 to 1.

    Args:
        machines: how many come and go.
        boots: how often one was provisioned after the beginning.
        machine_h: hours for which machines were provisioned, boots included.
        used_machine_h: hours for which at least one task ran on them.
        paid_machine_h: hours that were paid for: whole intervals, the last one begun included.
        cost: prices x hours that were paid for, by the prices of these hours.
        unit_h: hours x units for which machines were provisioned.
        used_unit_h: hours x units that tasks held.
        supply_mean: mean of s.
        demand_mean: mean of d.
        under_accuracy: 1 / (T R) x integral of max(d - s, 0): what was missing, of all there could be.
        over_accuracy: 1 / (T R) x integral of max(s - d, 0): what was too much.
        under_relative: 1 / T' x integral of max(d - s, 0) / d over the time T' in which d > 0.
        over_relative: 1 / T' x integral of max(s - d, 0) / d over the same.
        under_share: share of T in which s < d.
        over_share: share of T in which s > d.
    """

    machines: int
    boots: int
    machine_h: float
    used_machine_h: float
    paid_machine_h: float
    cost: float
    unit_h: float
    used_unit_h: float
    supply_mean: float
    demand_mean: float
    under_accuracy: float
    over_accuracy: float
    under_relative: float
    over_relative: float
    under_share: float
    over_share: float


class ProvisionedSpan(NamedTuple):
    """One provisioning of a machine; `on_us` is NEVER where it was released before it was on."""

    machine: int
    begin_us: Time
    on_us: Time
    end_us: Time


def provisioning_summary(records: Records, cluster: Cluster) -> ProvisioningSummary | None:
    """The account of a run; None where all machines are always on, or nothing came."""
    billing = records.billing
    if billing is None or not records.trace.job_count:
        return None
    begin = records.trace.arrival_us[0]
    end = max(*records.answered_us, *records.finish_us, begin + 1)
    units = _units(cluster)
    spans = list(_spans(records, end))
    hours = np.array([(span.end_us - span.begin_us) / HOUR for span in spans])
    paid = np.array([billing.paid_us(span.end_us - span.begin_us) / HOUR for span in spans])
    weighed = [billing.weighed_h(span.begin_us, span.end_us - span.begin_us) for span in spans]
    each = np.array([units[span.machine] for span in spans])
    run, held, one = _runs(records, billing), _held(records, cluster), units_per_processor(cluster.resources)
    elasticity = _elasticity(records, billing, units, held, spans, begin, end)
    return ProvisioningSummary(
        machines=len(billing.machines),
        boots=sum(fact.power == "booting" and fact.at_us < end for fact in records.switches),
        machine_h=float(hours.sum()),
        used_machine_h=_busy_us(run) / HOUR,
        paid_machine_h=float(paid.sum()),
        cost=float(sum(hour * billing.price(int(count)) for hour, count in zip(weighed, each, strict=True))),
        unit_h=float((hours * each).sum()) / one,
        used_unit_h=float(((run[:, 2] - run[:, 1]) * held[run[:, 3]]).sum()) / HOUR / one,
        supply_mean=elasticity.pop("supply") / one,
        demand_mean=elasticity.pop("demand") / one,
        **elasticity,
    )


def _units(cluster: Cluster) -> list[int]:
    """Per machine, its processors, or slots."""
    place = work_resource(cluster.resources)
    return [capacity[place] for capacity in cluster.capacities] or list(cluster.slots)


def _held(records: Records, cluster: Cluster) -> Longs:
    """Per task, the processors that it asks for, or slots."""
    trace = records.trace
    if not cluster.resources:
        return np.ones(trace.task_count, dtype=np.int64)
    return asked(trace, work_resource(cluster.resources))


def _spans(records: Records, end: Time) -> Iterator[ProvisionedSpan]:
    """Times for which machines were provisioned, until the end of the run at most."""
    open_: dict[int, tuple[Time, Time]] = {}
    for fact in records.switches:
        begin, on = open_.pop(fact.machine, (fact.at_us, NEVER))
        if fact.power == "off":
            if begin < end:
                yield ProvisionedSpan(fact.machine, begin, on, min(fact.at_us, end))
        else:
            open_[fact.machine] = begin, fact.at_us if fact.power == "on" else NEVER
    yield from (ProvisionedSpan(machine, begin, on, end) for machine, (begin, on) in open_.items() if begin < end)


def _runs(records: Records, billing: Billing) -> Longs:
    """Attempts on machines that come and go, a row each: machine, begin, end, task."""
    worker = np.asarray(records.worker)
    rows = [np.column_stack([worker, view(records.start_us), view(records.finish_us), np.arange(worker.size)])]
    for lost in records.lost:
        until = records.killed.get((lost.task, lost.attempt), lost.finish_us)
        rows.append(np.array([[lost.worker, lost.start_us, until, lost.task]]))
    found = np.concatenate(rows).astype(np.int64)
    kept = np.isin(found[:, 0], sorted(billing.machines)) & (found[:, 2] != NEVER)
    runs: Longs = found[kept]
    return runs


def _busy_us(runs: Longs) -> float:
    """Time in which something runs, summed over machines."""
    if not runs.size:
        return 0.0
    machine = np.concatenate([runs[:, 0], runs[:, 0]])
    at = np.concatenate([runs[:, 1], runs[:, 2]])
    change = np.repeat([1, -1], len(runs))
    order = np.lexsort((at, machine))
    running = np.cumsum(change[order])[:-1]
    return float((np.diff(at[order]) * (running > 0)).sum())


def _elasticity(
    records: Records,
    billing: Billing,
    units: list[int],
    held: Longs,
    spans: list[ProvisionedSpan],
    begin: Time,
    end: Time,
) -> dict[str, float]:
    """Supply against demand, from first submission to the end."""
    whole = sum(units[machine] for machine in billing.machines)
    finish = view(records.finish_us)
    kept = (finish != NEVER) & np.isin(np.asarray(records.worker), sorted(billing.machines))
    demand = _steps(ready_us(records)[kept], finish[kept], held[kept])
    on = [(span.on_us, span.end_us, units[span.machine]) for span in spans if span.on_us != NEVER]
    supply = _steps(*np.array(on, dtype=np.int64).reshape(-1, 3).T)
    edges = np.unique(np.clip(np.concatenate([[begin, end], demand[0], supply[0]]), begin, end))
    lasts = np.diff(edges).astype(np.float64)
    d = np.minimum(_at(demand, edges[:-1]), whole)
    s = _at(supply, edges[:-1])
    total, under, over = lasts.sum(), np.maximum(d - s, 0), np.maximum(s - d, 0)
    asked = np.where(d > 0, lasts, 0.0)
    relative, wanted = np.maximum(d, 1), asked.sum() or 1.0
    return {
        "supply": float((lasts * s).sum() / total),
        "demand": float((lasts * d).sum() / total),
        "under_accuracy": float((lasts * under).sum() / (total * whole)) if whole else 0.0,
        "over_accuracy": float((lasts * over).sum() / (total * whole)) if whole else 0.0,
        "under_relative": float((asked * under / relative).sum() / wanted),
        "over_relative": float((asked * over / relative).sum() / wanted),
        "under_share": float((lasts * (under > 0)).sum() / total),
        "over_share": float((lasts * (over > 0)).sum() / total),
    }


def _steps(begin: Longs, end: Longs, amount: Longs) -> tuple[Longs, Longs]:
    """Changes of the sum of amounts that last from begin to end: moments, and the sum from then on."""
    at, order = np.unique(np.concatenate([begin, end]), return_inverse=True)
    change = np.bincount(order, weights=np.concatenate([amount, -amount]), minlength=at.size)
    return at, np.rint(np.cumsum(change)).astype(np.int64)


def _at(steps: tuple[Longs, Longs], moments: Longs) -> Floats:
    place = np.searchsorted(steps[0], moments, side="right")
    return np.concatenate([[0], steps[1]])[place].astype(np.float64)
