"""Renders what happens in a small run, one line per message, launch and end, for review as a diff."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from volery.architectures import configure, lookup
from volery.conformance.cases import Case
from volery.conformance.verdict import ComponentProxy, Interceptor
from volery.core.capabilities import CrashRecovery
from volery.core.component import Component, Deployment
from volery.core.events import Event, PeerBack, PeerLost, TaskFinished, TimerFired
from volery.core.model import SECOND, SUBMITTER, Address, Job, Message, Task, Time
from volery.core.port import Port
from volery.core.streams import Streams
from volery.policies.match import positions
from volery.roles.recovery.channel import Acknowledgement, Frame, Greeting, Linked
from volery.sim import Network, Options, simulate
from volery.sim.faults import FaultPlan


def shown(value: Any) -> str:
    """A value as reviewers like to read it: t3 a task, t3{1,2} with its constraints, bit vectors as sets.

    Fields of messages that have their defaults are left out.
    """
    if isinstance(value, Task):
        return f"t{value.id}" + (_set(positions(value.constraints)) if value.constraints else "")
    if isinstance(value, Job):
        return f"job {value.id}: {' '.join(shown(task) for task in value.tasks) or 'no tasks'}"
    if isinstance(value, bytes):
        return _set(positions(int.from_bytes(value, "little")))
    if isinstance(value, tuple):
        return f"[{' '.join(shown(item) for item in value)}]"
    if isinstance(value, msgspec.Struct):
        fields = (
            f"{field.name}={shown(getattr(value, field.name))}"
            for field in msgspec.structs.fields(value)
            if getattr(value, field.name) != field.default
        )
        return f"{type(value).__name__}({', '.join(fields)})"
    return str(value)


def _set(items: list[int]) -> str:
    return "{" + ",".join(str(item) for item in items) + "}"


class Transcript(Interceptor):
    """Keeps the lines of a run.

    Args:
        quiet: names of message types that would only lengthen it.
    """

    def __init__(self, quiet: frozenset[str]) -> None:
        self.lines: list[str] = []
        self._quiet = quiet

    def _line(self, text: str) -> None:
        self.lines.append(f"({self.now / 1000:10.3f} ms) {text}")

    def over(self, deployment: Deployment) -> Deployment:
        watched, recovery = super().over(deployment), deployment.capability(CrashRecovery)
        if recovery is None:
            return watched
        rebuild = recovery.rebuild
        proxied = msgspec.structs.replace(
            recovery, rebuild=lambda address, incarnation: ComponentProxy(self, rebuild(address, incarnation), address)
        )
        return watched.replaced(proxied)

    def event(self, component: Component, event: Event, source: Address, address: Address) -> None:
        """Frames of reliable links are shown as what they carry; their acknowledgements and timers are left out."""
        if isinstance(event, Frame) and isinstance(component, Linked):
            carried = component._decode(event.payload)
            if type(carried).__name__ not in self._quiet:
                self._line(f"{source} > {address}  {shown(carried)}")
        elif isinstance(event, PeerLost | PeerBack):
            self._line(f"{address} is told {shown(event)}")
        elif isinstance(event, Acknowledgement | Greeting) or (
            isinstance(event, TimerFired) and isinstance(event.key, tuple) and event.key[0] == "link"
        ):
            pass
        elif isinstance(event, TaskFinished):
            self._line(f"{address} ends t{event.task.id}")
        elif isinstance(event, TimerFired):
            self._line(f"{address} timer {event.key}")
        elif type(event).__name__ not in self._quiet:
            self._line(f"{source} > {address}  {shown(event)}")
        component.handle(event, source, self.now)

    def sent(self, port: Port, to: Address, message: Message) -> None:
        if to == SUBMITTER and type(message).__name__ not in self._quiet:
            self._line(f"{port.address} > {to}  {shown(message)}")
        port.send(to, message)

    def launched(self, port: Port, task: Task, attempt: int, waited_us: Time) -> None:
        self._line(f"{port.address} runs t{task.id}")
        port.launch(task, attempt, waited_us)


def transcript(
    title: str,
    design: str,
    case: Case,
    *,
    parameters: Mapping[str, Any] | None = None,
    network: Network | None = None,
    seed: int = 0,
    quiet: frozenset[str] = frozenset({"JobAccepted"}),
    plan: FaultPlan | None = None,
) -> str:
    """Run a case and render it, with what became of each job at the end.

    Args:
        title: the paragraph of the paper that is replayed.
        design: registry name.
        case: workload and cluster.
        parameters: of the design, where they are not its defaults.
        network: delays.
        seed: of the run, chosen where the paragraph speaks of one outcome of a random choice.
        quiet: message types that are left out.
        plan: of what goes wrong.
    """
    architecture = lookup(design)
    network = network or Network()
    deployment = architecture.build(case.cluster, configure(architecture, parameters or {}), Streams(seed))
    watch = Transcript(quiet)
    records = simulate(
        watch.over(deployment), case.trace, case.cluster, network=network, options=Options(check=True, plan=plan)
    )
    machines = " ".join(
        f"node/{machine}{_set(positions(mask)) if mask else ''}{f' x{slots}' if slots > 1 else ''}"
        for machine, (mask, slots) in enumerate(zip(case.cluster.constraints, case.cluster.slots, strict=True))
    )
    given = ", ".join(f"{name}={value}" for name, value in (parameters or {}).items()) or "defaults"
    head = [f"# {line}" for line in title.strip().splitlines()]
    head += [f"# {design}: {given}; seed {seed}; {network.delay_us} us a hop", f"# {machines}", ""]
    foot = [""]
    for job, (came, done) in enumerate(zip(case.trace.arrival_us, records.answered_us, strict=True)):
        tasks = range(case.trace.first[job], case.trace.first[job + 1])
        ideal = max((case.trace.duration_us[task] for task in tasks if records.start_us[task] >= 0), default=None)
        if ideal is None:
            foot.append(f"job {job}: no task could run, {records.unsatisfiable[job]} fit no worker")
        else:
            response, delay = (done - came) / SECOND, (done - came - ideal) / SECOND
            foot.append(f"job {job}: response {response:.4f} s, delay {delay:.4f} s")
    foot += [f"{name}: {count}" for name, count in sorted(records.counters.items())]
    return "\n".join([*head, *watch.lines, *foot]) + "\n"
