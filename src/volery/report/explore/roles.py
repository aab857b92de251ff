"""What a camera saw, as a film's page holds it; what does not change from one interval to the next stands once."""

from __future__ import annotations

from typing import Final

import msgspec

from volery.core.film import Belief, Filmed, Flight, Role
from volery.metrics.filming import FLIGHTS_PER_KIND
from volery.report.elements import Row, table

BELIEVERS_MAX: Final = 8
"""Schedulers whose beliefs a page holds, machine by machine."""
SECOND_US: Final = 1e6
Wrong = list[tuple[int, int, int]]


class Believed(msgspec.Struct, frozen=True):
    """As `volery.core.film.Belief`; `wrong` is None where it is that of the interval before."""

    by: str
    of: list[str]
    age_us: list[list[int]]
    free: list[int]
    taken: list[int]
    wrong: list[Wrong | None]


class Said(msgspec.Struct, frozen=True):
    """As `volery.core.film.Filmed`; `shown`: how many flights of a kind an interval has at most."""

    begin_s: float
    step_s: float
    bins: int
    shown: int
    addresses: list[str]
    kinds: list[str]
    told: list[str]
    sent: list[list[int]]
    flights: list[Flight]
    roles: list[Role]
    beliefs: list[Believed]
    facts: dict[str, list[int]]


def said(filmed: Filmed) -> Said:
    """As the page holds it."""
    return Said(
        filmed.begin_us / SECOND_US,
        filmed.step_us / SECOND_US,
        len(filmed.sent[0]) if filmed.sent else 1,
        FLIGHTS_PER_KIND,
        filmed.addresses,
        filmed.kinds,
        filmed.told,
        filmed.sent,
        sorted(filmed.flights, key=lambda flight: flight.sent_us),
        filmed.roles,
        [_believed(one) for one in filmed.beliefs[:BELIEVERS_MAX]],
        filmed.facts,
    )


def _believed(one: Belief) -> Believed:
    before: Wrong | None = None
    wrong: list[Wrong | None] = []
    for found in one.wrong:
        wrong.append(None if found == before else found)
        before = found
    return Believed(one.by, one.of, one.age_us, one.free, one.taken, wrong)


def still_roles(told: Said) -> str:
    """The counts of the whole film, for readers without scripts."""
    kinds = zip(told.kinds, told.told, told.sent, strict=True)
    rows = [Row([kind, what, f"{sum(counts):,}"]) for kind, what, counts in kinds]
    return table(("message", "what it says", "sent"), rows, text_columns=2)
