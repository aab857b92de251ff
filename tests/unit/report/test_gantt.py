"""Gantt charts and heat maps: a bar per task run where it ran, the same bytes again, and well-formed SVG."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest
from tests.comparison import compare

from volery.integrity import sealed, unsealed
from volery.report.folder import Timeline, read_results, read_timeline
from volery.report.gantt import LEFT, RIGHT, WIDTH, gantt, heat_map, picture
from volery.study import load_results, write_results_report

SVG = "{http://www.w3.org/2000/svg}"


def small(**columns: list[int]) -> Timeline:
    """Three task runs of two jobs on two machines, 0 to 100 s; the middle one was killed."""
    given = {
        "task": [0, 1, 2],
        "job": [0, 0, 1],
        "machine": [0, 1, 0],
        "lane": [0, 0, 1],
        "lanes": [2, 1, 2],
        "start_us": [0, 25_000_000, 50_000_000],
        "finish_us": [50_000_000, 75_000_000, 100_000_000],
        "attempt": [0, 1, 0],
        "killed": [False, True, False],
        "share": [0.5, 1.0, 0.5],
    } | columns
    curve = np.arange(0.0, 100.0, 10.0), np.linspace(0.1, 1.0, 10)
    arrays = {name: np.array(column) for name, column in given.items()}
    return Timeline("megha & co", 3, 2, True, arrays, np.array([0.0, 40.0]), curve)


def bars(svg: str) -> list[ElementTree.Element]:
    group = next(g for g in ElementTree.fromstring(svg).iter(f"{SVG}g") if g.get("class") == "taskruns")
    return list(group.iter(f"{SVG}rect"))


def number(element: ElementTree.Element, name: str) -> float:
    return float(element.get(name) or "nan")


def test_a_bar_per_task_run_where_and_when_it_ran() -> None:
    found = bars(gantt(small()))
    per_s = (WIDTH - LEFT - RIGHT) / 100
    assert len(found) == 3
    by_task = {(bar.findtext(f"{SVG}title") or "").split(",")[1]: bar for bar in found}
    starts = {task: number(bar, "x") for task, bar in by_task.items()}
    assert starts == pytest.approx(
        {" task 0": LEFT, " task 1": LEFT + 25 * per_s, " task 2": LEFT + 50 * per_s}, abs=0.01
    )
    assert all(number(bar, "width") == pytest.approx(50 * per_s, abs=0.3) for bar in found)
    tops = {task: number(bar, "y") for task, bar in by_task.items()}
    assert tops[" task 0"] < tops[" task 2"] < tops[" task 1"], "lane 0 and 1 of machine 0, then machine 1"
    assert by_task[" task 1"].get("stroke-dasharray"), "a killed run is told apart without colour"
    assert [bar.get("fill") for bar in found].count("none") == 1


def test_waiting_is_drawn_before_the_job_starts() -> None:
    root = ElementTree.fromstring(gantt(small()))
    jobs = next(g for g in root.iter(f"{SVG}g") if g.get("class") == "jobs")
    per_s = (WIDTH - LEFT - RIGHT) / 100
    line = next(path for path in list(jobs)[1].iter(f"{SVG}path")).get("d") or ""
    begin, _, end = (float(value) for value in re.findall(r"[\d.]+", line))
    assert (begin, end) == pytest.approx((LEFT + 40 * per_s, LEFT + 50 * per_s), abs=0.01)


def test_what_it_shows_is_told_in_words_and_escaped() -> None:
    root = ElementTree.fromstring(gantt(small()))
    assert root.findtext(f"{SVG}title") == "megha & co, seed 3"
    assert "3 task runs of 2 jobs on 2 machines, 1 of them killed" in (root.findtext(f"{SVG}desc") or "")


@pytest.mark.parametrize("shift", [0, 10**12])
def test_extreme_runs_are_drawn(shift: int) -> None:
    moment = small(start_us=[shift] * 3, finish_us=[shift] * 3)
    assert len(bars(gantt(moment))) == 3
    ElementTree.fromstring(gantt(moment))


@pytest.mark.slow
def test_the_same_run_gives_the_same_bytes_from_its_folder(tmp_path: Path) -> None:
    setting: dict[str, Any] = {"trace": "poisson:load=0.9,workers=20,fanout=3,mean=2,jobs=20", "workers": 10}
    for name in ("a", "b"):
        compare("oracle", **setting, slots=2, folder=tmp_path / name)
    one, other = (read_timeline(tmp_path / name, read_results(tmp_path / name).timelines[0]) for name in ("a", "b"))
    assert picture(one) == picture(other)
    assert len(bars(picture(one))) == 60 == len(one.columns["task"])


def test_a_heat_map_fills_what_was_busy() -> None:
    cells = {
        "machine": [0, 0, 5, 5],
        "machines": [5] * 4,
        "begin_us": [0, 50_000_000] * 2,
        "end_us": [50_000_000, 100_000_000] * 2,
        "percent": [100, 100, 0, 31],
    }
    arrays = {name: np.array(column) for name, column in cells.items()}
    one = Timeline("megha", 0, 10, False, arrays, np.zeros(1), (np.array([0.0, 50.0]), np.array([0.5, 0.65])))
    root = ElementTree.fromstring(heat_map(one))
    paths = [path for path in root.iter(f"{SVG}path") if path.get("class") == "heat"]
    assert [path.get("fill-opacity") for path in paths] == ["0.4", "1"]
    assert all((path.get("d") or "").count("M") == 1 for path in paths), "equal neighbours are one stretch"
    assert picture(one) == heat_map(one)


@pytest.mark.slow
def test_reports_draw_first_seeds_and_old_folders_go_without(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    compare("oracle", "sparrow", trace="syn:4x5", workers=10, seeds=2, folder=folder)
    page = (folder / "report.html").read_text()
    assert page.count('class="taskruns"') == 2
    assert "2 more runs, in this folder: volery timeline ." in page
    for run in (folder / "runs").glob("*.npz"):
        with np.load(run) as kept:
            rest = {name: kept[name] for name in kept.files if not name.startswith("taskruns_")}
        np.savez_compressed(run, **rest)
        # An earlier version wrote no digest of the columns either.
        stored = run.with_suffix(".json")
        content = msgspec.json.decode(unsealed(stored.read_bytes(), stored)) | {"columns_sha256": ""}
        stored.write_bytes(sealed(msgspec.json.encode(content)))
    write_results_report(folder)
    assert "What ran where and when" not in (folder / "report.html").read_text()
    assert not (folder / "task_runs.parquet").exists()
    assert len(load_results(folder).runs) == 4
