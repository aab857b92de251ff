"""Preferences of jobs in the lab: durations hold on preferred machines, elsewhere tasks take longer."""

from __future__ import annotations

from array import array

import msgspec
import pytest

from volery.architectures import lookup
from volery.conformance.cases import trace_of
from volery.core.model import SECOND, Cluster, Preference
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.sim import Options, simulate

GPU, LEFT, RIGHT = 1, 2, 4
MACHINES = Cluster((LEFT, LEFT, RIGHT | GPU), (1, 1, 1))


def preferring(wish: Preference, tasks: int) -> Trace:
    trace = trace_of("wishes", [0], [[SECOND] * tasks])
    return msgspec.structs.replace(trace, preferences=(wish,), preference=array("H", [0]))


def runs_us(trace: Trace, cluster: Cluster = MACHINES) -> dict[int, int]:
    oracle = lookup("oracle")
    deployment = oracle.build(cluster, oracle.defaults, Streams(0))
    records = simulate(deployment, trace, cluster, options=Options(check=True))
    rows = zip(records.worker, records.start_us, records.finish_us, strict=True)
    return {worker: finish - start for worker, start, finish in rows}


def test_a_task_takes_longer_where_its_job_does_not_prefer_to_run() -> None:
    assert runs_us(preferring(Preference(GPU, 0, 250), 3)) == {0: 2_500_000, 1: 2_500_000, 2: SECOND}


def test_tasks_that_want_to_be_together_are_slow_away_from_the_first() -> None:
    assert runs_us(preferring(Preference(0, LEFT | RIGHT, 150), 3)) == {0: SECOND, 1: SECOND, 2: 1_500_000}


def test_speeds_and_preferences_multiply() -> None:
    cluster = msgspec.structs.replace(MACHINES, speeds=(100, 200, 200), reference_speed=200)
    assert runs_us(preferring(Preference(GPU, 0, 150), 3), cluster) == {0: 3 * SECOND, 1: 1_500_000, 2: SECOND}


def test_a_trace_without_preferences_keeps_its_digest_and_one_with_them_has_another() -> None:
    plain = trace_of("wishes", [0], [[SECOND]])
    digests = {plain.digest(), preferring(Preference(GPU, 0, 150), 1).digest()}
    digests |= {preferring(Preference(GPU, 0, 200), 1).digest()}
    assert len(digests) == 3


@pytest.mark.parametrize("jobs", [0, 1])
def test_schedulers_are_told_what_a_job_prefers(jobs: int) -> None:
    wish = Preference(GPU, 0, 250)
    trace = preferring(wish, 1) if jobs else trace_of("none", [0], [[SECOND]])
    (message,) = trace.submission(0)
    assert message.job.preference == (wish if jobs else Preference())  # type: ignore[attr-defined]  # it is a Submit
