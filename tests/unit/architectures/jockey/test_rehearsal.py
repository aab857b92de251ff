"""Simulated runs of a job, and the table C(progress, allocation)."""

from __future__ import annotations

import msgspec
import pytest

from volery.architectures import configure, lookup
from volery.architectures.jockey.profiles import JobRun, estimated, profiled
from volery.architectures.jockey.rehearsal import (
    BINS,
    Rehearsal,
    RehearsalSetting,
    Remaining,
    listed,
    rehearse,
    samples_of,
    tabulated,
)
from volery.architectures.jockey.stages import JobStage, stages_of, with_paths
from volery.conformance.cases import trace_of
from volery.core.model import SECOND, Cluster
from volery.core.streams import Streams
from volery.core.workflows import with_parents
from volery.sim import Network, Options, simulate
from volery.workload.synthesis import layered


def test_the_worst_sample_of_a_bin_counts_and_empty_bins_lie_between_their_neighbours() -> None:
    table = tabulated([10], [[(0.0, 1000), (0.0, 900), (0.5, 400), (0.505, 500)]], 100)
    assert [table.at(p, 10) for p in (0.0, 0.005, 0.25, 0.5)] == [1000, 1000, 750, 500]
    assert table.at(0.75, 10) == 250, "towards nothing left when all is done"
    assert table.at(1.0, 10) == 0


@pytest.mark.parametrize(("percentile", "left"), [(100, 40), (75, 30), (50, 20), (1, 10)])
def test_a_percentile_is_by_nearest_rank(percentile: float, left: int) -> None:
    assert tabulated([1], [[(0.2, us) for us in (40, 10, 30, 20)]], percentile).at(0.2, 1) == left


def test_before_the_first_sample_the_first_counts_and_without_any_nothing_is_left() -> None:
    assert tabulated([1], [[(0.3, 70)]], 100).at(0.1, 1) == 70
    assert tabulated([1], [[]], 100).left_us == ((0,) * (BINS + 1),)


def test_between_allocations_a_straight_line_and_beyond_them_the_ends() -> None:
    table = Remaining((10, 20, 40), tuple([(us,) * (BINS + 1) for us in (800, 400, 200)]))
    assert [table.at(0.5, tokens) for tokens in (1, 10, 12.5, 20, 30, 40, 90)] == [800, 800, 700, 400, 300, 200, 200]


WAITS = [(), (), (0,), (1,), (2, 3), (2, 3)]
TOOK = [5, 3, 2, 2, 1, 1]


@pytest.mark.parametrize(
    ("tokens", "finish"), [(1, [5, 8, 10, 12, 13, 14]), (2, [5, 3, 7, 5, 8, 8]), (9, [5, 3, 7, 5, 8, 8])]
)
def test_ready_tasks_start_in_the_order_in_which_they_became_so(tokens: int, finish: list[int]) -> None:
    assert listed(WAITS, TOOK, tokens) == finish


@pytest.mark.parametrize("seed", range(12))
def test_the_kernel_with_the_real_components_agrees_to_the_microsecond(seed: int) -> None:
    stream = Streams(seed).of("rehearsal")
    waits = layered(stream.randrange(2, 60), stream.random, 1.0, 3)
    took = [stream.choice((0, 7, 7, stream.randrange(1, 50))) for _ in waits]
    tokens = stream.randrange(1, 9)
    trace = with_parents(trace_of("alone", [0], [took]), waits)
    jockey = lookup("jockey")
    built = jockey.build(Cluster.uniform(tokens), configure(jockey, {}), Streams(0))
    records = simulate(built, trace, Cluster.uniform(tokens), network=Network(0), options=Options(graphs=True))
    assert records.finish_us.tolist() == listed(waits, took, tokens)


def test_samples_tell_progress_and_the_time_left_period_by_period() -> None:
    stages = with_paths([JobStage(2, (), 8, 0, 5), JobStage(2, (0,), 4, 0, 2), JobStage(2, (1,), 2, 0, 1)])
    samples = samples_of([5, 3, 7, 5, 8, 8], stages_of(WAITS), stages, "vertexfrac", 3)
    assert samples == [(0.0, 8), (pytest.approx(1 / 6), 5), (pytest.approx(3 / 6), 2)]
    assert samples_of([], (), (), "vertexfrac", 3) == []


def test_a_rehearsal_is_a_pure_function_and_more_tokens_leave_less_time() -> None:
    stage_of, stages = estimated(WAITS, [SECOND] * 6)
    how = RehearsalSetting((1, 2, 4), 5, "totalworkWithQ", 100, SECOND)
    times = tuple([(SECOND, 2 * SECOND, 5 * SECOND) for _ in stages])
    asked = Rehearsal(tuple(WAITS), stage_of, stages, times, how, seed=3)
    table = rehearse(asked)
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(asked), type=Rehearsal)
    assert table == rehearse(kept), "as a journal keeps it"
    assert table != rehearse(msgspec.structs.replace(asked, seed=4))
    assert table.at(0, 1) > table.at(0, 4)
    assert table.at(0, 1) <= 30 * SECOND, "six tasks of at most 5 s"


def test_a_profile_pools_runs_with_the_same_stages() -> None:
    first = JobRun(tuple(WAITS), (0, 0, 5, 3, 9, 9), (0, 1, 5, 4, 9, 9), (5, 4, 9, 8, 10, 10))
    other = JobRun(((), ()), (0, 0), (0, 0), (900, 900))
    last = JobRun(tuple(WAITS), (0, 0, 7, 3, 9, 9), (0, 0, 7, 3, 9, 12), (7, 3, 9, 8, 12, 16))
    profile = profiled([first, other, last])
    assert profile.stage_of == (0, 0, 1, 1, 2, 2)
    assert profile.run_us == ((3, 3, 5, 7), (2, 4, 4, 5), (1, 1, 3, 4))
    found = [(stage.tasks, stage.work_us, stage.longest_us) for stage in profile.stages]
    assert found == [(2, 9, 7), (2, 7, 5), (2, 4, 4)]
    assert profile.stages[0].queued_us == 0, "one of four waited for a microsecond: less than a whole one per two tasks"
    assert profile.stages[2].queued_us == 1, "one of four waited for three"
    assert [(stage.begin, stage.end) for stage in profile.stages] == [(0, 7 / 16), (3 / 16, 9 / 16), (9 / 16, 1)]
    assert profile.stages[0].after_us == 9
    assert profile.stages[2].ideal_end == 1.0
