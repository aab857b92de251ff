"""The benchmark of the papers' prototypes: its parts on a tiny trace, and verdicts that follow from its lines."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from benchmarks.colocation import BURN, beyond_one, measured, scaled, share_of, work_of
from benchmarks.colocation import LEVELS as LEVELS_OF_NODES
from benchmarks.prototype_claims import CLAIMS, verdicts
from benchmarks.prototypes import DESIGNS, LAB_SEEDS, WORKS, Setting, compared, live, main, predicted, prepared
from benchmarks.prototypes import measured as runs_of

from volery.core.costs import HostCosts
from volery.core.model import SECOND
from volery.core.records import Records
from volery.core.trace import Trace
from volery.live.config.plan import FederationPlan

NEAR = 2.5
"""A coarse bar: other programs share the machine with the tests."""


def trace_in(folder: Path, jobs: int = 24) -> Path:
    """A folder of traces whose NGO trace has a few jobs of our own, an eighth of them long."""
    stream, rows = random.Random(5), []
    for job in range(jobs):
        tasks = [(8.0 if job % 8 == 7 else 0.4) * stream.uniform(0.8, 1.2) for _ in range(3)]
        rows.append(" ".join(str(round(value, 6)) for value in (job * 0.25, len(tasks), sum(tasks) / 3, *tasks)))
    path = folder / WORKS["ngo_50"].path.removesuffix(".gz")
    path.parent.mkdir()
    path.write_text("\n".join(rows) + "\n")
    path.rename(folder / WORKS["ngo_50"].path)
    return folder


def test_each_design_runs_live_and_in_the_lab(tmp_path: Path) -> None:
    """Every class has jobs, and the lab's typical completion time is about the live one."""
    setting = Setting(works=("ngo_50",), schedulers=(2,), span_s=1.0, jobs=24, nodes=30)
    lines = [*runs_of(setting, trace_in(tmp_path))]
    assert [line["design"] for line in lines] == list(DESIGNS)
    for line in lines:
        assert (line["jobs"], line["tasks"], line["schedulers"]) == (24, 72, 2)
        assert line["speedup"] == pytest.approx(23 * 0.25, abs=0.01)
        assert len(line["load_average"]) == 2
        for kind, task_s in (("short", 0.4), ("long", 8.0)):
            assert line[kind]["live_ms"][0] >= 0.8 * task_s / line["speedup"] * 1000, "no job ends before its tasks"
            assert 1 / NEAR < line[kind]["ratio"][0] < NEAR
            ratios = (line[kind][f"ratio_{name}"] for name in ("least", "same_seed", "most"))
            for least, same, most in zip(*ratios, strict=True):
                assert least <= same <= most, "the live run's seed is one of the lab's"
    assert json.loads(json.dumps(lines)) == lines
    judged = {verdict["id"]: verdict for verdict in verdicts(lines)}
    assert judged["short-near-lab"]["cases"] == 9
    assert judged["short-near-lab-normalised"]["cases"] == 6
    assert judged["pigeon-schedulers"]["verdict"] == "not decidable", "there is no run with one"


def test_a_missing_trace_ends_with_its_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--traces", str(tmp_path), "--works", "nyh_50"])
    assert ended.value.code == 2
    expected = f"{tmp_path / WORKS['nyh_50'].path} is not there; give --traces DIR or set VOLERY_TRACES.\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--span", "0"], "argument --span: 0 is below 0.1 or no finite number"),
        (["--span", "nan"], "argument --span: nan is below 0.1 or no finite number"),
        (["--nodes", "0"], "argument --nodes: 0 is below 1 or no finite number"),
        (["--schedulers", "2", "x"], "argument --schedulers: invalid int value: 'x'"),
        (["--seed", "-1"], "argument --seed: -1 is below 0 or no finite number"),
        (["--designs", "megha"], "argument --designs: invalid choice: 'megha'"),
        (["--levels", "dense"], "argument --levels: invalid choice: 'dense'"),
    ],
)
def test_a_setting_that_cannot_be_run_is_refused(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="the processors of a process are known on Linux")
def test_a_machine_whose_nodes_are_too_large_for_one_thread_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A task consumes a twelfth of the machine, and an eighth where more is promised."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(9)))
    with pytest.raises(SystemExit) as ended:
        main(["--designs", "--levels", "light", "crowded"])
    assert ended.value.code == 2
    assert "taskset --cpu-list 0-7" in capsys.readouterr().err
    assert beyond_one(["alone", "light", "heavy"]) == []


def test_a_design_that_cannot_be_built_ends_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--works", "ngo_50", "--designs", "pigeon", "--nodes", "2", "--traces", str(trace_in(tmp_path))])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "pigeon:groups: 3 groups are more than 2 workers; lower groups or add workers\n"


def test_the_first_seed_of_the_lab_is_that_of_the_live_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without costs; the others follow it."""
    asked: list[int] = []
    setting = Setting(schedulers=(2,), span_s=0.2, jobs=8, nodes=30, seed=7)
    run = live("ngo_50", "sparrow", 2, trace_in(tmp_path), setting)

    def noting(plan: FederationPlan, work: Trace, costs: HostCosts, seed: int) -> Records:
        asked.append(seed)
        return predicted(plan, work, costs, seed)

    monkeypatch.setattr("benchmarks.prototypes.predicted", noting)
    compared(run, HostCosts({}))
    assert asked == 2 * [*range(7, 7 + LAB_SEEDS)]


def run_line(design: str, ratio: float, live_ms: float = 100.0, schedulers: int = 10) -> dict[str, Any]:
    """A run whose percentiles are all alike."""
    figures = {"live_ms": [live_ms] * 3, "ratio": [ratio] * 3, "ratio_without_costs": [0.9] * 3}
    return {"name": "run", "trace": "ngo_50", "design": design, "schedulers": schedulers, "short": figures}


@pytest.mark.parametrize(
    ("kind", "ratio", "verdict"),
    [
        ("short", 1.14, "holds"),
        ("short", 1.16, "fails"),
        ("short", 0.84, "fails"),
        ("long", 0.96, "holds"),
        ("long", 1.06, "fails"),
    ],
)
def test_verdicts_have_the_bounds_of_the_paper(kind: str, ratio: float, verdict: str) -> None:
    line = run_line("pigeon", ratio)
    line[kind] = line.pop("short")
    judged = {one["id"]: one for one in verdicts([line])}
    assert judged[f"{kind}-near-lab"]["verdict"] == verdict
    assert len(judged[f"{kind}-near-lab"]["failed"]) == (3 if verdict == "fails" else 0)


def test_orders_need_the_least_effect() -> None:
    lines = [run_line("pigeon", 1, 100), run_line("sparrow", 1, 104), run_line("eagle", 1, 106)]
    judged = {one["id"]: one["verdict"] for one in verdicts(lines)}
    assert (judged["sparrow-short"], judged["eagle-short"]) == ("fails", "holds")
    few = [run_line(design, 1, time_ms, 1) for design, time_ms in (("pigeon", 104), ("sparrow", 120), ("eagle", 100))]
    judged = {one["id"]: one["verdict"] for one in verdicts([*lines, *few])}
    assert [judged[f"{design}-schedulers"] for design in DESIGNS] == ["holds", "holds", "fails"]


def test_without_lines_no_claim_is_decided() -> None:
    assert {one["verdict"] for one in verdicts([])} == {"not decidable"}
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)


def test_a_burning_task_ends_when_it_has_consumed_its_share() -> None:
    began = time.monotonic()
    timed = BURN + "print(time.thread_time())"
    ran = subprocess.run([sys.executable, "-S", "-c", timed, "0.2", "0.5"], capture_output=True, text=True, check=True)
    assert 0.1 <= float(ran.stdout) < 0.2, "a fifth of half a second"
    assert time.monotonic() - began > 0.25, "it does not burn it at once"


def test_requests_are_divided_as_for_the_prototype() -> None:
    """Half a core is 50 hundredths, by 400 an eighth of a core; 64 MB by 50 are 1,310 kB (Megha, 2021, section V-A)."""
    assert scaled((500, 64)) == (125, 1310)
    level = LEVELS_OF_NODES["scaled"]
    trace = work_of(level, 40.0, 2.0)
    assert trace.resources == ("cpu_milli", "memory_kb")
    asked = {trace.requests[place] for place in trace.request}
    assert len(asked) > 3, "tasks do not ask for the same"
    assert all(cpu_milli <= level.milli for cpu_milli, _ in trace.requests), "every task fits a node"
    assert share_of(level, 2 * level.task_milli) == pytest.approx(2 * share_of(level))
    assert share_of(level) < share_of(LEVELS_OF_NODES["light"])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="real processes need Linux")
def test_burning_tasks_on_crowded_nodes_are_measured_beside_the_lab() -> None:
    line = measured("crowded", 0.8, 0.2)
    assert line["failed"] == 0
    assert line["tasks"] >= 20
    assert line["stretch_p50"] > 1, "more is promised than there is"
    assert line["lab_as_lived_ms"]["mean"] > 0
    assert line["share"] == pytest.approx(share_of(LEVELS_OF_NODES["crowded"]), abs=0.001)
    assert {one["id"]: one["cases"] for one in verdicts([line])}["held"] == 1


def test_times_are_in_the_units_that_their_names_say(tmp_path: Path) -> None:
    """The trace has 5.75 s between its first and its last job."""
    trace, speedup = prepared(WORKS["ngo_50"], trace_in(tmp_path), Setting(span_s=0.5))
    assert speedup == pytest.approx(11.5)
    assert trace.arrival_us[-1] == pytest.approx(0.5 * SECOND, abs=2)
