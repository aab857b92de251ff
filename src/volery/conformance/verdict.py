"""Registry of checks, their failures, and bounded runs of a design that name the case when they fail.

Interceptors, below, stand between the same components and their driver. They change nothing by themselves: their hooks
count, record, or interfere where a check needs that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

import msgspec

from volery.conformance.cases import Case
from volery.core.component import Architecture, Component, Deployment
from volery.core.events import Event, Fact, Switched
from volery.core.model import SECOND, SUBMITTER, Address, Key, Message, Task, Time
from volery.core.port import ForwardingPort, Port
from volery.core.records import Records
from volery.core.streams import Streams
from volery.sim import Network, Options, Progress, Stalled, simulate

Check = Callable[[Architecture], None]

QUIET_US: Final = 3_600 * SECOND
"""A design may need this long after its last job is done to become quiet; a stray timer goes on for ever."""
LATE_FACTOR: Final = 100
"""A run may last this many times as long as one machine would need for all the work."""


class NonconformanceError(AssertionError):
    """A design does not keep the contract; the message names check, case and seed."""


class NotQuietError(NonconformanceError):
    """A design goes on although nothing is left to do, or makes no progress."""


CHECKS: dict[str, Check] = {}
"""Every check by name, in the order in which they are best read."""


def check(function: Check) -> Check:
    """Register a check, and name the design and the check in whatever it raises."""

    @functools.wraps(function)
    def named(architecture: Architecture) -> None:
        try:
            function(judged(architecture))
        except Exception as error:
            message = f"{architecture.name} fails {function.__name__}: {type(error).__name__}: {error}"
            raise NonconformanceError(message) from error

    CHECKS[function.__name__] = named
    return named


def judged(architecture: Architecture) -> Architecture:
    """The design as it is judged: under its `immediate` parameters, every task of a job by itself."""
    claims = architecture.conformance
    apart = {claims.gangs: False} if claims.gangs else {}
    defaults = msgspec.structs.replace(architecture.defaults, **claims.immediate, **apart)
    return msgspec.structs.replace(architecture, defaults=defaults)


def demand(condition: bool, problem: str) -> None:
    """Raise NonconformanceError unless the condition holds."""
    if not condition:
        raise NonconformanceError(problem)


def run(
    architecture: Architecture,
    case: Case,
    *,
    seed: int = 0,
    network: Network | None = None,
    options: Options | None = None,
    interceptor: Interceptor | None = None,
) -> Records:
    """Run a freshly built design on a case.

    Raises:
        NonconformanceError: with the case and the seed, for whatever went wrong.
        NotQuietError: the run has no end.
    """
    options = msgspec.structs.replace(options or Options(), graphs=architecture.graphs)
    deployment = architecture.build(case.cluster, architecture.defaults, Streams(seed))
    if interceptor is not None:
        deployment = interceptor.over(deployment)

    trace = case.trace
    last_arrival = trace.arrival_us[-1] if trace.job_count else 0
    # A bound for designs that never answer: as if all tasks ran one after another, several times.
    late = last_arrival + LATE_FACTOR * sum(trace.duration_us) + QUIET_US
    quiet_by = late

    def limit(progress: Progress) -> None:
        nonlocal quiet_by
        # When all is answered, the design has a fixed time to become quiet.
        if progress.jobs_done == trace.job_count:
            quiet_by = min(quiet_by, progress.now_us + QUIET_US)

        if progress.now_us > quiet_by:
            raise NotQuietError(f"still awake at {progress.now_us} us with {progress.jobs_done} jobs done")

    try:
        return simulate(deployment, trace, case.cluster, network=network, seed=seed, options=options, progress=limit)
    except Exception as error:
        place = f"case {case.name!r} of volery.conformance.cases, cases' seed {case.seed}, run's seed {seed}"
        kind = NotQuietError if isinstance(error, (NotQuietError, Stalled)) else NonconformanceError
        raise kind(f"{type(error).__name__}: {error} [{place}]") from error


class Interceptor:
    """Hooks around every component of a deployment; override those that are of interest."""

    now: Time = 0

    def event(self, component: Component, event: Event, source: Address, address: Address) -> None:
        """An event reaches a component; the default passes it on."""
        component.handle(event, source, self.now)

    def sent(self, port: Port, to: Address, message: Message) -> None:
        """A component sends; the default passes it on."""
        port.send(to, message)

    def launched(self, port: Port, task: Task, attempt: int, waited_us: Time) -> None:
        """A component launches; the default passes it on."""
        port.launch(task, attempt, waited_us)

    def timed(self, port: Port, key: Key, at: Time) -> None:
        """A component sets a timer; the default passes it on."""
        port.set_timer(key, at)

    def observed(self, port: Port, fact: Fact) -> None:
        """A component reports a fact; the default passes it on."""
        port.observe(fact)

    def over(self, deployment: Deployment) -> Deployment:
        """The deployment with a proxy in front of every component."""
        proxies: dict[Address, Component] = {
            address: ComponentProxy(self, component, address) for address, component in deployment.components.items()
        }
        return msgspec.structs.replace(deployment, components=proxies)


class ComponentProxy(Component):
    """A component in front of another, whose events and effects it passes to an interceptor."""

    __slots__ = ("address", "inner", "interceptor", "port")

    def __init__(self, interceptor: Interceptor, inner: Component, address: Address) -> None:
        self.interceptor = interceptor
        self.inner = inner
        self.address = address

    def bind(self, port: Port) -> None:
        self.port = PortProxy(self.interceptor, port)
        self.inner.bind(self.port)

    def start(self, now: Time) -> None:
        self.interceptor.now = now
        self.inner.start(now)

    def handle(self, event: Event, source: Address, now: Time) -> None:
        self.interceptor.now = now
        self.interceptor.event(self.inner, event, source, self.address)

    def check(self) -> None:
        self.inner.check()


class PortProxy(ForwardingPort):
    """A port that passes effects to an interceptor; the port behind it may be exchanged."""

    __slots__ = ("_interceptor",)

    def __init__(self, interceptor: Interceptor, inner: Port) -> None:
        super().__init__(inner)
        self._interceptor = interceptor

    def send(self, to: Address, message: Message) -> None:
        self._interceptor.sent(self.inner, to, message)

    def set_timer(self, key: Key, at: Time) -> None:
        self._interceptor.timed(self.inner, key, at)

    def launch(self, task: Task, attempt: int, waited_us: Time = 0, note: bytes = b"") -> None:
        self._interceptor.launched(self.inner, task, attempt, waited_us)

    def observe(self, fact: Fact) -> None:
        self._interceptor.observed(self.inner, fact)


class FactFilter(Interceptor):
    """Drops the facts that components report, except the switching of a machine, on which the driver acts."""

    def observed(self, port: Port, fact: Fact) -> None:
        if isinstance(fact, Switched):
            port.observe(fact)


class Deliveries(Interceptor):
    """Keeps messages, and the times of their sending and delivery.

    Attributes:
        delivered: (time, source, receiver, message), in order; answers to the submitter at the time of sending.
        delays: per (source, receiver), how long each message was under way, in order.
    """

    def __init__(self) -> None:
        self.delivered: list[tuple[Time, Address, Address, Message]] = []
        self.delays: dict[tuple[Address, Address], list[Time]] = {}
        self._sent_at: dict[tuple[Address, Address], list[Time]] = {}

    def sent(self, port: Port, to: Address, message: Message) -> None:
        """Remember the time, by link."""
        self._sent_at.setdefault((port.address, to), []).append(self.now)
        if to == SUBMITTER:
            self.delivered.append((self.now, port.address, to, message))
        port.send(to, message)

    def event(self, component: Component, event: Event, source: Address, address: Address) -> None:
        """Keep messages; each link is FIFO, so the n-th delivered is the n-th sent."""
        if isinstance(event, Message):
            self.delivered.append((self.now, source, address, event))
            sent_at = self._sent_at.get((source, address))
            if sent_at is not None:
                delays = self.delays.setdefault((source, address), [])
                delays.append(self.now - sent_at[len(delays)])
        component.handle(event, source, self.now)


class Interruption(Interceptor):
    """Calls a function in the middle of a run, once."""

    def __init__(self, events_before: int, action: Callable[[], None]) -> None:
        self._left = events_before
        self._action = action

    def event(self, component: Component, event: Event, source: Address, address: Address) -> None:
        """Count the events down."""
        self._left -= 1
        if not self._left:
            self._action()
        component.handle(event, source, self.now)


class Echo(Interceptor):
    """Delivers every submission twice, as an impatient submitter does."""

    def __init__(self, kinds: tuple[type[Message], ...]) -> None:
        self._kinds = kinds

    def event(self, component: Component, event: Event, source: Address, address: Address) -> None:
        """Deliver it once, and once more."""
        component.handle(event, source, self.now)
        if isinstance(event, self._kinds):
            component.handle(event, source, self.now)
