"""A kept run, repeated under a tracer: the same run or an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.comparison import compare

from volery.core.errors import InputError
from volery.integrity import sealed, unsealed
from volery.playback.traced_runs import trace_run
from volery.study.results import ResultsFolder

SPAN_US = 0, 10**12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("kept")
    compare("sparrow", trace="syn:4x10", load=0.5, workers=20, folder=found)
    return found


@pytest.mark.slow
def test_a_kept_run_is_traced_whole(folder: Path) -> None:
    told: list[object] = []
    traced = trace_run(folder, "sparrow", 0, SPAN_US, watch=told.append)
    assert traced.source.facts == {"label": "sparrow", "seed": 0}
    assert len(traced.log.attempts["task"]) == 40
    assert len(traced.log.jobs) == 10
    assert told, "the facts of the input"


def test_a_run_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(InputError, match="holds no run 'pigeon' with seed 0"):
        trace_run(folder, "pigeon", 0, SPAN_US)


def test_a_run_that_is_no_longer_the_same_is_refused(folder: Path) -> None:
    manifest = folder / "manifest.json"
    kept = manifest.read_text(encoding="utf-8")
    digest = ResultsFolder(folder).manifest().runs[0].digest
    manifest.write_bytes(sealed(unsealed(kept.encode(), manifest).replace(digest.encode(), b"0" * 64)))
    with pytest.raises(InputError, match="does not run as it did"):
        trace_run(folder, "sparrow", 0, SPAN_US)
    manifest.write_text(kept, encoding="utf-8")
