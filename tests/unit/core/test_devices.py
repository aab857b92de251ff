"""Shares of devices lie on one device; whole numbers take whole devices."""

from __future__ import annotations

from array import array

import msgspec

from volery.architectures import lookup
from volery.conformance.cases import trace_of
from volery.core.devices import DEVICE_SPLITS, Devices
from volery.core.model import SECOND, Cluster
from volery.core.streams import Streams
from volery.sim import simulate


def test_600_and_600_and_800_thousandths_do_not_lie_on_two_devices_together() -> None:
    devices = Devices(2000)
    assert [devices.take(task, milli) for task, milli in enumerate((600, 600, 800))] == [True, True, False]
    devices.give_back(0)
    assert devices.take(2, 800)


def test_whole_numbers_take_whole_devices_and_shares_the_fullest_that_has_room() -> None:
    devices = Devices(3000)
    assert devices.take(0, 300)
    assert devices.take(1, 500), "beside the first"
    assert devices.take(2, 2000)
    assert not devices.take(3, 1000)
    assert devices.take(4, 200)


def test_a_run_counts_starts_that_no_device_could_hold() -> None:
    """The designs know GPUs as one amount; the lab's check of devices says what that is worth."""
    trace = msgspec.structs.replace(
        trace_of("shares", [0, 1, 2], [[SECOND]] * 3),
        resources=("gpu_milli",),
        requests=((600,), (800,)),
        request=array("H", [0, 0, 1]),
    )
    cluster = Cluster((0,), (1,), "one", resources=("gpu_milli",), capacities=((2000,),))
    entry = lookup("backfill")
    records = simulate(entry.build(cluster, entry.defaults, Streams(0)), trace, cluster)
    assert max(records.start_us) < SECOND, "all three run at once"
    assert records.counters[DEVICE_SPLITS] == 1
