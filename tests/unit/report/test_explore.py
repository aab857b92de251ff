"""What a page embeds agrees with the tables and the jobs behind them, stays within its bounds, and cannot break out."""

from __future__ import annotations

import json
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.unit.report.samples import LABELS, TEN, delays_s, sample_run, sample_runs, write_sample

from volery.core.errors import InputError
from volery.metrics import distribution
from volery.report.explore import content as bounds
from volery.report.explore import delays
from volery.report.explore.content import (
    CONTENT_ID,
    Content,
    ExploredContent,
    TaskExplanation,
    as_json,
    explored,
    script,
)
from volery.report.explore.delays import CELLS, DelayGrid, counted, pair, rank, rows_at
from volery.report.explore.server import Answers
from volery.report.folder import StoredResults, read_results
from volery.report.html import render, write_report
from volery.report.parquet import RunJobs, read_jobs

HOSTILE = (
    "</script><script>alert(1)</script>",
    "\u202eevil\u202c",
    "x" * 10_000,
    "\u05e9\u05dc\u05d5\u05dd \U0001f426",
)


def measured(label: str, seeds: int = 3) -> Any:
    """The delays that the sample folder holds of a label; its last job was not measured."""
    return np.concatenate([delays_s(label, seed)[:-1] for seed in range(seeds)])


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> StoredResults:
    return read_results(write_sample(tmp_path_factory.mktemp("sample")))


@pytest.fixture(scope="module")
def whole(results: StoredResults) -> ExploredContent:
    return explored(results)


def embedded(page: str) -> dict[str, Any]:
    start = page.index(">", page.index(f'id="{CONTENT_ID}"')) + 1
    found: dict[str, Any] = json.loads(page[start : page.index("</script>", start)])
    return found


def unpacked(pairs: list[int]) -> dict[int, int]:
    places = accumulate(skipped + 1 for skipped in pairs[::2])
    return {place - 1: count for place, count in zip(places, pairs[1::2], strict=True)}


def test_counts_on_the_grid_are_those_of_the_jobs_at_every_bound(whole: ExploredContent) -> None:
    grid = whole.content.grid
    bounds_s = np.append(0.0, grid.bounds_s())
    for place, label in enumerate(LABELS):
        delays = measured(label)
        counts = unpacked(whole.content.counted[place]["all"].bins)
        below = np.cumsum([counts.get(number, 0) for number in range(grid.bins + 1)])
        assert below.tolist() == np.searchsorted(np.sort(delays), bounds_s, side="right").tolist()
        assert whole.content.counted[place]["all"].whole == distribution(delays)


def test_classes_of_jobs_are_counted_apart_and_add_up(whole: ExploredContent) -> None:
    for classes in whole.content.counted:
        counts = {jobs: one.whole.count for jobs, one in classes.items()}
        assert counts == {"all": 3 * 399, "short": 3 * 200, "long": 3 * 199}


def test_with_one_seed_the_page_says_what_the_summary_says(tmp_path: Path) -> None:
    folder = write_sample(tmp_path, sample_runs(1))
    found = explored(read_results(folder)).content
    for label, classes in zip(found.labels, found.counted, strict=True):
        told = distribution(delays_s(label, 0)[:-1])
        assert (classes["all"].whole.p50, classes["all"].whole.p99) == (told.p50, told.p99)


def test_bins_end_at_their_bounds_and_zero_has_one_of_its_own() -> None:
    grid = DelayGrid(0.001, 1000.0, 7)
    assert grid.bounds_s() == pytest.approx([0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0])
    delays = np.append([0.0, 0.0005], np.repeat(grid.bounds_s(), 2) * np.tile([1.0, 1.0000001], 7))
    assert grid.bin_of(delays).tolist() == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 7]


def made(delays: list[float], *, label: str = "a", seed: int = 0, short: bool = True) -> RunJobs:
    count = len(delays)
    ones = np.ones(count)
    return RunJobs(
        label, seed, np.arange(count), ones * 0, np.arange(count) + 1, ones, np.array(delays), np.full(count, short)
    )


def test_jobs_without_a_delay_are_nowhere() -> None:
    run = made([0.5, float("nan"), float("nan"), 0.0])
    grid, (ranked,) = rank([[run]])
    assert unpacked(counted(ranked)["all"].bins) == {0: 1, 1: 1}
    assert rows_at(ranked, grid, range(2)).job == [0, 3]
    for nothing in ([made([float("nan")])], []):
        assert counted(rank([nothing])[1][0]) == {}


def test_jobs_that_are_faster_than_the_trace_are_measured() -> None:
    run = made([0.5, -2.0, float("nan"), 0.0])
    assert run.rows_of("all").tolist() == [0, 1, 3]
    grid, (ranked,) = rank([[run]])
    assert rows_at(ranked, grid, range(3)).job == [0, 3, 1]


def test_what_older_tables_have_for_an_unmeasured_job_is_none(tmp_path: Path) -> None:
    columns = {"label": ["a"] * 3, "seed": [0] * 3, "is_short": [True] * 3}
    times = {"jrt_s": [2.0, -1e-6, 1.0], "delay_s": [-1.0, -1e-6, 0.5]}
    parquet.write_table(pa.table(columns | times), tmp_path / "jobs.parquet")
    (run,) = read_jobs(tmp_path)
    assert run.rows_of("all").tolist() == [0, 2]


def test_the_jobs_of_a_range_are_those_that_its_counts_count(whole: ExploredContent) -> None:
    places, grid = whole.ranked[0], whole.content.grid
    counts = unpacked(whole.content.counted[0]["all"].bins)
    for low, high in ((-1, grid.bins), (0, 1), (300, 301), (-1, 0), (200, 700), (500, 500)):
        first, last = places.within(low, high)
        assert max(0, last - first) == sum(n for number, n in counts.items() if low < number <= high)
        rows = rows_at(places, grid, range(first, last))
        assert all(low < number <= high for number in rows.bin)
        assert rows.delay_s == sorted(rows.delay_s, reverse=True)


def test_a_page_keeps_the_most_delayed_jobs_and_some_of_every_rank(
    results: StoredResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "ROWS_PER_LABEL_MAX", 100)
    rows = explored(results).content.rows[0]
    ordered = np.sort(measured(LABELS[0]))[::-1]
    assert (rows.total, len(rows.job)) == (ordered.size, 100)
    assert rows.delay_s[:50] == pytest.approx(ordered[:50].tolist(), rel=1e-5)
    assert rows.delay_s[-1] < ordered[int(0.97 * ordered.size)] * 1.01


def test_a_pair_counts_every_job_once_and_names_those_that_differ_most() -> None:
    a = [made([0.001, 0.0, 5.0, 0.01, float("nan")]), made([1.0, 1.0], seed=1)]
    b = [made([0.001, 0.002, 0.005, 0.01, 3.0], label="b"), made([1.0], label="b", seed=1), made([9.0], seed=2)]
    grid, ranked = rank([a, b])
    found = pair(0, 1, ranked[0], ranked[1], grid)
    assert (found.jobs, found.a_lower, found.b_lower) == (5, 1, 1)
    cells = unpacked(found.cells)
    assert sum(cells.values()) == 5
    assert cells[cell(grid, 5.0) * (CELLS + 1) + cell(grid, 0.005)] == 1
    assert list(zip(found.seed, found.job, found.a_s, found.b_s, strict=True)) == [
        (0, 2, 5.0, 0.005),
        (0, 1, 0.0, 0.002),
    ]


def cell(grid: DelayGrid, delay_s: float) -> int:
    return int(grid.cells(grid.bin_of(np.array([delay_s])))[0])


def test_courses_are_the_means_of_the_curves_and_jobs_are_unfinished_while_they_run(
    results: StoredResults, whole: ExploredContent
) -> None:
    one = whole.content.courses[0]
    assert one is not None
    curve = results.curves[LABELS[0]]
    assert one.permille == pytest.approx((1000 * np.mean(curve.values, axis=0)).tolist(), abs=0.5)
    assert one.low[7] == pytest.approx(1000 * min(values[7] for values in curve.values), abs=0.5)
    runs = whole.ranked[0].runs
    jobs = sum(float(run.jrt_s[:-1].sum()) for run in runs)
    assert (one.begin_s, one.end_s) == (0.0, 2000.0)
    assert float(np.mean(one.unfinished)) * 2000 * len(runs) == pytest.approx(jobs, rel=0.01)
    assert one.waiting == [], "the sample folder was kept by a version that knew no queues"


@pytest.mark.slow
def test_the_page_of_ten_architectures_stays_within_its_bounds(tmp_path: Path) -> None:
    runs = [sample_run(label, seed) for label in TEN for seed in range(2)]
    folder = write_sample(tmp_path, runs)
    page = write_report(folder).read_text(encoding="utf-8")
    assert len(page.encode()) < 3_000_000
    found = embedded(page)
    assert len(found["pairs"]) == 45
    assert found["labels"] == list(TEN)


def test_hostile_labels_stay_text(tmp_path: Path) -> None:
    runs = [sample_run(label) for label in HOSTILE]
    named = [msgspec.structs.replace(run, architecture="megha", parameters={}) for run in runs]
    page = write_report(write_sample(tmp_path, named)).read_text(encoding="utf-8")
    assert page.count("<script") == 2
    assert page.count("</script>") == 2
    assert "\u202e" not in page
    for label, found in zip(HOSTILE, embedded(page)["labels"], strict=True):
        assert len(found) <= bounds_of_a_label()
        assert found == label or len(label) > len(found) or "\ufffd" in found


def bounds_of_a_label() -> int:
    return 210


def test_scripts_make_no_markup_and_no_code_from_text() -> None:
    text = script()
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "srcdoc"):
        assert word not in text
    assert "</" not in text


def test_json_in_a_page_cannot_end_its_element() -> None:
    text = "</script><!-- & \u2028 \u2029"
    found = as_json(text)
    assert not set(b"<>&") & set(found)
    assert "\u2028" not in found.decode()
    assert json.loads(found) == text


def test_questions_are_answered_from_all_jobs(whole: ExploredContent) -> None:
    asked: list[tuple[int, str]] = []

    def why(run: int, question: str) -> list[TaskExplanation]:
        asked.append((run, question))
        return []

    answers = Answers(whole.content.grid, whole.ranked, 1, why)
    top = str(whole.content.grid.bins)
    query = {"labels": "0,2", "from": "-1,-1", "to": f"{top},{top}", "class": "long", "first": "10", "count": "5"}
    found = answers.answer("jobs", query)
    both = [
        (d, place)
        for place, label in ((0, LABELS[0]), (2, LABELS[2]))
        for seed in range(3)
        for d in delays_s(label, seed)[200:-1]
    ]
    assert found["total"] == len(both) == 2 * 3 * 199
    expected = sorted((delay for delay, _ in both), reverse=True)[10:15]
    assert [row[5] for row in found["rows"]] == pytest.approx(expected, rel=1e-5)
    assert answers.answer("pair", {"a": "1", "b": "2"}).jobs == 3 * 399
    assert answers.answer("why", {"run": "0", "question": "3/1"}) == []
    assert asked == [(0, "3/1")]


def test_any_part_of_a_list_is_that_of_all_jobs_sorted_and_equal_delays_follow_the_labels() -> None:
    draw = np.random.default_rng(4)
    labels = [[made(np.round(draw.exponential(1, n), 1).tolist(), label=str(n))] for n in (0, 7, 300, 150)]
    grid, ranked = rank(labels)
    spans = [(of, *of.within(0, grid.bins)) for of in ranked]
    listed = [
        (-of.delay_s(rank), place, rank) for place, (of, first, last) in enumerate(spans) for rank in range(first, last)
    ]
    listed.sort()
    answers = Answers(grid, ranked, 0, lambda _, __: [])
    query = {"labels": "0,1,2,3", "from": "0,0,0,0", "to": ",".join([str(grid.bins)] * 4), "class": "short"}
    for first in (0, 1, 49, 200, 431, len(listed) - 3, len(listed), 10_000):
        told = answers.answer("jobs", query | {"first": str(first), "count": "9"})
        assert told["total"] == len(listed)
        expected = [(place, spans[place][0].job(rank)[1]) for _, place, rank in listed[first : first + 9]]
        assert [(label, job) for label, _, job, *_ in told["rows"]] == expected


def test_a_pair_of_many_jobs_names_those_that_differ_most_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays, "CHUNK", 64)
    draw = np.random.default_rng(5)
    a, b = draw.lognormal(0, 1, 1000), draw.lognormal(0, 1, 1000)
    grid, ranked = rank([[made(a.tolist())], [made(b.tolist(), label="b")]])
    found = pair(0, 1, ranked[0], ranked[1], grid)
    by_factor = np.argsort(np.log(a) - np.log(b))
    assert set(found.job) == {*by_factor[:20].tolist(), *by_factor[-20:].tolist()}
    factors = np.abs(np.log(np.array(found.a_s) / np.array(found.b_s)))
    assert np.all(np.diff(factors) < 1e-4)
    assert (found.a_lower, found.b_lower) == (int((a < b).sum()), int((b < a).sum()))
    counts = np.zeros((CELLS + 1, CELLS + 1), dtype=int)
    np.add.at(counts, (grid.cells(grid.bin_of(a)), grid.cells(grid.bin_of(b))), 1)
    assert unpacked(found.cells) == {place: n for place, n in enumerate(counts.ravel().tolist()) if n}


@pytest.mark.parametrize(
    ("question", "query", "place"),
    [
        ("etc/passwd", {}, "/etc/passwd"),
        ("jobs", {"labels": "0", "from": "1,2", "to": "3", "first": "0", "count": "1"}, "from"),
        ("jobs", {"labels": "9", "from": "1", "to": "3", "first": "0", "count": "1"}, "labels"),
        ("jobs", {"labels": "0", "from": "1", "to": "x", "first": "0", "count": "1"}, "to"),
        ("jobs", {"labels": "0", "from": "1", "to": "3", "class": "red", "first": "0", "count": "1"}, "class"),
        ("jobs", {"labels": "0", "from": "1", "to": "3", "first": "-1", "count": "1"}, "first"),
        ("pair", {"a": "0", "b": "3"}, "labels"),
        ("why", {"run": "0", "question": "1"}, "run"),
    ],
)
def test_wrong_questions_are_refused(whole: ExploredContent, question: str, query: dict[str, str], place: str) -> None:
    with pytest.raises(InputError) as refused:
        Answers(whole.content.grid, whole.ranked, 0, lambda _, __: []).answer(question, query)
    assert refused.value.place == place


def test_a_served_page_asks_for_what_it_does_not_hold(results: StoredResults) -> None:
    found = explored(results, serves=True).content
    assert [(one.a, one.b) for one in found.pairs] == [(0, 1), (0, 2)]
    page = render(results, found)
    assert "connect-src &#x27;self&#x27;" in page
    assert msgspec.json.decode(msgspec.json.encode(found), type=Content).labels == list(LABELS)
