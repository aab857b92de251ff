"""Switches for the changes that published simulators make to a trace before a run, and jobs in order of arrival."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import msgspec
import numpy as np

from volery.core.errors import InputError, suggestion
from volery.core.locality import with_replicas
from volery.core.model import SECOND
from volery.core.trace import Trace, longs
from volery.workload.arrays import Integers, column, view

DEPHASE_US = 10_000
"""Delay that the Eagle and Megha simulators add to a job that arrives together with an earlier one (10 ms per job)."""


def apply_quirks(trace: Trace, durations: str, arrivals: str) -> Trace:
    """The trace under the two switches.

    Args:
        durations: `exact`, or `whole-seconds`: each duration loses its fraction of a second. The estimate stays the
            row's mean, as in the Megha and Pigeon code; only Eagle's cuts that too.
        arrivals: `exact`, or `dephased`: the second of several jobs with one arrival comes 10 ms later, the third
            20 ms, and so on; response times count from the moved arrival.

    Raises:
        InputError: a switch has an unknown value.
    """
    if durations not in ("exact", "whole-seconds"):
        closest_words = suggestion(durations, ("exact", "whole-seconds"))
        raise InputError("durations", f"{durations!r} is not a way to read durations{closest_words}")

    if arrivals not in ("exact", "dephased"):
        raise InputError(
            "arrivals", f"{arrivals!r} is not a way to read arrivals{suggestion(arrivals, ('exact', 'dephased'))}"
        )

    if durations == "whole-seconds":
        trace = msgspec.structs.replace(trace, duration_us=column(view(trace.duration_us) // SECOND * SECOND))
    if arrivals == "dephased":
        trace = _dephased(trace)
    return trace


def with_exact_estimates(trace: Trace) -> Trace:
    """The trace with exact estimates for its schedulers, as in OpenDC (Andreadis et al., SC18)."""
    return msgspec.structs.replace(trace, task_estimate_us=trace.duration_us)


def _dephased(trace: Trace) -> Trace:
    arrival_us = view(trace.arrival_us)
    opens_group = np.concatenate(([True], np.diff(arrival_us) > 0))
    number = np.arange(len(arrival_us))
    place_in_group = number - np.maximum.accumulate(np.where(opens_group, number, 0))
    moved = column(arrival_us + DEPHASE_US * place_in_group)
    shift = np.repeat(view(moved) - arrival_us, np.diff(view(trace.first)))
    submit_us = column(view(trace.submit_us) + shift) if trace.submit_us else longs()
    return in_order(msgspec.structs.replace(trace, arrival_us=moved, submit_us=submit_us))


def in_order(trace: Trace) -> Trace:
    """The same jobs in order of arrival; jobs that arrive together keep their order."""
    arrival_us = view(trace.arrival_us)
    # The usual case: no copy of a large trace.
    if not (np.diff(arrival_us) < 0).any():
        return trace

    order = np.argsort(arrival_us, kind="stable")
    first = view(trace.first)
    sizes = np.diff(first)[order]
    starts = np.concatenate(([0], np.cumsum(sizes)))
    task_order = np.arange(starts[-1]) + np.repeat(first[:-1][order] - starts[:-1], sizes)

    def picked(values: Integers, by: Integers) -> Integers:
        return values[by] if len(values) else values

    return msgspec.structs.replace(
        trace,
        arrival_us=column(arrival_us[order]),
        first=column(starts),
        duration_us=column(view(trace.duration_us)[task_order]),
        estimate_us=column(view(trace.estimate_us)[order]),
        constraints=column(picked(view(trace.constraints), task_order)),
        user=tuple(trace.user[j] for j in order) if trace.user else (),
        priority=column(picked(view(trace.priority), order)),
        deadline_us=column(picked(view(trace.deadline_us), order)),
        limit_us=column(picked(view(trace.limit_us), order)),
        preference=array("H", [trace.preference[j] for j in order] if trace.preference else []),
        tag_set=array("H", [trace.tag_set[j] for j in order] if trace.tag_set else []),
        gang_nodes=array("i", [trace.gang_nodes[j] for j in order] if trace.gang_nodes else []),
        gang_racks=array("b", [trace.gang_racks[j] for j in order] if trace.gang_racks else []),
        partition=tuple(trace.partition[j] for j in order) if trace.partition else (),
        submit_us=column(picked(view(trace.submit_us), task_order)),
        **_waits_in(trace, order, task_order, starts),
        request=array(trace.request.typecode, [trace.request[k] for k in task_order] if trace.request else []),
        **_replicas_of(trace, task_order.tolist()),
    )


def _replicas_of(trace: Trace, tasks: Sequence[int]) -> dict[str, array[int]]:
    """The columns of replicas of some tasks, as they will be numbered."""
    if not trace.replica_first:
        return {}
    part = with_replicas(trace, trace.replicas_of(tasks) or [()] * len(tasks), trace.far_permille)
    return {"replica_first": part.replica_first, "replicas": part.replicas}


def _waits_in(trace: Trace, order: Integers, task_order: Integers, starts: Integers) -> dict[str, array[int]]:
    """The dependency columns for another order of the jobs."""
    if not trace.parents:
        return {}
    edge_first, parents = view(trace.parent_first), view(trace.parents)

    counts = np.diff(edge_first)[task_order]
    new_first = np.concatenate(([0], np.cumsum(counts)))
    edges = np.arange(new_first[-1]) + np.repeat(edge_first[:-1][task_order] - new_first[:-1], counts)
    # Parents are tasks of the same job, so that all numbers of a job shift alike.
    moved = np.repeat(starts[:-1] - view(trace.first)[:-1][order], np.diff(starts))
    return {"parent_first": column(new_first), "parents": column(parents[edges] + np.repeat(moved, counts))}


def first_jobs(trace: Trace, job_count: int) -> Trace:
    """The trace cut after `job_count` jobs (the whole of it, if it has no more)."""
    if job_count >= trace.job_count:
        return trace

    tasks = trace.first[job_count]
    waits = trace.parent_first[tasks] if trace.parent_first else 0
    return msgspec.structs.replace(
        trace,
        arrival_us=trace.arrival_us[:job_count],
        first=trace.first[: job_count + 1],
        duration_us=trace.duration_us[:tasks],
        submit_us=trace.submit_us[:tasks],
        estimate_us=trace.estimate_us[:job_count],
        constraints=trace.constraints[:tasks],
        user=trace.user[:job_count],
        request=trace.request[:tasks],
        **_replicas_of(trace, range(tasks)),
        parent_first=trace.parent_first[: tasks + 1] if waits else longs(),
        parents=trace.parents[:waits],
        priority=trace.priority[:job_count],
        deadline_us=trace.deadline_us[:job_count],
        limit_us=trace.limit_us[:job_count],
        preference=trace.preference[:job_count],
        tag_set=trace.tag_set[:job_count],
        gang_nodes=trace.gang_nodes[:job_count],
        gang_racks=trace.gang_racks[:job_count],
        partition=trace.partition[:job_count],
    )
