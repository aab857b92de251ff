"""The cost of matching against workers and constraints, as JSON: `python benchmarks/matching.py`.

Thiyyakat et al. state that finding the suitable workers of a partition takes O(n m) for n constraints of a task and m
workers, and less by the bits of a word where the AND is word-wise (arXiv 2103.08413, section IV-B3, "O(n log_size
partition_size)"; IoT 2023, equations 3 and 4). Four ways to find them are measured, in CPU time:

    bits      worker by worker, constraint by constraint: equation 3
    words     one AND per constraint of the task: algorithm 1 as printed, equation 4
    tables    a table per group of 7 constraints, as Megha and PigeonC do it for a set that they have not seen
    known     a set that was seen before: one AND with the workers that are free

Each constraint is met by nine workers in ten, so that some suit every task. A line per way, size and number of
constraints, then a line per way: the exponent of workers in its times, and the picoseconds that a worker and that a
worker and constraint take at the largest size, both by least squares.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from volery.policies.match import Anchors, Matches, having

SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
NEEDED: Final = (1, 2, 4, 8, 16)
BITS_MAX: Final = 10_000
"""Workers: more take `bits` seconds per call."""
ENOUGH_S: Final = 0.02
ROUNDS: Final = 3
BITS_FROM: Final = 1_000
WORDS_FROM: Final = 100_000
"""Workers from which times are fitted: below, the call itself is most of the time."""
MET: Final = 0.9

Search = Callable[[int], int]
"""Constraint set -> vector of the workers that satisfy it and are free."""


def by_bits(constraints: list[int], free: int) -> Search:
    """Look at each constraint of each worker."""

    def search(mask: int) -> int:
        needed = [k for k in range(mask.bit_length()) if mask >> k & 1]
        found = 0
        for position, offered in enumerate(constraints):
            suits = 1
            for k in needed:
                suits &= offered >> k
            found |= (suits & 1) << position
        return found & free

    return search


def by_words(constraints: list[int], free: int) -> Search:
    """AND one vector per constraint."""
    vectors = having(constraints)

    def search(mask: int) -> int:
        found = free
        while mask:
            lowest = mask & -mask
            found &= vectors[lowest.bit_length() - 1]
            mask ^= lowest
        return found

    return search


def by_tables(constraints: list[int], free: int) -> Search:
    """AND one entry per table."""
    matches = Matches(constraints, Anchors(constraints))

    def search(mask: int) -> int:
        matches.clear()
        return matches[mask] & free

    return search


def known(constraints: list[int], free: int) -> Search:
    """Look the set up."""
    matches = Matches(constraints, Anchors(constraints))
    return lambda mask: matches[mask] & free


WAYS: Final[dict[str, Callable[[list[int], int], Search]]] = {
    "bits": by_bits,
    "words": by_words,
    "tables": by_tables,
    "known": known,
}


def seconds(search: Search, mask: int) -> float:
    """CPU time of a call, the best of several rounds."""
    search(mask)
    calls, best = 1, float("inf")
    for _ in range(ROUNDS):
        while True:
            began = time.process_time()
            for _ in range(calls):
                search(mask)
            spent = time.process_time() - began
            if spent >= ENOUGH_S:
                break
            calls *= 2
        best = min(best, spent / calls)
    return best


def measured() -> Iterator[tuple[str, int, int, float]]:
    """Way, workers, constraints, seconds of a call. All ways find the same workers."""
    random = np.random.default_rng(0)
    for size in SIZES:
        met = random.random((size, NEEDED[-1])) < MET
        constraints: list[int] = (met @ (1 << np.arange(NEEDED[-1]))).tolist()
        free = int.from_bytes(random.bytes(size // 8), "little")
        ways = {way: make(constraints, free) for way, make in WAYS.items() if way != "bits" or size <= BITS_MAX}
        for count in NEEDED:
            mask = (1 << count) - 1
            if len({search(mask) for search in ways.values()}) != 1:
                raise AssertionError(f"the ways differ for {count} constraints of {size} workers")
            for way, search in ways.items():
                yield way, size, count, seconds(search, mask)


def fitted(rows: list[tuple[int, int, float]], sizes_from: int) -> dict[str, float]:
    """The exponent of workers, from a size on, and the price of a worker and of its constraints at the largest size."""
    sizes, counts, times = (np.array(column, dtype=np.float64) for column in zip(*rows, strict=True))
    large, largest = sizes >= sizes_from, sizes == sizes.max()
    exponents = [
        np.polyfit(np.log(sizes[of]), np.log(times[of]), 1)[0] for of in (large & (counts == n) for n in NEEDED)
    ]
    each, alone = np.polyfit(counts[largest], 1e12 * times[largest] / sizes.max(), 1)
    return {
        "workers^": round(float(np.mean(exponents)), 2),
        "worker_ps": round(alone, 1),
        "constraint_ps": round(each, 1),
    }


def main() -> None:
    """Measure."""
    found: dict[str, list[tuple[int, int, float]]] = {way: [] for way in WAYS}
    for way, size, count, taken in measured():
        found[way].append((size, count, taken))
        print(json.dumps({"way": way, "workers": size, "constraints": count, "us": round(1e6 * taken, 3)}), flush=True)
    for way, rows in found.items():
        print(json.dumps({"way": way} | fitted(rows, BITS_FROM if way == "bits" else WORDS_FROM)))


if __name__ == "__main__":
    main()
