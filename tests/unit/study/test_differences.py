"""Differences are within a setting, paired by seed, first against the others."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.comparison import compare

from volery.metrics import RunSummary
from volery.statistics import CORRECTED
from volery.study import Results, load_results, verify
from volery.study.differences import JobTimes, differences, on_days_like_this

DRAWN = "poisson:load=0.7,workers=20,fanout=4,mean=1,jobs=60"


@pytest.fixture(scope="module")
def summary() -> RunSummary:
    return compare("megha", trace="syn:2x3", workers=25).runs[0]


def run(summary: RunSummary, seed: int, median_s: float) -> RunSummary:
    delay = msgspec.structs.replace(summary.delay_s, p50=median_s)
    return msgspec.structs.replace(summary, seed=seed, delay_s=delay, digest=f"{seed:064d}")


def test_the_first_is_compared_with_each_other_by_seed(summary: RunSummary) -> None:
    groups = {
        "a": [run(summary, 0, 1.0), run(summary, 1, 2.0)],
        "b": [run(summary, 1, 8.1), run(summary, 0, 4.0)],
        "c": [run(summary, 0, 1.0)],
    }
    found = {(d.a, d.b): d for d in differences([groups]) if d.quantity == "median delay"}
    assert set(found) == {("a", "b"), ("a", "c")}
    between = found["a", "b"]
    assert (between.a_mean, between.b_mean, between.difference.mean) == (1.5, 6.05, -4.55)
    assert between.difference.verdict == "lower"
    assert between.difference.seeds == 2
    assert found["a", "c"].difference.seeds == 1


def test_settings_are_not_mixed(summary: RunSummary) -> None:
    settings = [{"a": [run(summary, 0, 1.0)], "b": [run(summary, 0, 2.0)]}, {"c": [run(summary, 0, 9.0)]}]
    assert {(d.a, d.b) for d in differences(settings)} == {("a", "b")}


def test_classes_that_are_not_told_apart_are_left_out(summary: RunSummary) -> None:
    groups = {"a": [summary], "b": [summary]}
    assert {(d.jobs, d.quantity) for d in differences([groups])} == {
        ("all", "median delay"),
        ("all", "mean delay"),
        ("all", "p99 delay"),
        ("all", "mean utilisation"),
    }


def test_several_designs_are_corrected_for_their_number(summary: RunSummary) -> None:
    def group(*medians_s: float) -> list[RunSummary]:
        return [run(summary, seed, median_s) for seed, median_s in enumerate(medians_s)]

    base, near, far = group(1.0, 1.0, 1.0), group(1.1, 1.2, 1.4), group(9.0, 9.1, 9.2)
    alone = verdicts({"a": base, "near": near})
    assert alone == {"near": "no difference shown: the interval of the ratio spans one"}
    closer = group(1.2, 1.3, 1.4)
    assert verdicts({"a": base, "near": closer}) == {"near": "lower"}
    many = {"a": base, "near": closer} | {f"same{n}": group(1.0, 1.1, 0.9) for n in range(8)} | {"far": far}
    corrected = verdicts(many)
    assert corrected["near"] == CORRECTED
    assert corrected["far"] == "lower"
    found = [d for d in differences([many]) if d.quantity == "median delay"]
    assert {d.comparisons for d in found} == {10}


def verdicts(groups: dict[str, list[RunSummary]]) -> dict[str, str]:
    return {d.b: d.difference.verdict for d in differences([groups]) if d.quantity == "median delay"}


def jobs(delays_s: np.ndarray, short: int = 0) -> JobTimes:
    count = len(delays_s)
    return JobTimes(0, np.arange(count) * 1.0, delays_s, np.arange(count) < short)


def test_jobs_of_one_run_tell_what_differs_on_such_days() -> None:
    random = np.random.default_rng(3)
    delays_s = random.exponential(1.0, 2000)
    others = {"slow": 2 * delays_s, "same": random.permutation(delays_s), "lost": np.full(2000, np.nan)}
    found = on_days_like_this({"a": jobs(delays_s)} | {name: jobs(one) for name, one in others.items()})
    by = {(one.b, one.quantity): one for one in found}
    slow = by["slow", "mean delay"]
    assert slow.difference.verdict == "lower"
    assert slow.difference.ratio == pytest.approx(0.5)
    assert (slow.seed, slow.job_count, slow.comparisons) == (0, 2000, 2), "a design without jobs is no comparison"
    assert slow.difference.method == "block bootstrap"
    assert slow.block >= 1
    assert by["same", "mean delay"].difference.verdict.startswith("no difference shown")
    assert by["lost", "mean delay"].difference.verdict.startswith("no statement")
    assert {one.jobs for one in found} == {"all"}, "all jobs are long"


def test_where_only_the_difference_has_an_interval_no_ratio_is_given() -> None:
    random = np.random.default_rng(5)
    delays_s = random.permutation(np.concatenate([np.zeros(985), random.exponential(1.0, 1015)]))
    found = on_days_like_this({"a": jobs(delays_s), "b": jobs(delays_s + 0.5)})
    median = next(one for one in found if one.quantity == "median delay")
    assert median.a_mean > 0
    assert (median.difference.ratio, median.difference.ratio_low) == (None, None)
    assert median.difference.low is not None
    assert median.difference.verdict == "lower"


def test_classes_of_jobs_are_compared_where_both_occur() -> None:
    delays_s = np.random.default_rng(4).exponential(1.0, 400)
    found = on_days_like_this({"a": jobs(delays_s, 100), "b": jobs(2 * delays_s, 100)}, {"b"})
    assert {(one.a, one.b) for one in found} == {("b", "a")}
    assert {one.jobs: one.job_count for one in found} == {"all": 400, "short": 100, "long": 300}


def test_jobs_outside_of_the_window_and_without_an_answer_do_not_count() -> None:
    columns = {
        "submit_s": np.arange(3.0),
        "delay_s": np.array([1.0, 2.0, -1e-6]),
        "jrt_s": np.array([2.0, 3.0, -1e-6]),
        "is_short": np.zeros(3, bool),
        "counted": np.array([False, True, True]),
    }
    assert np.isnan(JobTimes.of(0, columns).delay_s).tolist() == [True, False, True]
    del columns["counted"]
    assert np.isnan(JobTimes.of(0, columns).delay_s).tolist() == [False, False, True]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trace", "seeds", "compared"), [("syn:5x40", 1, True), ("syn:5x40", 2, True), (DRAWN, 1, True), (DRAWN, 2, False)]
)
def test_a_folder_and_memory_give_the_same_comparisons_by_job(
    trace: str, seeds: int, compared: bool, tmp_path: Path
) -> None:
    def study(folder: Path | None) -> Results:
        return compare("sparrow", "oracle", trace=trace, workers=20, seeds=seeds, folder=folder)

    found = study(None).on_days_like_this
    assert bool(found) == compared
    assert study(tmp_path).on_days_like_this == load_results(tmp_path).on_days_like_this == found
    kept = msgspec.json.decode((tmp_path / "summary.json").read_bytes())
    assert kept["on_days_like_this"] == msgspec.to_builtins(found)
    assert {one.a for one in load_results(tmp_path, "oracle").on_days_like_this} == ({"oracle"} if compared else set())
    assert verify(tmp_path).differences == ()
