"""Registry of checks, their failures, and bounded runs of a design that name the case when they fail."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

import msgspec

from volery.conformance.cases import Case
from volery.conformance.interceptor import Interceptor
from volery.core.component import Architecture
from volery.core.model import SECOND
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
