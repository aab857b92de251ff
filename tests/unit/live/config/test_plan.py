"""The times of failure detection fit together."""

from __future__ import annotations

import pytest

from volery.architectures import configure, lookup
from volery.core.errors import InputError
from volery.core.model import SECOND, Cluster
from volery.live.config.plan import FederationPlan, patience_us, task_lease_s
from volery.roles.recovery.leases import Lease


def test_tasks_end_before_a_master_gives_them_to_others() -> None:
    for detection_us in (SECOND // 2, SECOND, 7 * SECOND):
        lease = Lease(detection_us)
        returns_us = patience_us(detection_us) + lease.grace_us
        ended_us = task_lease_s(detection_us) * SECOND + returns_us
        assert ended_us + detection_us / 2 == patience_us(detection_us) + lease.lease_us


def test_a_host_that_is_back_within_one_and_a_half_detection_times_finds_its_tasks() -> None:
    assert task_lease_s(2 * SECOND) == 3.0


def test_room_that_tasks_leave_unused_cannot_be_given_away_as_no_host_measures_it() -> None:
    pipeline, cluster = lookup("pipeline"), Cluster((0,), (1,), "cores", ("cores",), ((4,),))
    with pytest.raises(InputError, match="give T6=none"):
        FederationPlan(pipeline, configure(pipeline, {"T6": "reclaim"}), cluster).build()
    assert FederationPlan(pipeline, configure(pipeline, {"T6": "overrun"}), cluster).build().components
