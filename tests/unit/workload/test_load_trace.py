"""What a user names is what is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from volery.core.errors import InputError
from volery.workload import load_trace, load_workload, synthesize, write_tr


def test_a_spec_is_synthesised_and_a_file_is_read(tmp_path: Path) -> None:
    spec = "poisson:jobs=20,fanout=3"
    write_tr(synthesize(spec, 7), tmp_path / "p.tr.gz")
    made, noticed = load_workload(spec, seed=7)
    read, reading = load_workload(tmp_path / "p.tr.gz")
    assert made.digest() == read.digest() == load_trace(str(tmp_path / "p.tr.gz")).digest()
    assert noticed is None
    assert reading is not None


def test_a_job_limit_holds_for_both(tmp_path: Path) -> None:
    write_tr(synthesize("syn:2x9"), tmp_path / "s.tr")
    for source in ("syn:2x9", tmp_path / "s.tr"):
        assert load_trace(source, job_count=4).job_count == 4
        assert load_trace(source, job_count=40).job_count == 9
        with pytest.raises(InputError, match="jobs: 0 jobs are no workload"):
            load_trace(source, job_count=0)


def test_the_switches_hold_for_both(tmp_path: Path) -> None:
    spec = "syn:2x5,duration=1.9,interval=0.0000001"
    write_tr(synthesize(spec), tmp_path / "s.tr")
    for source in (spec, tmp_path / "s.tr"):
        trace = load_trace(source, durations="whole-seconds", arrivals="dephased")
        assert set(trace.duration_us) == {1_000_000}
        assert trace.arrival_us.tolist() == [0, 10_000, 20_000, 30_000, 40_000]


def test_a_file_may_bear_the_name_of_a_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tr(synthesize("syn:1x3"), tmp_path / "syn:9x9")
    monkeypatch.chdir(tmp_path)
    assert load_trace("syn:9x9").job_count == 3


def test_a_misspelt_spec_is_told_from_a_missing_file() -> None:
    with pytest.raises(InputError, match="'poison' is not a kind of synthetic workload; did you mean 'poisson'"):
        load_trace("poison:load=1")
    with pytest.raises(InputError, match=r"absent\.tr: no such file; check the path"):
        load_trace("absent.tr")
