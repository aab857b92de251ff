"""The things that five sources describe, which were read whole: built or absent, and what came of their claims.

things/SOURCE.toml    the title of the source, and one table [[thing]] per numbered thing

Whether a thing comes out is written nowhere: it follows from the verdicts on its claims.

    absent                 it is not built, for the reason given
    built                  no claim on it counts, or one that counts is open, or a printed number has no workload here
    built and comes out    all claims on it that count hold, and each number was tested on its own workload
    built and does not     a claim on it fails
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final, Literal, get_args

import msgspec

from experiments.claims import FAILING, HOLDING, STAND_IN_NUMBER, UNCOUNTED, Name
from experiments.experiment import read_toml
from volery.core.errors import InputError

THINGS: Final = "things"
Status = Literal["built", "built and comes out", "built and does not", "absent"]
BUILT: Final[Status] = "built"
COMES_OUT: Final[Status] = "built and comes out"
DOES_NOT: Final[Status] = "built and does not"
ABSENT: Final[Status] = "absent"
STATUSES: Final[tuple[Status, ...]] = get_args(Status)


class Thing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that a source describes.

    Args:
        id: Number of the source and of the thing.
        says: what the source says of it, and where.
        where: The code, experiment or page that holds it; empty where it is absent.
        absent: why it is not built; empty where it is.
        lacks: The part of it that is missing, and why.
        note: what came out, and what a reader must know of it.
        claims: Ids of the claims whose verdicts belong to it.
    """

    id: Name
    says: Name
    where: str = ""
    absent: str = ""
    lacks: str = ""
    note: str = ""
    claims: tuple[Name, ...] = ()


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A source that was read whole, with all that it describes.

    Args:
        papers: Keys of the papers that it is, or tells of.
    """

    title: Name
    papers: Annotated[tuple[Name, ...], msgspec.Meta(min_length=1)]
    thing: Annotated[tuple[Thing, ...], msgspec.Meta(min_length=1)]


def status_of(thing: Thing, verdicts: Iterable[str]) -> Status:
    """What is to be said of a thing, by the verdicts on its claims."""
    if thing.absent:
        return ABSENT
    all_verdicts = list(verdicts)
    counted = [verdict for verdict in all_verdicts if verdict not in UNCOUNTED]
    if any(verdict in FAILING for verdict in counted):
        return DOES_NOT
    # "Up to three times" does not come out because an order holds that is a part of it.
    if STAND_IN_NUMBER in all_verdicts:
        return BUILT
    return COMES_OUT if counted and all(verdict in HOLDING for verdict in counted) else BUILT


def read_sources(folder: Path) -> dict[str, Source]:
    """The sources by number; empty where the folder has none.

    Raises:
        InputError: naming the thing that is both built and absent, or neither, or absent and yet more.
    """
    sources = {path.stem: read_toml(path, Source) for path in sorted((folder / THINGS).glob("*.toml"))}
    for number, source in sources.items():
        for place, thing in enumerate(source.thing):
            _check(thing, f"{number}.thing[{place}]")
    return sources


def _check(thing: Thing, place: str) -> None:
    if bool(thing.where) == bool(thing.absent):
        given = "both are given" if thing.where else "neither is given"
        raise InputError(place, f"{thing.id} has either where (it is built there) or absent (why it is not): {given}")
    for field in ("lacks", "claims"):
        if thing.absent and getattr(thing, field):
            raise InputError(f"{place}.{field}", f"{thing.id} is absent; leave it out")
