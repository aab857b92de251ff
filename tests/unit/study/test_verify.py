"""`volery verify` recomputes every number of every file of a results folder, and names the first that was changed."""

from __future__ import annotations

import io
import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.comparison import compare

from volery.core.errors import InputError
from volery.study import ResultsFolder, load_results, verify, write_results_report

SETTING: dict[str, Any] = {"trace": "syn:20x8", "workers": 60, "constraints": "sharma2011", "cutoff_s": 1.0}
PAIR = ("oracle", "megha:why=true")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("verify") / "results"
    compare(*PAIR, **SETTING, folder=path)
    return path


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "results"))


@pytest.mark.slow
def test_a_folder_that_nobody_touched_agrees_in_every_number(folder: Path) -> None:
    verification = verify(folder)
    assert verification.differences == ()
    assert verification.agrees


def edit_json(path: Path, change: Callable[[Any], None]) -> None:
    content = msgspec.json.decode(path.read_bytes())
    change(content)
    path.write_bytes(msgspec.json.encode(content))


def edit_table(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    parquet.write_table(change(parquet.read_table(path)), path)


def stored(folder: Path, suffix: str) -> Path:
    key = next(run.key for run in manifest_runs(folder) if run.label == PAIR[1])
    return folder / "runs" / f"{key}{suffix}"


def manifest_runs(folder: Path) -> Any:
    return ResultsFolder(folder).manifest().runs


def halved(table: pa.Table) -> pa.Table:
    place = table.column_names.index("delay_s")
    return table.set_column(place, "delay_s", pa.array(np.asarray(table["delay_s"]) / 2))


def median_of_a_run(folder: Path) -> None:
    edit_json(stored(folder, ".json"), lambda run: run["summary"]["delay_s"].update(p50=1e-4))


def columns_of_a_run(folder: Path) -> None:
    path = stored(folder, ".npz")
    with np.load(path) as archive:
        columns = dict(archive)
    columns["jobs_delay_s"][3] += 1.0
    kept = io.BytesIO()
    np.savez_compressed(kept, **columns)
    path.write_bytes(kept.getvalue())


def word_of_the_page(folder: Path) -> None:
    path = folder / "report.html"
    text = path.read_text(encoding="utf-8")
    place = text.index("<td", text.index("<h2>Delay</h2>"))
    number = re.compile(r"(?<=>)[1-9][\d.]* (?=m?s)").search(text, place)
    assert number is not None
    path.write_text(text[: number.start()] + "1234 " + text[number.end() :], encoding="utf-8")


def start_of_a_run(folder: Path) -> None:
    """One microsecond more: whole numbers have no tolerance."""

    def later(table: pa.Table) -> pa.Table:
        place = table.column_names.index("start_us")
        return table.set_column(place, "start_us", pa.array(np.asarray(table["start_us"]) + 1))

    edit_table(folder / "task_runs.parquet", later)


def inputs_of_the_manifest(folder: Path) -> None:
    def other(manifest: Any) -> None:
        manifest["runs"][0]["trace_sha256"] = "0"
        manifest["planned"] = 9

    edit_json(folder / "manifest.json", other)


def nulls_of_a_column(folder: Path) -> None:
    def filled(table: pa.Table) -> pa.Table:
        place = table.column_names.index("refused_tasks")
        return table.set_column(place, "refused_tasks", table["refused_tasks"].fill_null(float("nan")))

    edit_table(folder / "utilisation.parquet", filled)


def delays_that_are_no_more(folder: Path) -> None:
    def emptied(table: pa.Table) -> pa.Table:
        place = table.column_names.index("delay_s")
        return table.set_column(place, "delay_s", pa.nulls(table.num_rows, pa.float64()))

    edit_table(folder / JOBS, emptied)


Changes = dict[str, tuple[Callable[[Path], object], str]]
RUN = r"(megha:why=true, seed 0)".replace("(", r"\(").replace(")", r"\)")
SUMMARY, JOBS = "summary.json", "jobs.parquet"
TOGETHER: tuple[Changes, ...] = (
    {
        "a median of a run": (median_of_a_run, rf"^runs/\w+\.json {RUN}: summary\.delay_s\.p50 is 0\.0001"),
        "a column of a run": (columns_of_a_run, rf"^runs/\w+\.npz {RUN}: jobs_delay_s\[3\] is 8\.00"),
        "halved delays": (lambda at: edit_table(at / JOBS, halved), r"^jobs\.parquet: delay_s\[\d+\] is"),
        "a missing table": (lambda at: (at / "utilisation.parquet").unlink(), r"^utilisation\.parquet is missing"),
        "a summary": (
            lambda at: edit_json(at / SUMMARY, lambda found: found["runs"][0].update(messages=7)),
            r"^summary\.json: runs\[0\]\.messages is 7",
        ),
        "the trace of the manifest": (
            lambda at: edit_json(at / "manifest.json", lambda found: found["trace"].update(jobs=9)),
            r"^manifest\.json: trace\.jobs is 9, and comes out as 8",
        ),
        "a word of the page": (word_of_the_page, r"^report\.html: '1234' stands where"),
    },
    {
        "a run that is no archive": (lambda at: stored(at, ".npz").write_bytes(b"PK"), rf"\.npz {RUN}: is damaged"),
        "rows left out": (
            lambda at: edit_table(at / JOBS, lambda table: table[1:]),
            r"^jobs\.parquet: has 15 rows, and comes out with 16",
        ),
        "a verdict": (
            lambda at: edit_json(at / SUMMARY, lambda found: found["differences"][0]["difference"].update(low=1.0)),
            r"^summary\.json: differences\[0\]\.difference\.low is 1\.0",
        ),
        "task runs": (lambda at: (at / "task_runs.parquet").unlink(), r"^task_runs\.parquet is missing"),
        "the page": (lambda at: (at / "report.html").unlink(), r"^report\.html is missing"),
    },
    {
        "a truncated table": (
            lambda at: (at / JOBS).write_bytes((at / JOBS).read_bytes()[:200]),
            r"^jobs\.parquet: is damaged",
        ),
        "a processor time": (
            lambda at: edit_json(at / SUMMARY, lambda found: found["runs"][0].update(cpu_s=1e-9)),
            r"^summary\.json: runs\[0\]\.cpu_s is 1e-09",
        ),
        "a table of nothing": (
            lambda at: shutil.copy(at / JOBS, at / "heat.parquet"),
            r"^heat\.parquet does not come out",
        ),
        "the input of a run, and the number of runs": (
            inputs_of_the_manifest,
            r"^manifest\.json: .* \(and 2 more\)",
        ),
        "a start": (start_of_a_run, r"^task_runs\.parquet: start_us\[0\] is \d+, and comes out as \d+"),
        "nulls": (nulls_of_a_column, r"^utilisation\.parquet: refused_tasks\[\d+\] is nan, and comes out as null"),
        "a row that is hidden": (
            lambda at: (at / "report.html").write_text(
                (at / "report.html").read_text(encoding="utf-8").replace("<td", '<td style="display:none"', 1),
                encoding="utf-8",
            ),
            r"^report\.html: 'style=display:none' stands where",
        ),
    },
)
"""Changes of different files: each alone is named."""


@pytest.mark.slow
def test_a_null_is_named_so(copy: Path) -> None:
    delays_that_are_no_more(copy)
    edit_json(copy / SUMMARY, lambda found: found["runs"][0]["delay_s"].update(p50=None))
    first, second = verify(copy).differences
    assert re.match(r"jobs\.parquet: delay_s\[0\] is null, and comes out as [\d.]+", first)
    assert re.match(r"summary\.json: runs\[0\]\.delay_s\.p50 is null, and comes out as [\d.]+", second)


@pytest.mark.slow
@pytest.mark.parametrize("changes", TOGETHER, ids=[", ".join(changes) for changes in TOGETHER])
def test_a_number_that_was_changed_is_named(copy: Path, changes: Changes) -> None:
    for change, _ in changes.values():
        change(copy)
    verification = verify(copy)
    assert all(run.agrees for run in verification.runs)
    assert not verification.agrees
    assert len(verification.differences) == len(changes)
    for name, (_, expected) in changes.items():
        assert any(re.search(expected, found) for found in verification.differences), (name, verification.differences)


def test_a_trace_that_has_moved_is_found_by_its_digest(tmp_path: Path) -> None:
    trace, other = tmp_path / "there" / "work.tr", tmp_path / "over here" / "e d.tr"
    trace.parent.mkdir()
    other.parent.mkdir()
    trace.write_text("0 2 1 1 1\n1 1 2 2\n")
    folder = tmp_path / "results"
    compare("oracle", "sparrow", trace=trace, workers=4, constraints="sharma2011", folder=folder)
    trace.rename(other)
    (other.parent / "decoy.tr").write_text("0 1 1 1\n")
    with pytest.raises(
        InputError, match=r"work\.tr: the input is not there; give the file, or a folder .* with --trace"
    ):
        verify(folder)
    with pytest.raises(InputError, match="none of the files given with --trace has its digest"):
        verify(folder, traces=[other.parent / "decoy.tr"])
    folder = folder.rename(tmp_path / "unpacked elsewhere")
    for place in (other, other.parent):
        found = verify(folder, traces=[place])
        assert found.differences == ()
        assert found.agrees
    with pytest.raises(InputError, match=r"decoy\.tr' has the digest of no input of this study"):
        verify(folder, traces=[other, other.parent / "decoy.tr"])
    edit_json(folder / "manifest.json", lambda manifest: manifest["inputs"].update({str(trace): "0"}))
    other.rename(trace)
    (difference,) = verify(folder).differences
    assert difference.startswith("manifest.json: inputs.")


def test_a_baseline_that_the_study_does_not_have_is_refused(copy: Path) -> None:
    edit_json(copy / "manifest.json", lambda manifest: manifest["config"].update(baseline="sparow"))
    with pytest.raises(InputError, match=r"manifest\.config\.baseline: no architecture 'sparow' here"):
        verify(copy)


def test_a_key_that_is_a_path_is_refused(copy: Path) -> None:
    """Keys name files, and a folder may come from a stranger."""
    edit_json(copy / "manifest.json", lambda manifest: manifest["runs"][0].update(key="../../../outside"))
    with pytest.raises(InputError, match=r"manifest\.json: is damaged .*runs\[0\]\.key"):
        verify(copy)


def test_a_study_that_was_stopped_verifies_what_is_finished(tmp_path: Path) -> None:
    class Impatient:
        runs = 0

        def started(self, run: Any) -> None:
            self.runs += 1
            if self.runs == 2:
                raise KeyboardInterrupt

        def expected(self, run_count: int) -> None: ...
        def sized(self, run: Any, facts: Any) -> None: ...
        def moved(self, run: Any, progress: Any) -> None: ...
        def ended(self, run: Any, outcome: Any) -> None: ...

    assert compare(*PAIR, **SETTING, folder=tmp_path, watcher=Impatient()).interrupted
    verification = verify(tmp_path)
    assert (len(verification.runs), verification.planned, verification.differences) == (1, 2, ())


@pytest.mark.slow
def test_a_damaged_run_is_run_again_and_the_report_says_which_file(copy: Path) -> None:
    """A damaged .npz heals as a damaged .json does."""
    path = stored(copy, ".npz")
    whole = path.read_bytes()
    path.write_bytes(whole[:300])
    with pytest.raises(InputError, match=r"the run 'megha:why=true' with seed 0 is missing or damaged; run the study"):
        write_results_report(copy)
    with pytest.raises(InputError, match="is missing or damaged"):
        load_results(copy)
    results = compare(*PAIR, **SETTING, folder=copy)
    assert results.reused == 1
    assert verify(copy).agrees
    flipped = bytearray(path.read_bytes())
    middle = len(flipped) // 2
    flipped[middle : middle + 300] = bytes(byte ^ 0xFF for byte in flipped[middle : middle + 300])
    path.write_bytes(bytes(flipped))
    assert compare(*PAIR, **SETTING, folder=copy).reused == 1


def test_a_run_whose_archive_has_one_bit_flipped_is_read_or_refused_by_name(tmp_path: Path) -> None:
    """A flipped flag claims encryption, or a compression that nobody knows."""
    (tmp_path / "runs").mkdir()
    path, folder = tmp_path / "runs" / "run.npz", ResultsFolder(tmp_path)
    np.savez_compressed(path, jobs_x=np.arange(50))
    whole, refused = path.read_bytes(), 0
    for at, bit in itertools.product(range(whole.index(b"PK\1\2"), len(whole)), (0, 3, 5)):  # the directory
        flipped = bytearray(whole)
        flipped[at] ^= 1 << bit
        path.write_bytes(flipped)
        for read in (folder.columns, folder.mapped, folder.has):
            try:
                read("run", "jobs")
            except InputError as error:
                refused += str(path) in str(error)
    assert refused


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("setpriv") is None or os.geteuid() != 0, reason="needs root and setpriv")
def test_a_read_only_folder_gives_its_pictures_and_a_clear_error(copy: Path, tmp_path: Path) -> None:
    """An author who may only read a colleague's folder draws its pictures elsewhere."""
    for path in (copy, *copy.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    power = "-dac_override,-dac_read_search"

    def volery(*words: object) -> subprocess.CompletedProcess[str]:
        command = ["setpriv", f"--bounding-set={power}", f"--inh-caps={power}", sys.executable, "-m", "volery.cli.main"]
        return subprocess.run([*command, *map(str, words)], capture_output=True, text=True, check=False)

    refused = volery("report", copy)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == f"error: {copy / 'manifest.json'}: cannot be written: Permission denied\n"
    drawn = volery("report", copy, "--pictures", tmp_path / "pictures")
    assert drawn.returncode == 0
    assert "is read-only: report.html stays as it is" in drawn.stderr
    assert (tmp_path / "pictures" / "delay-all.svg").exists()
