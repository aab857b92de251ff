"""Calibration: what turns, events and launches cost a live host on this machine, fitted to a host that times itself.

Each turn is cut into pieces by reading the clock wherever something new begins: the turn, each event, the commit, each
launch. A piece belongs to what began it. The pieces of one kind are explained by a constant, by the tasks that the
event carries, and by how long the host had not handled such an event (see `volery.core.costs`), with non-negative least
squares. Turns in which the operating system let somebody else run are left out: that time is not the host's work.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from volery.core.component import role_of
from volery.core.costs import OTHER, EventCost, Frames, HostCosts, carried, tasks_in
from volery.core.events import Submit, TimerFired
from volery.core.model import SUBMITTER, Address, Time
from volery.live.messages import HostName
from volery.live.runtime.host import Host
from volery.live.transport.broker import BrokerTransport
from volery.live.transport.delivery import Parcel
from volery.live.transport.nats import NatsClient
from volery.live.transport.transport import Transport

PREEMPTED_NS: Final = 30_000
"""More wall time than processor time in one turn means that somebody else ran meanwhile."""
HALVES_US: Final = tuple(250.0 * 2**n for n in range(10))
PIECES_MIN: Final = 30
"""Fewer of a kind show nothing about rests and tasks; their mean is taken."""
STAMPS: Final = 2_000
STAMP_ROUNDS: Final = 50
ROUNDS: Final = 2000
"""Of a frame between two hosts."""
MEET_S: Final = 10.0

Kind = tuple[str, str]
TURN: Final[Kind] = ("", "turn")
COMMIT: Final[Kind] = ("", "commit")
LAUNCH: Final[Kind] = ("", "launch")
SEND: Final[Kind] = ("", "send")
NOTES: Final[Kind] = ("", "notes")
"""What a host does only because it is being timed."""
END: Final[Kind] = ("", "end")
Matrix = npt.NDArray[np.float64]


class Timed(Protocol):
    """Measurements of a host's turns; see `TimedHost`."""

    stamps: Stamps
    preempted_ns: array[int]


class Stamps:
    """Time stamps: the number of a kind, the tasks that the event carries, nanoseconds.

    Numbers in one flat array, not the events: to keep those would have a host allocate fresh memory for each, and work
    with colder caches than it does when nobody is looking.
    """

    def __init__(self) -> None:
        self.kinds: list[Kind] = []
        self.flat = array("q")
        kinds = (TURN, COMMIT, LAUNCH, SEND, NOTES, END)
        self.turn, self.commit, self.launch, self.send, self.notes, self.end = map(self.number, kinds)

    def number(self, kind: Kind) -> int:
        """The number of a kind; a new one each time it is asked for."""
        self.kinds.append(kind)
        return len(self.kinds) - 1

    def rows(self) -> Iterator[tuple[Kind, int, int]]:
        """Kind, tasks, nanoseconds, in order."""
        flat, kinds = self.flat, self.kinds
        for at in range(0, len(flat), 3):
            yield kinds[flat[at]], flat[at + 1], flat[at + 2]


class TimedHost(Host):
    """A host that notes when what began, and what each turn used of the processor."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.stamps = Stamps()
        self.preempted_ns = array("q")
        for address, mailbox in self._mailboxes.items():
            mailbox.handle = stamped(self.stamps, address, mailbox.handle)

    def _turn(self) -> None:
        cpu, wall = time.thread_time_ns(), time.perf_counter_ns()
        self._note(self.stamps.turn)
        super()._turn()
        self.preempted_ns.append(time.perf_counter_ns() - wall - (time.thread_time_ns() - cpu))

    def _commit(self, now: Time) -> None:
        self._note(self.stamps.commit)
        super()._commit(now)
        self._note(self.stamps.end)

    def _launch(self, *arguments: Any) -> None:
        self._note(self.stamps.launch)
        super()._launch(*arguments)

    def _note(self, number: int) -> None:
        self.stamps.flat.extend((number, 0, time.perf_counter_ns()))


def turn_spans(stamps: Stamps) -> Iterator[tuple[int, int]]:
    """Nanoseconds when each turn began and when it had ended."""
    began = None
    for kind, _, at in stamps.rows():
        if kind == TURN:
            began = at
        elif kind == END and began is not None:
            yield began, at
            began = None


def stamped(stamps: Stamps, address: Address, handle: Callable[..., None]) -> Callable[..., None]:
    """A handler of a component that notes when each event comes."""
    add, clock, role = stamps.flat.extend, time.perf_counter_ns, role_of(address)
    numbers: dict[type, int] = {}
    carrying: set[type] = set()

    def timed(event: Any, source: Address, now: Time) -> None:
        of = type(event)
        number = numbers.get(of)
        if number is None:
            number = numbers[of] = stamps.number((role, of.__name__))
            if hasattr(event, "tasks") or hasattr(event, "job"):
                carrying.add(of)
        add((number, tasks_in(event) if of in carrying else 0, clock()))
        handle(event, source, now)

    return timed


def stamp_us() -> float:
    """The cost of one time stamp, by the best of many short rounds: other processes add to most."""

    def nothing(event: Any, source: Address, now: Time) -> None:
        pass

    def took(handle: Callable[..., None]) -> int:
        began = time.perf_counter_ns()
        for _ in range(STAMPS):
            handle(None, "", 0)
        return time.perf_counter_ns() - began

    timed = stamped(Stamps(), "", nothing)
    with_stamp, without = (min(took(handle) for _ in range(STAMP_ROUNDS)) for handle in (timed, nothing))
    return max(0.0, (with_stamp - without) / STAMPS / 1000)


class TimedPiece(msgspec.Struct):
    """A part of a turn.

    Args:
        kind: role and name of the event, or what else the turn did.
        took_us: from its beginning to that of the next piece.
        tasks: that the event carries.
        first: whether it was the first of its kind in its turn.
        at_us: when its turn began.
        end_us: when its turn had ended.
    """

    kind: Kind
    took_us: float
    tasks: int
    first: bool
    at_us: float
    end_us: float = 0.0


def turns_of(host: Timed) -> Iterator[list[TimedPiece]]:
    """The turns that nobody interrupted; start and answers to the submitter are left out."""
    turn: list[TimedPiece] = []
    number = -1
    for (kind, tasks, at), (_, _, following) in itertools.pairwise(host.stamps.rows()):
        if kind == TURN:
            turn, number = [], number + 1
        elif kind == END:
            if turn and 0 <= number < len(host.preempted_ns) and host.preempted_ns[number] < PREEMPTED_NS:
                for piece in turn:
                    piece.end_us = at / 1000
                yield turn
            turn = []
            continue
        first = all(piece.kind != kind for piece in turn)
        if kind[1] == Submit.__name__:
            for piece in turn:
                piece.tasks += tasks if piece.kind[0] == SUBMITTER else 0
        turn.append(TimedPiece(kind, (following - at) / 1000, tasks, first, turn[0].at_us if turn else at / 1000))


def _rows(hosts: Iterable[Timed]) -> dict[Kind, list[tuple[float, float, float]]]:
    """By kind, of each piece: microseconds that it took, tasks, rest before it (0: not the first of its turn)."""
    rows: dict[Kind, list[tuple[float, float, float]]] = {}
    for host in hosts:
        last: dict[Kind, float] = {}
        for turn in turns_of(host):
            for piece in turn:
                rest_us = piece.at_us - last.get(piece.kind, -np.inf) if piece.first else 0.0
                rows.setdefault(piece.kind, []).append((piece.took_us, piece.tasks, rest_us))
            last |= {piece.kind: piece.end_us for piece in turn}
    return rows


def fitted(rows: Sequence[tuple[float, float, float]], half_us: float) -> tuple[EventCost, float]:
    """The cost that explains best what pieces of one kind took, and the sum of the squares of what it does not explain.

    Args:
        rows: what it took, what it carried, how long the last one was ago (0: in the same turn).
        half_us: after so long a rest it costs half of what a rest costs at most.
    """
    took, tasks, rest = np.array(rows, dtype=np.float64).T
    share = np.where(np.isinf(rest), 1.0, rest / (np.where(np.isinf(rest), 0.0, rest) + half_us))
    columns = np.stack([np.ones_like(took), tasks, share], axis=1)
    solution = non_negative(columns, took) if took.size >= PIECES_MIN else np.array([took.mean(), 0.0, 0.0])
    return EventCost(*(float(value) for value in solution)), float(((columns @ solution - took) ** 2).sum())


def non_negative(columns: Matrix, values: Matrix) -> Matrix:
    """Least squares whose coefficients are not below 0: those that would be are left out, the worst first."""
    kept = list(range(columns.shape[1]))
    solution = np.zeros(columns.shape[1])
    while kept:
        part, *_ = np.linalg.lstsq(columns[:, kept], values, rcond=None)
        if (part >= 0).all():
            solution[kept] = part
            break
        del kept[int(part.argmin())]
    return solution


def host_costs(hosts: Iterable[Timed]) -> HostCosts:
    """The costs that explain best what hosts on this machine have noted.

    Args:
        hosts: that have run the roles in question, all of them together in one process each.
    """
    rows, overhead_us = _rows(hosts), stamp_us()
    solved = {half_us: {kind: fitted(of, half_us) for kind, of in rows.items()} for half_us in HALVES_US}
    half_us = min(solved, key=lambda half_us: sum(error for _, error in solved[half_us].values()))
    costs = {
        kind: msgspec.structs.replace(cost, event_us=max(0.0, cost.event_us - overhead_us))
        for kind, (cost, _) in solved[half_us].items()
    }
    roles: dict[str, dict[str, EventCost]] = {}
    for (role, name), cost in sorted(costs.items()):
        if role == SUBMITTER:
            roles.setdefault(role, {})[Submit.__name__ if name == TimerFired.__name__ else name] = cost
        elif role:
            roles.setdefault(role, {})[name] = cost
    for role, known in roles.items():
        if role != SUBMITTER:
            known[OTHER] = _mean_of(known, {name: len(rows[role, name]) for name in known})
    made = costs.get(SEND, EventCost())
    return HostCosts(roles, _sum_of(costs, TURN, COMMIT), costs.get(LAUNCH, EventCost()), half_us, made=made)


def _mean_of(costs: Mapping[str, EventCost], counts: Mapping[str, int]) -> EventCost:
    total = sum(counts.values())
    fields = EventCost.__struct_fields__
    return EventCost(*(sum(getattr(costs[n], f) * counts[n] for n in costs) / total for f in fields))


def _sum_of(costs: Mapping[Kind, EventCost], *kinds: Kind) -> EventCost:
    found = [costs[kind] for kind in kinds if kind in costs]
    return EventCost(*(sum(getattr(cost, field) for cost in found) for field in EventCost.__struct_fields__))


async def hop_us(first: Transport, second: Transport, frame: bytes) -> float:
    """The time of a frame between two hosts: half of the median time there and back.

    Args:
        first, second: transports that are not open yet.
    """
    back = asyncio.Event()
    await first.open("first", lambda _sender, _frame: back.set())
    await second.open("second", lambda sender, arrived: second.send(sender, arrived))
    await asyncio.gather(first.meet({"second"}, MEET_S), second.meet({"first"}, MEET_S))
    took = []
    for _ in range(ROUNDS):
        began = time.perf_counter_ns()
        first.send("second", frame)
        await back.wait()
        back.clear()
        took.append(time.perf_counter_ns() - began)
    await first.close()
    await second.close()
    return sorted(took)[ROUNDS // 2] / 2000


QUANTILES: Final = 200
"""Of the delays of frames: so many stand for all."""


class Socket:
    """Measurements of a host's socket.

    Attributes:
        published: frames that the host has sent, acknowledgements included.
        writes, reads: nanoseconds when it began and when it ended, how much of that the processor was somebody else's,
            frames, messages in them.
        left: nanoseconds when a frame had been written, by the processor time of the writing; which peer, which number.
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
        published: frames that it had sent by then, acknowledgements included; its socket goes on counting.
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
                left = ended - max(0, others)  # who gets the frame often runs before the call that wrote it returns
                socket.left.extend((left, peer, number) for peer, number in socket.sent)
                socket.sent.clear()

        def read(self, wire: Any, said: bytes) -> None:
            before = len(host.inbox.events)
            cpu, began = time.thread_time_ns(), time.perf_counter_ns()
            super().read(wire, said)
            ended = time.perf_counter_ns()
            others = ended - began - (time.thread_time_ns() - cpu)
            taken = socket.taken
            if taken:
                messages = carried(event for _, event, _ in itertools.islice(host.inbox.events, before, None))
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
        hosts: of one federation and one machine, whose processes all read the same clock.
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
