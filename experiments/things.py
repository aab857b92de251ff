"""The things that five sources describe, which were read whole: done, partial, absent or contradicted.

things/SOURCE.toml    the title of the source, and one table [[thing]] per numbered thing
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Final, Literal, get_args

import msgspec

from experiments.claims import Name
from experiments.experiment import read_toml

THINGS: Final = "things"
Status = Literal["done", "partial", "absent", "contradicted"]
STATUSES: Final[tuple[Status, ...]] = get_args(Status)


class Thing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that a source describes.

    Args:
        id: Number of the source and of the thing.
        where: The code, experiment or page that holds it; else what is missing, or why.
        claims: Ids of the claims whose verdicts belong to it.
    """

    id: Name
    says: Name
    status: Status
    where: Name
    claims: tuple[Name, ...] = ()


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A source that was read whole, with all that it describes."""

    title: Name
    thing: Annotated[tuple[Thing, ...], msgspec.Meta(min_length=1)]

    @property
    def statuses(self) -> Counter[str]:
        """The number of things with each status."""
        return Counter(thing.status for thing in self.thing)


def read_sources(folder: Path) -> dict[str, Source]:
    """The sources by number; empty where the folder has none."""
    return {path.stem: read_toml(path, Source) for path in sorted((folder / THINGS).glob("*.toml"))}
