"""The list of all numbered things that five sources describe: done or missing, and with which verdicts.

things/SEED.toml    one table [[thing]] per id, in order; ids are fixed in `IDS`, so that none can be left out
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal, get_args

import msgspec

from volery.core.errors import InputError, suggestion
from volery.look.text import NOTHING
from volery.reproduction.claims import NOT_TRIED, Judgement, Name
from volery.reproduction.experiments import read_toml

THINGS: Final = "things"
CONTENTS: Final = "things.md"
Status = Literal["done", "partial", "absent", "contradicted"]
STATUSES: Final[tuple[Status, ...]] = get_args(Status)
SOURCES: Final = {
    "000": "Constraint-aware federated scheduling: Megha and PigeonC (IoT 2023)",
    "001": "Megha, the first version (arXiv 2103.08413, 2021)",
    "002": "Pigeon (SoCC 2019)",
    "003": "A reference architecture for datacenter scheduling (SC 2018)",
    "004": "A blog series on cluster schedulers: fairness, Sparrow, Omega, TetriSched, Jockey, delay scheduling",
}
"""The five sources that were read whole, by number."""
STAGES: Final = (("J", 7), ("T", 12), ("M", 6), ("B", 0), ("R", 7))
"""Letters of the reference architecture's stages, with how many of a letter there are; none: the letter alone."""


def _ids() -> dict[str, tuple[str, ...]]:
    plain = {"000": range(1, 71), "001": range(1, 56), "002": range(1, 56), "003": range(40, 76), "004": range(1, 53)}
    ids = {source: tuple(f"{source}-{number:02}" for number in numbers) for source, numbers in plain.items()}
    stages = (f"{letter}{number}" for letter, count in STAGES for number in range(1, count + 1) or [""])
    ids["003"] = (*(f"003-{stage}" for stage in stages), *ids["003"])
    return ids


IDS: Final = _ids()
"""All ids, by source: 301."""


class Thing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that a source describes.

    Args:
        id: number of the source and of the thing.
        where: the code, experiment or page that holds it; else what is missing, or why.
        claims: ids of claims in the whole ledger whose verdicts belong to it.
    """

    id: Name
    says: Name
    status: Status
    where: Name
    claims: tuple[Name, ...] = ()


class Things(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of things."""

    seed: Name
    thing: Annotated[tuple[Thing, ...], msgspec.Meta(min_length=1)]


def read_things(folder: Path, claims: Sequence[str]) -> dict[str, tuple[Thing, ...]]:
    """Read the things of all sources; empty where the folder has none.

    Raises:
        InputError: a file or an id is missing, out of order or unknown, or a claim that is named does not exist.
    """
    if not (folder / THINGS).is_dir():
        return {}
    return {source: _read(folder / THINGS / f"{source}.toml", source, claims) for source in IDS}


def _read(path: Path, source: str, claims: Sequence[str]) -> tuple[Thing, ...]:
    things: Things = read_toml(path, Things)
    if things.seed != source:
        raise InputError(f"{path.name}: seed", f"{things.seed!r} is not the file's own; write {source!r}")
    found = [thing.id for thing in things.thing]
    for i, (expected, thing) in enumerate(zip(IDS[source], things.thing, strict=False)):
        if expected != thing.id:
            problem = "is told a second time" if thing.id in found[:i] else "is not in its place"
            raise InputError(f"{path.name}: thing[{i}].id", f"{thing.id!r} {problem}; {expected!r} is next")
        for name in thing.claims:
            if name not in claims:
                raise InputError(
                    f"{path.name}: thing[{i}].claims", f"{name!r} is no claim of the ledger{suggestion(name, claims)}"
                )
    if len(found) > len(IDS[source]):
        extra = found[len(IDS[source])]
        raise InputError(
            f"{path.name}: thing", f"{extra!r} is no thing of this source; the last is {IDS[source][-1]!r}"
        )
    if len(found) < len(IDS[source]):
        raise InputError(f"{path.name}: thing", f"{IDS[source][len(found)]!r} is missing; every id has a line")
    return things.thing


def counts_rows(things: Mapping[str, Sequence[Thing]], page: str) -> list[tuple[str, ...]]:
    """Rows of the table of counts: source, number of things, one column per status; the last row sums up.

    Args:
        page: of things, as the page with the table links to it.
    """
    rows, total = [], Counter[str]()
    for source, title in SOURCES.items():
        counts = Counter[str](thing.status for thing in things[source])
        total += counts
        rows.append(_row(f"[{title}]({page}#source-{source})", counts))
    return [*rows, _row("all", total)]


def _row(title: str, counts: Mapping[str, int]) -> tuple[str, ...]:
    return (title, str(sum(counts.values())), *(str(counts.get(status, 0)) for status in STATUSES))


def things_tables(
    things: Mapping[str, Sequence[Thing]], judgements: Mapping[str, Sequence[Judgement]], places: Mapping[str, str]
) -> Iterator[tuple[str, str, list[tuple[str, ...]]]]:
    """The tables of the page of things: source, its title, and rows of id, thing, status, where, and verdicts.

    Args:
        judgements: of every claim, by its id in the whole ledger.
        places: page and heading of every experiment, as the page of things links to them.
    """
    for source, title in SOURCES.items():
        yield (
            source,
            title,
            [
                (
                    thing.id,
                    thing.says,
                    f"**{thing.status}**",
                    thing.where,
                    "<br>".join(_verdict(name, judgements[name], places) for name in thing.claims) or NOTHING,
                )
                for thing in things[source]
            ],
        )


def _verdict(name: str, judgements: Sequence[Judgement], places: Mapping[str, str]) -> str:
    """A claim with its verdicts, and a link to its experiment."""
    experiment, _, claim = name.partition("/")
    words = list(dict.fromkeys(one.verdict for one in judgements)) or [NOT_TRIED]
    return f"[{claim}]({places[experiment]}): {', '.join(words)}"
