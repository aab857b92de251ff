"""Waiting for a machine that holds the input: who may still wait, and which tasks could run where."""

from volery.policies.locality.delay import BySkips, ByTime, DelayPolicy, delay_policy
from volery.policies.locality.placed import PlacedTasks, Sites

__all__ = ["BySkips", "ByTime", "DelayPolicy", "PlacedTasks", "Sites", "delay_policy"]
