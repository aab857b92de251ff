"""The machines of the hybrid designs, and the part of them that is for short tasks only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from volery.policies.match import Matches, positions

Units = npt.NDArray[np.int64]
"""Numbers of worker slots."""


class Layout:
    """Lists the machines and those for short tasks only; pure input of the build, shared."""

    def __init__(
        self, constraints: Sequence[int], slots: Sequence[int], short_only: Sequence[bool], matches: Matches
    ) -> None:
        self.constraints = constraints
        self.slots = slots
        self.short_only = short_only
        self.matches = matches
        self.nodes = [f"node/{machine}" for machine in range(len(constraints))]
        self.short_machines = [machine for machine, only in enumerate(short_only) if only]
        self.machine_of_unit = np.repeat(np.arange(len(slots)), slots)

    def without_long(self, vector: bytes) -> tuple[list[int], bytes]:
        """The machines that no bit is set for, and the short-only ones; as a list, and as a byte per machine."""
        # numpy pads what is too short with zeros, but an empty vector with whatever was in memory
        octets = np.frombuffer(vector.ljust((len(self.nodes) + 7) // 8, b"\0"), dtype=np.uint8)
        bits = np.unpackbits(octets, bitorder="little", count=len(self.nodes))
        roomy = (bits == 0) | np.array(self.short_only, dtype=bool)
        listed: list[int] = np.flatnonzero(roomy).tolist()
        return listed, roomy.tobytes()

    def units(self, needs: int, short: bool) -> Units:
        """The units that may run a task: long ones outside the short-only part, unless they fit nowhere else."""
        suits = np.zeros(len(self.slots), dtype=bool)
        suits[positions(self.matches[needs])] = True
        general = suits & ~np.array(self.short_only, dtype=bool)
        allowed = general if general.any() and not short else suits
        return np.flatnonzero(allowed[self.machine_of_unit])
