"""Devices that stand idle, and those of them in pieces, as Weng et al. (USENIX ATC 2023) define them: by hand."""

from __future__ import annotations

from array import array

import msgspec
import pytest

from volery.conformance.cases import trace_of
from volery.core.model import NEVER, SECOND, Amounts, Cluster
from volery.core.records import LostAttempt, Records
from volery.core.trace import Trace
from volery.metrics.devices import DeviceSummary, device_summary

Run = tuple[int, int, int]
"""Machine, begin and end of a task, seconds."""


def machines(*capacities: Amounts, names: tuple[str, ...] = ("gpus",)) -> Cluster:
    count = len(capacities)
    return Cluster((0,) * count, (1,) * count, "devices", names, capacities)


def trace_asking(*requests: Amounts, names: tuple[str, ...] = ("gpus",)) -> Trace:
    trace = trace_of("devices", [0] * len(requests), [[1]] * len(requests))
    distinct = tuple(dict.fromkeys(requests))
    places = array("H", [distinct.index(request) for request in requests])
    return msgspec.structs.replace(trace, resources=names, requests=distinct, request=places)


def ran(trace: Trace, *runs: Run) -> Records:
    records = Records(trace)
    for task, (machine, begin, end) in enumerate(runs):
        records.worker[task] = machine
        records.start_us[task], records.finish_us[task] = begin * SECOND, end * SECOND
    return records


def test_idle_devices_are_in_pieces_where_a_task_of_the_workload_does_not_fit() -> None:
    """3 of 4 devices taken on both machines: neither a task of 3 nor one of 4 fits the last one, for half the run."""
    trace = trace_asking((3,), (3,), (4,))
    records = ran(trace, (0, 0, 10), (1, 0, 10), (0, 10, 20))
    assert device_summary(records, machines((4,), (4,))) == DeviceSummary(8, 3, 1)


def test_the_expectation_is_over_the_tasks_that_ask_for_devices() -> None:
    """One idle device is of use to 2 of 3 tasks; a task without devices does not count."""
    trace = trace_asking((1,), (1,), (2,), (0,))
    records = ran(trace, (0, 0, 10), (1, 0, 10), (1, 10, 10), (1, 0, 10))
    found = device_summary(records, machines((2,), (0,), (0,)))
    assert found is None, "machine 1 has no device"
    found = device_summary(records, machines((2,), (2,)))
    assert found is not None
    assert (found.devices, found.idle_mean) == (4, 2)
    assert found.in_pieces_mean == pytest.approx(2 / 3)


def test_devices_without_another_resource_are_in_pieces() -> None:
    """All cores are taken, and both idle devices are of no use to anybody."""
    names = ("cpu_milli", "gpus")
    trace = trace_asking((4000, 2), names=names)
    found = device_summary(ran(trace, (0, 0, 10)), machines((4000, 4), names=names))
    assert found == DeviceSummary(4, 2, 2)


def test_a_share_leaves_a_piece_that_only_shares_can_use() -> None:
    """A device with 500 free takes a share of 500, and no whole one; both tasks of the workload are alike frequent."""
    names = ("gpu_milli",)
    trace = trace_asking((500,), (2000,), names=names)
    found = device_summary(ran(trace, (0, 0, 10), (0, 10, 20)), machines((2000,), names=names))
    assert found == DeviceSummary(2, 0.75, 0.375)


def test_pieces_on_a_machine_where_the_task_fits_count_if_they_are_too_small() -> None:
    """A task of 1000 fits the whole device beside the piece of 400, which is too small for it."""
    names = ("gpu_milli",)
    trace = trace_asking((600,), (1000,), names=names)
    found = device_summary(ran(trace, (0, 0, 10), (0, 10, 20)), machines((2000,), names=names))
    assert found is not None
    assert found.idle_mean == pytest.approx((1.4 + 1) / 2)
    # 0 to 10 s: a whole device and 0.4: 0.4 for either. Then one whole device: nothing.
    assert found.in_pieces_mean == pytest.approx(0.2)


def test_attempts_that_were_killed_held_devices_too() -> None:
    trace = trace_asking((2,))
    records = ran(trace, (0, 10, 20))
    records.attempt[0] = 1
    records.lost.append(LostAttempt(0, 0, 1, 0, NEVER))
    records.killed[0, 0] = 10 * SECOND
    assert device_summary(records, machines((2,), (2,))) == DeviceSummary(4, 2, 0)


def test_without_devices_or_requests_for_them_there_is_no_measure() -> None:
    trace = trace_asking((1000,), names=("cpu_milli",))
    assert device_summary(ran(trace, (0, 0, 1)), machines((1000,), names=("cpu_milli",))) is None
    assert device_summary(ran(trace_asking((0,)), (0, 0, 1)), machines((4,))) is None
    assert device_summary(Records(trace_asking((1,))), machines((4,))) is None
