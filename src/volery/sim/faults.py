"""What goes wrong in the lab: messages, links, components and machines, by a plan that the kernel applies.

A plan is plain data (`msgspec.toml` and `msgspec.json` read and write it) and names everything by address. It says what
happens, never what a component knows: who is told of a lost peer, and when, is the detector's (`docs/decisions/0010`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec

from volery.core.component import Component, Deployment
from volery.core.errors import InputError
from volery.core.events import Event, PeerBack, PeerLost
from volery.core.model import NEVER, SECOND, SUBMITTER, Address, Time
from volery.core.records import LostAttempt

if TYPE_CHECKING:
    from volery.sim.execution import Door, LabPort
    from volery.sim.kernel import Kernel

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Moment = Annotated[int, msgspec.Meta(ge=0)]


MESSAGES_MAX = 1_000_000
"""More than any plan needs: components that answer each other for ever in one instant never reach a deadline."""


class MessageFaults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For a while, messages between components are dropped, repeated or delayed, each with its own probability.

    Args:
        start_us, end_us: while they are sent.
        drop: it never arrives.
        repeat: it arrives twice, the second time later.
        delay: it arrives late and may be overtaken.
        extra_us: mean of the (exponential) extra delay.
        among: only messages from or to these; nothing: all.
    """

    start_us: Moment
    end_us: Moment
    drop: Share = 0.0
    repeat: Share = 0.0
    delay: Share = 0.0
    extra_us: Moment = 20_000
    among: tuple[Address, ...] = ()


class Partition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For a while, nothing passes between two sets of addresses.

    Args:
        start_us, end_us: while nothing passes.
        one: addresses on one side.
        other: those on the other side; empty: all the rest.
    """

    start_us: Moment
    end_us: Moment
    one: tuple[Address, ...]
    other: tuple[Address, ...] = ()

    def cuts(self, a: Address, b: Address) -> bool:
        """Whether the two cannot reach each other."""
        if not self.other:
            return (a in self.one) != (b in self.one)
        return (a in self.one and b in self.other) or (b in self.one and a in self.other)


class Crash(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A component stops, and begins anew as another incarnation; its machine, if it stands on one, goes with it.

    Args:
        at_us: when it stops.
        address: which component.
        back_us: when it begins anew.
    """

    at_us: Moment
    address: Address
    back_us: Moment


class FaultPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that goes wrong in a run.

    Args:
        messages, partitions, crashes: what happens when.
        deadline_us: the run must be quiet by then; 0: no limit.
        progress_us: every job must be done by then, whatever comes back later; 0: no limit.
    """

    messages: tuple[MessageFaults, ...] = ()
    partitions: tuple[Partition, ...] = ()
    crashes: tuple[Crash, ...] = ()
    deadline_us: Moment = 0
    progress_us: Moment = 0

    def __post_init__(self) -> None:
        """Refuse what ends before it begins, and crashes of one address that overlap."""
        spans = [(each.start_us, each.end_us) for each in self.messages]
        for start_us, end_us in [*spans, *((each.start_us, each.end_us) for each in self.partitions)]:
            if end_us < start_us:
                raise InputError("faults", f"one ends at {end_us} us, before it starts at {start_us} us")
        up_at: dict[Address, Time] = {}
        for crash in sorted(self.crashes, key=lambda crash: crash.at_us):
            if crash.back_us < crash.at_us or crash.at_us < up_at.get(crash.address, 0):
                raise InputError("faults.crashes", f"{crash.address} cannot crash at {crash.at_us} us and not be up")
            up_at[crash.address] = crash.back_us + 1


class NotQuiet(RuntimeError):  # noqa: N818 - it names a state, like Stalled
    """Something is still going on at the deadline of the plan."""


class Gate:
    """The way of messages to one address: to the component that is there now, or to nobody."""

    __slots__ = ("address", "component", "door", "faults", "incarnation", "port", "up")

    def __init__(self, faults: Unreliable, address: Address, component: Component, door: Door, port: LabPort) -> None:
        self.faults = faults
        self.address = address
        self.component = component
        self.door = door
        self.port = port
        self.incarnation = 0
        self.up = True

    def take(self, event: Event, source: Address, now: Time) -> None:
        """Hand a message over, unless its way is cut or nobody is here; the submitter stands beside its entry."""
        if self.up and (source == SUBMITTER or not self.faults.cut(source, self.address)):
            self.door.deliver(event, source, now)


class _Pair:
    """Two that watch each other.

    Attributes:
        cut: whether they cannot reach each other now.
        told: which of them has been told that the other is lost.
        suspected: one of them has been told in this outage: then the other will be, too, though the outage may be over.
        outage: counts outages.
    """

    __slots__ = ("both", "cut", "outage", "suspected", "told")

    def __init__(self, a: Address, b: Address) -> None:
        self.both = (a, b)
        self.cut = False
        self.suspected = False
        self.told = {a: False, b: False}
        self.outage = 0

    def other(self, side: Address) -> Address:
        return self.both[1] if side == self.both[0] else self.both[0]


class Unreliable:
    """Applies a plan, and tells those who watch each other.

    The detector behaves as heartbeats between two hosts do. An outage that is shorter than the detection time may pass
    unnoticed by both; but once one of the two has given the other up it no longer answers, so that the other is told as
    well, within `detection_us`. Both are told PeerBack when they reach each other again.

    Args:
        kernel: of the run.
        plan: what happens.
        deployment: the run's.
    """

    def __init__(self, kernel: Kernel, plan: FaultPlan, deployment: Deployment) -> None:
        if kernel.options.costs or kernel.options.hosts:
            raise InputError("faults", "a plan of faults goes with neither costs nor hosts; leave them out")
        self._kernel = kernel
        self._plan = plan
        self._deployment = deployment
        self._stream = kernel.streams.of("faults")
        self._entry_stream = kernel.streams.of("faults/entries")
        self._schedule = kernel.schedule
        self._cut_off_at: dict[Address, Time] = {}
        self._address_of = {machine: address for address, machine in deployment.machines.items()}
        self._partitions: list[Partition] = []
        self._sent = 0
        self._weather: list[MessageFaults] = []
        self.gates: dict[Address, Gate] = {}
        self._pairs: dict[Address, list[_Pair]] = {}
        for a, b in deployment.watches:
            pair = _Pair(a, b)
            self._pairs.setdefault(a, []).append(pair)
            self._pairs.setdefault(b, []).append(pair)
        for entry in deployment.standins:
            pair = _Pair(SUBMITTER, entry)
            self._pairs.setdefault(entry, []).append(pair)
        for crash in plan.crashes:
            if deployment.rebuild is None or crash.address not in deployment.components:
                reason = "is not an address" if deployment.rebuild else "cannot be rebuilt: the design bears no crash"
                raise InputError("faults.crashes", f"{crash.address} {reason}")

    def begin(self) -> None:
        """Put the plan into the kernel's calendar."""
        for weather in self._plan.messages:
            self._schedule(weather.start_us, self._set_in, weather, None)
            self._schedule(weather.end_us, self._clear_up, weather, None)
        for partition in self._plan.partitions:
            self._schedule(partition.start_us, self._part, partition, None)
            self._schedule(partition.end_us, self._heal, partition, None)
        for crash in self._plan.crashes:
            self._schedule(crash.at_us, self._crash, crash.address, None)
            self._schedule(crash.back_us, self._restart, crash.address, None)
        if self._plan.deadline_us:
            self._schedule(self._plan.deadline_us, self._demand_quiet, None, None)
        if self._plan.progress_us:
            self._schedule(self._plan.progress_us, self._demand_progress, None, None)

    def _demand_progress(self, _first: None, _second: None, now: Time) -> None:
        kernel = self._kernel
        open_jobs = kernel.trace.job_count - kernel.submitter.jobs_done
        if open_jobs:
            gone = [crash.address for crash in self._plan.crashes if crash.at_us < now < crash.back_us]
            raise NotQuiet(f"{open_jobs} jobs are not done at {now} us; {', '.join(gone) or 'nobody'} is gone for good")

    def _demand_quiet(self, _first: None, _second: None, now: Time) -> None:
        kernel = self._kernel
        if kernel.is_busy():
            open_jobs = kernel.trace.job_count - kernel.submitter.jobs_done
            raise NotQuiet(f"still busy at {now} us, long after the last fault; {open_jobs} jobs are not done")

    def _set_in(self, weather: MessageFaults, _: None, _now: Time) -> None:
        self._weather.append(weather)

    def _clear_up(self, weather: MessageFaults, _: None, _now: Time) -> None:
        self._weather.remove(weather)

    def _part(self, partition: Partition, _: None, now: Time) -> None:
        self._partitions.append(partition)
        self._look_again(self._pairs_of(partition), now)

    def _heal(self, partition: Partition, _: None, now: Time) -> None:
        self._partitions.remove(partition)
        self._look_again(self._pairs_of(partition), now)

    def _pairs_of(self, partition: Partition) -> list[_Pair]:
        return [pair for address in partition.one for pair in self._pairs.get(address, ())]

    def cut(self, a: Address, b: Address) -> bool:
        """Whether a partition keeps the two apart."""
        return any(partition.cuts(a, b) for partition in self._partitions)

    def copies(self, source: Address, receiver: object) -> Sequence[Time]:
        """The extra delays of the copies of a message that arrive at a gate's door: () when it is lost."""
        self._sent += 1
        if self._sent > MESSAGES_MAX:
            raise NotQuiet(f"{MESSAGES_MAX} messages, and no end")
        gate: Gate = receiver.__self__  # type: ignore[attr-defined]  # it is `Gate.take`
        if self._partitions and self.cut(source, gate.address):
            return ()
        extras: Sequence[Time] = (0,)
        random, exponential = self._stream.random, self._stream.expovariate
        for weather in self._weather:
            if weather.among and source not in weather.among and gate.address not in weather.among:
                continue
            if random() < weather.drop:
                return ()
            late = int(exponential(1.0) * weather.extra_us) if random() < weather.delay else 0
            extras = [extra + late for extra in extras]
            if random() < weather.repeat:
                extras.append(extras[0] + 1 + int(exponential(1.0) * weather.extra_us))
        return extras

    def _crash(self, address: Address, _: None, now: Time) -> None:
        gate = self.gates[address]
        gate.up = False
        self._cut_off_at[address] = now
        self._end_all(gate.port, now)
        for pair in self._pairs.get(address, ()):
            pair.told[address] = False
        self._look_again(self._pairs.get(address, ()), now)

    def _end_all(self, port: LabPort, now: Time) -> None:
        """A component is gone with its timers and answers, and what ran there ends without a report."""
        port.silence()
        kernel = self._kernel
        for ending in kernel.finishes.values():
            for place, event in ending:
                key = (event.task.id, event.attempt)
                if place is port and (port.address, *key) not in kernel.killed:
                    kernel.attempts.died(event, now)
                    kernel.killed.add((port.address, *key))

    def _restart(self, address: Address, _: None, now: Time) -> None:
        gate, rebuild = self.gates[address], self._deployment.rebuild
        assert rebuild is not None, "checked when the plan was taken"
        gate.incarnation += 1
        gate.component = rebuild(address, gate.incarnation)
        gate.door, gate.port = self._kernel.install(address, gate.component)
        gate.up = True
        gate.component.start(now)
        self._schedule(now + self._soon(), self._tell_submitter, address, gate.incarnation)
        for pair in self._pairs.get(address, ()):
            if self._is_cut(pair):
                self._schedule(now + self._soon(pair), self._tell_lost, pair, (address, pair.outage))
            elif not pair.told[pair.other(address)]:
                self._schedule(now + self._soon(pair), self._tell_of_restart, pair, (address, gate.incarnation))
        self._look_again(self._pairs.get(address, ()), now)

    def _tell_submitter(self, address: Address, incarnation: int, _now: Time) -> None:
        gate = self.gates[address]
        if gate.up and gate.incarnation == incarnation:
            for pair in self._pairs.get(address, ()):
                if pair.both[0] == SUBMITTER:  # it hears of the entry, so that the next outage is news again
                    pair.told[SUBMITTER] = False
            self._kernel.submitter.resubmit(address)
            self._kernel.orders.repeat(address)

    def _soon(self, pair: _Pair | None = None) -> Time:
        """A detection time; those of the submitter come from a stream of their own."""
        whole = self._deployment.detection_us or SECOND
        stream = self._entry_stream if pair is not None and pair.both[0] == SUBMITTER else self._stream
        return whole // 8 + int(stream.random() * (whole - whole // 8))

    def _is_up(self, address: Address) -> bool:
        return address == SUBMITTER or self.gates[address].up

    def _is_cut(self, pair: _Pair) -> bool:
        a, b = pair.both
        return not (self._is_up(a) and self._is_up(b)) or self.cut(a, b)

    def _look_again(self, pairs: Sequence[_Pair], now: Time) -> None:
        """Reachability may have changed."""
        for pair in pairs:
            cut = self._is_cut(pair)
            if cut and not pair.cut:
                pair.outage += 1
                for side in pair.both:
                    self._schedule(now + self._soon(pair), self._tell_lost, pair, (side, pair.outage))
            elif pair.cut and not cut and pair.suspected:
                self._schedule(now + 2 * self._soon(pair), self._tell_back, pair, pair.outage)
            if pair.cut or cut:
                self._cut_off_at.update(dict.fromkeys(pair.both, now))
            pair.cut = cut

    def _tell_lost(self, pair: _Pair, which: tuple[Address, int], now: Time) -> None:
        side, outage = which
        if not self._is_up(side) or pair.told[side] or not (pair.suspected or (pair.cut and outage == pair.outage)):
            return
        pair.suspected = pair.told[side] = True
        self._tell(side, PeerLost(pair.other(side)), now)

    def _tell_back(self, pair: _Pair, outage: int, now: Time) -> None:
        if pair.cut or outage != pair.outage:
            return
        pair.suspected = False
        for side in pair.both:
            if pair.told[side]:
                pair.told[side] = False
                self._tell(side, PeerBack(pair.other(side)), now)

    def _tell_of_restart(self, pair: _Pair, which: tuple[Address, int], now: Time) -> None:
        address, incarnation = which
        side = pair.other(address)
        if not pair.cut and not pair.told[side] and self.gates[address].incarnation == incarnation:
            self._tell(side, PeerBack(address), now)

    def _tell(self, address: Address, event: PeerLost | PeerBack, now: Time) -> None:
        if address == SUBMITTER:
            self._kernel.submitter.on_peer(event)
        elif event.peer != SUBMITTER:  # schedulers do nothing about it
            self.gates[address].port.deliver(event, None, now)

    def demand_rest(self, slots: Sequence[int]) -> None:
        """After a run: nothing runs on any machine, and every component has nothing left.

        Args:
            slots: per machine.

        Raises:
            AssertionError: naming what is left.
        """
        for address, gate in self.gates.items():
            assert gate.port.at_rest(slots), f"something still runs on {address}"
            gate.component.check_rest()

    def forgotten(self, before: LostAttempt, now: Time) -> bool:
        """Whether an attempt has finished and nobody may have heard of it: its machine has crashed or was cut off."""
        address = self._address_of[before.worker]
        cut_off_at = (
            now if any(pair.cut for pair in self._pairs.get(address, ())) else self._cut_off_at.get(address, NEVER)
        )
        return before.finish_us != NEVER and before.finish_us <= min(now, cut_off_at)
