"""Fault plans of the lab, of messages, links, components and machines, and the extension that applies them.

A plan is plain data (`msgspec.toml` and `msgspec.json` read and write it) and names components by address. It contains
faults alone: the failure detector decides what components learn of them (`docs/decisions/0010`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from volery.core.capabilities import CrashRecovery
from volery.core.component import Component, Deployment
from volery.core.errors import InputError
from volery.core.events import Event, PeerBack, PeerLost
from volery.core.model import NEVER, SECOND, SUBMITTER, Address, Time
from volery.core.records import LostAttempt
from volery.sim.execution import Attempts, Extension, LabPort
from volery.sim.lab import FAR, Dispersal, Door, Lab
from volery.sim.network import MessageFaultRates, Moment
from volery.sim.submitter import Submitter

MESSAGES_MAX = 1_000_000
"""More than any plan needs: components that answer each other for ever in one instant never reach a deadline."""


class MessageFaults(MessageFaultRates, frozen=True, kw_only=True):
    """Faults of the messages that are sent during an interval.

    Args:
        start_us, end_us: Begin and end of the interval.
        among: Addresses whose messages are concerned, sent or received; empty: all.
    """

    start_us: Moment
    end_us: Moment
    among: tuple[Address, ...] = ()


class Partition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An interval in which nothing passes between two sets of addresses.

    Args:
        start_us, end_us: Begin and end of the partition.
        one: Addresses on one side.
        other: Addresses on the other side; empty: all that are not on the first.
    """

    start_us: Moment
    end_us: Moment
    one: tuple[Address, ...]
    other: tuple[Address, ...] = ()

    def cuts(self, a: Address, b: Address) -> bool:
        """True if the two cannot reach each other."""
        if not self.other:
            return (a in self.one) != (b in self.one)
        return (a in self.one and b in self.other) or (b in self.one and a in self.other)


class Crash(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A component stops, and is restarted as another incarnation; its machine, if it has one, goes with it.

    Args:
        at_us: Time of the stop.
        address: Address of the component.
        back_us: Time of the restart.
    """

    at_us: Moment
    address: Address
    back_us: Moment


class FaultPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The faults of a run.

    Args:
        messages, partitions, crashes: Faults of each kind.
        deadline_us: Time by which the run must be quiet; 0: no limit.
        progress_us: Time by which every job must be done, whatever restarts later; 0: no limit.
    """

    messages: tuple[MessageFaults, ...] = ()
    partitions: tuple[Partition, ...] = ()
    crashes: tuple[Crash, ...] = ()
    deadline_us: Moment = 0
    progress_us: Moment = 0

    def __post_init__(self) -> None:
        """Refuse what ends before it begins, and crashes of one address that overlap."""
        intervals = [(faults.start_us, faults.end_us) for faults in self.messages]
        intervals += [(partition.start_us, partition.end_us) for partition in self.partitions]
        for start_us, end_us in intervals:
            if end_us < start_us:
                raise InputError("faults", f"one ends at {end_us} us, before it starts at {start_us} us")

        up_at: dict[Address, Time] = {}
        for crash in sorted(self.crashes, key=lambda crash: crash.at_us):
            if crash.back_us < crash.at_us or crash.at_us < up_at.get(crash.address, 0):
                raise InputError("faults.crashes", f"{crash.address} cannot crash at {crash.at_us} us and not be up")
            # In one instant the order of calls would decide whether the restart or the next crash comes first: so the
            # crash is a microsecond later at least.
            up_at[crash.address] = crash.back_us + 1


_CRASH: Final = re.compile(
    r"([a-z]+/)(\d{1,6})(?:-(\d{1,6}))?((?:/[a-z]+)?)@(\d{1,9}(?:\.\d+)?)\+(\d{1,9}(?:\.\d+)?)", re.ASCII
)


def crashes_of(text: str, place: str) -> FaultPlan:
    """The plan that a text names.

    Args:
        text: Crashes as gm/0@20+5,node/0-9@30+60: address, time, duration, in seconds; a range stands for all its
            numbers.
        place: Beginning of error messages.

    Raises:
        InputError: The text is malformed, or an address crashes while it is down.
    """
    crashes = []
    for part in text.split(","):
        match = _CRASH.fullmatch(part.strip())
        if match is None:
            raise InputError(place, f"{part!r} is no crash; write address@time+duration in seconds, as gm/0@20+5")
        role, first, last, suffix, at_s, for_s = match.groups()

        if int(last or first) < int(first):
            raise InputError(place, f"{part!r} names no address: {last} is before {first}")

        at_us, back_us = round(float(at_s) * SECOND), round((float(at_s) + float(for_s)) * SECOND)
        numbers = range(int(first), int(last or first) + 1)
        crashes += [Crash(at_us, f"{role}{number}{suffix}", back_us) for number in numbers]
    return FaultPlan(crashes=tuple(crashes))


class NotQuiet(RuntimeError):  # noqa: N818 - it names a state, like Stalled
    """Something is still going on at the deadline of the plan."""


class Gate:
    """The inbox of one address: it leads to the component that is there now, or nowhere."""

    __slots__ = ("address", "component", "door", "incarnation", "is_cut", "is_up", "port")

    def __init__(self, address: Address, is_cut: Callable[[Address, Address], bool]) -> None:
        self.address = address
        self.is_cut = is_cut
        self.incarnation = 0
        self.is_up = True

    def lead_to(self, component: Component, door: Door, port: LabPort) -> None:
        """Take a component, which may replace another."""
        self.component, self.door, self.port = component, door, port

    def __call__(self, event: Event, source: Address, now: Time) -> None:
        """Pass a message, unless its link is cut or the component is gone; the submitter is beside its entry."""
        if self.is_up and (source == SUBMITTER or not self.is_cut(source, self.address)):
            self.door.deliver(event, source, now)


class _Pair:
    """Two addresses that watch each other.

    Attributes:
        cut: True if they cannot reach each other now.
        informed: True for an address that was informed that the other is lost.
        suspected: True if one was informed in this outage: then the other will be, too, though the outage may be over.
        outage: Count of outages.
    """

    __slots__ = ("cut", "informed", "outage", "sides", "suspected")

    def __init__(self, a: Address, b: Address) -> None:
        self.sides = (a, b)
        self.cut = False
        self.suspected = False
        self.informed = {a: False, b: False}
        self.outage = 0

    def other(self, side: Address) -> Address:
        return self.sides[1] if side == self.sides[0] else self.sides[0]


class FaultInjector(Extension):
    """Applies a plan, and informs pairs of addresses that watch each other.

    The failure detector behaves as heartbeats between two hosts do. An outage that is shorter than the detection time
    may pass unnoticed by both; but once one of the two suspects the other it no longer answers, so that the other is
    informed as well, within `detection_us`. Both receive PeerBack when they reach each other again.

    Args:
        lab, deployment, submitter, attempts: Shared state and parts of the run.
        plan: Faults to apply.
        install: Puts a component at its address.
        restarted: Called with the address of a component that was restarted, once that is detected.
    """

    may_lose_work = True

    def __init__(
        self,
        lab: Lab,
        deployment: Deployment,
        submitter: Submitter,
        attempts: Attempts,
        plan: FaultPlan,
        install: Callable[[Address, Component], None],
        restarted: Sequence[Callable[[Address], None]],
    ) -> None:
        self._lab = lab
        self._plan = plan
        self._recovery = recovery = deployment.capability(CrashRecovery)
        self._submitter = submitter
        self._attempts = attempts
        self._install = install
        self._restarted = restarted

        attempts.is_forgotten = self._is_forgotten
        lab.disperse = Dispersal(lab, submitter.door.owner, self._copies)

        standins = recovery.standins if recovery is not None else ()
        if standins:
            lab.records.number_widely()

        self._stream = lab.streams.of("faults")
        self._entry_stream = lab.streams.of("faults/entries")
        self._schedule = lab.schedule
        self._cut_off_at: dict[Address, Time] = {}
        self._address_of = {machine: address for address, machine in deployment.machines.items()}

        self._partitions: list[Partition] = []
        self._message_count = 0
        self._message_faults: list[MessageFaults] = []
        self._gates: dict[Address, Gate] = {}
        self._pairs: dict[Address, list[_Pair]] = {}

        # The two sides share one record: what one has noticed decides what the other will.
        for a, b in recovery.detector_pairs if recovery is not None else ():
            pair = _Pair(a, b)
            self._pairs.setdefault(a, []).append(pair)
            self._pairs.setdefault(b, []).append(pair)
        # Only the submitter's side of such a pair moves anything; the entry ignores it (see `_report`).
        for entry in standins:
            pair = _Pair(SUBMITTER, entry)
            self._pairs.setdefault(entry, []).append(pair)

        for crash in plan.crashes:
            if recovery is None or crash.address not in deployment.components:
                rebuilt = "cannot be rebuilt: its design bears crashes with reliable=true, or not at all"
                raise InputError("faults.crashes", f"{crash.address} {'is not an address' if recovery else rebuilt}")

    def wrap_inbox(self, address: Address, component: Component, inbox: Door, port: LabPort) -> Door:
        """Have the messages to a component pass its gate."""
        gate = self._gates.get(address)
        if gate is None:
            gate = self._gates[address] = Gate(address, self._cuts)
        gate.lead_to(component, inbox, port)
        return Door.through(gate)

    def begin(self) -> None:
        """Put the plan into the calendar."""
        for faults in self._plan.messages:
            self._schedule(faults.start_us, self._begin_faults, faults, None)
            self._schedule(faults.end_us, self._end_faults, faults, None)
        for partition in self._plan.partitions:
            self._schedule(partition.start_us, self._begin_partition, partition, None)
            self._schedule(partition.end_us, self._end_partition, partition, None)
        for crash in self._plan.crashes:
            self._schedule(crash.at_us, self._crash, crash.address, None)
            self._schedule(crash.back_us, self._restart, crash.address, None)
        if self._plan.deadline_us:
            self._schedule(self._plan.deadline_us, self._demand_quiet, None, None)
        if self._plan.progress_us:
            self._schedule(self._plan.progress_us, self._demand_progress, None, None)

    def _demand_progress(self, _first: None, _second: None, now: Time) -> None:
        if open_jobs := self._open_jobs():
            down_addresses = [crash.address for crash in self._plan.crashes if crash.at_us < now < crash.back_us]
            raise NotQuiet(
                f"{open_jobs} jobs are not done at {now} us; "
                f"{', '.join(down_addresses) or 'no component'} is gone for good"
            )

    def _demand_quiet(self, _first: None, _second: None, now: Time) -> None:
        if self._lab.is_busy() or self._submitter.due_us != FAR:
            problem = f"{self._open_jobs()} jobs are not done"
            raise NotQuiet(f"still busy at {now} us, long after the last fault; {problem}")

    def _open_jobs(self) -> int:
        return self._lab.trace.job_count - self._submitter.jobs_done

    def _begin_faults(self, faults: MessageFaults, _: None, _now: Time) -> None:
        self._message_faults.append(faults)

    def _end_faults(self, faults: MessageFaults, _: None, _now: Time) -> None:
        self._message_faults.remove(faults)

    def _begin_partition(self, partition: Partition, _: None, now: Time) -> None:
        self._partitions.append(partition)
        self._update_reachability(self._pairs_of(partition), now)

    def _end_partition(self, partition: Partition, _: None, now: Time) -> None:
        self._partitions.remove(partition)
        self._update_reachability(self._pairs_of(partition), now)

    def _pairs_of(self, partition: Partition) -> list[_Pair]:
        return [pair for address in partition.one for pair in self._pairs.get(address, ())]

    def _cuts(self, a: Address, b: Address) -> bool:
        """True if a partition is between the two."""
        return any(partition.cuts(a, b) for partition in self._partitions)

    def _copies(self, source: Address, gate: object) -> Sequence[Time]:
        """The extra delays of the copies of a message that arrive at a gate: () when it is lost."""
        self._message_count += 1
        if self._plan.deadline_us and self._message_count > MESSAGES_MAX:
            raise NotQuiet(f"{MESSAGES_MAX} messages, and no end")
        # Receivers of lanes are gates, since `wrap_inbox` leads every address through one; the submitter has no gate.
        assert isinstance(gate, Gate)

        if self._partitions and self._cuts(source, gate.address):
            return ()

        extras_us: Sequence[Time] = (0,)
        for faults in self._message_faults:
            if extras_us and (not faults.among or source in faults.among or gate.address in faults.among):
                extras_us = faults.copies(self._stream, extras_us)
        return extras_us

    def _crash(self, address: Address, _: None, now: Time) -> None:
        gate = self._gates[address]
        gate.is_up = False

        self._cut_off_at[address] = now
        gate.port.silence()
        self._attempts.end_all(gate.port)

        for pair in self._pairs.get(address, ()):
            pair.informed[address] = False
        self._update_reachability(self._pairs.get(address, ()), now)

    def _restart(self, address: Address, _: None, now: Time) -> None:
        gate, recovery = self._gates[address], self._recovery
        assert recovery is not None, "checked when the plan was taken"

        gate.incarnation += 1
        self._install(address, recovery.rebuild(address, gate.incarnation))

        gate.is_up = True
        gate.component.start(now)

        self._schedule(now + self._detection_us(), self._detect_restart, address, gate.incarnation)

        for pair in self._pairs.get(address, ()):
            if self._is_cut(pair):
                self._schedule(now + self._detection_us(pair), self._report_lost, pair, (address, pair.outage))
            elif not pair.informed[pair.other(address)]:
                self._schedule(now + self._detection_us(pair), self._report_restart, pair, (address, gate.incarnation))
        self._update_reachability(self._pairs.get(address, ()), now)

    def _detect_restart(self, address: Address, incarnation: int, _now: Time) -> None:
        gate = self._gates[address]
        if gate.is_up and gate.incarnation == incarnation:
            for pair in self._pairs.get(address, ()):
                if pair.sides[0] == SUBMITTER:  # the restart was detected: it is informed of the next outage
                    pair.informed[SUBMITTER] = False
            for restarted in self._restarted:
                restarted(address)

    def _detection_us(self, pair: _Pair | None = None) -> Time:
        """A detection time; those of the submitter come from a stream of their own."""
        longest_us = (self._recovery is not None and self._recovery.detection_us) or SECOND
        stream = self._entry_stream if pair is not None and pair.sides[0] == SUBMITTER else self._stream
        return longest_us // 8 + int(stream.random() * (longest_us - longest_us // 8))

    def _is_up(self, address: Address) -> bool:
        return address == SUBMITTER or self._gates[address].is_up

    def _is_cut(self, pair: _Pair) -> bool:
        a, b = pair.sides
        return not (self._is_up(a) and self._is_up(b)) or self._cuts(a, b)

    def _update_reachability(self, pairs: Sequence[_Pair], now: Time) -> None:
        """Report what a change of reachability means to these pairs."""
        for pair in pairs:
            is_cut = self._is_cut(pair)

            if is_cut and not pair.cut:
                pair.outage += 1
                for side in pair.sides:
                    self._schedule(now + self._detection_us(pair), self._report_lost, pair, (side, pair.outage))
            elif pair.cut and not is_cut and pair.suspected:
                self._schedule(now + 2 * self._detection_us(pair), self._report_back, pair, pair.outage)

            if pair.cut or is_cut:
                self._cut_off_at.update(dict.fromkeys(pair.sides, now))
            pair.cut = is_cut

    def _report_lost(self, pair: _Pair, side_outage: tuple[Address, int], now: Time) -> None:
        side, outage = side_outage
        is_of_this_outage = pair.cut and outage == pair.outage
        if not self._is_up(side) or pair.informed[side] or not (pair.suspected or is_of_this_outage):
            return
        pair.suspected = pair.informed[side] = True
        self._report(side, PeerLost(pair.other(side)), now)

    def _report_back(self, pair: _Pair, outage: int, now: Time) -> None:
        if pair.cut or outage != pair.outage:
            return

        pair.suspected = False
        for side in pair.sides:
            if pair.informed[side]:
                pair.informed[side] = False
                self._report(side, PeerBack(pair.other(side)), now)

    def _report_restart(self, pair: _Pair, address_incarnation: tuple[Address, int], now: Time) -> None:
        address, incarnation = address_incarnation
        side = pair.other(address)
        if not pair.cut and not pair.informed[side] and self._gates[address].incarnation == incarnation:
            self._report(side, PeerBack(address), now)

    def _report(self, address: Address, event: PeerLost | PeerBack, now: Time) -> None:
        if address == SUBMITTER:
            self._submitter.on_peer(event)
        elif event.peer != SUBMITTER:  # schedulers do nothing about a lost submitter
            self._gates[address].port.deliver(event, None, now)

    def check_rest(self) -> None:
        """Raise AssertionError if a task runs on any machine, or a component has anything left."""
        for address, gate in self._gates.items():
            assert gate.port.is_idle(), f"something still runs on {address}"
            gate.component.check_rest()

    def _is_forgotten(self, attempt: LostAttempt) -> bool:
        """True if an attempt has finished and its report may be lost: its machine has crashed or was cut off."""
        address = self._address_of[attempt.worker]
        now = self._lab.now
        is_cut_off = any(pair.cut for pair in self._pairs.get(address, ()))
        cut_off_at = now if is_cut_off else self._cut_off_at.get(address, NEVER)
        return attempt.finish_us != NEVER and attempt.finish_us <= min(now, cut_off_at)
