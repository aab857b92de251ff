"""How commands end: messages without a traceback, JSON where asked for, and the status that says what happened."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Command, Ended

import volery

WORK = ("--trace", "syn:20x8", "--workers", "60")


def test_the_version_is_the_package_s(command: Command) -> None:
    assert command("--version") == Ended(0, f"volery {volery.__version__}\n", "")


def test_help_has_its_panels() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "volery.cli.main", "--help"], capture_output=True, text=True, check=True
    )
    for text in (
        "Comparisons",
        "Single runs",
        "Designs and workloads",
        "The federation",
        "Trust",
        "compare",
        "trace",
        "verify",
    ):
        assert text in shown.stdout


def test_start_up_imports_nothing_heavy() -> None:
    heavy = ("numpy", "pyarrow", "matplotlib", "volery.study")
    code = f"import sys, volery.cli.main; print([name for name in {heavy!r} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.slow
def test_compare_prints_a_table_with_a_verdict(command: Command) -> None:
    ended = command("compare", "megha", "megha:gms=2", *WORK, "--seeds", "2")
    assert (ended.status, ended.err) == (0, "")
    for text in ("megha", "median", "p99", "tasks/s", "95 %", "Nothing was kept; give -o DIR"):
        assert text in ended.out


def test_compare_prints_json(command: Command) -> None:
    ended = command("compare", "megha", "megha:gms=2", *WORK, "--cutoff", "0.5", "--json")
    assert (ended.status, ended.err) == (0, "")
    first = ended.json["runs"][0]
    wanted = (
        "architecture parameters seed jobs tasks unsatisfiable_tasks delay_s short long utilisation_mean counters "
        "digest wall_s cpu_s tasks_per_cpu_s peak_rss_mb"
    )
    assert set(wanted.split()) <= set(first)
    assert set(first["delay_s"]) >= {"mean", "p50", "p90", "p95", "p99", "max"}
    assert first["tasks"] == 160
    assert first["short"] is None
    assert first["long"]["jobs"] == 8
    assert {d["quantity"] for d in ended.json["differences"]} >= {"median delay", "mean utilisation"}


@pytest.mark.slow
def test_json_ranks_architectures_and_tells_their_work(command: Command) -> None:
    ended = command("compare", "megha", "sparrow", "hawk:cutoff_s=0.5", *WORK, "--seeds", "2", "--json")
    assert (ended.status, ended.err) == (0, "")
    ranked = {(one["jobs"], one["quantity"]) for one in ended.json["best"]}
    assert ranked == {
        ("all", "median delay"),
        ("all", "mean delay"),
        ("all", "p99 delay"),
        ("all", "messages per task"),
    }
    for one in ended.json["best"]:
        assert {one["label"], *one["level"], *one["next"]} <= {"megha", "sparrow", "hawk:cutoff_s=0.5"}
    megha, sparrow, _ = ended.json["work"]
    assert megha["probes_per_task"] is None
    assert sparrow["probes_per_task"] == 2.0
    assert sparrow["messages_per_task"] == ended.json["runs"][2]["messages_per_task"]


def written(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["meg"], "architecture: there is no 'meg'; did you mean 'megha'?"),
        (["megha:gsm=1"], "megha:gsm: there is no such parameter; did you mean 'gms'?"),
        (["megha:gms=few"], "megha:gms: 'few' does not fit"),
        (["megha:gms=50"], "more than 60 workers"),
        (["megha:gms"], "ARCH: 'gms' in 'megha:gms' is not parameter=value"),
        (["megha", "megha"], "ARCH: 'megha' stands here twice"),
        (["megha", "--workers", "0"], "--workers: expected int >= 1, not 0"),
        (["megha", "--slots", "0"], "--slots: expected int >= 1, not 0"),
        (["megha", "--seeds", "0"], "--seeds: expected a number of seeds >= 1, or auto, not 0"),
        (["megha", "--jobs", "0"], "--jobs: expected int >= 1, not 0"),
        (["megha", "--cutoff", "0"], "--cutoff: expected float > 0"),
        (["megha", "--constraints", "sharma"], "--constraints: there is no 'sharma'; did you mean 'sharma2011'?"),
        (["megha", "--durations", "whole"], "--durations: there is no 'whole'; did you mean 'whole-seconds'?"),
        (["megha", "--delay-us", "-1"], "--delay-us: expected int >= 0, not -1"),
        (["megha", "--link", "lm:node"], "--link: 'lm:node' is not FROM:TO=US"),
        (["megha", "--link", "lm:nodes=1"], "has the role 'nodes'; did you mean 'node'?"),
        (["megha", "--cost", "gm=1.5"], "--cost: 'gm=1.5' is not ROLE=US"),
        (["megha", "--trace", "sin:5x5"], "'sin' is not a kind of synthetic workload; did you mean 'syn'?"),
        (["megha", "--trace", "gone.tr"], "gone.tr: cannot be read: No such file"),
        (["megha", "--machines", "gone.csv"], "gone.csv: cannot be read: No such file"),
        (["megha", "-p", "0"], "processes: expected a number >= 1, not 0"),
    ],
)
def test_a_wrong_word_is_told_without_a_traceback(command: Command, words: list[str], message: str) -> None:
    ended = command("compare", *WORK, *words)
    assert ended.status == 2
    assert ended.out == ""
    assert ended.err.startswith("error: ")
    assert message in ended.err
    assert "Traceback" not in ended.err
    as_json = command("compare", *WORK, *words, "--json")
    assert as_json.status == 2
    error = as_json.json["error"]
    assert f"error: {error['place']}: {error['problem']}\n" == as_json.err == ended.err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("cut.tr.gz", gzip.compress(b"0 1 1 1\n" * 1000, mtime=0)[:-12], "cut.tr.gz"),
        ("letters.tr", b"0 1 1 1\n1 1 x 1\n", "letters.tr:2"),
        ("negative.tr", b"0 1 1 -1\n", "negative.tr:1"),
        ("count.tr", b"0 1 1 1\n0 3 1 1 1\n", "count.tr:2"),
        ("empty.tr", b"", "empty.tr"),
    ],
)
def test_a_wrong_trace_is_told_by_its_line(
    command: Command, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = written(tmp_path, name, content)
    ended = command("compare", "megha", "--workers", "60", "--trace", path)
    assert ended.status == 2
    assert message in ended.err
    assert "Traceback" not in ended.err


def test_a_missing_option_is_a_usage_error(command: Command) -> None:
    assert command("compare", "megha").status == 2
    assert command("nonsense").status == 2


@pytest.mark.slow
def test_a_results_folder_is_shown_reported_and_verified(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    ran = command("compare", "megha", "megha:gms=2", *WORK, "-o", folder, "--json")
    assert ran.status == 0
    assert ran.json["folder"] == str(folder)
    shown = command("show", folder, "--json")
    assert shown.json["runs"] == ran.json["runs"]
    assert shown.json["differences"] == ran.json["differences"]
    assert f"report:  {folder / 'report.html'}" in command("show", folder).out
    (folder / "report.html").unlink()
    assert command("report", folder) == Ended(0, f"{folder / 'report.html'}\n", "")
    assert (folder / "report.html").stat().st_size > 1000
    assert command("report", folder, "--json").json == {"report": str(folder / "report.html"), "pictures": []}
    drawn = command("report", folder, "--pictures", folder / "drawn", "--json").json["pictures"]
    assert str(folder / "drawn" / "delay-all.svg") in drawn
    assert all(Path(one).read_text(encoding="utf-8").startswith("<svg ") for one in drawn)
    verified = command("verify", folder)
    assert verified.status == 0
    assert "All 2 runs come out as recorded, and so does every number." in verified.out
    assert command("verify", folder, "--json").json["agrees"] is True


@pytest.mark.slow
def test_verify_shows_the_run_and_both_digests_where_they_differ(command: Command, tmp_path: Path) -> None:
    digest = command("compare", "megha", *WORK, "-o", tmp_path, "--json").json["runs"][0]["digest"]
    manifest = tmp_path / "manifest.json"
    manifest.write_text(manifest.read_text().replace(digest, "f" * 64))
    ended = command("verify", tmp_path)
    assert ended.status == 1
    for text in ("megha, seed 0", digest, "f" * 64, "DIFFERS", "1 of 1 runs differ."):
        assert text in ended.out
    as_json = command("verify", tmp_path, "--json")
    assert as_json.status == 1
    assert as_json.json["runs"][0]["found"] == digest


@pytest.mark.parametrize("words", [["show"], ["report"], ["verify"]])
def test_a_folder_without_results_is_refused(command: Command, tmp_path: Path, words: list[str]) -> None:
    ended = command(*words, tmp_path)
    assert ended.status == 2
    assert ended.err == f"error: {tmp_path}: is not a results folder: it has no manifest.json\n"


def test_a_folder_that_cannot_be_written_is_refused(command: Command, tmp_path: Path) -> None:
    place = written(tmp_path, "file", b"")
    ended = command("compare", "megha", *WORK, "-o", place)
    assert ended == Ended(2, "", f"error: {place}: is a file; give a folder for the results\n")


@pytest.mark.slow
def test_a_study_file_runs_and_is_not_run_again(command: Command, tmp_path: Path) -> None:
    study = written(
        tmp_path, "s.toml", b'[workload]\ntrace = "syn:20x8"\n[axes]\narchitectures = ["megha"]\nworkers = [40, 60]\n'
    )
    ended = command("run", study, "-o", tmp_path / "results")
    assert ended.status == 0
    assert "workers=40" in ended.out
    assert "2 of 2 runs were finished already." in command("run", study, "-o", tmp_path / "results").out
    study.write_text(study.read_text().replace("60", "0"))
    ended = command("run", study)
    assert ended == Ended(2, "", "error: s.toml: study.axes.workers[1]: expected int >= 1, not 0\n")


def test_architectures_are_listed_and_described(command: Command) -> None:
    listed = command("architectures", "--json").json
    assert {"megha", "central"} <= {entry["name"] for entry in listed}
    assert all(entry["summary"] and entry["source"] for entry in listed)
    assert "megha" in command("architectures").out
    described = command("architectures", "megha", "--json").json
    assert all(parameter["description"] for parameter in described["parameters"])
    assert "gms" in command("architectures", "megha").out
    assert command("architectures", "meg").status == 2


def test_the_demo_is_a_comparison_that_ends_well(command: Command, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("volery.cli.compare.SETTING", {"trace": "syn:20x8", "workers": 60, "constraints": "sharma2011"})
    ended = command("demo", "-o", tmp_path)
    assert ended.status == 0
    assert f"report:  {tmp_path / 'report.html'}" in ended.out


def test_why_answers_from_a_folder_in_words_and_as_json(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    assert command("compare", "megha", *WORK, "-o", folder, "--why", "--json").status == 0
    assert "refused" in command("why", "--in", folder).out
    assert "Task 2/" in command("why", "2", "--in", folder).out
    assert command("why", "2/1", "--in", folder, "--json").json["task"]["place"] == 1
    assert command("why", "99", "--in", folder).status == 2


@pytest.mark.slow
@pytest.mark.parametrize("work", ["syn:5x5", "short.tr"])
def test_a_run_does_not_pay_for_readers_of_tables(work: str, tmp_path: Path) -> None:
    """They would add 45 MB to what a run takes."""
    (tmp_path / "short.tr").write_text("0 1 2 2\n1 1 2 2\n")
    code = (
        "import sys; from volery.study import compare_spec, run_study; "
        f"run_study(compare_spec(['megha'], {{'trace': {work!r}, 'workers': 50}}, 1)); print('pyarrow' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert shown.stdout.strip() == "False"


@pytest.mark.slow
def test_tables_and_figures_are_exported_for_a_paper(command: Command, tmp_path: Path) -> None:
    folder, into = tmp_path / "results", tmp_path / "paper"
    command("compare", "oracle", "sparrow", "--trace", "syn:5x8", "--workers", 10, "--seeds", 2, "-o", folder)
    written = command("export", folder, "--csv", "--latex", "--pdf", "--into", into, "--json").json["files"]
    assert {Path(one).name for one in written} == {
        "runs.csv",
        "delay.csv",
        "differences.csv",
        "on_days_like_this.csv",
        "delay.tex",
        "differences.tex",
        "on_days_like_this.tex",
        "delay-all.pdf",
    }
    assert (into / "delay-all.pdf").read_bytes().startswith(b"%PDF-")
    assert "\\toprule" in (into / "delay.tex").read_text(encoding="utf-8")
    refused = command("export", folder)
    assert refused.status == 2
    assert "--csv, --latex, --pdf, --png or --svg" in refused.err
