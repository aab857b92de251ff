"""A study is run once, goes on where it stopped, and gives the same digests however it is run."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from pyarrow import parquet
from tests.comparison import compare

from volery.core.errors import InputError
from volery.metrics import conflicts_per_second
from volery.report.schema import CONSTRAINT_LOAD, MANIFEST, REPORT
from volery.sim import Progress
from volery.study import (
    ArchitectureChoice,
    PlannedRun,
    ResultsFolder,
    RunOutcome,
    StudySpec,
    TraceFacts,
    compare_spec,
    load_results,
    run_study,
    verify,
    write_results_report,
)
from volery.study.plan import plan
from volery.study.runs import read_inputs

SETTING: dict[str, Any] = {"trace": "syn:20x8", "workers": 60, "constraints": "sharma2011"}
PAIR = ("megha", "megha:gms=2")


class Diary:
    """Writes down what is run; may interrupt before a run starts."""

    def __init__(self, interrupt_at: int | None = None) -> None:
        self.expected_count = -1
        self.begun: list[str] = []
        self.sizes: list[int] = []
        self.finished: list[str] = []
        self._interrupt_at = interrupt_at

    def expected(self, run_count: int) -> None:
        self.expected_count = run_count

    def started(self, run: PlannedRun) -> None:
        if len(self.begun) == self._interrupt_at:
            raise KeyboardInterrupt
        self.begun.append(run.key)

    def sized(self, run: PlannedRun, facts: TraceFacts) -> None:
        self.sizes.append(facts.jobs)

    def moved(self, run: PlannedRun, progress: Progress) -> None:
        assert 0 <= progress.jobs_done <= self.sizes[-1]

    def ended(self, run: PlannedRun, outcome: RunOutcome) -> None:
        self.finished.append(run.key)


def digests(folder: Path) -> dict[tuple[str, int], str]:
    return {(run.label, run.seed): run.digest for run in ResultsFolder(folder).manifest().runs}


@pytest.mark.slow
def test_runs_of_one_seed_share_their_input_and_seeds_do_not() -> None:
    results = compare(*PAIR, **SETTING, seeds=2)
    assert [(run.label, run.seed) for run in results.runs] == [
        ("megha", 0),
        ("megha", 1),
        ("megha:gms=2", 0),
        ("megha:gms=2", 1),
    ]
    assert len(results.traces) == 2
    assert {(d.a, d.b) for d in results.differences} == {("megha", "megha:gms=2")}
    assert len({run.digest for run in results.runs}) == 4


def test_labels_that_mean_the_same_run_are_run_once() -> None:
    diary = Diary()
    results = compare("megha", "megha:gms=5", **SETTING, watcher=diary)
    assert diary.expected_count == 1
    assert [run.label for run in results.runs] == ["megha", "megha:gms=5"]
    assert results.runs[0].digest == results.runs[1].digest


@pytest.mark.slow
def test_a_process_of_its_own_gives_the_same_digest_and_its_own_peak() -> None:
    here = compare(*PAIR, **SETTING)
    diary = Diary()
    apart = compare(*PAIR, **SETTING, processes=2, watcher=diary)
    assert [run.digest for run in apart.runs] == [run.digest for run in here.runs]
    assert [run.delay_s for run in apart.runs] == [run.delay_s for run in here.runs]
    assert sorted(diary.begun) == sorted(diary.finished)
    assert all(1 < run.peak_rss_mb < 1000 for run in apart.runs)


def test_an_error_in_a_process_of_its_own_comes_back_as_it_is(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.tr"
    wrong.write_text("0 1 1 one\n")
    with pytest.raises(InputError, match=r"wrong\.tr:1"):
        compare("megha", trace=wrong, workers=60, processes=2)


@pytest.mark.slow
def test_a_finished_study_is_not_run_again(tmp_path: Path) -> None:
    study = compare_spec(PAIR, SETTING, 2)
    first = run_study(study, folder=tmp_path)
    diary = Diary()
    second = run_study(study, folder=tmp_path, watcher=diary)
    assert diary.begun == []
    assert second.reused == 4
    assert msgspec.json.encode(second.runs) == msgspec.json.encode(first.runs)


def test_a_study_that_was_interrupted_keeps_what_is_finished_and_goes_on(tmp_path: Path) -> None:
    study = compare_spec(PAIR, SETTING, 2)
    stopped = run_study(study, folder=tmp_path, watcher=Diary(interrupt_at=3))
    assert stopped.interrupted
    assert len(stopped.runs) == 3
    assert len(load_results(tmp_path).runs) == 3
    assert write_results_report(tmp_path).exists()

    diary = Diary()
    whole = run_study(study, folder=tmp_path, watcher=diary)
    assert len(diary.begun) == 1
    assert not whole.interrupted
    straight = run_study(study, folder=tmp_path / "straight")
    assert [run.digest for run in whole.runs] == [run.digest for run in straight.runs]
    assert digests(tmp_path) == digests(tmp_path / "straight")


@pytest.mark.slow
def test_a_half_written_run_is_run_again(tmp_path: Path) -> None:
    study = compare_spec(PAIR, SETTING, 1)
    before = run_study(study, folder=tmp_path)
    keys = [run.key for run in ResultsFolder(tmp_path).manifest().runs]
    (tmp_path / "runs" / f"{keys[0]}.json").write_text('{"key": "')
    (tmp_path / "runs" / f"{keys[1]}.npz").unlink()
    diary = Diary()
    after = run_study(study, folder=tmp_path, watcher=diary)
    assert sorted(diary.begun) == sorted(keys)
    assert [run.digest for run in after.runs] == [run.digest for run in before.runs]


@pytest.mark.slow
def test_a_folder_holds_every_table(tmp_path: Path) -> None:
    results = compare(*PAIR, **SETTING, seeds=2, cutoff_s=1.0, folder=tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "manifest.json",
        "summary.json",
        "jobs.parquet",
        "utilisation.parquet",
        "constraint_load.parquet",
        "conflicts.parquet",
        "task_runs.parquet",
        "flows.json",
        "report.html",
        "runs",
        ".lock",
        "SHA256SUMS",
    }
    jobs = parquet.read_table(tmp_path / "jobs.parquet")
    assert jobs.column_names == [
        "run",
        "architecture",
        "label",
        "seed",
        "trace",
        "workers",
        "job",
        "submit_s",
        "tasks",
        "unsatisfiable",
        "ideal_s",
        "jrt_s",
        "delay_s",
        "is_short",
        "counted",
        "wait_s",
    ]
    assert jobs.num_rows == 4 * 8
    first = jobs.filter((np.array(jobs["label"]) == "megha") & (np.array(jobs["seed"]) == 0))
    measured = np.array(first["delay_s"])[np.array(first["jrt_s"]) >= 0]
    assert float(np.percentile(measured, 50)) == pytest.approx(results.runs[0].delay_s.p50)
    curve = parquet.read_table(tmp_path / "utilisation.parquet")
    assert curve.column_names == [
        "run",
        "architecture",
        "label",
        "seed",
        "trace",
        "workers",
        "time_s",
        "utilisation",
        "waiting_tasks",
        "refused_tasks",
    ]
    assert 0 < max(curve["utilisation"].to_pylist()) <= 1
    load = parquet.read_table(tmp_path / "constraint_load.parquet")
    assert set(load["seed"].to_pylist()) == {0, 1}
    conflicts = parquet.read_table(tmp_path / "conflicts.parquet")
    inputs = read_inputs(next(run.spec for run in plan(results.study) if run.spec.seed == 1))
    expected = conflicts_per_second(inputs.trace, inputs.cluster)
    kept = conflicts.filter(np.array(conflicts["seed"]) == 1)
    assert kept["collisions"].to_pylist() == pytest.approx(expected.collisions.tolist()), "an interval is a second here"
    assert kept["waiting_max"].to_pylist() == expected.waiting.tolist()
    assert kept["collisions_p99"][0].as_py() == pytest.approx(np.percentile(expected.collisions, 99))
    summary = msgspec.json.decode((tmp_path / "summary.json").read_bytes())
    assert [run["digest"] for run in summary["runs"]] == [run.digest for run in results.runs]
    assert len(summary["differences"]) == len(results.differences)


@pytest.mark.slow
def test_what_did_not_happen_is_null_and_axes_are_columns(tmp_path: Path) -> None:
    """A mean over a column of jobs.parquet leaves out jobs that never ran, and settings need no reading of labels."""
    trace = tmp_path / "wide.tr"
    trace.write_text("0 1 1 1\n1 1 2 2\n")
    study = StudySpec(
        "axes", (ArchitectureChoice("oracle"),), {"trace": (str(trace),), "workers": (4,), "delay_us": (0, 500)}
    )
    run_study(study, folder=tmp_path / "a")
    jobs = parquet.read_table(tmp_path / "a" / "jobs.parquet")
    assert jobs["delay_us"].to_pylist() == [0, 0, 500, 500]
    assert set(jobs["workers"].to_pylist()) == {4}
    assert set(jobs["trace"].to_pylist()) == {str(trace)}
    summary = msgspec.json.decode((tmp_path / "a" / "summary.json").read_bytes())
    assert [run["axes"]["delay_us"] for run in summary["runs"]] == [0, 500]
    heat = parquet.read_table(tmp_path / "a" / "task_runs.parquet")
    assert set(heat["delay_us"].to_pylist()) == {0, 500}

    compare("oracle", trace="syn:2x2", workers=1, constraints="sharma2011", seeds=4, folder=tmp_path / "b")
    jobs = parquet.read_table(tmp_path / "b" / "jobs.parquet")
    never = np.array(jobs["unsatisfiable"]) == 2
    assert never.any(), "one machine does not meet all constraints"
    for name in ("ideal_s", "jrt_s", "delay_s", "wait_s"):
        assert [value is None for value in jobs[name].to_pylist()] == never.tolist()
    curve = parquet.read_table(tmp_path / "b" / "utilisation.parquet")
    assert curve["refused_tasks"].null_count == curve.num_rows, "the oracle reports no refusals"
    assert curve["waiting_tasks"].null_count == 0
    write_results_report(tmp_path / "b")


@pytest.mark.slow
def test_a_manifest_says_what_was_run(tmp_path: Path) -> None:
    compare(*PAIR, **SETTING, seeds=2, folder=tmp_path)
    manifest = ResultsFolder(tmp_path).manifest()
    assert manifest.trace is not None
    assert (manifest.trace.jobs, manifest.trace.tasks) == (8, 160)
    assert manifest.cluster["workers"] == 60
    assert manifest.seeds == (0, 1)
    assert manifest.planned == len(manifest.runs) == 4
    assert manifest.config == compare_spec(PAIR, SETTING, 2)


def test_verify_runs_again_and_agrees(tmp_path: Path) -> None:
    compare(*PAIR, **SETTING, folder=tmp_path)
    verification = verify(tmp_path, processes=2)
    assert verification.agrees
    assert verification.same_code
    assert [run.label for run in verification.runs] == list(PAIR)


@pytest.mark.slow
def test_verify_catches_a_digest_that_was_tampered_with(tmp_path: Path) -> None:
    compare(*PAIR, **SETTING, folder=tmp_path)
    path = tmp_path / "manifest.json"
    recorded = digests(tmp_path)["megha:gms=2", 0]
    path.write_text(path.read_text().replace(recorded, "0" * 64))
    verification = verify(tmp_path)
    assert [run.agrees for run in verification.runs] == [True, False]
    assert (verification.runs[1].recorded, verification.runs[1].found) == ("0" * 64, recorded)
    assert verification.runs[1].same_input


def test_verify_tells_another_input_from_another_behaviour(tmp_path: Path) -> None:
    trace = tmp_path / "a.tr"
    trace.write_text("0 1 1 1\n")
    compare("megha", trace=trace, workers=60, folder=tmp_path / "results")
    trace.write_text("0 1 2 2\n")
    verification = verify(tmp_path / "results")
    assert not verification.agrees
    assert not verification.runs[0].same_input


def test_verify_refuses_a_folder_without_results(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a results folder"):
        verify(tmp_path)


@pytest.mark.slow
def test_a_folder_of_another_study_is_not_overwritten_unless_forced(tmp_path: Path) -> None:
    compare("megha", **SETTING, folder=tmp_path)
    with pytest.raises(InputError, match="holds the results of another study"):
        compare(*PAIR, **SETTING, folder=tmp_path)
    diary = Diary()
    compare(*PAIR, **SETTING, folder=tmp_path, force=True, watcher=diary)
    assert diary.expected_count == 1
    assert set(digests(tmp_path)) == {("megha", 0), ("megha:gms=2", 0)}
    compare("megha:gms=3", **SETTING, folder=tmp_path, force=True)
    assert len(list((tmp_path / "runs").glob("*.npz"))) == 1


@pytest.mark.slow
def test_a_study_that_takes_a_folder_over_leaves_nothing_of_the_other(tmp_path: Path) -> None:
    compare(*PAIR, **SETTING, folder=tmp_path)
    assert (tmp_path / CONSTRAINT_LOAD).exists()
    assert (tmp_path / REPORT).exists()
    without = compare_spec(PAIR, SETTING | {"constraints": "none"}, 2)
    assert run_study(without, folder=tmp_path, force=True, watcher=Diary(interrupt_at=0)).interrupted
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file() and path.name[0] != ".") == [MANIFEST]
    run_study(without, folder=tmp_path)
    assert not (tmp_path / CONSTRAINT_LOAD).exists()
    assert verify(tmp_path).agrees


@pytest.mark.slow
def test_a_study_that_fails_before_its_first_run_leaves_the_folder_free(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="partitions, more than 60 workers"):
        compare("megha:gms=50", **SETTING, folder=tmp_path)
    wrong = tmp_path / "wrong.tr"
    wrong.write_text("0 2 1 1\n")
    with pytest.raises(InputError, match=r"wrong\.tr:1"):
        compare("megha", trace=wrong, workers=60, folder=tmp_path / "results")
    assert compare("megha", **SETTING, folder=tmp_path / "results").runs


@pytest.mark.slow
def test_two_studies_cannot_write_one_folder_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "results"

    class Second(Diary):
        def started(self, run: PlannedRun) -> None:
            with pytest.raises(InputError, match="another study is being written there; wait until it ends"):
                compare("megha", **SETTING, folder=folder)
            super().started(run)

    diary = Second()
    assert compare("megha", **SETTING, folder=folder, watcher=diary).runs
    assert diary.begun, "the second study was tried"
    assert compare("megha", **SETTING, folder=folder).runs, "the folder is free again"


def test_a_folder_that_cannot_be_written_is_refused_before_any_run(tmp_path: Path, monkeypatch: Any) -> None:
    diary = Diary()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file; give a folder"):
        compare("megha", **SETTING, folder=tmp_path / "file", watcher=diary)
    with pytest.raises(InputError, match="cannot be written: Not a directory"):
        compare("megha", **SETTING, folder=tmp_path / "file" / "inner", watcher=diary)

    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(InputError, match="cannot be written: Permission denied"):
        compare("megha", **SETTING, folder=tmp_path / "results", watcher=diary)
    assert diary.begun == []


def test_links_and_costs_name_roles_that_exist() -> None:
    with pytest.raises(InputError, match=r"^links: no architecture here has the role 'nod'; did you mean 'node'"):
        compare("megha", **SETTING, links={"lm:nod": 5})
    with pytest.raises(InputError, match=r"^costs: no architecture here has the role 'gmx'"):
        compare("megha", **SETTING, costs={"gmx": 5})
    with pytest.raises(InputError, match=r"'lm' is not SENDER:RECEIVER"):
        compare("megha", **SETTING, links={"lm": 5})


@pytest.mark.slow
def test_a_slower_network_costs_time() -> None:
    def median_s(**network: Any) -> float:
        return compare("megha", trace="syn:1x3", workers=60, **network).runs[0].delay_s.p50

    plain = median_s()
    assert median_s(delay_us=1000) == pytest.approx(2 * plain)
    assert median_s(links={"gm:lm": 1500}) == pytest.approx(plain + 0.001)
    assert median_s(costs={"lm": 250}) > plain


@pytest.mark.slow
def test_a_study_of_several_settings_is_compared_within_each(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        '[workload]\ntrace = "syn:5x4"\n[axes]\narchitectures = ["megha", "central"]\nworkers = [30, 60]\n'
    )
    from volery.study import read_study

    results = run_study(read_study(tmp_path / "s.toml"), folder=tmp_path / "results")
    assert [run.label for run in results.runs] == [
        "megha [workers=30]",
        "central [workers=30]",
        "megha [workers=60]",
        "central [workers=60]",
    ]
    assert {(d.a, d.b) for d in results.differences} == {
        ("megha [workers=30]", "central [workers=30]"),
        ("megha [workers=60]", "central [workers=60]"),
    }
    assert [run.workers for run in results.runs] == [30, 30, 60, 60]
