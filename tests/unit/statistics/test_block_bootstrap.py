"""Two designs compared job by job: coverage on queues whose truth is known, and what has no statement.

The queues are simulated by the recursion of Lindley (one server) and of Kiefer & Wolfowitz (several). The truth is in
closed form: Erlang C, and the waiting time that is exponential for those who wait.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from volery.statistics import JobsDifference, jobs_difference
from volery.statistics.block_bootstrap import (
    FEW_BLOCKS,
    FEW_JOBS,
    Ordered,
    block_length,
    degrees_of_freedom,
    drawn_counts,
)

Floats = npt.NDArray[np.float64]

JOBS = {0.5: 10_000, 0.8: 20_000}
"""Per load: a queue under high load remembers longer."""
WARM_UP = 4_000
FASTER = 0.9
"""The service time of b over that of a."""
BATCH = 40
"""Queues that are simulated at once."""
RESAMPLES = 149
"""Fewer than in use, for the time of the test: the deviation of so many is known to 6 %."""
STATISTICS = ("mean", "median", "p90", "p99")


class Queue(NamedTuple):
    """M/M/c: servers, and arrivals per service time of all servers together."""

    servers: int
    load: float

    def with_service(self, mean_s: float) -> Truth:
        """The queue with the same arrivals and another service time."""
        return Truth(self.servers, self.load * mean_s, mean_s)


class Truth(NamedTuple):
    """M/M/c in equilibrium, in closed form."""

    servers: int
    load: float
    service_s: float

    @property
    def waiting_share(self) -> float:
        """Erlang C: the probability that a job waits."""
        offered = self.servers * self.load
        blocked = 1.0
        for servers in range(1, self.servers + 1):  # Erlang B
            blocked = offered * blocked / (servers + offered * blocked)
        return blocked / (1 - self.load * (1 - blocked))

    @property
    def drain_s(self) -> float:
        """Mean wait of a job that waits."""
        return self.service_s / (self.servers * (1 - self.load))

    def later_than(self, response_s: float) -> float:
        """The share of jobs whose response takes longer: a wait that is exponential or zero, and a service."""
        share, wait_rate, rate = self.waiting_share, 1 / self.drain_s, 1 / self.service_s
        alone = math.exp(-rate * response_s)
        if abs(wait_rate - rate) < 1e-9:
            both = (1 + rate * response_s) * alone
        else:
            both = (wait_rate * alone - rate * math.exp(-wait_rate * response_s)) / (wait_rate - rate)
        return (1 - share) * alone + share * both

    def value(self, statistic: str) -> float:
        """Mean or percentile of the response time."""
        if statistic == "mean":
            return self.service_s + self.waiting_share * self.drain_s
        level = 0.5 if statistic == "median" else int(statistic[1:]) / 100
        low, high = 0.0, 1000.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.later_than(middle) > 1 - level else (low, middle)
        return low


def responses(queue: Queue, random: np.random.Generator, batch: int) -> tuple[Floats, Floats]:
    """Responses of a and b in `batch` queues (rows): the same arrivals and work, b's servers faster."""
    jobs = JOBS[queue.load] + WARM_UP
    work = random.exponential(1, (batch, jobs))
    gaps = random.exponential(1 / (queue.servers * queue.load), (batch, jobs))
    sides = []
    for service in (work, FASTER * work):
        waits = lindley(service, gaps) if queue.servers == 1 else kiefer_wolfowitz(service, gaps, queue.servers)
        sides.append((waits + service)[:, WARM_UP:])
    return sides[0], sides[1]


def lindley(service: Floats, gaps: Floats) -> Floats:
    steps = np.concatenate([np.zeros((len(gaps), 1)), service[:, :-1] - gaps[:, 1:]], axis=1).cumsum(axis=1)
    return steps - np.minimum.accumulate(steps, axis=1)


def kiefer_wolfowitz(service: Floats, gaps: Floats, servers: int) -> Floats:
    left = np.zeros((len(gaps), servers))  # work per server, the least first
    waits = np.empty_like(gaps)
    for job in range(gaps.shape[1]):
        left = np.maximum(left - gaps[:, job, None], 0)
        waits[:, job] = left[:, 0]
        left[:, 0] += service[:, job]
        left.sort(axis=1)
    return waits


def compared(queue: Queue, *, in_order: bool, queues: int) -> Iterator[list[JobsDifference]]:
    """Compare the two sides of every queue; without order, jobs are shuffled, which hides who came after whom."""
    random = np.random.default_rng([33, queue.servers, int(100 * queue.load)])
    for _ in range(queues // BATCH):
        for a, b in zip(*responses(queue, random, BATCH), strict=True):
            jobs = np.arange(len(a))
            order = jobs if in_order else random.permutation(jobs)
            yield jobs_difference(jobs, a[order], b[order], STATISTICS, resamples=RESAMPLES)


def coverages(queue: Queue, *, in_order: bool = True, queues: int) -> dict[tuple[str, str], float]:
    """The share of intervals that hold the truth, per statistic that has one in half of the queues."""
    a, b = queue.with_service(1), queue.with_service(FASTER)
    held: dict[tuple[str, str], list[bool]] = {}
    for one in (one for found in compared(queue, in_order=in_order, queues=queues) for one in found):
        if one.low is None or one.high is None or one.ratio_low is None or one.ratio_high is None:
            continue
        x, y = a.value(one.statistic), b.value(one.statistic)
        held.setdefault((one.statistic, "difference"), []).append(one.low <= x - y <= one.high)
        held.setdefault((one.statistic, "ratio"), []).append(one.ratio_low <= x / y <= one.ratio_high)
    return {which: sum(kept) / len(kept) for which, kept in held.items() if 2 * len(kept) >= queues}


def covers(found: dict[tuple[str, str], float]) -> None:
    """Demand that intervals of 95 % hold the truth in 90 % at least, and all statistics together in 98 % at most."""
    assert {"mean", "median", "p90"} <= {statistic for statistic, _ in found}
    wrong = {which: share for which, share in found.items() if share < 0.90}
    assert not wrong, f"coverage is outside of 90 to 98 %: {wrong}"
    assert sum(found.values()) / len(found) <= 0.98, f"coverage is outside of 90 to 98 %: {found}"


@pytest.mark.parametrize(
    ("servers", "load", "queues"),
    [
        (1, 0.5, 120),
        pytest.param(1, 0.5, 240, marks=pytest.mark.slow),
        pytest.param(1, 0.8, 120, marks=pytest.mark.slow),
        pytest.param(10, 0.5, 240, marks=pytest.mark.slow),
        pytest.param(10, 0.8, 120, marks=pytest.mark.slow),
    ],
)
def test_intervals_hold_the_truth_of_queues_in_90_to_98_percent(servers: int, load: float, queues: int) -> None:
    """The standard error of a coverage of 95 % is 1.4 points with 240 queues and 2 with 120."""
    covers(coverages(Queue(servers, load), queues=queues))


@pytest.mark.slow
def test_jobs_in_a_shuffled_order_fail_the_same_test() -> None:
    with pytest.raises(AssertionError, match="coverage is outside"):
        covers(coverages(Queue(1, 0.5), in_order=False, queues=40))


def test_the_truth_of_queues_is_that_of_the_textbook() -> None:
    single = Queue(1, 0.8).with_service(1)
    assert single.waiting_share == pytest.approx(0.8)
    assert single.value("mean") == pytest.approx(5)
    assert single.value("p99") == pytest.approx(5 * math.log(100))
    assert Queue(2, 0.5).with_service(1).waiting_share == pytest.approx(1 / 3)


LIGHT = ("median", "mean", "p90")
"""Statistics for which 2,000 jobs in bursts of 20 are enough."""


def bursts(seed: int, jobs: int = 2_000) -> tuple[Floats, Floats]:
    """Delays of two equal designs, whose neighbours depend on each other through the load they share."""
    random = np.random.default_rng(seed)
    load = np.repeat(random.lognormal(size=jobs // 20), 20)
    return load * random.lognormal(size=jobs), load * random.lognormal(size=jobs)


def test_designs_that_differ_by_nothing_are_seldom_told_apart() -> None:
    found = [one for seed in range(100) for one in jobs_difference(range(2_000), *bursts(seed), LIGHT, resamples=149)]
    assert 0.02 <= sum(one.is_shown for one in found) / len(found) <= 0.07


def test_values_are_those_of_numpy_and_blocks_those_of_the_longest_dependence() -> None:
    a, b = bursts(1)
    values = [(np.median(x), np.mean(x), np.percentile(x, 90)) for x in (a, b)]
    for one, x, y in zip(jobs_difference(range(2_000), a, b, LIGHT), *values, strict=True):
        assert (one.a, one.b) == (x, y)
        assert one.difference == one.a - one.b
        assert one.ratio == one.a / one.b
        assert one.method == "block bootstrap"
        assert one.block > 10


def test_the_order_of_submission_counts_and_not_that_of_the_arrays() -> None:
    a, b = bursts(2)
    order = np.random.default_rng(1).permutation(len(a))
    assert jobs_difference(order, a[order], b[order]) == jobs_difference(range(len(a)), a, b)


def test_a_design_that_delays_every_job_longer_is_shown_and_its_mirror_image_is_too() -> None:
    a, b = bursts(3)
    there, back = (jobs_difference(range(2_000), *sides, LIGHT) for sides in ((1.5 * a, b), (b, 1.5 * a)))
    for one, other in zip(there, back, strict=True):
        assert (one.verdict, other.verdict) == ("higher", "lower")
        assert one.low == pytest.approx(-(other.high or 0))
        assert one.p_value == pytest.approx(other.p_value)


def test_a_p_value_is_where_the_deciding_interval_begins_to_exclude_no_difference() -> None:
    a, b = bursts(4)
    for ratio in (1.0, 1.1, 1.2):
        for one in jobs_difference(range(2_000), ratio * a, b, LIGHT):
            assert one.p_value is not None
            beyond, within = 1 - one.p_value * 1.001, 1 - one.p_value * 0.999
            assert not one.is_shown_at(within)
            assert one.is_shown_at(beyond)
            for confidence, shown in ((within, False), (beyond, True)):
                again = jobs_difference(range(2_000), ratio * a, b, LIGHT, confidence=confidence)
                assert again[LIGHT.index(one.statistic)].is_shown is shown


def test_equal_runs_are_identical_and_equal_values_of_other_runs_are_not_told_apart() -> None:
    a, b = bursts(5)
    for one in jobs_difference(range(2_000), a, a):
        assert (one.verdict, one.low, one.high, one.ratio_low, one.ratio_high) == ("identical", 0, 0, 1, 1)
        assert not one.is_shown_at(0.5)
    x, y = (np.where(np.random.default_rng(1).random(2_000) < 0.3, values, 0.0015) for values in (a + 1, b + 1))
    median = jobs_difference(range(2_000), x, y, ("median",))[0]
    assert (median.difference, median.low, median.high, median.ratio) == (0, 0, 0, 1)
    assert median.verdict.startswith("no difference shown")
    later = jobs_difference(range(2_000), x, y + 0.0005, ("median",))[0]
    assert later.verdict == "lower"
    assert later.ratio == pytest.approx(0.75)


def test_a_delay_that_all_jobs_have_is_compared() -> None:
    equal, b = np.full(2_000, 0.1), bursts(6)[1]
    assert equal.mean() != 0.1, "what is left of the mean is rounding"
    assert {one.verdict for one in jobs_difference(range(2_000), equal, b, LIGHT)} == {"lower"}
    exact = jobs_difference(range(2_000), equal, np.full(2_000, 0.3), LIGHT)
    assert {(one.verdict, one.block, one.p_value) for one in exact} == {("lower", 2, 0.0)}


def test_zeros_have_no_ratio_and_the_difference_decides() -> None:
    a, b = bursts(6)
    none = jobs_difference(range(2_000), a, np.zeros(2_000), LIGHT)
    assert [(one.verdict, one.ratio, one.ratio_low) for one in none] == [("higher", None, None)] * 3
    idle = np.random.default_rng(1).random(2_000) < 0.7
    median, mean, p90 = jobs_difference(range(2_000), np.where(idle, 0, a), np.where(idle, 0, 3 * b), LIGHT)
    assert (median.difference, median.ratio) == (0, None)
    assert mean.verdict == p90.verdict == "lower"
    assert mean.ratio_high is not None


def test_a_bound_beyond_all_numbers_is_no_failure() -> None:
    """Two jobs of sixty differ: the studentised interval of their ratio reaches beyond what a float holds."""
    equal = np.full(60, 0.0015)
    some = equal.copy()
    some[[11, 51]] = 0.0025
    (mean,) = jobs_difference(np.arange(60.0), some, equal, ["mean"])
    assert mean.ratio_high is not None
    assert mean.ratio_low is not None
    assert 0 < mean.ratio_low < 1 < mean.ratio_high < math.inf


def test_jobs_without_delay_on_one_side_leave_the_comparison() -> None:
    a, b = bursts(7)
    holes = a.copy()
    holes[::7] = np.nan
    kept = ~np.isnan(holes)
    found = jobs_difference(range(2_000), holes, b)
    assert found == jobs_difference(np.arange(2_000)[kept], a[kept], b[kept])
    assert {one.jobs for one in found} == {int(kept.sum())}


def test_few_jobs_and_jobs_that_all_depend_on_each_other_have_no_statement() -> None:
    a, b = bursts(8)
    assert {one.verdict for one in jobs_difference(range(29), a[:29], b[:29])} == {FEW_JOBS}
    assert {one.jobs for one in jobs_difference([], [], [])} == {0}
    median, mean, p99 = jobs_difference(range(200), a[::10], b[::10])
    assert median.high is not None
    assert mean.high is not None
    assert p99.verdict.startswith("no statement: 2 jobs beyond the percentile")
    assert (p99.low, p99.ratio_high, p99.p_value, p99.is_shown_at(0.5)) == (None, None, None, False)
    swelling = np.arange(2_000.0)
    assert {one.verdict for one in jobs_difference(range(2_000), swelling, swelling * b)} == {FEW_BLOCKS}


def test_a_queue_that_fills_once_has_no_statement() -> None:
    """One observation, whatever is done with blocks (docs/decisions/0055): of 10,000 jobs 3,000 overload one server."""
    random = np.random.default_rng(34)
    load = np.repeat([0.6, 1.5, 0.7], [3_000, 3_000, 4_000])
    work = random.exponential(1, (20, len(load)))
    gaps = random.exponential(1, work.shape) / load
    sides = [lindley(service, gaps) + service for service in (work, FASTER * work)]
    for a, b in zip(*sides, strict=True):
        assert {one.verdict for one in jobs_difference(range(len(a)), a, b)} == {FEW_BLOCKS}


def test_the_same_jobs_give_the_same_intervals() -> None:
    assert jobs_difference(range(2_000), *bursts(9)) == jobs_difference(range(2_000), *bursts(9))


def test_a_comparison_is_kept_as_json() -> None:
    for one in jobs_difference(range(2_000), *bursts(9)):
        assert msgspec.json.decode(msgspec.json.encode(one), type=JobsDifference) == one


@pytest.mark.parametrize(
    ("arrays", "options", "problem"),
    [
        (([1], [1, 2], [1, 2]), {}, "the same jobs on both sides"),
        (([[1]], [[1]], [[1]]), {}, "the same jobs on both sides"),
        (([1, 2], [1, math.inf], [1, 2]), {}, "a delay is infinite"),
        (([1, math.nan], [1, 1], [1, 2]), {}, "a submission is no number"),
        (([1], [1], [1]), {"statistics": ("p100",)}, "no statistic 'p100'"),
        (([1], [1], [1]), {"statistics": ("q5",)}, "no statistic 'q5'"),
        (([1], [1], [1]), {"statistics": ("most",)}, "no statistic 'most'"),
        (([1], [1], [1]), {"confidence": 1}, "above 0 and below 1"),
        (([1], [1], [1]), {"resamples": 9}, "at least 100"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    arrays: tuple[list[float], ...], options: dict[str, object], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        jobs_difference(*arrays, **options)  # type: ignore[arg-type]  # what is refused has no right type


def autoregressive(coefficient: float, count: int, seed: int = 1) -> npt.NDArray[np.float64]:
    random = np.random.default_rng(seed)
    values = np.zeros(count)
    for i in range(1, count):
        values[i] = coefficient * values[i - 1] + random.normal()
    return values


@pytest.mark.parametrize("coefficient", [0.3, 0.7, 0.9])
def test_the_block_length_of_an_autoregressive_series_is_that_of_the_formula(coefficient: float) -> None:
    count = 20_000
    # sum |k| r^|k| over sum r^|k|, then Politis & White (2004) with the factor of 2009
    slope = 2 * coefficient / (1 - coefficient) ** 2
    spectrum = (1 + coefficient) / (1 - coefficient)
    expected = (2 * slope**2 / (4 / 3 * spectrum**2)) ** (1 / 3) * count ** (1 / 3)
    found = np.mean([block_length(autoregressive(coefficient, count, seed)) for seed in range(5)])
    assert found == pytest.approx(expected, rel=0.15)


def test_independent_and_equal_values_need_no_blocks() -> None:
    random = np.random.default_rng(1)
    assert np.mean([block_length(random.normal(size=5_000)) for _ in range(20)]) < 5
    for equal in (3.0, 0.1):  # the mean of the latter is rounded
        assert block_length(np.full(10_000, equal)) == 1


@pytest.mark.parametrize(("count", "block"), [(10, 1), (10, 3), (10, 5), (10, 10), (101, 20)])
def test_resamples_have_as_many_values_as_the_series_in_blocks_of_neighbours(count: int, block: int) -> None:
    counts = np.concatenate(list(drawn_counts(count, block, 1_000, np.random.default_rng(1))))
    assert counts.shape == (1_000, count)
    assert (counts.sum(axis=1) == count).all()
    assert counts.mean(axis=0) == pytest.approx(1, abs=0.35)
    steps = np.abs(np.diff(counts, axis=1, append=counts[:, :1])).sum(axis=1)
    assert steps.max() <= 2 * -(-count // block), "a block begins once and ends once"


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("block", [1, 7, 60, 200])
def test_statistics_of_resamples_are_those_of_numpy(block: int, tied: bool) -> None:
    values = autoregressive(0.95, 200)
    if tied:
        values = np.round(values)
    levels = (0.5, None, 0.99, 0.01, 0.9, 0.333)
    for counts in drawn_counts(200, block, 100, np.random.default_rng(2)):
        found = Ordered(values).statistics(counts, levels)
        for row, drawn in zip(found, counts, strict=True):
            sample = np.repeat(values, drawn)
            expected = [sample.mean() if level is None else np.quantile(sample, level) for level in levels]
            assert row == pytest.approx(expected)


def test_the_spread_of_resampled_means_is_that_of_the_series() -> None:
    values = autoregressive(0.8, 20_000)
    block = round(2 * block_length(values))
    means = np.concatenate(
        [Ordered(values).statistics(c, (None,)) for c in drawn_counts(20_000, block, 499, np.random.default_rng(3))]
    )
    assert means.std() == pytest.approx(5 / np.sqrt(20_000), rel=0.15)  # 1 / (1 - 0.8) of independent normal values


def test_normal_blocks_have_a_degree_of_freedom_each_and_one_large_block_has_few() -> None:
    random = np.random.default_rng(4)
    values = random.normal(size=10_000)
    assert degrees_of_freedom(values - values.mean(), 100) == pytest.approx(99, rel=0.2)
    lonely = np.where(np.arange(10_000) // 100 == 7, 5.0, 0.0)
    assert degrees_of_freedom(lonely - lonely.mean(), 100) < 4
    assert degrees_of_freedom(np.zeros(100), 10) == 9
