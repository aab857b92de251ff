"""The lab's driver: virtual clock, network, execution and records, around the same components that run live."""

from volery.sim.kernel import Options, Progress, simulate
from volery.sim.network import Network
from volery.sim.submitter import Deadlock, Stalled

__all__ = ["Deadlock", "Network", "Options", "Progress", "Stalled", "simulate"]
