"""Failure detection between hosts: all times of it, as parts of the detection time of a deployment."""

from __future__ import annotations

from typing import Final

from volery.core.model import SECOND, Time
from volery.roles.recovery.leases import Lease

HEARTBEATS_PER_DETECTION: Final = 6
_PATIENCE: Final = 0.75
"""The rest is for the way of the last heartbeat."""
_SPARE: Final = 0.5


def patience_us(detection_us: Time) -> Time:
    """A host counts as lost when no heartbeat of it has proved for so long that both ends are up."""
    return round(_PATIENCE * detection_us)


def task_lease_s(detection_us: Time) -> float:
    """Tasks go on for so long, in seconds, while their node's host is away.

    A master without a beat of a node gives its tasks up after the patience and its lease. A host that comes back
    takes the patience to see that its master is away, and its nodes go on for their grace. What is left, less half a
    detection time to spare, is for the time between.
    """
    lease = Lease(detection_us)
    given_up_us = patience_us(detection_us) + lease.lease_us
    ended_us = patience_us(detection_us) + lease.grace_us
    return (given_up_us - ended_us - _SPARE * detection_us) / SECOND
