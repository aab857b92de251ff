"""Time per stage: the methods that a design declares are measured while it runs (Andreadis et al., figures 9 and 10).

Only the components of one deployment are touched: each becomes an instance of a subclass whose declared methods read
the clocks. Runs without it are not slower. Results do not change.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from volery.core.component import Component, Deployment
from volery.core.stages import Realisation, Stage

Method = Callable[..., Any]
Roles = Mapping[str, type[Component]]
Clock = Callable[[], int]
OWN_COST_CALLS = 20_000
PERCENTILES = (5, 25, 50, 75, 95, 99, 100)
"""Percentiles that are kept of the CPU times of single calls."""
CLASS_BITS = 4
"""Calls are counted in classes of 16 ns; n classes take calls of 8 n**2 ns together, so that 1,000 s fill 350,000."""


class StageTime(msgspec.Struct, frozen=True):
    """The time of a method that realises one or more stages, without that of declared methods that it calls.

    Args:
        stages: Stages that the method realises; the times of several cannot be separated.
        method: Name of the method, as declared.
        calls: Count of the times it was entered.
        cycles: Count of cycles with such calls; a cycle is an event that a component handles and that enters declared
            methods.
        cpu_s: CPU time of this thread, with what measuring adds (`own_costs_s`).
        wall_s: The same by the wall clock.
        call_s: CPU time of a single call, counted in the same way, at each of `PERCENTILES`, to 8 ns; empty: no calls.
    """

    stages: tuple[Stage, ...]
    method: str
    calls: int
    cycles: int
    cpu_s: float
    wall_s: float
    call_s: tuple[float, ...] = ()


class _Tally:
    __slots__ = ("calls", "classes", "cpu_ns", "cycle", "cycles", "wall_ns")

    def __init__(self) -> None:
        self.calls = self.cycles = self.cycle = self.cpu_ns = self.wall_ns = 0
        self.classes: dict[int, int] = {}

    def call_s(self) -> tuple[float, ...]:
        """The times at `PERCENTILES` (nearest rank), each the middle of its class."""
        times_s: list[float] = []
        passed = 0
        ranks = [max(1, -(-self.calls * percentile // 100)) for percentile in PERCENTILES]

        for head, count in sorted(self.classes.items()):
            passed += count
            while len(times_s) < len(ranks) and ranks[len(times_s)] <= passed:
                times_s.append(((head + 0.5) * (1 << CLASS_BITS)) / 1e9)
        return tuple(times_s)


class StageClock:
    """Measures the declared methods of a deployment's components, from `watch` on."""

    def __init__(
        self,
        stages: Mapping[Stage, Realisation],
        roles: Roles,
        cpu_clock: Clock = time.thread_time_ns,
        wall_clock: Clock = time.perf_counter_ns,
    ) -> None:
        """`roles`: the classes that the declarations name; the clocks count nanoseconds."""
        self._clocks = cpu_clock, wall_clock
        self._stages: dict[str, list[Stage]] = {}
        for stage, realisation in stages.items():
            self._stages.setdefault(realisation.method, []).append(stage)
        self._roles = roles
        self._tallies = {method: _Tally() for method in self._stages}
        self._timed: dict[type[Component], type[Component]] = {}
        self._depth = self._cycle = 0
        self._inner_cpu_ns = self._inner_wall_ns = 0

    def watch(self, deployment: Deployment) -> None:
        """Measure these components; those within others, as behind reliable links, too."""
        for component in deployment.components.values():
            measured_component: Component | None = component
            while measured_component is not None:
                measured_component.__class__ = self._timed_class(type(measured_component))
                measured_component = getattr(measured_component, "inner", None)

    def times(self) -> list[StageTime]:
        """The time of each declared method; one that was never entered has no calls."""
        return [
            StageTime(
                tuple(self._stages[method]),
                method,
                tally.calls,
                tally.cycles,
                tally.cpu_ns / 1e9,
                tally.wall_ns / 1e9,
                tally.call_s(),
            )
            for method, tally in self._tallies.items()
        ]

    def _timed_class(self, plain: type[Component]) -> type[Component]:
        if plain not in self._timed:
            methods: dict[str, Any] = {"__slots__": ()}
            for declared, tally in self._tallies.items():
                role, _, name = declared.partition(".")
                # Two roles may declare a method of one name: a subclass of the one is none of the other.
                if issubclass(plain, self._roles[role]):
                    methods[name] = self._measured(getattr(plain, name), tally)

            timed = type(plain.__name__, (plain,), methods) if len(methods) > 1 else plain
            self._timed[plain] = self._timed[timed] = timed
        return self._timed[plain]

    def _measured(self, method: Method, tally: _Tally) -> Method:
        cpu_clock, wall_clock = self._clocks
        classes = tally.classes

        @functools.wraps(method)
        def measured(*arguments: Any, **named: Any) -> Any:
            if not self._depth:
                self._cycle += 1
            self._depth += 1

            if tally.cycle != self._cycle:
                tally.cycle = self._cycle
                tally.cycles += 1
            tally.calls += 1

            # Time of declared methods called from here is collected in the inner counters, and the caller's are put
            # back after.
            outer_cpu_ns, outer_wall_ns = self._inner_cpu_ns, self._inner_wall_ns
            self._inner_cpu_ns = self._inner_wall_ns = 0
            cpu_ns, wall_ns = cpu_clock(), wall_clock()  # the wall clock is the cheaper: it is the inner one
            try:
                return method(*arguments, **named)
            finally:
                wall_ns, cpu_ns = wall_clock() - wall_ns, cpu_clock() - cpu_ns
                own_ns = cpu_ns - self._inner_cpu_ns
                tally.cpu_ns += own_ns
                call_class = own_ns >> CLASS_BITS
                classes[call_class] = classes.get(call_class, 0) + 1
                tally.wall_ns += wall_ns - self._inner_wall_ns
                self._inner_cpu_ns, self._inner_wall_ns = outer_cpu_ns + cpu_ns, outer_wall_ns + wall_ns
                self._depth -= 1

        return measured


def own_costs_s() -> tuple[float, float]:
    """CPU time that measuring adds on this machine to a call, and to the declared method that makes the call."""
    clock, tally = StageClock({}, {}), _Tally()

    def empty() -> None:
        pass

    spent_s = []
    for method in (empty, clock._measured(empty, tally)):
        began = time.thread_time()
        for _ in range(OWN_COST_CALLS):
            method()
        spent_s.append(time.thread_time() - began)

    added_s, within_s = spent_s[1] - spent_s[0], tally.cpu_ns / 1e9
    return within_s / OWN_COST_CALLS, max(0.0, added_s - within_s) / OWN_COST_CALLS
