"""Bit flips for tests: seeded places in a file, each flipped in turn, and the file as it was after that."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

PLACES = [20, pytest.param(1_000, marks=pytest.mark.slow)]
"""So many places are tried by `make test`, and by `make conformance`."""


def flips(path: Path, places: int, seed: int = 1) -> Iterator[str]:
    """Flip one bit of a file after the other; yields which one, for the message of a failed assertion."""
    content = path.read_bytes()
    draw = random.Random(seed)
    for _ in range(places):
        byte, bit = draw.randrange(len(content)), draw.randrange(8)
        flipped = bytearray(content)
        flipped[byte] ^= 1 << bit
        path.write_bytes(flipped)
        yield f"seed {seed}: bit {bit} of byte {byte} of {len(content)} in {path.name}"
    path.write_bytes(content)
