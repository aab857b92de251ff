"""Reproducing an experiment: runs are kept and shared, claims judged, pictures and records the same every time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from experiments.claims import Side
from experiments.experiment import Experiment, NetworkCosts, read_experiment
from experiments.pictures import draw
from experiments.records import (
    content_sha256,
    judged_again,
    make_record,
    read_record,
    record_path,
    reusable,
    state,
    write_record,
)
from experiments.reproduction import Reproduction, plan_experiment, reproduce
from experiments.reruns import affordable, checked_record, spot_check
from experiments.values import full_label
from volery.core.costs import HostCosts
from volery.core.errors import InputError
from volery.study import PlannedRun

TEXT = """
title = "a small one"
paper = "test"
figure = "Figure 0"
seeds = [0, 1]
pictures = ["delay_cdf", "utilisation_cdf", "utilisation_ratio", "constraint_load", "conflicts", "demand"]

[quick]
jobs = 3

[[population]]
label = "drawn"
seed = 3

[[workload]]
label = "w"
trace = "syn:20x8"
workers = 60
is_source = "section 5"

[[workload]]
label = "gone"
trace = "tr/gone.tr.gz"
workers = 60
stands_for = "the whole trace"

[architectures]
m = "megha"
p = { exact = "pigeonc:groups=3", published-code = "pigeonc:groups=3,constraint_counting=published-code" }

[[claim]]
id = "three-hops"
section = "6"
sentence = "As the source prints it."
says = "No job is faster than three hops."
published = "1.5 ms"
left = { metric = "jrt_s.mean", of = ["m", "p"] }
relation = ">="
right = 0.0001
on = ["w"]

[[claim]]
id = "impossible"
section = "6"
sentence = "As the source prints it."
says = "Utilisation is above one."
published = "above 1"
left = { metric = "utilisation_mean", of = "m" }
relation = ">"
right = 1
on = ["w"]

[[claim]]
id = "everywhere"
section = "6"
sentence = "As the source prints it."
says = "Load is positive."
published = "above 0"
left = { metric = "load.mean" }
relation = ">"
right = 0
"""
PAPERS = """
introduction = "introduction"
[[paper]]
key = "test"
title = "A paper"
citation = "Somebody, somewhere."
"""


class Counting:
    """A watcher that counts the runs that were really run."""

    def __init__(self) -> None:
        self.ended_count = 0

    def expected(self, run_count: int) -> None:
        self.expected_count = run_count

    def started(self, run: PlannedRun) -> None: ...

    def sized(self, run: PlannedRun, facts: Any) -> None: ...

    def moved(self, run: PlannedRun, progress: Any) -> None: ...

    def ended(self, run: PlannedRun, outcome: Any) -> None:
        self.ended_count += 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "experiments"
    (made / "explanations").mkdir(parents=True)
    (made / "small.toml").write_text(TEXT, encoding="utf-8")
    (made / "papers.toml").write_text(PAPERS, encoding="utf-8")
    (made / "explanations" / "introduction.md").write_text("What was said.\n", encoding="utf-8")
    return made


@pytest.fixture
def experiment(folder: Path) -> Experiment:
    return read_experiment(folder, "small")


def run(experiment: Experiment, tmp_path: Path, watcher: Counting | None = None) -> Reproduction:
    return reproduce(experiment, folder=tmp_path / "results", traces=tmp_path / "traces", watcher=watcher)


@pytest.mark.slow
def test_claims_are_judged_on_what_is_here_and_name_what_is_not(experiment: Experiment, tmp_path: Path) -> None:
    record = make_record(run(experiment, tmp_path), quick=False)
    assert [(one.claim, one.reading, one.verdict) for one in record.judgements] == [
        ("three-hops", "exact", "reproduced"),
        ("three-hops", "published-code", "reproduced"),
        ("impossible", "", "differs"),
        ("everywhere", "", "reproduced"),
        ("everywhere", "", "not decidable"),
    ]
    assert [one.stand_in for one in record.judgements[-2:]] == [False, True]
    assert record.judgements[-1].why == "trace tr/gone.tr.gz is not here"
    assert record.missing == ("trace tr/gone.tr.gz is not here",)
    assert record.complete
    assert record.runs == 6


@pytest.mark.slow
def test_a_finished_run_is_never_run_again_and_is_shared_between_experiments(
    experiment: Experiment, tmp_path: Path
) -> None:
    first, again, other = Counting(), Counting(), Counting()
    run(experiment, tmp_path, first)
    run(experiment, tmp_path, again)
    other_one = msgspec.structs.replace(experiment, name="other", architectures={"p": "pigeonc:groups=3", "m": "megha"})
    run(msgspec.structs.replace(other_one, claim=experiment.claim[1:]), tmp_path, other)
    assert (first.ended_count, again.ended_count, other.ended_count) == (6, 0, 0)


@pytest.mark.slow
def test_a_damaged_run_is_run_again(experiment: Experiment, tmp_path: Path) -> None:
    run(experiment, tmp_path)
    damaged = next((tmp_path / "results" / "runs").glob("*.json"))
    damaged.write_text("{", encoding="utf-8")
    watcher = Counting()
    run(experiment, tmp_path, watcher)
    assert watcher.ended_count == 1


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_finished_and_leaves_the_rest_undecided(experiment: Experiment, tmp_path: Path) -> None:
    class Stopping(Counting):
        def ended(self, run: PlannedRun, outcome: Any) -> None:
            super().ended(run, outcome)
            if self.ended_count == 3:
                raise KeyboardInterrupt

    stopped = run(experiment, tmp_path, Stopping())
    assert stopped.interrupted
    record = make_record(stopped, quick=False)
    assert not record.complete
    assert record.judgements[0].why == "not all runs are finished (and 1 more of 2 cases)"
    taken = make_record(
        reproduce(experiment, folder=tmp_path / "results", traces=tmp_path / "traces", only_finished=True), quick=False
    )
    assert (taken.runs, taken.planned, taken.complete) == (2, 6, False)
    assert taken.facts[0].of == "m"
    assert state(experiment, taken).startswith("partly run (2 of 6 runs) on ")
    rest = Counting()
    assert not run(experiment, tmp_path, rest).interrupted
    assert rest.ended_count == 4


def test_where_nothing_is_finished_nothing_is_begun(experiment: Experiment, tmp_path: Path) -> None:
    nothing = reproduce(experiment, folder=tmp_path / "results", traces=tmp_path, only_finished=True)
    assert not nothing.begun
    assert not nothing.complete
    inputs_only = msgspec.structs.replace(experiment, architectures={}, claim=experiment.claim[-1:])
    assert not reproduce(inputs_only, folder=tmp_path / "results", traces=tmp_path, only_finished=True).complete
    assert reproduce(inputs_only, folder=tmp_path / "results", traces=tmp_path).complete


def test_records_and_pictures_are_the_same_every_time(experiment: Experiment, tmp_path: Path) -> None:
    a = run(experiment, tmp_path / "a")
    b = run(experiment, tmp_path / "b")
    assert make_record(a, quick=False) == make_record(b, quick=False)
    drawn = dict(draw(a))
    assert drawn == dict(draw(b))
    assert sorted(drawn) == [
        "conflicts.svg",
        "constraint_load_w.svg",
        "delay_cdf_w.svg",
        "demand_w.svg",
        "utilisation_cdf_w.svg",
        "utilisation_ratio.svg",
    ]
    assert all(picture.startswith("<svg") for picture in drawn.values())


@pytest.mark.slow
def test_slowdowns_are_drawn_against_the_number_of_workers(experiment: Experiment, tmp_path: Path) -> None:
    """A line per design and percentile over the sizes that were run; none where no job is short."""
    own, *_ = experiment.workload
    sizes = tuple(
        msgspec.structs.replace(own, label=f"w{workers}", workers=workers, cutoff_s=10.0) for workers in (40, 60)
    )
    swept = msgspec.structs.replace(experiment, workload=sizes, pictures=("slowdown",), claim=())
    (picture,) = dict(draw(run(swept, tmp_path))).values()
    for label in ("m, p50", "m, p90", "m, p99", f"{full_label('p', 'exact')}, p50"):
        assert label in picture, label
    unknown = msgspec.structs.replace(swept, workload=experiment.workload)
    assert not dict(draw(run(unknown, tmp_path)))


@pytest.mark.slow
def test_a_record_survives_its_file_and_holds_no_row_of_a_trace(experiment: Experiment, tmp_path: Path) -> None:
    record = make_record(run(experiment, tmp_path), quick=False)
    path = record_path(tmp_path / "ledger", "small")
    write_record(record, path)
    assert read_record(path) == record
    assert max(len(line) for line in path.read_text().splitlines()) < 500
    assert read_record(tmp_path / "none.json") is None
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match="cannot be read"):
        read_record(path)


@pytest.mark.slow
def test_an_experiment_without_a_table_keeps_its_verdicts_alone(experiment: Experiment, tmp_path: Path) -> None:
    record = make_record(run(msgspec.structs.replace(experiment, table=False), tmp_path), quick=False)
    assert not record.facts
    assert record.judgements[0].cases


@pytest.mark.slow
def test_the_state_says_when_it_ran_and_what_changed_since(experiment: Experiment, tmp_path: Path) -> None:
    record = make_record(run(experiment, tmp_path), quick=False)
    assert state(experiment, None) == "not run"
    made = f"run on {record.date} with 2 seeds and code {record.code_sha256[:8]}"
    assert state(experiment, record) == f"{made}: 3 reproduced, 1 differs, 1 not decidable"
    changed = msgspec.structs.replace(experiment, title="otherwise")
    assert state(changed, record).endswith("; the experiment changed since")
    assert state(experiment, msgspec.structs.replace(record, code_sha256="")).endswith(
        "; the code changed since, and no run was run again with it"
    )
    assert "; judged by former rules" in state(experiment, msgspec.structs.replace(record, rules=0))


@pytest.mark.slow
def test_a_spot_check_confirms_a_record_under_changed_code_or_refutes_it(
    experiment: Experiment, tmp_path: Path
) -> None:
    record = make_record(run(experiment, tmp_path), quick=False)
    assert len(record.digests) == record.runs
    older = msgspec.structs.replace(record, code_sha256="")
    found = spot_check(experiment, older, 2, traces=tmp_path / "traces")
    assert (found.runs, found.recorded, found.differing) == (2, record.runs, ())
    checked = checked_record(experiment, older, found)
    assert state(experiment, checked).endswith(
        f"; the code changed since, and 2 of {record.runs} runs were run again with it: same digests"
    )
    (row, *_) = record.digests
    found = spot_check(experiment, record, 99, traces=tmp_path / "traces", runs=[row])
    assert (found.runs, found.recorded, found.differing) == (1, record.runs, ())
    wrong = msgspec.structs.replace(
        record, digests=tuple(msgspec.structs.replace(one, digest="0") for one in record.digests)
    )
    found = spot_check(experiment, wrong, 99, traces=tmp_path / "traces")
    assert (found.runs, found.differing) == (record.runs, wrong.digests)


@pytest.mark.slow
def test_the_run_that_stands_for_an_experiment_is_affordable(experiment: Experiment, tmp_path: Path) -> None:
    record = make_record(run(experiment, tmp_path), quick=False)
    assert all(row.cpu_s >= 0 for row in record.digests)
    dear = tuple(msgspec.structs.replace(row, cpu_s=500.0 - k) for k, row in enumerate(record.digests))
    assert affordable(msgspec.structs.replace(record, digests=dear)) == dear[-1]
    some = (
        *dear[:2],
        msgspec.structs.replace(dear[2], cpu_s=119.0),
        *dear[3:-1],
        msgspec.structs.replace(dear[-1], cpu_s=1.0),
    )
    assert affordable(msgspec.structs.replace(record, digests=some)) == some[2]


def test_a_record_without_runs_cannot_be_checked(experiment: Experiment, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no recorded run; `python -m experiments run small` runs it"):
        spot_check(experiment, None, 1, traces=tmp_path)


def test_a_folder_that_cannot_be_written_is_named(experiment: Experiment, tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file", encoding="utf-8")
    with pytest.raises(InputError, match="results"):
        run(experiment, tmp_path)


def test_only_what_the_file_says_counts_as_a_change_of_it(experiment: Experiment) -> None:
    costs = {"gm": {"each": True, "roles": {"gm": {"Submit": {"task_us": 1000}}}}}
    told = msgspec.structs.replace(experiment, network=msgspec.convert({"hosts": costs}, NetworkCosts))
    spelt = {"gm": {**costs["gm"], "rest_half_us": 1000.0, "reports": False, "made": {"event_us": 0.0}}}
    same = msgspec.structs.replace(experiment, network=msgspec.convert({"hosts": spelt}, NetworkCosts))
    assert content_sha256(told) == content_sha256(same) != content_sha256(experiment)

    class Wider(HostCosts, frozen=True):
        invented: float = 1.0

    wider = msgspec.convert(costs["gm"], Wider)
    later = msgspec.structs.replace(told, network=msgspec.structs.replace(told.network, hosts={"gm": wider}))
    assert content_sha256(later) == content_sha256(told)


def test_the_hosts_of_a_workload_replace_those_of_the_same_name(experiment: Experiment, tmp_path: Path) -> None:
    gm, lm, dear = (
        {"roles": {role: {"Submit": {"task_us": cost}}}} for role, cost in (("gm", 1), ("lm", 2), ("gm", 9))
    )
    network = msgspec.convert({"hosts": {"gm": gm, "lm": lm}}, NetworkCosts)
    own = msgspec.structs.replace(experiment.workload[0], hosts={"gm": msgspec.convert(dear, HostCosts)})
    swept = msgspec.structs.replace(experiment, network=network, workload=(own,))
    (run, _) = plan_experiment(swept, tmp_path).runs["m", "w", "drawn"]
    found = {name: host["roles"][name]["Submit"]["task_us"] for name, host in run.spec.hosts.items()}
    assert found == {"gm": 9, "lm": 2}


def test_a_workload_may_set_the_load_of_its_runs(experiment: Experiment, tmp_path: Path) -> None:
    """One with a load, and one that has the load of its trace."""
    own, *_ = experiment.workload
    loaded = msgspec.structs.replace(own, label="loaded", load=0.5)
    both = msgspec.structs.replace(experiment, workload=(own, loaded), claim=experiment.claim[:1])
    planned = plan_experiment(both, tmp_path)
    assert {(place[1], run.spec.load) for place, runs in planned.runs.items() for run in runs} == {
        ("w", None),
        ("loaded", 0.5),
    }
    assert planned.inputs["w", "drawn"][0].key != planned.inputs["loaded", "drawn"][0].key


@pytest.mark.slow
def test_claims_may_change_without_another_run_and_workloads_may_not(experiment: Experiment, tmp_path: Path) -> None:
    record = make_record(run(experiment, tmp_path), quick=False)
    assert judged_again(experiment, record) is record
    harder = msgspec.structs.replace(experiment.claim[0], factor=1e9)
    changed = msgspec.structs.replace(experiment, claim=(harder, *experiment.claim[1:]))
    judged = judged_again(changed, record)
    assert [one.verdict for one in judged.judgements[:2]] == ["differs", "differs"]
    assert (judged.judged, judged.digests) == (record.date, record.digests)
    assert state(changed, judged).endswith(": 1 reproduced, 3 differs, 1 not decidable")
    other = msgspec.structs.replace(experiment.workload[0], workers=61)
    moved = msgspec.structs.replace(experiment, workload=(other, *experiment.workload[1:]))
    with pytest.raises(InputError, match="experiment small: names other runs than its record; `python -m exp"):
        judged_again(moved, record)
    marked = msgspec.structs.replace(experiment.workload[0], is_source="", stands_for="something else")
    stand_in = msgspec.structs.replace(experiment, workload=(marked, *experiment.workload[1:]))
    assert judged_again(stand_in, record).judgements[2].verdict == "fails on a stand-in"


def test_judging_again_gives_what_the_run_gave_without_run_or_trace(experiment: Experiment, tmp_path: Path) -> None:
    path = record_path(tmp_path / "ledger", "small")
    write_record(make_record(run(experiment, tmp_path), quick=False), path)
    record = read_record(path)
    assert record is not None
    emptied = msgspec.structs.replace(record, judgements=(), facts=())
    again = judged_again(experiment, emptied)
    assert (again.judgements, again.facts) == (record.judgements, record.facts)


@pytest.mark.slow
def test_judging_again_shows_the_values_that_the_record_keeps(experiment: Experiment, tmp_path: Path) -> None:
    record = make_record(run(experiment, tmp_path), quick=False)
    wider = msgspec.structs.replace(experiment, columns=("delay_s.p50", "jrt_s.p90"))
    facts = {fact.metric for fact in judged_again(wider, record).facts if fact.of}
    assert facts == {"delay_s.p50"}


@pytest.mark.slow
def test_inputs_are_measured_again_where_other_code_measured_the_recorded_ones(
    experiment: Experiment, tmp_path: Path
) -> None:
    record = make_record(run(experiment, tmp_path), quick=False)
    table = reusable(experiment, record)
    assert table is not None
    assert table.inputs
    other = reusable(experiment, msgspec.structs.replace(record, code_sha256="of other code"))
    assert other is not None
    assert (other.runs, other.inputs) == (table.runs, ())


@pytest.mark.slow
def test_conflicts_that_a_claim_asks_for_later_are_measured(experiment: Experiment, tmp_path: Path) -> None:
    plain = msgspec.structs.replace(experiment, pictures=())
    record = make_record(run(plain, tmp_path), quick=False)
    asked = msgspec.structs.replace(experiment.claim[2], left=Side("conflicts.waiting.mean"))
    more = msgspec.structs.replace(plain, claim=(*experiment.claim[:2], asked))
    found = reproduce(more, folder=tmp_path / "new", traces=tmp_path, recorded=reusable(more, record))
    table = found.table()
    place = table.input_metrics.index("conflicts.waiting.mean")
    assert [row.values[place] for row in record.inputs] == [None, None]
    assert None not in [row.values[place] for row in table.inputs]


@pytest.mark.slow
def test_a_record_of_the_first_rules_is_called_so_and_cannot_be_judged(experiment: Experiment, tmp_path: Path) -> None:
    record = make_record(run(experiment, tmp_path), quick=False)
    former = msgspec.structs.replace(record, rules=0, metrics=(), inputs=())
    assert "; judged by former rules" in state(experiment, former)
    assert "former" not in state(experiment, record)
    with pytest.raises(InputError, match="was judged by the first rules, and its record keeps no value of a run"):
        judged_again(experiment, former)
    counting = Counting()
    reproduce(experiment, folder=tmp_path / "new", traces=tmp_path, watcher=counting, recorded=former.table)
    assert counting.ended_count == 6


@pytest.mark.slow
def test_what_a_record_holds_under_the_same_key_is_not_run_again(experiment: Experiment, tmp_path: Path) -> None:
    record = make_record(run(experiment, tmp_path), quick=False)
    more = msgspec.structs.replace(experiment, seeds=(0, 1, 2))
    counting = Counting()
    found = reproduce(more, folder=tmp_path / "new", traces=tmp_path, watcher=counting, recorded=record.table)
    assert counting.ended_count == 3
    assert found.complete
    assert not found.drawable
    grown = make_record(found, quick=False)
    assert {row.seed for row in grown.digests} == {0, 1, 2}
    assert set(record.digests) < set(grown.digests)
    asks_more = msgspec.structs.replace(experiment, columns=("jrt_s.p90",))
    counting = Counting()
    reproduce(asks_more, folder=tmp_path / "newer", traces=tmp_path, watcher=counting, recorded=record.table)
    assert counting.ended_count == 6
