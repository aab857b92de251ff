"""Heartbeats of machines: each sends one per interval, and all are spread evenly over it.

A heartbeat without news is not sent: the master knows the free slots of a machine and the time of its next heartbeat,
and decides at that time what it would have decided on receipt.
"""

from __future__ import annotations

from volery.core.model import Time


class Heartbeats:
    """Clock of the heartbeats of all machines.

    Args:
        interval_us: Time between two heartbeats of one machine.
        seats: Count of the machines; that of seat k is due k / seats of an interval later than the first.

    Raises:
        ValueError: an interval in which not every machine has a microsecond of its own.
    """

    __slots__ = ("_interval_us", "_seats")

    def __init__(self, interval_us: Time, seats: int) -> None:
        if interval_us < seats:
            raise ValueError(
                f"heartbeats of {seats} machines need an interval of {seats} us at least: {interval_us} us"
            )
        self._interval_us = interval_us
        self._seats = seats

    def after(self, seat: int, now: Time) -> Time:
        """The next heartbeat of a machine, later than now."""
        phase = seat * self._interval_us // self._seats
        return now + self._interval_us - (now - phase) % self._interval_us

    def next_of(self, candidates: int, now: Time) -> tuple[int, Time]:
        """Return the seat of the machine whose heartbeat is next, later than now, and its time.

        Args:
            candidates: Bit vector of seats, not 0.
        """
        # Phases <= offset have passed in this interval: those of seats below the first one whose phase is greater.
        offset = now % self._interval_us
        first_seat = (offset + 1) * self._seats + self._interval_us - 1
        first_seat //= self._interval_us
        later_seats = candidates >> first_seat
        seat = first_seat + lowest(later_seats) if later_seats else lowest(candidates)
        return seat, self.after(seat, now)


def lowest(vector: int) -> int:
    """The position of the lowest set bit."""
    return (vector & -vector).bit_length() - 1
