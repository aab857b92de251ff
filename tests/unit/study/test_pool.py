"""A run's process that dies says so; the others are ended, none is left behind."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from volery.sim import Progress
from volery.study import LostRunError, PlannedRun, RunOutcome, TraceFacts, compare_spec, plan
from volery.study.pool import each_outcome


class Killer:
    """Kills every run's process as soon as the first has read its input."""

    def __init__(self) -> None:
        self._before = set(multiprocessing.active_children())

    def expected(self, run_count: int) -> None:
        assert run_count == 2

    def started(self, run: PlannedRun) -> None: ...

    def sized(self, run: PlannedRun, facts: TraceFacts) -> None:
        for child in set(multiprocessing.active_children()) - self._before:
            child.kill()

    def moved(self, run: PlannedRun, progress: Progress) -> None: ...

    def ended(self, run: PlannedRun, outcome: RunOutcome) -> None:
        raise AssertionError("nothing can end well")


LONG = compare_spec(("megha", "megha:gms=2"), {"trace": "syn:500x2000", "workers": 1000}, 1)


@pytest.mark.slow
def test_a_process_that_dies_is_named_with_its_run() -> None:
    before = multiprocessing.active_children()  # other tests may have left a solver that serves many
    with pytest.raises(LostRunError, match=r"the process of megha.* \(seed 0\) ended with status -9 and no answer"):
        list(each_outcome(plan(LONG), 2, Killer()))
    assert set(multiprocessing.active_children()) <= set(before)


@pytest.mark.slow
def test_closing_early_ends_what_is_running() -> None:
    before = multiprocessing.active_children()
    short = compare_spec(("megha",), {"trace": "syn:5x2", "workers": 60}, 1)
    with closing(each_outcome([*plan(short), *plan(LONG)], 3, None)) as outcomes:
        run, outcome = next(outcomes)
    assert run.spec.trace == "syn:5x2"
    assert outcome.summary.tasks == 10
    assert set(multiprocessing.active_children()) <= set(before)


@pytest.mark.parametrize("processes", [1, 2])
def test_runs_under_way_are_finished_when_no_more_may_begin(processes: int) -> None:
    runs = plan(compare_spec(("megha",), {"trace": "syn:5x2", "workers": 60}, 6))
    finished: list[int] = []
    with closing(each_outcome(runs, processes, None, may_begin=lambda: len(finished) < 2)) as outcomes:
        for run, _ in outcomes:
            finished.append(run.spec.seed)
    assert sorted(finished) == list(range(len(finished)))
    assert 2 <= len(finished) <= 1 + processes


@pytest.mark.slow
def test_a_script_without_a_main_guard_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        'from volery import compare\ncompare("megha", "oracle", trace="syn:5x6", workers=60, processes=2)\n'
    )
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert "ended with status 1 and no answer" in ended.stderr
    assert 'under `if __name__ == "__main__":`' in ended.stderr
