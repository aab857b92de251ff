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

from volery.core.model import NEVER, Cluster, Time
from volery.core.records import HOUR, Billing, Records
from volery.core.resources import units_per_processor, work_resource
from volery.metrics.arrays import Floats, Longs, asked, ready_us, view


class ProvisioningSummary(msgspec.Struct, frozen=True):
    """The account of a run in which machines came and went; shares and accuracies from 0 to 1.

    Args:
        machines: Count of machines that come and go.
        boots: Count of provisionings after the beginning.
        machine_h: Hours for which machines were provisioned, boots included.
        used_machine_h: Hours for which at least one task ran on them.
        paid_machine_h: Hours that were paid for: whole intervals, the last one begun included.
        cost: Prices x hours that were paid for, by the prices of these hours.
        unit_h: Hours x units for which machines were provisioned.
        used_unit_h: Hours x units that tasks held.
        supply_mean: Mean of s.
        demand_mean: Mean of d.
        under_accuracy: 1 / (T R) x integral of max(d - s, 0): what was missing, of all there could be.
        over_accuracy: 1 / (T R) x integral of max(s - d, 0): what was too much.
        under_relative: 1 / T' x integral of max(d - s, 0) / d over the time T' in which d > 0.
        over_relative: 1 / T' x integral of max(s - d, 0) / d over the same.
        under_share: Share of T in which s < d.
        over_share: Share of T in which s > d.
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
    units_of_span = np.array([units[span.machine] for span in spans])
    run, requested = _runs(records, billing), _requested(records, cluster)
    units_per_cpu = units_per_processor(cluster.resources)

    elasticity = _elasticity(records, billing, units, requested, spans, begin, end)
    return ProvisioningSummary(
        machines=len(billing.machines),
        boots=sum(fact.power == "booting" and fact.at_us < end for fact in records.switches),
        machine_h=float(hours.sum()),
        used_machine_h=_busy_us(run) / HOUR,
        paid_machine_h=float(paid.sum()),
        cost=float(sum(hour * billing.price(int(count)) for hour, count in zip(weighed, units_of_span, strict=True))),
        unit_h=float((hours * units_of_span).sum()) / units_per_cpu,
        used_unit_h=float(((run[:, 2] - run[:, 1]) * requested[run[:, 3]]).sum()) / HOUR / units_per_cpu,
        supply_mean=elasticity.pop("supply") / units_per_cpu,
        demand_mean=elasticity.pop("demand") / units_per_cpu,
        **elasticity,
    )


def _units(cluster: Cluster) -> list[int]:
    """The processors, or slots, of each machine."""
    place = work_resource(cluster.resources)
    return [capacity[place] for capacity in cluster.capacities] or list(cluster.slots)


def _requested(records: Records, cluster: Cluster) -> Longs:
    """The processors, or slots, that each task asks for."""
    trace = records.trace
    if not cluster.resources:
        return np.ones(trace.task_count, dtype=np.int64)
    return asked(trace, work_resource(cluster.resources))


def _spans(records: Records, end: Time) -> Iterator[ProvisionedSpan]:
    """Times for which machines were provisioned, until the end of the run at most."""
    open_: dict[int, tuple[Time, Time]] = {}
    for fact in records.switches:
        # A boot and the switch to on belong to one span, which begins with the boot.
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

    attempts = np.concatenate(rows).astype(np.int64)
    is_billed = np.isin(attempts[:, 0], sorted(billing.machines)) & (attempts[:, 2] != NEVER)
    runs: Longs = attempts[is_billed]
    return runs


def _busy_us(runs: Longs) -> float:
    """Time in which something runs, summed over machines."""
    if not runs.size:
        return 0.0
    machine = np.concatenate([runs[:, 0], runs[:, 0]])
    at = np.concatenate([runs[:, 1], runs[:, 2]])
    change = np.repeat([1, -1], len(runs))

    order = np.lexsort((at, machine))
    # At one moment ends come in any order with begins: intervals of no length count nothing.
    running = np.cumsum(change[order])[:-1]
    return float((np.diff(at[order]) * (running > 0)).sum())


def _elasticity(
    records: Records,
    billing: Billing,
    units: list[int],
    requested: Longs,
    spans: list[ProvisionedSpan],
    begin: Time,
    end: Time,
) -> dict[str, float]:
    """Supply against demand, from first submission to the end."""
    units_max = sum(units[machine] for machine in billing.machines)

    finish = view(records.finish_us)
    ran_on_billed = (finish != NEVER) & np.isin(np.asarray(records.worker), sorted(billing.machines))
    demand = _steps(ready_us(records)[ran_on_billed], finish[ran_on_billed], requested[ran_on_billed])
    supply_steps = [(span.on_us, span.end_us, units[span.machine]) for span in spans if span.on_us != NEVER]
    supply = _steps(*np.array(supply_steps, dtype=np.int64).reshape(-1, 3).T)

    edges = np.unique(np.clip(np.concatenate([[begin, end], demand[0], supply[0]]), begin, end))
    interval_us = np.diff(edges).astype(np.float64)
    d = np.minimum(_at(demand, edges[:-1]), units_max)
    s = _at(supply, edges[:-1])
    total, under, over = interval_us.sum(), np.maximum(d - s, 0), np.maximum(s - d, 0)

    demand_us = np.where(d > 0, interval_us, 0.0)
    # Intervals without demand have no weight: the 1 in their place only avoids a division by zero.
    relative = np.maximum(d, 1)
    demand_us_total = demand_us.sum() or 1.0

    return {
        "supply": float((interval_us * s).sum() / total),
        "demand": float((interval_us * d).sum() / total),
        "under_accuracy": float((interval_us * under).sum() / (total * units_max)) if units_max else 0.0,
        "over_accuracy": float((interval_us * over).sum() / (total * units_max)) if units_max else 0.0,
        "under_relative": float((demand_us * under / relative).sum() / demand_us_total),
        "over_relative": float((demand_us * over / relative).sum() / demand_us_total),
        "under_share": float((interval_us * (under > 0)).sum() / total),
        "over_share": float((interval_us * (over > 0)).sum() / total),
    }


def _steps(begin: Longs, end: Longs, amount: Longs) -> tuple[Longs, Longs]:
    """Changes of the sum of amounts that last from begin to end: moments, and the sum from then on."""
    at, order = np.unique(np.concatenate([begin, end]), return_inverse=True)
    change = np.bincount(order, weights=np.concatenate([amount, -amount]), minlength=at.size)
    return at, np.rint(np.cumsum(change)).astype(np.int64)


def _at(steps: tuple[Longs, Longs], moments: Longs) -> Floats:
    place = np.searchsorted(steps[0], moments, side="right")
    return np.concatenate([[0], steps[1]])[place].astype(np.float64)
