"""Results in memory are those of the folder, of the command and of the study file, wherever they are made."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.cli.conftest import Command, command  # noqa: F401 - fixture of commands

import volery as vo
from volery.sim import Progress

WORK: dict[str, Any] = {"trace": "poisson:workers=20,fanout=3,mean=2,jobs=12", "workers": 20}
STUDY = """
[study]
name = "from a file"
[workload]
trace = "poisson:workers=20,fanout=3,mean=2,jobs=12"
[axes]
architectures = ["oracle", "sparrow:probe_ratio=3"]
seeds = 2
workers = [20]
load = [0.5, 0.9]
"""
AXES = {"load": [0.5, 0.9]}


@pytest.fixture(scope="module")
def results() -> vo.Comparison:
    return vo.compare("oracle", vo.architecture("sparrow", probe_ratio=3), **WORK, axes=AXES, seeds=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("results")
    vo.compare("oracle", "sparrow:probe_ratio=3", **WORK, axes=AXES, seeds=2, folder=place)
    return place


def test_a_study_file_and_the_command_have_the_same_digests(
    results: vo.Comparison,
    tmp_path: Path,
    command: Command,  # noqa: F811 - fixture of commands
) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    runs = command("run", tmp_path / "study.toml", "--json").json["runs"]
    assert {(run["label"], run["seed"]): run["digest"] for run in runs} == results.digests
    words = ("--trace", WORK["trace"], "--workers", 20, "--load", 0.9, "--seeds", 2, "--json")
    runs = command("compare", "oracle", "sparrow:probe_ratio=3", *map(str, words)).json["runs"]
    assert {(f"{run['label']} [load=0.9]", run["seed"]): run["digest"] for run in runs}.items() <= (
        results.digests.items()
    )
    run = vo.simulate("sparrow:probe_ratio=3", **WORK, load=0.9, seed=1)
    assert run.digest == results.digests["sparrow:probe_ratio=3 [load=0.9]", 1] == run.records.digest()


@pytest.mark.slow
def test_a_command_verifies_a_folder_of_python(folder: Path, command: Command) -> None:  # noqa: F811 - fixture of commands
    ended = command("verify", folder, "--json")
    assert ended.status == 0
    assert ended.json["agrees"]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["command"] == "volery.compare in Python"


def test_tables_of_a_folder_are_those_in_memory(results: vo.Comparison, folder: Path) -> None:
    loaded = vo.load(folder)
    assert loaded.digests == results.digests
    assert loaded.jobs.drop_columns(["run"]).equals(results.jobs.drop_columns(["run"]))
    assert loaded.jobs["run"].equals(results.jobs["run"])
    assert loaded.differences.equals(results.differences)
    assert loaded.tasks.equals(results.tasks)
    assert loaded.to_latex("mean-delay-all-over-load") == results.to_latex("mean-delay-all-over-load")
    assert loaded.plot("delay-all-load=0.5")._repr_svg_() == results.plot("delay-all-load=0.5")._repr_svg_()
    assert vo.load(folder, baseline="sparrow:probe_ratio=3").differences["a"][0].as_py() == "sparrow:probe_ratio=3"


def test_rows_are_those_of_runs(results: vo.Comparison) -> None:
    summary = results.summary.to_pylist()
    assert [(row["label"], row["seed"]) for row in summary] == list(results.digests)
    assert [row["load"] for row in summary] == [0.5] * 4 + [0.9] * 4
    assert results.jobs.num_rows == sum(row["jobs"] for row in summary) == 8 * 12
    assert results.tasks.num_rows == sum(row["tasks"] for row in summary)
    delays = results.jobs.group_by("label").aggregate([("delay_s", "mean")]).to_pylist()
    means = {row["label"]: row["delay_s_mean"] for row in delays}
    measured = [row["delay_s.mean"] for row in summary if row["label"] == "oracle [load=0.9]"]
    assert sum(measured) / 2 == pytest.approx(means["oracle [load=0.9]"])
    assert not [field.name for field in results.differences.schema if pa.types.is_null(field.type)]
    assert set(results.differences["verdict"].to_pylist()) > {"lower"}
    assert results.tasks["start_s"].null_count == 0


def test_an_axis_of_numbers_and_texts_is_a_column_of_texts(tmp_path: Path) -> None:
    axes = {"warmup": [0.0, "10%"]}
    results = vo.compare("oracle", trace="syn:5x10", workers=50, axes=axes, folder=tmp_path)
    assert set(results.jobs["warmup"].to_pylist()) == set(results.summary["warmup"].to_pylist()) == {"0.0", "10%"}


def test_what_is_shown_is_what_the_command_prints(results: vo.Comparison) -> None:
    html, text = results._repr_html_(), str(results)
    for part in ("oracle [load=0.5]", "sparrow:probe_ratio=3 [load=0.9]", "verdict"):
        assert part in text
        assert part in html
    assert html.startswith("<pre")
    assert repr(results) == "<volery comparison of oracle, sparrow:probe_ratio=3: 8 runs, 2 seeds>"


def test_a_simulation_has_the_tables_of_its_run() -> None:
    run = vo.simulate("oracle", trace=vo.trace("syn:5x4"), cluster=vo.cluster(10, slots=2))
    assert (run.jobs.num_rows, run.tasks.num_rows, run.summary.num_rows, run.differences.num_rows) == (4, 20, 1, 0)
    assert run.trace.job_count == 4
    assert run.cluster.slot_count == 20
    assert "oracle" in run.to_latex()
    assert run.plot().figure.axes
    assert run.digest[:16] in repr(run)
    assert set(run.tasks["attempt"].to_pylist()) == {0}


def test_traces_and_clusters_show_what_they_are(tmp_path: Path) -> None:
    table = pa.table({"job": ["a", "a", "b"], "submit_s": [1.0, 1.0, 3.5], "runtime_s": [2.0, 4.0, 1.0]})
    work = vo.trace(table, into=tmp_path / "own.parquet")
    assert vo.trace(tmp_path / "own.parquet").digest == work.digest == vo.trace(table).digest
    assert work.jobs.to_pydict() == {
        "job": [0, 1],
        "submit_s": [0.0, 2.5],
        "tasks": [2, 1],
        "longest_s": [4.0, 1.0],
        "work_s": [6.0, 1.0],
        "estimate_s": [3.0, 1.0],
    }
    assert work.tasks["duration_s"].to_pylist() == [2.0, 4.0, 1.0]
    assert "own" in work._repr_html_()
    machines = vo.cluster(4, capacity="cpu_milli=8000,memory_mb=512", racks=2)
    assert machines.machines["cpu_milli"].to_pylist() == [8000] * 4
    assert machines.machines["rack"].to_pylist() == [0, 0, 1, 1]
    assert "32,000" in str(machines)


OWN_TABLE = """
import sys
import pyarrow as pa
import volery as vo
table = pa.table({"submit_s": [0.0, 1.0], "runtime_s": [2.0, 4.0]})
results = vo.compare("oracle", "central", trace=table, workers=2, folder=sys.argv[1])
print(results.jobs["run"].to_pylist())
"""


def test_a_program_with_a_table_in_memory_continues_its_folder(tmp_path: Path) -> None:
    program = [sys.executable, "-c", OWN_TABLE, str(tmp_path / "results")]
    runs = {subprocess.run(program, capture_output=True, text=True, check=True).stdout for _ in range(2)}
    assert len(runs) == 1
    assert vo.load(tmp_path / "results").tasks.num_rows == 4, "the table is there when the program has ended"


def test_tables_are_values_of_an_axis_and_nothing_is_left_of_a_study_that_is_refused(tmp_path: Path) -> None:
    tables = [pa.table({"submit_s": [0.0] * count, "runtime_s": [2.0] * count}) for count in (1, 3)]
    with pytest.raises(vo.InputError, match="lower gms or lms"):
        vo.compare("megha:gms=9", axes={"trace": tables}, workers=2, folder=tmp_path / "results")
    assert not (tmp_path / "results" / "inputs").exists()

    axes = {"trace": [*tables, vo.trace("syn:2x2")]}
    results = vo.compare("oracle", axes=axes, workers=2, folder=tmp_path / "results")
    assert results.summary["tasks"].to_pylist() == [1, 3, 4]
    other: dict[str, Any] = {"trace": pa.table({"submit_s": [0.0], "runtime_s": [9.0]}), "workers": 2}
    with pytest.raises(vo.InputError, match="force=True"):
        vo.compare("oracle", **other, folder=tmp_path / "results")
    assert len(list((tmp_path / "results" / "inputs").iterdir())) == 2


def test_numbers_and_arrays_of_numpy_are_numbers_and_lists() -> None:
    numbers: dict[str, Any] = {"workers": np.int64(20), "slots": np.int8(2), "processes": np.int64(1)}
    axes: dict[str, Any] = {"load": np.array([0.5, 0.9]), "sparrow.probe_ratio": np.arange(2, 4)}
    counted = vo.compare("sparrow", **WORK | numbers, seeds=np.arange(2), axes=axes)  # type: ignore[arg-type]  # an array
    axes = {"load": [0.5, 0.9], "sparrow.probe_ratio": [2, 3]}
    assert counted.digests == vo.compare("sparrow", **WORK, seeds=2, slots=2, axes=axes).digests

    number: Any = np.int64(3)
    design = vo.architecture("sparrow", probe_ratio=number)
    run = vo.simulate(design, **WORK, load=np.float64(0.5), slots=2, seed=number - 2)
    assert run.digest in counted.digests.values()
    assert vo.trace("syn:5x4", jobs=number, seed=number).jobs.num_rows == 3
    assert vo.cluster(number, slots=number).machines["slots"].to_pylist() == [3, 3, 3]
    assert vo.architecture("pipeline", tags=True).label == "pipeline:tags=true"


def test_pandas_and_other_programs_read_and_give_tables(results: vo.Comparison) -> None:
    frame = results.jobs.to_pandas()
    assert vo.trace(frame.rename(columns={"jrt_s": "runtime_s"})[["submit_s", "runtime_s"]]).jobs.num_rows == len(frame)
    assert pa.RecordBatchReader.from_stream(results.summary).read_all().equals(results.summary)


@pytest.mark.parametrize("library", ["polars", "duckdb"])
def test_other_libraries_read_the_tables(library: str, results: vo.Comparison) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed: it is no requirement of the tests, since it takes 60 MB and more")
    other: Any = importlib.import_module(library)
    for table in (results.jobs, results.tasks, results.summary, results.differences):
        count = len(other.from_arrow(table)) if library == "polars" else len(other.arrow(table).fetchall())
        assert count == table.num_rows
    source = (
        other.from_arrow(pa.table({"submit_s": [1.0], "runtime_s": [2.0]}))
        if library == "polars"
        else (other.sql("select 1.0 as submit_s, 2.0 as runtime_s"))
    )
    assert vo.trace(source).jobs["work_s"].to_pylist() == [2.0]


def test_calls_from_threads_do_not_mix(cell: Cell) -> None:
    """Four threads at once, with different traces and two designs of one name."""
    interval = sys.getswitchinterval()
    digests: dict[tuple[int, int], str] = {}
    own = [cell(CELL), cell(OTHER_CELL)]

    def work(number: int) -> None:
        for turn in range(2):
            run = vo.simulate(
                own[number % 2],
                trace=f"poisson:workers=9,fanout=3,mean=2,jobs={9 + number}",
                workers=9,
                seed=turn,
                progress=False,
            )
            digests[number, turn] = run.digest

    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)

    together = dict(digests)
    for number in range(4):
        work(number)
    assert together == digests
    assert len(set(digests.values())) == 8


def test_a_call_in_a_running_loop_works() -> None:
    async def cell_of_notebook() -> tuple[str, str]:
        here = vo.simulate("oracle", **WORK).digest
        return here, (await asyncio.to_thread(vo.simulate, "oracle", **WORK)).digest

    here, apart = asyncio.run(cell_of_notebook())
    assert here == apart == vo.simulate("oracle", **WORK).digest


LOTTERY = (Path(__file__).parents[3] / "examples" / "lottery" / "lottery.py").read_text(encoding="utf-8")
CELL = LOTTERY.replace('"lottery"', '"raffle"')
"""The example of the tutorial, as a cell of a notebook would define it."""
OTHER_CELL = CELL.replace('fewest tasks wins")] = 1', 'fewest tasks wins")] = 2')
Cell = Callable[[str], Any]


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    """Runs a cell of a notebook, and gives the design that it defines."""

    def run(text: str) -> Any:
        main: Any = ModuleType("__main__")
        monkeypatch.setitem(sys.modules, "__main__", main)
        exec(compile(text, "<cell>", "exec"), main.__dict__)
        return main.LOTTERY

    return run


def test_a_design_of_a_cell_runs_here_and_in_processes(cell: Cell) -> None:
    here = vo.compare(cell(CELL), "oracle", **WORK)
    apart = vo.compare(cell(CELL), "oracle", **WORK, processes=2)
    assert here.digests == apart.digests
    assert here.tasks.equals(apart.tasks)


@pytest.mark.slow
def test_a_folder_repeats_a_definition_that_has_changed_and_is_shown_without_it(
    cell: Cell,
    tmp_path: Path,
    command: Command,  # noqa: F811 - fixture of commands
) -> None:
    first = vo.compare(cell(CELL), "oracle", **WORK, folder=tmp_path)
    keys = set(first.jobs["run"].to_pylist())
    assert set(vo.compare(cell(CELL), "oracle", **WORK, folder=tmp_path).jobs["run"].to_pylist()) == keys
    other = vo.compare(cell(OTHER_CELL), "oracle", **WORK, folder=tmp_path)
    assert len(set(other.jobs["run"].to_pylist()) & keys) == 1

    assert vo.load(tmp_path).digests == other.digests
    assert "raffle" in command("show", tmp_path).out
    assert command("export", tmp_path, "--latex", "--into", tmp_path / "export").status == 0
    assert command("report", tmp_path).status == 0
    ended = command("verify", tmp_path)
    assert (ended.status, "there is no 'raffle'" in ended.err) == (2, True)
    with pytest.raises(vo.InputError, match="there is no 'raffle'"):
        vo.load(tmp_path).tasks  # noqa: B018 - it simulates again


def test_a_folder_of_rigid_jobs_is_loaded_where_its_design_is_unknown(cell: Cell, tmp_path: Path) -> None:
    row = "{0} 0 -1 10 2 -1 -1 2 10 -1 1 1 1 1 1 -1 -1 -1\n"
    (tmp_path / "log.swf").write_text(row.format(1) + row.format(2))
    work: dict[str, Any] = {"trace": tmp_path / "log.swf", "workers": 4, "capacity": "cpu_milli=4000"}
    work["slot_request"] = "cpu_milli=2000"
    made = vo.compare(cell(CELL), "oracle", **work, folder=tmp_path / "results")
    loaded = vo.load(tmp_path / "results")
    assert loaded.digests == made.digests
    assert loaded.jobs.equals(made.jobs)


def test_two_designs_of_one_name_are_refused(cell: Cell) -> None:
    first, second = cell(CELL), cell(CELL)
    with pytest.raises(vo.InputError, match=r"designs\[1\]: defines 'raffle' otherwise"):
        vo.compare(first, second, **WORK)
    assert len(vo.compare(first, vo.architecture(first, tickets=2), **WORK).digests) == 2


def test_ctrl_c_leaves_the_call_and_finished_runs_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from volery.lab.progress import LiveProgress

    ended = LiveProgress.ended

    def interrupted(self: LiveProgress, *arguments: Any) -> None:
        ended(self, *arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LiveProgress, "ended", interrupted)
        with pytest.raises(KeyboardInterrupt):
            vo.compare("oracle", "central", **WORK, folder=tmp_path)
    assert vo.compare("oracle", "central", **WORK, folder=tmp_path).summary.num_rows == 2


class Below:
    """The place below a cell of a notebook."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def update(self, html: str) -> None:
        self.shown.append(html)


@pytest.fixture
def below(monkeypatch: pytest.MonkeyPatch) -> Below:
    """What a kernel of a notebook has imported."""
    place = Below()
    ipython: Any = ModuleType("IPython")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())
    display: Any = ModuleType("IPython.display")
    display.HTML = str
    display.display = lambda html, display_id: place
    ipython.display = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return place


def test_a_notebook_sees_progress_below_the_cell_and_nothing_in_the_end(below: Below) -> None:
    vo.compare("oracle", **WORK)
    assert any("all runs" in html for html in below.shown)
    assert below.shown[-1] == ""


def test_progress_is_off_where_nobody_looks(
    below: Below, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert vo.compare("oracle", **WORK, progress=False).tasks.num_rows
    assert "".join(below.shown) == ""
    monkeypatch.delitem(sys.modules, "IPython")
    vo.compare("oracle", **WORK)
    assert capfd.readouterr() == ("", "")


def test_a_run_that_moves_is_drawn(below: Below, monkeypatch: pytest.MonkeyPatch) -> None:
    from volery.lab import progress
    from volery.study import TraceFacts, compare_spec
    from volery.study.plan import plan

    monkeypatch.setattr(progress, "REDRAWS_PER_S", 1e9)
    (run,) = plan(compare_spec(("oracle",), WORK, 1))
    with progress.LiveProgress(silent=False) as watcher:
        watcher.expected(1)
        watcher.started(run)
        watcher.sized(run, TraceFacts("t", "", 6, 30))
        watcher.moved(run, Progress(0, 3, 15))
    assert "3/6 jobs" in below.shown[-2]
