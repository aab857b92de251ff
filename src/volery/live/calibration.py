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
"""Excess of wall time over processor time in a turn which shows that another process ran meanwhile."""
HALVES_US: Final = tuple(250.0 * 2**n for n in range(10))
PIECES_MIN: Final = 30
"""Pieces of a kind below which rests and tasks are not fitted; the mean is taken."""
STAMPS: Final = 2_000
STAMP_ROUNDS: Final = 50
ROUNDS: Final = 2000
"""Frames there and back whose times are measured."""
MEET_S: Final = 10.0

Kind = tuple[str, str]
TURN: Final[Kind] = ("", "turn")
COMMIT: Final[Kind] = ("", "commit")
LAUNCH: Final[Kind] = ("", "launch")
SEND: Final[Kind] = ("", "send")
NOTES: Final[Kind] = ("", "notes")
"""The work of a host that is there only because it is being timed."""
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

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
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
    add = stamps.flat.extend
    clock = time.perf_counter_ns
    role = role_of(address)

    numbers: dict[type, int] = {}
    types_with_tasks: set[type] = set()

    def timed(event: Any, source: Address, now: Time) -> None:
        kind = type(event)
        number = numbers.get(kind)
        if number is None:
            number = numbers[kind] = stamps.number((role, kind.__name__))
            if hasattr(event, "tasks") or hasattr(event, "job"):
                types_with_tasks.add(kind)
        add((number, tasks_in(event) if kind in types_with_tasks else 0, clock()))
        handle(event, source, now)

    return timed


def stamp_us() -> float:
    """The cost of one time stamp, by the best of many short rounds: other processes add to most."""

    def ignore_event(event: Any, source: Address, now: Time) -> None:
        pass

    def duration_ns(handle: Callable[..., None]) -> int:
        began = time.perf_counter_ns()
        for _ in range(STAMPS):
            handle(None, "", 0)
        return time.perf_counter_ns() - began

    timed = stamped(Stamps(), "", ignore_event)
    with_stamp, without = (min(duration_ns(handle) for _ in range(STAMP_ROUNDS)) for handle in (timed, ignore_event))
    return max(0.0, (with_stamp - without) / STAMPS / 1000)


class TimedPiece(msgspec.Struct):
    """A part of a turn.

    Args:
        kind: role and name of the event, or other work of the turn.
        took_us: time from its beginning to that of the next piece.
        tasks: tasks that the event carries.
        first: true if it was the first of its kind in its turn.
        at_us: beginning of its turn.
        end_us: end of its turn.
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
            turn = []
            number = number + 1
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
    """The pieces of each kind: microseconds that it took, tasks, rest before it (0: not the first of its turn)."""
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
        rows: durations, tasks carried, and times since the last one (0: in the same turn).
        half_us: rest that costs half of what a rest costs at most.
    """
    durations, tasks, rests = np.array(rows, dtype=np.float64).T
    share = np.where(np.isinf(rests), 1.0, rests / (np.where(np.isinf(rests), 0.0, rests) + half_us))
    columns = np.stack([np.ones_like(durations), tasks, share], axis=1)

    solution = (
        non_negative(columns, durations) if durations.size >= PIECES_MIN else np.array([durations.mean(), 0.0, 0.0])
    )
    return EventCost(*(float(value) for value in solution)), float(((columns @ solution - durations) ** 2).sum())


def non_negative(columns: Matrix, values: Matrix) -> Matrix:
    """Least squares whose coefficients are not below 0: those that would be are left out, the worst first."""
    active = list(range(columns.shape[1]))
    solution = np.zeros(columns.shape[1])
    while active:
        part, *_ = np.linalg.lstsq(columns[:, active], values, rcond=None)
        if (part >= 0).all():
            solution[active] = part
            break
        del active[int(part.argmin())]
    return solution


def host_costs(hosts: Iterable[Timed]) -> HostCosts:
    """The costs that explain best what hosts on this machine have noted.

    Args:
        hosts: hosts that have run the roles in question, all of them together in one process each.
    """
    rows = _rows(hosts)
    overhead_us = stamp_us()
    solved = {half_us: {kind: fitted(kind_rows, half_us) for kind, kind_rows in rows.items()} for half_us in HALVES_US}
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

    for role, role_costs in roles.items():
        if role != SUBMITTER:
            role_costs[OTHER] = _mean_of(role_costs, {name: len(rows[role, name]) for name in role_costs})

    send_cost = costs.get(SEND, EventCost())
    return HostCosts(roles, _sum_of(costs, TURN, COMMIT), costs.get(LAUNCH, EventCost()), half_us, made=send_cost)


def _mean_of(costs: Mapping[str, EventCost], counts: Mapping[str, int]) -> EventCost:
    total = sum(counts.values())
    fields = EventCost.__struct_fields__
    return EventCost(*(sum(getattr(costs[n], f) * counts[n] for n in costs) / total for f in fields))


def _sum_of(costs: Mapping[Kind, EventCost], *kinds: Kind) -> EventCost:
    present = [costs[kind] for kind in kinds if kind in costs]
    return EventCost(*(sum(getattr(cost, field) for cost in present) for field in EventCost.__struct_fields__))


async def hop_us(first: Transport, second: Transport, frame: bytes) -> float:
    """The time of a frame between two hosts: half of the median time there and back.

    Args:
        first, second: transports that are not open yet.
    """
    back = asyncio.Event()
    await first.open("first", lambda _sender, _frame: back.set())
    await second.open("second", lambda sender, arrived: second.send(sender, arrived))
    await asyncio.gather(first.meet({"second"}, MEET_S), second.meet({"first"}, MEET_S))

    round_trips_ns = []

    for _ in range(ROUNDS):
        began = time.perf_counter_ns()
        first.send("second", frame)
        await back.wait()
        back.clear()
        round_trips_ns.append(time.perf_counter_ns() - began)

    await first.close()
    await second.close()
    return sorted(round_trips_ns)[ROUNDS // 2] / 2000


QUANTILES: Final = 200
"""Quantiles that stand for all delays of frames."""


class Socket:
    """Measurements of a host's socket.

    Attributes:
        published: frames that the host has sent, acknowledgements included.
        writes, reads: nanoseconds of beginning and end, the part in which other processes ran,
            frames, messages in them.
        written: nanoseconds when a frame had been written, by the processor time of the writing; peer, number.
        came: nanoseconds when the reading of a frame began; peer, number.
    """

    def __init__(self) -> None:
        self.writes = array("q")
        self.reads = array("q")
        self.written: list[tuple[int, HostName, int]] = []
        self.came: list[tuple[int, HostName, int]] = []
        self.sent: list[tuple[HostName, int]] = []
        self.taken: list[tuple[HostName, int]] = []
        self.published = 0


class FrameNotes:
    """Measurements of one host, as they are sent from process to process.

    Attributes:
        stamps, preempted_ns: measurements of its turns, see `TimedHost`.
        runs_tasks: true if nodes are on it.
        published: number of frames that it had sent by then, acknowledgements included; its socket goes on counting.
    """

    def __init__(self, host: FramingHost) -> None:
        self.stamps = host.stamps
        self.preempted_ns = host.preempted_ns
        self.socket = host.socket
        self.runs_tasks = host.runs_tasks
        self.published = host.socket.published

    def busy(self) -> list[tuple[int, int]]:
        """Nanoseconds, pairs of beginning and end: turns, reads and writes."""
        spans = [
            (piece.began, piece.ended) for flat in (self.socket.writes, self.socket.reads) for piece in _pieces(flat)
        ]
        return sorted([*turn_spans(self.stamps), *spans])


class FramingHost(TimedHost):
    """A timed host that also times its socket."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
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
        event_count = len(self.inbox.events)
        super()._arrived(sender, encoded)
        if len(self.inbox.events) > event_count and self._delivery is not None:
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
            others_ns = ended - began - (time.thread_time_ns() - cpu)

            if socket.sent:
                socket.writes.extend((began, ended, others_ns, len(socket.sent), 0))
                # The receiver of the frame often runs before the call that wrote it returns.
                written_ns = ended - max(0, others_ns)
                socket.written.extend((written_ns, peer, number) for peer, number in socket.sent)
                socket.sent.clear()

        def read(self, wire: Any, content: bytes) -> None:
            event_count = len(host.inbox.events)
            cpu, began = time.thread_time_ns(), time.perf_counter_ns()
            super().read(wire, content)
            ended = time.perf_counter_ns()
            others_ns = ended - began - (time.thread_time_ns() - cpu)
            taken_frames = socket.taken

            if taken_frames:
                messages = carried(event for _, event, _ in itertools.islice(host.inbox.events, event_count, None))
                socket.reads.extend((began, ended, others_ns, len(taken_frames), messages))
                socket.came.extend((began, peer, number) for peer, number in taken_frames)
                taken_frames.clear()

    return TimedClient


class _Piece(NamedTuple):
    began: int
    ended: int
    others_ns: int
    frames: int
    messages: int


def _pieces(flat: array[int]) -> Iterator[_Piece]:
    for at in range(0, len(flat), 5):
        yield _Piece(*flat[at : at + 5])


def delays_us(hosts: Mapping[HostName, FrameNotes]) -> list[float]:
    """Delays in microseconds of frames that were written alone to a receiver at rest.

    Of frames that are written together the later ones wait for the broker and for cores, which are parts of the model.

    Args:
        hosts: notes of the hosts of one federation and one machine, whose processes all read the same clock.
    """
    written_ns: dict[tuple[HostName, HostName, int], int] = {}
    for name, notes in hosts.items():
        together = Counter(at for at, *_ in notes.socket.written)
        written_ns |= {(name, peer, number): at for at, peer, number in notes.socket.written if together[at] == 1}

    delays = []
    for name, notes in hosts.items():
        ends = np.array([end for _, end in notes.busy()], dtype=np.int64)
        for at, peer, number in notes.socket.came:
            began = written_ns.get((peer, name, number))
            if began is None:
                continue

            ends_before = int(np.searchsorted(ends, at, side="right"))
            if ends_before == 0 or ends[ends_before - 1] <= began:
                delays.append(max(0, at - began) / 1000)  # it may be read before the call that wrote it returns

    return delays


def model_of(
    runs: Sequence[Mapping[HostName, FrameNotes]], broker_us: float
) -> tuple[dict[HostName, HostCosts], Frames]:
    """The costs of each host, and what lies between them.

    Args:
        runs: measurements of the hosts of a federation, by host; all on this machine.
        broker_us: processor time of the broker per frame.
    """
    names = dict.fromkeys(name for run in runs for name in run)
    costs = {name: framed_costs([run[name] for run in runs if name in run]) for name in names}
    delays = [delay for run in runs for delay in delays_us(run)]
    return costs, Frames(spread(delays), broker_us, os.cpu_count() or 1)


def spread(delays: Sequence[float]) -> tuple[Time, ...]:
    """Quantiles of delays, whole microseconds."""
    return tuple(round(float(value)) for value in np.percentile(delays, (np.arange(QUANTILES) + 0.5) / QUANTILES * 100))


def framed_costs(runs: Sequence[FrameNotes]) -> HostCosts:
    """The costs of a host that sends frames: those of its turns, and of its socket."""
    costs = host_costs(runs)
    written, read = (
        _socket_cost([getattr(notes.socket, name) for notes in runs], costs.rest_half_us, column)
        for name, column in (("writes", 3), ("reads", 4))
    )
    return msgspec.structs.replace(costs, written=written, read=read, reports=any(notes.runs_tasks for notes in runs))


def _socket_cost(recordings: Sequence[array[int]], half_us: float, column: int) -> EventCost:
    rows = []
    for flat in recordings:
        last = None
        for piece in _pieces(flat):
            rest_us = np.inf if last is None else (piece.began - last) / 1000
            last = piece.ended
            if piece.others_ns < PREEMPTED_NS:
                rows.append(((piece.ended - piece.began) / 1000, piece[column], rest_us))
    return fitted(rows, half_us)[0] if rows else EventCost()
