"""Calls of which one in twenty harms its process. Worker processes import this module, so that a call is small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tests.live.calls import harms

HARM_EVERY: Final = 20
HARMFUL: Final[tuple[Callable[[], Any], ...]] = (
    harms.forks_and_returns,
    harms.forks_and_raises,
    harms.forks_and_exits,
    harms.raises,
    harms.exits,
    harms.closes_the_lowest_descriptors,
    harms.closes_its_output,
    harms.has_no_output,
    harms.sets_an_alarm,
    harms.exits_at_once,
    harms.kills_itself,
    harms.closes_all_descriptors,
    harms.writes_to_all_descriptors,
    harms.lowers_hard_limits,
    harms.leaves_a_thread,
    harms.ignores_signals,
)


def harm_of(number: int) -> Callable[[], Any] | None:
    """The harm that a call does; None: none."""
    return HARMFUL[number // HARM_EVERY % len(HARMFUL)] if number % HARM_EVERY == HARM_EVERY // 2 else None


def mixed(job: int, number: int) -> tuple[int, int]:
    """A value that is of this call alone, after the harm."""
    if harm := harm_of(number):
        harm()
    return job, number
