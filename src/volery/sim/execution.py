"""Machines of the lab: the port through which a component acts, and what the driver enforces and records.

True durations are known here and nowhere else. A launch is checked against the machine's slots and constraints, and a
task is never run twice: the driver refuses what a correct design never asks for. Optional features of a run add rules
(`LaunchRule`) and wrap doors and ports (`Extension`).
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from volery.core.capabilities import Resumption
from volery.core.component import Component, role_of
from volery.core.events import REFUSALS, Computed, Counted, Event, Fact, TaskFinished, TimerFired
from volery.core.model import NEVER, Address, Key, Message, Task, TaskId, Time
from volery.core.port import Port, Problem
from volery.core.reasons import Decision
from volery.core.records import PATH_SHIFT, LostAttempt, TimeHistogram, with_processing
from volery.sim.lab import Door, Lab, Routes, handler_in


class BrokenRule(AssertionError):  # noqa: N818 - it states what a design did, like AssertionError itself
    """A design asked for what must never happen: a slot taken twice, a constraint ignored, a task run twice."""


class _Nothing(dict[type, Callable[..., None]]):
    """Handlers of a component that is gone."""

    def __missing__(self, key: type) -> Callable[..., None]:
        return _drop


def _drop(owner: object, event: Event, source: Address, now: Time) -> None:
    pass


class LabPort:
    """The lab's port: effects apply at once. A port with a machine may launch.

    `send` and `launch`, the hottest calls of a run, are added by `port_class`.
    """

    __slots__ = ("_timers", "address", "finished", "handlers", "idle", "lacks", "machine", "owner")
    lab: Lab
    attempts: Attempts
    is_reliable = False  # faults may lose messages

    def __init__(self, address: Address, door: Door) -> None:
        self.address = address
        self.owner, self.handlers = door
        self.finished = door.handler(TaskFinished)
        self.machine = -1
        self.idle = 0
        self.lacks = 0
        self._timers: dict[Key, TimerFired] | None = None

    def take_machine(self, machine: int, lacks: int) -> None:
        """Take a machine, which makes launches possible.

        Args:
            machine: Number of the machine.
            lacks: Constraints that it does not satisfy, as bits.
        """
        self.machine = machine
        self.idle = self.lab.slots[machine]
        self.lacks = lacks

    def is_idle(self) -> bool:
        """True if nothing runs here."""
        return self.machine < 0 or self.idle == self.lab.slots[self.machine]

    def send(self, to: Address, message: Message) -> None:
        """Put the message on the lane of its link."""
        raise NotImplementedError

    def launch(self, task: Task, attempt: int, waited_us: Time = 0, note: bytes = b"") -> None:
        """Occupy a slot, or the task's resources, until the true duration has passed.

        Raises:
            BrokenRule: No idle slot, too little of a resource, an unmet constraint, or an attempt that has been started
                before.
        """
        raise NotImplementedError

    def kill(self, task: TaskId, attempt: int) -> None:
        """End a running attempt now; TaskFinished with outcome "killed" follows in this instant."""
        self.attempts.kill(self, task, attempt)

    def release(self, _event: TaskFinished) -> None:
        """Take back what an attempt occupied that was killed."""
        self.idle += 1

    def set_timer(self, key: Key, at: Time) -> None:
        """Replace the key's timer."""
        if self._timers is None:
            self._timers = {}
        event = self._timers[key] = TimerFired(key)
        self.lab.schedule(at, self._fire, event, None)

    def cancel_timer(self, key: Key) -> None:
        """Forget the key's timer; its action stays in the calendar and does nothing."""
        if self._timers is not None:
            self._timers.pop(key, None)

    def _fire(self, event: TimerFired, _: None, now: Time) -> None:
        timers = self._timers
        # Otherwise the timer was cancelled or replaced, and its action stayed behind.
        if timers is not None and timers.get(event.key) is event:
            del timers[event.key]
            self.deliver(event, None, now)

    def deliver(self, event: Event, _: None, now: Time) -> None:
        """Pass one of the driver's own events to the component (an action of the calendar)."""
        handler_in(self.handlers, type(event))(self.owner, event, self.address, now)

    def silence(self) -> None:
        """Drop timers, answers and ends of attempts: the component has crashed."""
        self._timers = None
        self.handlers = _Nothing()
        self.finished = _drop

    def compute(self, key: Key, problem: Problem) -> None:
        """Solve inline; the answer arrives after the modelled decision time, which counts as processing."""
        lab = self.lab
        began = time.thread_time_ns()

        answer = Computed(key, problem.solve(problem.argument))
        # True solver time is measured for the records only: it must not move simulated time.
        lab.records.compute_us.append((time.thread_time_ns() - began) // 1000)

        path = with_processing(lab.path, problem.decision_us)
        lab.schedule(lab.now + problem.decision_us, self._answer, answer, path)

    def _answer(self, event: Computed, path: int, now: Time) -> None:
        self.lab.enter(path)
        self.deliver(event, None, now)

    def observe(self, fact: Fact) -> None:
        """Add the fact to the records."""
        now, records = self.lab.now, self.lab.records
        if isinstance(fact, Decision):
            records.decisions.note(now, self.address, fact)
            return

        records.observe(fact)
        if isinstance(fact, Counted) and fact.name in REFUSALS:
            records.moments.setdefault(fact.name, TimeHistogram()).note(now, fact.amount)


class LaunchRule:
    """A rule for launches beyond slots and constraints; one object serves all ports.

    A run's rules are called in order before a launch and at the end of an attempt, in reverse order after a launch.
    """

    def placed(self, port: LabPort) -> None:
        """A port has taken its machine."""

    def check_launch(self, port: LabPort, task: Task, attempt: int) -> None:
        """An attempt is about to start; a rule that refuses it raises `BrokenRule`."""

    def launched(self, port: LabPort, task: Task, attempt: int) -> None:
        """An attempt has started, and is recorded."""

    def finished(self, port: LabPort, event: TaskFinished, now: Time) -> None:
        """An attempt has finished; its component receives that next."""

    def killed(self, port: LabPort, event: TaskFinished) -> None:
        """An attempt was killed; its component receives that next."""

    def observed(self, port: LabPort, fact: Fact) -> None:
        """A component reports a fact, which is recorded next."""

    def silenced(self, port: LabPort) -> None:
        """A component is gone, and its machine with it."""


class RuledPort(LabPort):
    """A port of a run with launch rules; the class that follows in line launches.

    Attributes:
        rules: Rules of the run, in order.
        launch_checks, launch_hooks, finish_hooks: Methods `check_launch`, `launched` and `finished` of the rules.
    """

    __slots__ = ("_handler",)
    rules: tuple[LaunchRule, ...]
    launch_checks: tuple[Callable[[LabPort, Task, int], None], ...]
    launch_hooks: tuple[Callable[[LabPort, Task, int], None], ...]
    finish_hooks: tuple[Callable[[LabPort, TaskFinished, Time], None], ...]

    def __init__(self, address: Address, door: Door) -> None:
        super().__init__(address, door)
        self._handler = self.finished
        self.finished = self._finish

    def take_machine(self, machine: int, lacks: int) -> None:
        super().take_machine(machine, lacks)
        for rule in self.rules:
            rule.placed(self)

    def launch(self, task: Task, attempt: int, waited_us: Time = 0, note: bytes = b"") -> None:
        for check in self.launch_checks:
            check(self, task, attempt)
        super().launch(task, attempt, waited_us, note)
        for hook in self.launch_hooks:
            hook(self, task, attempt)

    def _finish(self, owner: object, event: TaskFinished, source: Address, now: Time) -> None:
        for hook in self.finish_hooks:
            hook(self, event, now)
        self._handler(owner, event, source, now)

    def release(self, event: TaskFinished) -> None:
        super().release(event)
        for rule in self.rules:
            rule.killed(self, event)

    def observe(self, fact: Fact) -> None:
        for rule in self.rules:
            rule.observed(self, fact)
        super().observe(fact)

    def silence(self) -> None:
        super().silence()
        for rule in self.rules:
            rule.silenced(self)


class Durations(Protocol):
    """Durations of tasks' next attempts, microseconds."""

    def __getitem__(self, task: TaskId, /) -> Time:
        """The duration of a task's next attempt."""


def port_class(
    lab: Lab,
    attempts: Attempts,
    routes: Routes,
    durations: Durations,
    rules: tuple[LaunchRule, ...] = (),
    launchers: tuple[type[LabPort], ...] = (),
) -> type[LabPort]:
    """The ports of one role in one run; runs without rules pay nothing for them.

    `launchers` are classes that launch some tasks otherwise; they go with rules.

    The hot methods reach the run's tables as closure variables: fewer look-ups per call, and fewer fields in each of
    tens of thousands of ports.
    """
    records, times, finishes = lab.records, lab.times, lab.finishes
    start_us, finish_us, worker, paths = records.start_us, records.finish_us, records.worker, records.path
    waits_us = records.waited_us
    known_routes = routes.resolved
    resolve = routes.to
    push = heapq.heappush

    class RolePort(LabPort):
        __slots__ = ()

        def send(self, to: Address, message: Message) -> None:
            try:
                lane, receiver, handlers = known_routes[to]
            except KeyError:
                lane, receiver, handlers = resolve(to)
            lane.sent.append((receiver, handlers, message, self.address))

        def launch(self, task: Task, attempt: int, waited_us: Time = 0, note: bytes = b"") -> None:  # noqa: ARG002 - nothing outlives its component here
            number = task.id
            # One test for all that is not a plain first start: it is hot, so `relaunched` separates the reasons.
            if self.idle <= 0 or task.constraints & self.lacks or start_us[number] != NEVER or attempt:
                attempts.relaunched(self, task, attempt)

            self.idle -= 1
            start_us[number] = now = lab.now
            worker[number] = self.machine
            paths[number] = lab.path
            if waited_us:
                waits_us[number] = waited_us

            at = finish_us[number] = now + durations[number]
            bucket = finishes.get(at)
            if bucket is None:
                finishes[at] = [(self, TaskFinished(task, attempt))]
                push(times, at)
            else:
                bucket.append((self, TaskFinished(task, attempt)))

    RolePort.lab = lab
    RolePort.attempts = attempts
    RolePort.send.__doc__ = LabPort.send.__doc__
    RolePort.launch.__doc__ = LabPort.launch.__doc__
    return _ruled((*launchers, RolePort), rules) if rules else RolePort


def _ruled(bases: tuple[type[LabPort], ...], rules: tuple[LaunchRule, ...]) -> type[LabPort]:
    def methods(name: str) -> tuple[Callable[..., None], ...]:
        base_method = getattr(LaunchRule, name)
        return tuple([getattr(rule, name) for rule in rules if getattr(type(rule), name) is not base_method])

    fields = {
        "__slots__": (),
        "rules": rules,
        "launch_checks": methods("check_launch"),
        "launch_hooks": methods("launched")[::-1],
        "finish_hooks": methods("finished"),
    }
    return type("RuledRolePort", (RuledPort, *bases), fields)


ProgressOf = Callable[[TaskId, Time, int], Time]
"""(task, run time, machine) -> how much of the task's duration is behind it after it has run so long there."""


def _is_never_forgotten(_: LostAttempt) -> bool:
    """False for every attempt: without faults no report is lost."""
    return False


class Attempts:
    """Attempts of tasks after the first: refusals, the records of those before, and kills.

    It is for designs that run one attempt of a task at a time.

    Args:
        lab: Shared state of the run.
        resumption: Work of an attempt that its task need not repeat.
        progress: Work that an attempt has done after some time.

    Attributes:
        is_forgotten: True for an attempt that has finished and whose report was lost; faults set it.
    """

    def __init__(self, lab: Lab, resumption: Resumption, progress: ProgressOf) -> None:
        self._lab = lab
        self._records = lab.records
        self._resumption = resumption
        self._progress = progress
        self._died: set[tuple[TaskId, int]] = set()
        self.is_forgotten: Callable[[LostAttempt], bool] = _is_never_forgotten

    def relaunched(self, port: LabPort, task: Task, attempt: int) -> None:
        """A launch that is not the plain first one: refuse it, or keep the attempt that it follows.

        Raises:
            BrokenRule: when the design broke a rule that every design must keep.
        """
        subject = launch_of(port, task, attempt)

        if port.machine < 0:
            raise BrokenRule(f"{subject}: {port.address} is on no machine")
        if port.idle <= 0:
            raise BrokenRule(f"{subject}: no idle slot")
        if task.constraints & port.lacks:
            raise BrokenRule(f"{subject}: the machine lacks constraints {task.constraints & port.lacks:#x}")

        records, number = self._records, task.id
        if records.start_us[number] == NEVER:
            records.attempt[number] = attempt
            return

        previous = self.recorded(number)
        if not self._is_new(previous, attempt) or not self._follows(previous):
            raise BrokenRule(f"{subject}: already started as attempt {previous.attempt} on machine {previous.worker}")

        records.attempt[number] = attempt

    def recorded(self, number: TaskId) -> LostAttempt:
        """The attempt of a task that is in the table."""
        records = self._records
        return LostAttempt(
            number, records.attempt[number], records.worker[number], records.start_us[number], records.finish_us[number]
        )

    def _is_new(self, previous: LostAttempt, attempt: int) -> bool:
        """True if an attempt was never started before: they are numbered upwards."""
        return attempt > previous.attempt

    def _follows(self, previous: LostAttempt) -> bool:
        """True if another attempt may start; then the previous one is kept beside the table."""
        records, resumption = self._records, self._resumption

        killed_at = records.killed.get((previous.task, previous.attempt))
        if killed_at is None and not self.is_forgotten(previous):
            return False

        if killed_at is not None and (resumption.preempted or resumption.checkpoint_us):
            previous = msgspec.structs.replace(previous, kept_us=self._kept_us(previous, killed_at - previous.start_us))
            # A member of a gang that was killed while it waited has done nothing, and no duration was asked for it.
            if previous.kept_us:
                self._lab.left_us[previous.task] -= self._progress(previous.task, previous.kept_us, previous.worker)

        records.lost.append(previous)
        return True

    def _kept_us(self, previous: LostAttempt, ran_us: Time) -> Time:
        """The work of an attempt that its task need not repeat."""
        # A crash takes everything since the last checkpoint; a preempted attempt can still save its state.
        if self._resumption.preempted and (previous.task, previous.attempt) not in self._died:
            return ran_us
        checkpoint_us = self._resumption.checkpoint_us
        return ran_us - ran_us % checkpoint_us if checkpoint_us else 0

    def kill(self, port: LabPort, task: TaskId, attempt: int) -> None:
        """End an attempt that runs on this port's machine; anything else is ignored."""
        records = self._records

        runs_here = records.worker[task] == port.machine and records.finish_us[task] > self._lab.now
        if not runs_here or records.attempt[task] != attempt or (task, attempt) in records.killed:
            return

        due = records.finish_us[task]
        records.finish_us[task] = NEVER
        self._end(port, task, attempt, due)

    def _end(self, port: LabPort, task: TaskId, attempt: int, end_us: Time) -> None:
        lab = self._lab
        self._records.killed[task, attempt] = lab.now
        event = next(e for p, e in lab.finishes[end_us] if p is port and e.task.id == task and e.attempt == attempt)

        lab.killed.add((port.address, task, attempt))
        lab.schedule(lab.now, self._end_killed, port, event)

    def _end_killed(self, port: LabPort, event: TaskFinished, now: Time) -> None:
        port.release(event)
        port.deliver(TaskFinished(event.task, event.attempt, "killed"), None, now)

    def end_all(self, port: LabPort) -> None:
        """The machine of a port is gone: all that runs there ends without a report."""
        lab = self._lab
        for attempts in lab.finishes.values():
            for launcher, event in attempts:
                key = (event.task.id, event.attempt)
                if launcher is port and (port.address, *key) not in lab.killed:
                    self._records.killed[key] = lab.now
                    self._died.add(key)
                    self._forget(*key)
                    lab.killed.add((port.address, *key))

    def _forget(self, task: TaskId, attempt: int) -> None:
        """Record that the attempt will not finish."""
        if self._records.attempt[task] == attempt:
            self._records.finish_us[task] = NEVER


def launch_of(port: LabPort, task: Task, attempt: int) -> str:
    """The subject of a `BrokenRule`."""
    return f"task {task.id} (job {task.job}, attempt {attempt}) on {port.address} at {port.lab.now} us"


class Extension:
    """A feature of one run: the kernel calls these methods, which do nothing unless the feature overrides them.

    A feature gets what it needs (the lab, the submitter ..) by its constructor. One with rules for launches is a
    `LaunchRule`, too.

    Attributes:
        may_lose_work: True if jobs need not end: then the kernel does not look for a stall.
    """

    may_lose_work = False

    def wrap_door(self, address: Address, component: Component, door: Door) -> Door:  # noqa: ARG002 - for overrides
        """The door of a component, for all its events; it is asked again when the component is replaced."""
        return door

    def wrap_inbox(self, address: Address, component: Component, inbox: Door, port: LabPort) -> Door:  # noqa: ARG002 - for overrides
        """The door for messages to an address, which the port's own events do not pass."""
        return inbox

    def wrap_port(self, port: Port) -> Port:
        """The port that a component gets."""
        return port

    def begin(self) -> None:
        """The components have started."""

    def close(self) -> None:
        """The run is quiet."""

    def check_rest(self) -> None:
        """Raise AssertionError if the run has left anything that it should not."""


class Checks(Extension):
    """Calls `check()` of a component after each of its events (tests)."""

    def wrap_door(self, address: Address, component: Component, door: Door) -> Door:  # noqa: ARG002 - an extension's signature
        """Pass events to `handle`, and check."""

        def checked(message: Event, source: Address, now: Time) -> None:
            component.handle(message, source, now)
            component.check()

        return Door.through(checked)


class MessageCosts(Extension):
    """Makes a role a server with a FIFO of its own, which takes some time per message.

    Args:
        lab: Shared state of the run.
        costs: Role -> processing cost per message in microseconds.
    """

    def __init__(self, lab: Lab, costs: Mapping[str, Time]) -> None:
        self._lab = lab
        self._costs = costs
        self._free_at: dict[Address, Time] = {}

    def wrap_inbox(self, address: Address, component: Component, inbox: Door, port: LabPort) -> Door:  # noqa: ARG002 - an extension's signature
        """Put the server before the component."""
        cost = self._costs.get(role_of(address), 0)
        if not cost:
            return inbox

        # Waiting in the queue counts as queueing, the service itself as processing on the message's path.
        service_path = cost << PATH_SHIFT

        def enqueue(message: Event, source: Address, now: Time) -> None:
            served_at = self._free_at[address] = max(now, self._free_at.get(address, 0)) + cost
            self._lab.schedule(served_at, self._serve, (inbox, message, source), self._lab.path + service_path)

        return Door.through(enqueue)

    def _serve(self, work: tuple[Door, Event, Address], path: int, now: Time) -> None:
        door, message, source = work
        self._lab.enter(path)
        door.deliver(message, source, now)
