"""One random stream per (seed, address, incarnation), so that no draw depends on draws of others."""

from __future__ import annotations

import hashlib
from random import Random

from volery.core.model import Address


class Streams:
    """Hands out independent streams by name.

    Streams with different names are seeded with unrelated 256-bit numbers; the same name gives the same stream in
    any process, on any machine and under any PYTHONHASHSEED.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def number(self, name: Address, incarnation: int = 0) -> int:
        """The 256-bit seed of a stream, for generators other than `random.Random`."""
        return int.from_bytes(hashlib.sha256(f"{self.seed}|{name}|{incarnation}".encode()).digest(), "big")

    def of(self, name: Address, incarnation: int = 0) -> Random:
        """A fresh generator at the start of the named stream."""
        return Random(self.number(name, incarnation))
