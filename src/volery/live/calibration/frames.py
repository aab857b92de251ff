"""Frames over a broker, timed: what reading and writing them costs a host, and how long they are on their way.

Each host notes when it has written which frame to its socket, and when it has begun to read which. On one machine all
processes read the same clock, so that the two notes together show how long a frame was on its way. Only frames whose
receiver had nothing to do meanwhile count: others have waited for the receiver, which is another part of the model.
"""

from __future__ import annotations

import os
import time
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from volery.core.costs import EventCost, Frames, HostCosts, carried
from volery.core.model import Time
from volery.live.calibration.calibrate import PREEMPTED_NS, TimedHost, fitted, host_costs, turn_spans
from volery.live.messages import HostName
from volery.live.transport.broker import BrokerTransport
from volery.live.transport.codec import Parcel
from volery.live.transport.nats import NatsClient

QUANTILES: Final = 200
"""Of the delays of frames: so many stand for all."""


class Socket:
    """Measurements of a host's socket.

    Attributes:
        writes, reads: nanoseconds when it began and when it ended, how much of that the processor was somebody else's,
            frames, messages in them.
        left: nanoseconds when a frame had been written; which peer, which number.
        came: nanoseconds when the reading of a frame began; which peer, which number.
    """

    def __init__(self) -> None:
        self.writes = array("q")
        self.reads = array("q")
        self.left: list[tuple[int, HostName, int]] = []
        self.came: list[tuple[int, HostName, int]] = []
        self.sent: list[tuple[HostName, int]] = []
        self.taken: list[tuple[HostName, int]] = []
        self.published = 0


class FrameNotes:
    """Measurements of one host, as they are sent from process to process.

    Attributes:
        stamps, preempted_ns: of its turns, see `TimedHost`.
        runs_tasks: whether nodes are on it.
        published: frames that it has sent, acknowledgements included.
    """

    def __init__(self, host: FramingHost) -> None:
        self.stamps = host.stamps
        self.preempted_ns = host.preempted_ns
        self.socket = host.socket
        self.runs_tasks = host.runs_tasks
        self.published = host.socket.published

    def busy(self) -> list[tuple[int, int]]:
        """Nanoseconds, pairs of beginning and end: turns, reads and writes."""
        spans = [(one.began, one.ended) for flat in (self.socket.writes, self.socket.reads) for one in _pieces(flat)]
        return sorted([*turn_spans(self.stamps), *spans])


class FramingHost(TimedHost):
    """A timed host that also times its socket."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.socket = Socket()
        transport = self._transport
        if isinstance(transport, BrokerTransport):
            transport.measure(timed_client(self))

    @property
    def runs_tasks(self) -> bool:
        """True where nodes are on this host."""
        return self._executor is not None

    def _send(self, peer: HostName, parcels: list[Parcel]) -> None:
        at = len(self.stamps.flat)
        self._note(self.stamps.send)
        super()._send(peer, parcels)
        self._note(self.stamps.notes)
        assert self._delivery is not None
        self.stamps.flat[at + 1] = carried(message for _, _, message in parcels)
        self.socket.sent.append((peer, self._delivery.numbers(peer)[0]))

    def _arrived(self, sender: HostName, encoded: bytes) -> None:
        before = len(self.inbox.events)
        super()._arrived(sender, encoded)
        if len(self.inbox.events) > before and self._delivery is not None:
            self.socket.taken.append((sender, self._delivery.numbers(sender)[1]))


def timed_client(host: FramingHost) -> type[NatsClient]:
    """A client that notes what its host writes and reads."""
    socket = host.socket

    class TimedClient(NatsClient):
        def publish(self, subject: bytes, *parts: bytes) -> None:
            socket.published += 1
            super().publish(subject, *parts)

        def _write(self) -> None:
            cpu, began = time.thread_time_ns(), time.perf_counter_ns()
            super()._write()
            ended = time.perf_counter_ns()
            others = ended - began - (time.thread_time_ns() - cpu)
            if socket.sent:
                socket.writes.extend((began, ended, others, len(socket.sent), 0))
                socket.left.extend((ended, peer, number) for peer, number in socket.sent)
                socket.sent.clear()

        def read(self, wire: Any, said: bytes) -> None:
            before = len(host.inbox.events)
            cpu, began = time.thread_time_ns(), time.perf_counter_ns()
            super().read(wire, said)
            ended = time.perf_counter_ns()
            others = ended - began - (time.thread_time_ns() - cpu)
            taken = socket.taken
            if taken:
                messages = carried(event for _, event, _ in islice(host.inbox.events, before, None))
                socket.reads.extend((began, ended, others, len(taken), messages))
                socket.came.extend((began, peer, number) for peer, number in taken)
                taken.clear()

    return TimedClient


class _Piece(NamedTuple):
    began: int
    ended: int
    others: int
    frames: int
    messages: int


def _pieces(flat: array[int]) -> Iterator[_Piece]:
    for at in range(0, len(flat), 5):
        yield _Piece(*flat[at : at + 5])


def delays_us(hosts: Mapping[HostName, FrameNotes]) -> list[float]:
    """Delays in microseconds of frames that were written alone to a receiver at rest.

    Of frames that are written together the later ones wait for the broker and for cores, which are parts of the model.

    Args:
        hosts: of one federation and one machine.
    """
    left: dict[tuple[HostName, HostName, int], int] = {}
    for name, of in hosts.items():
        together = Counter(at for at, *_ in of.socket.left)
        left |= {(name, peer, number): at for at, peer, number in of.socket.left if together[at] == 1}
    found = []
    for name, of in hosts.items():
        ends = np.array([end for _, end in of.busy()], dtype=np.int64)
        for at, peer, number in of.socket.came:
            began = left.get((peer, name, number))
            if began is None:
                continue
            before = int(np.searchsorted(ends, at, side="right"))
            if before == 0 or ends[before - 1] <= began:
                found.append(max(0, at - began) / 1000)  # it may be read before the call that wrote it returns
    return found


def model_of(
    runs: Sequence[Mapping[HostName, FrameNotes]], broker_us: float
) -> tuple[dict[HostName, HostCosts], Frames]:
    """The costs of each host, and what lies between them.

    Args:
        runs: by host, what the hosts of a federation have noted; all on this machine.
        broker_us: what the broker has spent on a frame.
    """
    names = dict.fromkeys(name for run in runs for name in run)
    costs = {name: framed_costs([run[name] for run in runs if name in run]) for name in names}
    delays = [delay for run in runs for delay in delays_us(run)]
    return costs, Frames(spread(delays), broker_us, os.cpu_count() or 1)


def spread(delays: Sequence[float]) -> tuple[Time, ...]:
    """Quantiles of delays, whole microseconds."""
    return tuple(round(float(one)) for one in np.percentile(delays, (np.arange(QUANTILES) + 0.5) / QUANTILES * 100))


def framed_costs(runs: Sequence[FrameNotes]) -> HostCosts:
    """The costs of a host that sends frames: those of its turns, and of its socket."""
    costs = host_costs(runs)
    written, read = (
        _socket_cost([getattr(one.socket, name) for one in runs], costs.rest_half_us, column)
        for name, column in (("writes", 3), ("reads", 4))
    )
    return msgspec.structs.replace(costs, written=written, read=read, reports=any(one.runs_tasks for one in runs))


def _socket_cost(noted: Sequence[array[int]], half_us: float, column: int) -> EventCost:
    rows = []
    for flat in noted:
        last = None
        for piece in _pieces(flat):
            rest_us = np.inf if last is None else (piece.began - last) / 1000
            last = piece.ended
            if piece.others < PREEMPTED_NS:
                rows.append(((piece.ended - piece.began) / 1000, piece[column], rest_us))
    return fitted(rows, half_us)[0] if rows else EventCost()
