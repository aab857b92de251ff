"""What the hybrid designs promise beyond the contract; each promise rejects a design that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.conformance.entries import variant
from tests.conformance.mutants_flock import with_defaults
from tests.conformance.mutation import spoiled

from volery.architectures import lookup
from volery.architectures.hybrid.central import Central
from volery.architectures.hybrid.messages import Demanded, Steal, Stolen
from volery.architectures.hybrid.phoenix import Monitor
from volery.architectures.hybrid.scheduler import Scheduler
from volery.architectures.hybrid.worker import Worker
from volery.conformance.cases import Case, mixed_cases, trace_of
from volery.conformance.verdict import run
from volery.core.component import Architecture, Component, Deployment
from volery.core.events import TimerFired
from volery.core.model import NEVER, SECOND, Address, Cluster, Task, Time
from volery.core.streams import Streams

LONG_US = 2_000 * SECOND
SHORT_ONLY = {k for k in range(40) if int((k + 1) * 0.17) > int(k * 0.17)}
CROWDED = variant("phoenix:heartbeat_s=0.02")


def long_tasks_stay_out_of_the_short_part(design: Architecture) -> None:
    """Sixty long tasks and short ones on forty machines (Hawk, section 3.4)."""
    jobs = [[LONG_US] * 60, *([[SECOND] * 10] * 10)]
    case = Case("long and short", 0, trace_of("long and short", [0] + [1_000] * 10, jobs), Cluster.uniform(40))
    records = run(design, case)
    assert len(SHORT_ONLY) == 6
    assert not SHORT_ONLY & set(records.worker[:60]), "a long task ran in the short-only part"
    assert SHORT_ONLY & set(records.worker[60:]), "no short task ran in the short-only part"


def idle_workers_steal(design: Architecture) -> None:
    """Short tasks that wait behind long ones are stolen (Hawk, section 3.6)."""
    assert sum(run(design, case).counters.get("stolen_probes", 0) for case in mixed_cases(seed=1)) > 0


def scarce_constraints_go_first(design: Architecture) -> None:
    """Where queues are crowded and a constraint is scarce, some tasks pass others (Phoenix, section IV)."""
    assert sum(run(design, case).counters.get("reordered_tasks", 0) for case in mixed_cases()) > 0


def soft_constraints_are_negotiated(design: Architecture) -> None:
    """A task runs without the soft constraint that no machine has beside the hard one, and not without the hard one."""
    needs = [[0b011, 0b101, 0b001]]
    trace = trace_of("negotiation", [0], [[SECOND] * 3], needs)
    records = run(design, Case("negotiation", 0, trace, Cluster((0b001, 0b010), (2, 2))))
    assert records.start_us[0] != NEVER, "the soft constraint was not given up"
    assert records.worker[0] == 0, "the hard constraint was"
    assert records.start_us[1] == NEVER, "a hard constraint that nobody meets was given up"
    assert records.unsatisfiable[0] == 1
    assert records.counters["negotiated_constraints"] == 1


SOFT = with_defaults("phoenix", soft_constraints=(1,))


class PlacesAnywhere(Central):
    """Treats long tasks as short ones."""

    __slots__ = ()

    def _place(self, tasks: list[Task], needs: int, short: bool, estimate_us: Time, now: Time) -> None:
        super()._place(tasks, needs, True, estimate_us, now)


class Miser(Worker):
    """Gives nothing to thieves."""

    __slots__ = ()

    def on_steal(self, message: Steal, source: Address, now: Time) -> None:
        self._port.send(source, Stolen(()))


class SilentMonitor(Monitor):
    """Hears everything and says nothing."""

    __slots__ = ()

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        pass


class DeafMonitor(Monitor):
    """Does not hear what waits."""

    __slots__ = ()

    def on_demanded(self, message: Demanded, source: Address, now: Time) -> None:
        pass


class SilentWorker(Worker):
    """Never tells that its queue is crowded."""

    __slots__ = ()

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        pass


class InOrder(Worker):
    """Hears of the scarcest constraint and goes on as before."""

    __slots__ = ()

    def _follow(self, constraint: int) -> None:
        pass


class Unyielding(Scheduler):
    """Does not negotiate."""

    __slots__ = ()

    def _admitted(self, task: Task) -> Task:
        return task


class GivesAllUp(Scheduler):
    """Gives up every constraint that stands in the way, hard ones too."""

    __slots__ = ()

    def _admitted(self, task: Task) -> Task:
        if self._sampler.supply(task.constraints):
            return task
        self._negotiated += 1
        return msgspec.structs.replace(task, constraints=0)


Promise = Callable[[Architecture], None]
PROMISES: list[tuple[Promise, Architecture, dict[str, type[Component]]]] = [
    (long_tasks_stay_out_of_the_short_part, lookup("hawk"), {"central": PlacesAnywhere}),
    (long_tasks_stay_out_of_the_short_part, lookup("eagle"), {"central": PlacesAnywhere}),
    (long_tasks_stay_out_of_the_short_part, lookup("phoenix"), {"central": PlacesAnywhere}),
    (idle_workers_steal, with_defaults("hawk", cutoff_s=0.2), {"node": Miser}),
    (scarce_constraints_go_first, CROWDED, {"monitor": SilentMonitor}),
    (scarce_constraints_go_first, CROWDED, {"monitor": DeafMonitor}),
    (scarce_constraints_go_first, CROWDED, {"node": SilentWorker}),
    (scarce_constraints_go_first, CROWDED, {"node": InOrder}),
    (soft_constraints_are_negotiated, SOFT, {"scheduler": Unyielding}),
    (soft_constraints_are_negotiated, SOFT, {"scheduler": GivesAllUp}),
]


@pytest.mark.parametrize(
    ("promise", "design"), {(promise, design.name): (promise, design) for promise, design, _ in PROMISES}.values()
)
def test_the_design_keeps_its_promise(promise: Promise, design: Architecture) -> None:
    promise(design)


@pytest.mark.parametrize(("promise", "design", "roles"), PROMISES)
def test_the_promise_rejects_the_mutant(
    promise: Promise, design: Architecture, roles: dict[str, type[Component]]
) -> None:
    def build(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
        return spoiled(design.build(cluster, config, streams), **roles)

    with pytest.raises(AssertionError):
        promise(msgspec.structs.replace(design, build=build))
