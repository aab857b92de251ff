"""What a camera has seen of a run, or of a federation: plain data, which pages of either kind show."""

from __future__ import annotations

import msgspec

from volery.core.model import Address, Time


class Flight(msgspec.Struct, frozen=True, array_like=True):
    """A message on its way; microseconds since the film begins, and numbers into the film's lists."""

    sent_us: Time
    heard_us: Time
    sender: int
    receiver: int
    kind: int


class Role(msgspec.Struct, frozen=True):
    """A role over time, a number per interval.

    Args:
        count: of its components.
        waiting: tasks that wait there, the most in the interval; a task waits at who was last told of it.
        busiest: the same of the component at which most wait.
        received: messages.
    """

    name: str
    count: int
    waiting: list[int]
    busiest: list[int]
    received: list[int]


class Belief(msgspec.Struct, frozen=True):
    """What a scheduler believes against what is, at the end of each interval.

    Args:
        of: whom it hears of machines from.
        age_us: per each of these, the time since it was heard; -1: never.
        free: slots believed free on which something runs.
        taken: slots believed taken on which nothing runs (yet: what is on its way counts).
        wrong: per interval, the groups of machines (`volery.metrics.filming.Camera.cells`) about which it is wrong,
            as the first machine, slots believed free, slots believed taken.
    """

    by: Address
    of: list[Address]
    age_us: list[list[Time]]
    free: list[int]
    taken: list[int]
    wrong: list[list[tuple[int, int, int]]]


class Filmed(msgspec.Struct, frozen=True):
    """All that a camera has seen; intervals are of equal length.

    Args:
        begin_us, step_us: of the intervals.
        addresses, kinds: that flights name.
        told: per kind of message, what it says, from its documentation.
        sent: per kind of message, how many were sent in each interval.
        flights: a sample.
        facts: per name, how many in each interval, of those that a design counts as inconsistencies or conflicts.
        moments: time, and what happened.
        attempts: columns, see `volery.metrics.filming.ATTEMPT_COLUMNS`, of those that have ended or run at the end.
    """

    begin_us: Time
    step_us: Time
    addresses: list[Address]
    kinds: list[str]
    told: list[str]
    sent: list[list[int]]
    flights: list[Flight]
    roles: list[Role]
    beliefs: list[Belief]
    facts: dict[str, list[int]]
    moments: list[tuple[Time, str]]
    attempts: dict[str, list[int]]
