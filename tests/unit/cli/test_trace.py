"""`volery trace`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from volery.cli.main import app
from volery.cli.trace import trace_app
from volery.core.errors import InputError
from volery.workload import read_tr, synthesize


def told(*words: str | Path) -> str:
    outcome = CliRunner().invoke(trace_app, [str(word) for word in words], catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return outcome.output


def refused(*words: str | Path) -> str:
    outcome = CliRunner().invoke(trace_app, [str(word) for word in words])
    assert isinstance(outcome.exception, InputError), outcome.output
    return str(outcome.exception)


def compared(*words: str) -> str:
    outcome = CliRunner().invoke(app, ["compare", *words], catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return outcome.output


def test_describe_prints_the_figures_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "small.tr"
    path.write_text("1000 2 3 2 4\n1005 1 10 10\n1005 3 1.333333 1 1 2\n")
    text = told("describe", path, "--workers", "2", "--cutoff", "3.5")
    lines = {
        line.split("│")[1].strip(): line.split("│")[2].strip() for line in text.splitlines() if line.count("│") == 3
    }
    assert "small" in text.splitlines()[0]
    assert (lines["jobs"], lines["tasks"], lines["load at 2 workers"]) == ("3", "6", "2.0000")
    assert lines["short jobs (up to 3.5 s)"] == "2 (66.7 %) with 50.0 % of the work"
    assert lines["jobs that arrive with the one before"] == "1"
    assert lines["first arrival in the file (s), here 0"] == "1,000"
    assert "rows not in order of arrival (sorted)" not in lines, "an oddity that is not there is not listed"
    assert text.splitlines()[-1].startswith("|")


def test_describe_as_json_holds_every_figure(tmp_path: Path) -> None:
    content = json.loads(told("describe", "syn:10x20", "--workers", "100", "--constraints", "sharma2011", "--json"))
    assert (content["jobs"], content["tasks"], content["peak_demand"]) == (20, 200, 10)
    assert content["load"] == pytest.approx(200 / 1_900)
    assert content["digest"] == synthesize("syn:10x20").digest()
    assert len(content["constraints"]["frequency"]) <= 21
    assert content["oddities"]["zero_durations"] == 0
    assert content["picture"] is None


def test_describe_takes_machines_from_a_file(tmp_path: Path) -> None:
    """No machine meets anything, so exactly the unconstrained tasks can run."""
    path = tmp_path / "m.csv"
    path.write_text("c0,c1\n0,0\n0,0\n")
    words = ("describe", "syn:10x20", "--workers", "2", "--constraints", "sharma2011", "--machines", path)
    use = json.loads(told(*words, "--json"))["constraints"]
    assert use["unsatisfiable_tasks"] == 200 - use["unconstrained_tasks"]
    assert "tasks that no machine can run" in told(*words)


RIGID = """\
; MaxProcs: 100
1 0 -1 40 40 -1 -1 40 40 -1 1 1 -1 -1 -1 -1 -1 -1
2 10 -1 20 80 -1 -1 80 20 -1 1 1 -1 -1 -1 -1 -1 -1
3 20 -1 10 90 -1 -1 90 10 -1 1 1 -1 -1 -1 -1 -1 -1
4 30 -1 50 20 -1 -1 20 50 -1 1 1 -1 -1 -1 -1 -1 -1
5 40 -1 30 60 -1 -1 60 30 -1 1 1 -1 -1 -1 -1 -1 -1
"""
"""Five jobs of 6,900 core-seconds over 40 s; 210 cores would be in use at 20 s."""


def rigid(folder: Path, text: str = RIGID) -> Path:
    path = folder / "rigid.swf"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("machines", "cores"),
    [
        (("--workers", "1", "--machines", "one"), 100),
        (("--workers", "1"), 100),
        (("--workers", "100"), 100),
        ((), 100),
        (("--workers", "30"), 100),
        (("--workers", "50", "--capacity", "cpu_milli=1000"), 50),
        (("--workers", "1", "--machines", "one", "--reference-mhz", "2000"), 200),
    ],
)
def test_the_load_of_jobs_of_many_processors_is_that_of_their_processors(
    tmp_path: Path, machines: tuple[str, ...], cores: int
) -> None:
    """However the machines are given: as those of `compare`, or by what the file itself states."""
    path, one = rigid(tmp_path), tmp_path / "one.csv"
    one.write_text("cpu_milli,speed_mhz\n100000,4000\n")
    words = [str(one) if word == "one" else word for word in machines]
    found = json.loads(told("describe", path, *words, "--cutoff", "25", "--json"))
    assert (found["offered"], found["work"], found["work_unit"]) == (cores, 6900, "core-seconds")
    assert found["load"] == pytest.approx(6900 / (cores * 40))
    assert found["peak_demand"] == 210
    assert found["long"]["work_share"] == pytest.approx((1600 + 1000 + 1800) / 6900)
    if "one" in machines and cores == 100:
        work = ("backfill", "--trace", str(path), *words, "--delay-us", "0", "--json")
        assert json.loads(compared(*work))["runs"][0]["load"] == found["load"], "one load in the whole house"


@pytest.mark.parametrize(
    "machines",
    [
        ("--capacity", "cpu_milli=100000"),
        ("--capacity", "cpu_milli=100000,memory_mb=1000000"),
        ("--machines", "one"),
        ("--resources", "cpu_milli"),
    ],
)
def test_describe_counts_the_resources_that_compare_counts(tmp_path: Path, machines: tuple[str, ...]) -> None:
    """Three of five jobs state memory, which machines may offer or not."""
    lines = RIGID.splitlines()
    stating = [line.replace(" -1 1 1 -1", " 1024 1 1 -1") if k < 4 else line for k, line in enumerate(lines)]
    path, one = rigid(tmp_path, "\n".join(stating) + "\n"), tmp_path / "one.csv"
    one.write_text("cpu_milli,speed_mhz\n100000,4000\n")
    words = [str(one) if word == "one" else word for word in machines]
    found = json.loads(told("describe", path, "--workers", "1", *words, "--json"))
    assert (found["jobs"], found["resource"], found["load"]) == (5, "cpu_milli", pytest.approx(1.725))


def test_describe_names_the_resources_that_do_not_count(tmp_path: Path) -> None:
    """One of five jobs states memory."""
    lines = [
        line.replace(" -1 1 1 -1", " 1024 1 1 -1") if k == 1 else line for k, line in enumerate(RIGID.splitlines())
    ]
    path = rigid(tmp_path, "\n".join(lines) + "\n")
    row = "requests that do not count (--resources)"
    assert row in told("describe", path)
    assert json.loads(told("describe", path, "--json"))["unheeded_resources"] == ["memory_mb"]
    assert row not in told("describe", path, "--resources", "cpu_milli,memory_mb")


def test_machines_without_any_of_what_is_requested_are_refused(tmp_path: Path) -> None:
    assert "no machine has any cpu_milli" in refused("describe", rigid(tmp_path), "--capacity", "cpu_milli=0")


def test_where_a_file_states_no_machine_every_worker_has_a_processor(tmp_path: Path) -> None:
    path = rigid(tmp_path, RIGID.replace("; MaxProcs: 100\n", ""))
    text = told("describe", path, "--workers", "100")
    assert "load at 100 workers " in text
    assert json.loads(told("describe", path, "--workers", "200", "--json"))["load"] == pytest.approx(6900 / 8000)
    assert json.loads(told("describe", path, "--json"))["workers"] == 10_000


def test_the_running_load_is_of_what_is_asked_for(tmp_path: Path) -> None:
    assert "peak 210.0 %:" in told("describe", rigid(tmp_path))


def test_the_load_of_several_resources_is_that_of_the_largest_share(tmp_path: Path) -> None:
    """One task of 1 core and 12 GB of a machine of 4 cores and 16 GB, all along: three quarters of the memory."""
    path = tmp_path / "a.csv"
    path.write_text("".join(f"{k},1,12288,0,1000,{k * 1000},on,x\n" for k in range(11)))
    words = ("describe", path, "--workers", "1", "--capacity", "cpu_milli=4000,memory_mb=16384", "--json")
    found = json.loads(told(*words))
    assert (found["resource"], found["load"], found["peak_demand"]) == ("memory_mb", pytest.approx(0.825), 12_288)


def test_describe_reads_as_the_published_simulators_do_when_asked() -> None:
    words = (
        "describe",
        "syn:1x4,duration=1.5,interval=0.0000001",
        "--durations",
        "whole-seconds",
        "--arrivals",
        "dephased",
    )
    content = json.loads(told(*words, "--jobs", "3", "--json"))
    assert (content["jobs"], content["task_seconds"], content["span_s"]) == (3, 3.0, 0.02)


def test_describe_draws_where_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "load.svg"
    assert f"picture: {path}" in told("describe", "syn:2x9", "--picture", path)
    assert path.read_text().startswith("<?xml")
    assert list(tmp_path.iterdir()) == [path]


def test_synth_writes_what_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "p.tr.gz"
    text = told("synth", "poisson:jobs=30,fanout=geometric:3", "-o", path, "--seed", "5")
    digest = synthesize("poisson:jobs=30,fanout=geometric:3", 5).digest()
    assert read_tr(path).digest() == digest
    assert digest[:16] in text
    assert "30 jobs" in text


def test_synth_replaces_a_file_only_when_forced(tmp_path: Path) -> None:
    path = tmp_path / "s.tr"
    told("synth", "syn:1x2", "-o", path)
    assert "--force" in refused("synth", "syn:1x3", "-o", path)
    assert read_tr(path).job_count == 2
    content = json.loads(told("synth", "syn:1x3", "-o", path, "--force", "--json"))
    assert content["jobs"] == read_tr(path).job_count == 3
    assert content["digest"] == read_tr(path).digest()


def test_wrong_words_are_refused_with_their_place(tmp_path: Path) -> None:
    assert refused("describe", tmp_path / "absent.tr").startswith(f"{tmp_path / 'absent.tr'}: no such file")
    assert refused("describe", "syn:1x1", "--workers", "0").startswith("workers: ")
    assert refused("describe", "syn:1x1", "--cutoff", "-1").startswith("cutoff: ")
    assert refused("describe", "syn:1x1", "--constraints", "sharma").startswith("constraints: ")
    assert refused("describe", "syn:1x1", "--durations", "exactly").startswith("durations: ")
    assert refused("describe", "syn:1x1", "--picture", tmp_path / "a.gif").startswith(str(tmp_path))
    assert refused("synth", "poisson:load=much", "-o", tmp_path / "x.tr").startswith("poisson:load: ")
    assert list(tmp_path.iterdir()) == []


def test_convert_and_doctor_say_what_they_found_and_whether_it_is_answered(tmp_path: Path) -> None:
    source, output = tmp_path / "a", tmp_path / "a.parquet"
    source.write_text("7 2 1.5 1 0\n4 1 3 3\n")
    outcome = CliRunner().invoke(trace_app, ["doctor", str(source)])
    assert outcome.exit_code == 1
    assert (
        f"zero-runtime: a task that runs no time: 1; choose --repair zero-runtime=drop|null|keep\n  first: {source}:1"
        in (outcome.output)
    )
    repairs = ("--repair", "zero-runtime=drop", "--repair", "unsorted=sort", "--repair", "clock-origin=shift")
    assert "chosen: drop" in told("doctor", source, *repairs)
    outcome = CliRunner().invoke(trace_app, ["doctor", str(source), "--json", *repairs[:2]])
    assert outcome.exit_code == 1
    assert json.loads(outcome.output)["unanswered"] == ["unsorted", "clock-origin"]
    text = told("convert", source, "-o", output, *repairs)
    assert f"{output}: 2 rows of 3 from tr" in text
    assert "repaired: zero-runtime by drop in 1 rows" in text
    assert "no defects" in told("doctor", output)
    content = json.loads(told("convert", source, "-o", output, "--force", "--json", "--format", "tr"))
    assert (content["rows"], content["left"]) == (3, {"zero-runtime": 1, "unsorted": 1, "clock-origin": 1})
    assert "exists already" in refused("convert", source, "-o", output)
    assert "'gwff' is no format; did you mean 'gwf'" in refused("doctor", source, "--format", "gwff")


def test_describe_tells_the_shape_of_workflows() -> None:
    text = told("describe", "workflow:fork-join,jobs=4,fanout=5", "--workers", "10")
    assert "4 of 20 tasks that wait 24 times" in text
    assert "3.00, 3" in text
    shape = json.loads(told("describe", "workflow:fork-join,jobs=4,fanout=5", "--json"))["workflows"]
    assert (shape["depth_max"], shape["width_max"], shape["waits"]) == (3, 3, 24)
    assert "workflows" not in told("describe", "syn:2x3", "--workers", "10")
    assert json.loads(told("describe", "syn:2x3", "--json"))["workflows"] is None


CONF = "NodeName=n[0-1] CPUs=4 RealMemory=1024 Weight=2\nNodeName=m Gres=gpu:2 State=DOWN\nPartitionName=p Nodes=n1\n"


def test_machines_writes_the_machines_of_a_cluster_and_accounts_for_each_line(tmp_path: Path) -> None:
    conf, output = tmp_path / "slurm.conf", tmp_path / "machines.csv"
    conf.write_text(CONF)
    text = told("machines", conf, "-o", output)
    assert text.splitlines() == [
        f"{conf}:1: 2 machines of 4 CPUs, 1 GB; not read: Weight (order in which Slurm fills nodes)",
        f"{conf}:2: 1 machine of 1 CPUs, 1 MB, 2 GPUs, takes no work: DOWN",
        f"{conf}:3: partition p: 1 machine",
        "left out: 1 machine, DOWN: m",
        f"{output}: 2 machines with 8 CPUs, 2 GB together",
        f"try:  volery compare oracle backfill --trace TRACE --workers 2 --machines {output}",
    ]
    assert output.read_text() == "name,cpu_milli,memory_mb\nn0,4000,1024\nn1,4000,1024\n"
    assert "exists already; give --force" in refused("machines", conf, "-o", output)
    conf.write_text(f"{CONF}NodeName=d[00-11] State=DRAIN\n")
    assert "left out: 12 machines, DRAIN: d00, d01, d02, d03, d04, d05, d06, d07 and 4 more\n" in told("machines", conf)
    conf.write_text(CONF)
    told("machines", conf, "-o", output, "--force", "--down")
    assert output.read_text().splitlines()[-1] == "m,1000,1,2000"


def test_machines_of_a_partition_as_json_without_a_file(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(CONF)
    content = json.loads(told("machines", conf, "--partition", "p", "--json"))
    assert [listed["name"] for listed in content["machines"]] == ["n1"]
    assert (content["form"], content["file"], content["offers"]) == (
        "slurm.conf",
        None,
        {"cpu_milli": 4000, "memory_mb": 1024},
    )
    assert [listed["state"] for listed in content["left_out"]] == ["DOWN"]
    assert content["lines"][0]["ignored"] == ["Weight (order in which Slurm fills nodes)"]
    assert "--partition: slurm.conf has no 'q'" in refused("machines", conf, "--partition", "q")
    assert "no such file" in refused("machines", tmp_path / "absent")


@pytest.mark.slow
def test_a_comparison_runs_on_the_machines_of_a_slurm_conf(tmp_path: Path) -> None:
    conf, trace = tmp_path / "slurm.conf", tmp_path / "own.swf"
    conf.write_text(CONF)
    trace.write_text("1 0 -1 100 4 -1 -1 4 200 -1 1 1 1 -1 1 -1 -1 -1\n2 0 -1 50 2 -1 -1 2 60 -1 1 2 1 -1 1 -1 -1 -1\n")
    text = compared(
        "backfill", "--trace", str(trace), "--workers", "2", "--machines", str(conf), "-o", str(tmp_path / "o")
    )
    assert "backfill" in text


def test_anonymise_prints_a_key_once_and_takes_it_again(tmp_path: Path) -> None:
    trace, output, key = tmp_path / "own.swf", tmp_path / "o.parquet", tmp_path / "key"
    trace.write_text("1 0 -1 100 4 -1 -1 4 200 -1 1 1 1 -1 1 -1 -1 -1\n")
    lines = told("anonymise", trace, "-o", output, "--shift-days", "14").splitlines()
    assert lines[0].startswith(f"{output}: 1 rows; keyed hashes of all ids and of 1 user")
    assert lines[1].startswith("stays: times, requests, ")
    assert "times are +14 days off; who knows when" in lines[1]
    printed = lines[2].removeprefix("key:   ")
    key.write_text(printed)
    again = json.loads(told("anonymise", trace, "-o", output, "--force", "--key", key, "--json"))
    assert (again["rows"], again["names"]["user"], again["key"]) == (1, 1, None)
    assert len(json.loads(told("anonymise", trace, "-o", output, "--force", "--json"))["key"]) == 64
    key.write_text("short")
    assert f"{key}:1: holds no key" in refused("anonymise", trace, "-o", output, "--force", "--key", key)
    assert "no such file" in refused("anonymise", trace, "-o", output, "--force", "--key", tmp_path / "absent")
