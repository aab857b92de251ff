"""Results of all recorded runs: how the lab's Slurm, and a plain FIFO, agree with each of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from parity.comparison import Agreement, Conditions, agreement, conditions
from parity.records import Record
from parity.replay import PLAIN_FIFO, lab_design, replay
from volery.core.errors import InputError

RESULTS = Path(__file__).parent / "results.json"


class Result(msgspec.Struct, frozen=True):
    """One recorded run held against its replays.

    Args:
        scenario: Key of the scenario.
        seed: Seed of the run.
        slurm: Version of Slurm.
        conditions: Facts of the run.
        lab: Agreement with the design `slurm`.
        fifo: Agreement with a plain FIFO.
    """

    scenario: str
    seed: int
    slurm: str
    conditions: Conditions
    lab: Agreement
    fifo: Agreement


def results(records: Iterable[Record]) -> list[Result]:
    """Replay each record twice, and compare."""
    return [
        Result(
            record.scenario,
            record.seed,
            record.slurm,
            conditions(record),
            agreement(record, replay(record, lab_design(record))),
            agreement(record, replay(record, PLAIN_FIFO)),
        )
        for record in records
    ]


def write_results(rows: list[Result], path: Path = RESULTS) -> None:
    """Write results, one line for each run."""
    path.write_bytes(b"[\n" + b",\n".join(map(msgspec.json.encode, rows)) + b"\n]\n")


def read_results(path: Path = RESULTS) -> list[Result]:
    """Read what `write_results` has written.

    Raises:
        InputError: if it is something else.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Result])
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(str(path), f"no results ({error}): `python -m parity page` writes them") from error
