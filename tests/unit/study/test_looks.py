"""A study adds seeds until its comparisons are decided; limits end it, and it goes on from its folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.study.test_runner import Diary, digests

from volery.cli.output import print_tables
from volery.core.errors import InputError
from volery.report.html import write_report
from volery.report.schema import BUDGET, DECIDED, LIMIT
from volery.statistics import IDENTICAL, NOT_RANDOM, ONE_SEED, SPANS_ZERO, ComparedMeans, Difference
from volery.study import (
    Results,
    ResultsFolder,
    compare_spec,
    load_results,
    pool,
    run_study,
    runner,
    runs,
    verify,
    write_results_report,
)
from volery.study.runner import deciding, is_decided, undecided
from volery.study.writer import ResultsWriter

WORK: dict[str, Any] = {"trace": "syn:20x8", "workers": 60}
DRAWN = WORK | {"constraints": "sharma2011"}
LIKE = ("megha", "megha:gms=2")
"""On drawn constraints they differ by less than five seeds can tell."""
SAME = ("megha", "megha:gms=5")


def run(pair: tuple[str, ...] = LIKE, work: dict[str, Any] = DRAWN, **more: Any) -> Results:
    limits: dict[str, Any] = {name: more.pop(name) for name in ("seeds_max", "budget_s", "baseline") if name in more}
    return run_study(compare_spec(pair, work, "auto", **({"seeds_max": 5} | limits)), **more)


@pytest.fixture(autouse=True)
def page(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Path]:
    """Pictures take seconds: studies of these tests write no page but where a test asks for it."""
    monkeypatch.setattr(ResultsWriter, "write_report", lambda keep: keep.folder.path)
    return lambda folder: write_report(folder)


@pytest.fixture
def one_second_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run reports one CPU second."""
    execute = runs.execute

    def timed(*words: Any) -> Any:
        outcome = execute(*words)
        outcome.summary = msgspec.structs.replace(outcome.summary, cpu_s=1.0)
        return outcome

    monkeypatch.setattr(pool, "execute", timed)


def seeds(results: Results) -> list[int]:
    return sorted({run.seed for run in results.runs})


def compared(verdict: str, quantity: str = "mean delay", jobs: str = "all") -> ComparedMeans:
    return ComparedMeans("a", "b", jobs, quantity, "s", 1.0, 2.0, Difference(-1.0, -2.0, 1.0, 3, verdict))


@pytest.mark.parametrize(
    ("verdict", "decided"),
    [("lower", True), ("higher", True), (IDENTICAL, True), (NOT_RANDOM, True), (SPANS_ZERO, False), (ONE_SEED, False)],
)
def test_a_comparison_is_decided_by_its_verdict(verdict: str, decided: bool) -> None:
    assert is_decided(compared(verdict)) is decided


def test_median_mean_and_p99_of_all_jobs_decide() -> None:
    others = [compared(SPANS_ZERO, "mean utilisation"), compared(SPANS_ZERO, "p99 delay", "short")]
    assert deciding(others) == []
    names = ["median delay", "mean delay", "p99 delay"]
    assert undecided([*others, *(compared(SPANS_ZERO, name) for name in names)]) == 3


def test_a_clear_difference_ends_a_study_at_its_first_look() -> None:
    results = run(work=WORK)
    assert seeds(results) == [0, 1, 2]
    assert results.stopping is not None
    assert (results.stopping.reason, results.stopping.looks[-1].undecided) == (DECIDED, 0)


def test_designs_that_are_alike_take_all_seeds() -> None:
    results = run()
    assert seeds(results) == list(range(5))
    assert results.stopping is not None
    assert results.stopping.reason == LIMIT
    assert [look.seeds for look in results.stopping.looks] == [3, 5]
    assert results.stopping.looks[-1].undecided == undecided(results.differences) > 0


@pytest.mark.slow
def test_the_same_run_twice_is_decided_by_being_identical() -> None:
    results = run(SAME)
    assert len(seeds(results)) == 3
    assert {one.difference.verdict for one in results.differences} == {IDENTICAL}


@pytest.mark.slow
def test_intervals_have_the_confidence_of_the_last_look() -> None:
    auto = run()
    plain = run_study(compare_spec(LIKE, DRAWN, 5))
    assert [run.digest for run in auto.runs] == [run.digest for run in plain.runs]
    for wide, narrow in zip(auto.differences, plain.differences, strict=True):
        assert wide.difference.mean == narrow.difference.mean
        if narrow.difference.low is not None and narrow.difference.low != narrow.difference.high:
            assert wide.difference.low is not None
            assert wide.difference.low < narrow.difference.low


@pytest.mark.slow
def test_two_processes_draw_the_same_seeds() -> None:
    here, apart = run(seeds_max=2), run(seeds_max=2, processes=2)
    assert here.stopping == apart.stopping
    assert [run.digest for run in here.runs] == [run.digest for run in apart.runs]


@pytest.mark.slow
@pytest.mark.usefixtures("one_second_each")
@pytest.mark.parametrize(
    ("budget_s", "whole", "looks"), [(1.5, 1, [1]), (6.5, 3, [3]), (7.5, 4, [3, 4]), (9.5, 5, [3, 5])]
)
def test_a_budget_ends_a_study_after_whole_seeds(budget_s: float, whole: int, looks: list[int]) -> None:
    results = run(budget_s=budget_s, seeds_max=8)
    assert seeds(results) == list(range(whole))
    assert results.planned == len(results.runs) == 2 * whole
    assert results.stopping is not None
    assert results.stopping.reason == BUDGET
    assert [look.seeds for look in results.stopping.looks] == looks


@pytest.mark.usefixtures("one_second_each")
def test_a_budget_that_ends_before_one_seed_is_whole_says_so_and_compares_nothing(tmp_path: Path) -> None:
    results = run(budget_s=0.5, folder=tmp_path)
    assert (len(results.runs), results.planned, results.differences) == (1, 2, [])
    assert results.stopping is None
    assert len(load_results(tmp_path).runs) == 1
    assert verify(tmp_path).agrees


@pytest.mark.slow
@pytest.mark.usefixtures("one_second_each")
def test_a_folder_goes_on_with_a_larger_budget_and_stays_with_the_same(tmp_path: Path) -> None:
    first = run(budget_s=7.5, folder=tmp_path)
    diary = Diary()
    again = run(budget_s=7.5, folder=tmp_path, watcher=diary)
    assert diary.begun == []
    assert again.stopping == first.stopping
    more = run(budget_s=100.0, folder=tmp_path, watcher=diary)
    assert len(diary.begun) == 2
    assert [run.digest for run in more.runs] == [run.digest for run in run(budget_s=100.0).runs]


@pytest.mark.slow
@pytest.mark.usefixtures("one_second_each")
def test_looks_of_calls_with_larger_budgets_share_the_error_of_one_study(tmp_path: Path) -> None:
    for budget_s in (7.5, 9.5, 13.5, 99.0):
        results = run(budget_s=budget_s, seeds_max=8, folder=tmp_path)
    assert results.stopping is not None
    looks = results.stopping.looks
    assert [look.seeds for look in looks] == [3, 4, 5, 7, 8]
    assert sum(1 - look.confidence for look in looks) == pytest.approx(0.05)
    assert verify(tmp_path).agrees


@pytest.mark.slow
@pytest.mark.usefixtures("one_second_each")
def test_what_is_decided_when_a_budget_ends_stays_decided_with_a_larger_one(tmp_path: Path) -> None:
    first = run(SAME, budget_s=1.5, folder=tmp_path)
    assert first.stopping is not None
    assert (first.stopping.reason, seeds(first)) == (DECIDED, [0, 1])
    diary = Diary()
    again = run(SAME, budget_s=99.0, folder=tmp_path, watcher=diary)
    assert (diary.begun, seeds(again)) == ([], [0, 1])


@pytest.mark.slow
@pytest.mark.usefixtures("one_second_each")
def test_a_study_that_goes_on_and_is_interrupted_has_nothing_of_its_earlier_end(
    tmp_path: Path, page: Callable[[Path], Path]
) -> None:
    run(budget_s=6.5, folder=tmp_path)
    page(tmp_path)
    assert (tmp_path / "constraint_load.parquet").exists()
    assert run(budget_s=99.0, folder=tmp_path, watcher=Diary(interrupt_at=1)).interrupted
    assert not (tmp_path / "report.html").exists()
    assert not load_results(tmp_path).stopping
    assert verify(tmp_path).differences == ()


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["grown", "_end_adding"])
def test_a_study_that_is_interrupted_while_it_is_judged_can_be_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    def stop(keep: ResultsWriter) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, moment, stop)
    assert run(seeds_max=3, folder=tmp_path).interrupted
    monkeypatch.undo()
    monkeypatch.setattr(ResultsWriter, "write_report", lambda keep: (keep.folder.path / "report.html").write_text(""))
    assert verify(tmp_path).differences == ()


@pytest.mark.slow
@pytest.mark.usefixtures("one_second_each")
def test_runs_of_a_seed_that_a_budget_cut_are_kept_for_later(tmp_path: Path) -> None:
    assert seeds(run(budget_s=6.5, folder=tmp_path)) == [0, 1, 2]
    diary = Diary()
    run(budget_s=8.5, folder=tmp_path, watcher=diary)
    assert len(diary.begun) == 2, "seven runs were finished: three seeds and one run of the fourth"


@pytest.mark.slow
def test_a_study_that_was_interrupted_goes_on_to_the_same_end(tmp_path: Path) -> None:
    stopped = run(folder=tmp_path, watcher=Diary(interrupt_at=7))
    assert stopped.interrupted
    assert stopped.stopping is None
    assert len(load_results(tmp_path).runs) == 7
    diary = Diary()
    whole = run(folder=tmp_path, watcher=diary)
    straight = run(folder=tmp_path / "straight")
    assert len(diary.begun) == 3
    assert whole.stopping == straight.stopping
    assert digests(tmp_path) == digests(tmp_path / "straight")


@pytest.mark.slow
def test_a_finished_study_is_not_run_again(tmp_path: Path) -> None:
    first = run(work=WORK, folder=tmp_path)
    diary = Diary()
    again = run(work=WORK, folder=tmp_path, watcher=diary)
    assert (diary.begun, again.reused) == ([], 6)
    assert again.stopping == first.stopping


@pytest.mark.slow
def test_the_limit_is_part_of_the_study(tmp_path: Path) -> None:
    """Looks are planned before the first seed: another limit afterwards is another plan."""
    run(seeds_max=3, folder=tmp_path)
    with pytest.raises(InputError, match="holds the results of another study"):
        run(seeds_max=5, folder=tmp_path)
    with pytest.raises(InputError, match="holds the results of another study"):
        run_study(compare_spec(LIKE, DRAWN, 3), folder=tmp_path)
    diary = Diary()
    assert len(seeds(run(seeds_max=5, folder=tmp_path, force=True, watcher=diary))) == 5
    assert len(diary.begun) == 4, "three seeds were finished"


@pytest.mark.slow
@pytest.mark.usefixtures("one_second_each")
@pytest.mark.parametrize("limits", [{"seeds_max": 3}, {"budget_s": 7.5}, {"budget_s": 6.5}])
def test_verify_makes_a_study_that_added_seeds_again(tmp_path: Path, limits: dict[str, Any]) -> None:
    results = run(folder=tmp_path, **limits)
    found = verify(tmp_path)
    assert (found.differences, found.planned) == ((), len(results.runs))


def changed(tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> tuple[str, ...]:
    run(seeds_max=3, folder=tmp_path)
    path = tmp_path / "manifest.json"
    manifest = msgspec.json.decode(path.read_bytes())
    change(manifest)
    path.write_bytes(msgspec.json.encode(manifest))
    return verify(tmp_path).differences


@pytest.mark.slow
def test_verify_finds_a_look_that_somebody_has_changed(tmp_path: Path) -> None:
    (found,) = changed(tmp_path, lambda manifest: manifest["stopping"]["looks"][0].update(undecided=0))
    assert "stopping.looks[0].undecided" in found


@pytest.mark.slow
def test_verify_finds_a_reason_that_somebody_has_changed(tmp_path: Path) -> None:
    (found,) = changed(tmp_path, lambda manifest: manifest["stopping"].update(reason="decided"))
    assert "stopping.reason is 'decided', and comes out as 'limit'" in found


@pytest.mark.slow
def test_another_baseline_afterwards_leaves_the_reason_as_it_was(tmp_path: Path) -> None:
    before = run(seeds_max=3, folder=tmp_path)
    write_results_report(tmp_path, "megha:gms=2")
    after = load_results(tmp_path)
    assert after.stopping == before.stopping
    assert {one.a for one in after.differences} == {"megha:gms=2"}
    assert verify(tmp_path).agrees


@pytest.mark.slow
def test_the_page_says_how_many_seeds_were_drawn_and_why_it_ended(tmp_path: Path, page: Callable[[Path], Path]) -> None:
    run(seeds_max=3, folder=tmp_path)
    text = page(tmp_path).read_text()
    assert "3 seeds drawn (one look at 3): 3 seeds are the limit, and 3 of 3 comparisons with megha are not" in text
    assert "95 % confidence at the last look" in text


@pytest.mark.slow
def test_page_and_terminal_name_the_confidence_of_their_intervals(
    tmp_path: Path, page: Callable[[Path], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    results = run(folder=tmp_path)
    page(tmp_path)
    paired = (tmp_path / "report.html").read_text().partition("Paired differences over seeds")[2]
    assert "98 % interval" in paired.partition("On days like this")[0]
    print_tables(results)
    seeds, days = capsys.readouterr().out.split("on days like this")[:2]
    assert "98 % interval" in seeds
    assert "95 % interval" in days


def test_a_study_without_auto_keeps_its_manifest_as_it_was(tmp_path: Path) -> None:
    run_study(compare_spec(LIKE, WORK, 1), folder=tmp_path)
    manifest = msgspec.json.decode((tmp_path / "manifest.json").read_bytes())
    assert "stopping" not in manifest
    assert "auto" not in manifest["config"]
    assert not ResultsFolder(tmp_path).manifest().stopping


@pytest.mark.slow
def test_a_watcher_is_told_of_every_look_after_which_seeds_are_added() -> None:
    class Looked(Diary):
        def __init__(self) -> None:
            super().__init__()
            self.looks: list[tuple[int, int, int]] = []

        def looked(self, seeds: int, seeds_max: int, undecided: int) -> None:
            self.looks.append((seeds, seeds_max, undecided))

    diary = Looked()
    results = run(watcher=diary)
    assert results.stopping is not None
    assert diary.looks == [(look.seeds, 5, look.undecided) for look in results.stopping.looks[:-1]]


@pytest.mark.slow
def test_every_setting_must_be_decided() -> None:
    study = compare_spec(LIKE, DRAWN, "auto", seeds_max=3)
    both = msgspec.structs.replace(study, axes=study.axes | {"constraints": ("none", "sharma2011")})
    results = run_study(both)
    assert results.stopping is not None
    assert results.stopping.comparisons == 6
    assert 0 < results.stopping.looks[-1].undecided < 6
    assert results.stopping.reason == LIMIT
