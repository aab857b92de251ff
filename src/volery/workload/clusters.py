"""Cluster descriptions: how many workers, with how many slots, satisfying which constraints."""

from __future__ import annotations

from pathlib import Path

from volery.core.errors import InputError
from volery.core.model import CONSTRAINT_BITS_MAX, Cluster
from volery.workload.constraints import check_model, machine_constraints
from volery.workload.files import numbered_lines

WORKERS_MAX = 10_000_000
SLOTS_MAX = 1_000_000
BITS = frozenset("01")


def load_cluster(
    workers: int,
    *,
    slots: int = 1,
    constraints: str = "none",
    machines: Path | None = None,
    seed: int = 0,
) -> Cluster:
    """A cluster of `workers` machines.

    Args:
        workers: number of machines.
        slots: tasks that each runs at once.
        constraints: `sharma2011` to draw what the machines satisfy, or `none`.
        machines: a CSV file that says what they satisfy instead; its first `workers` rows are taken.
        seed: of the run; the stream is `constraints/machines`.

    Raises:
        InputError: a number is out of range, the model is unknown, or the file is wrong or too short.
    """
    if not 1 <= workers <= WORKERS_MAX:
        raise InputError("workers", f"{workers} workers cannot run anything; give from 1 to {WORKERS_MAX}")
    if not 1 <= slots <= SLOTS_MAX:
        raise InputError("slots", f"{slots} slots per worker are impossible; give from 1 to {SLOTS_MAX}")
    check_model(constraints)
    if machines is not None:
        population = read_machines(machines, workers)
        if len(population) < workers:
            fix = f"give --workers {len(population)} or fewer, or another file"
            raise InputError(
                str(machines), f"holds {len(population)} machines, fewer than the {workers} workers; {fix}"
            )
        return Cluster(tuple(population), (slots,) * workers, f"{workers} workers, {machines.name}")
    if constraints == "none":
        return Cluster.uniform(workers, slots, name=f"{workers} workers")
    drawn = machine_constraints(workers, seed)
    return Cluster(tuple(drawn), (slots,) * workers, f"{workers} workers, {constraints} seed {seed}")


def read_machines(path: Path, at_most: int | None = None) -> list[int]:
    """Constraint bit sets of machines from a CSV file, plain or gzip-compressed, one machine per row.

    The header names the columns; `c0` to `cK` hold 1 where the machine satisfies that constraint and 0 where not, and
    other columns are passed over. Reading stops after `at_most` machines.

    Raises:
        InputError: the file cannot be read or a row is wrong; the message names the line.
    """
    places: list[int] = []
    width = 0
    population: list[int] = []
    for number, line in numbered_lines(path):
        words = [word.strip() for word in line.decode("utf-8", "replace").split(",")]
        if not width:
            places, width = _constraint_columns(words, f"{path}:{number}"), len(words)
            continue
        if words == [""]:
            continue
        if len(words) != width:
            raise InputError(f"{path}:{number}", f"has {len(words)} fields where the header has {width}; mend the row")
        bits = [words[place] for place in places]
        if not BITS.issuperset(bits):
            at, wrong = next((k, bit) for k, bit in enumerate(bits) if bit not in BITS)
            raise InputError(f"{path}:{number}", f"column c{at} holds {wrong[:40]!r}; write 0 or 1")
        population.append(int("".join(reversed(bits)), 2))
        if len(population) == at_most:
            break
    if not population:
        raise InputError(str(path), "holds no machine; a header with c0, c1 .. and one row per machine are needed")
    return population


def _constraint_columns(header: list[str], place: str) -> list[int]:
    """Where c0, c1 .. stand in a header."""
    numbers = {int(name[1:]): at for at, name in enumerate(header) if name[:1] == "c" and name[1:].isdecimal()}
    if sorted(numbers) != list(range(len(numbers))) or not 1 <= len(numbers) <= CONSTRAINT_BITS_MAX:
        found = ", ".join(f"c{k}" for k in sorted(numbers)) or "none"
        limit = f"c0, c1 .. without gaps, at most {CONSTRAINT_BITS_MAX} of them"
        raise InputError(place, f"the header must name the constraint columns {limit}; found {found}")
    return [numbers[k] for k in range(len(numbers))]
