"""STUDY.toml: every mistake is named by its dotted path, with what may have been meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.comparison import compare

from volery.core.costs import CostModel, EventCost, Frames, HostCosts
from volery.core.errors import InputError
from volery.study import read_costs, read_study, run_study, verify, write_costs
from volery.study.file import settings
from volery.study.spec import ArchitectureChoice

GOOD = """
[study]
name = "small"
[workload]
trace = "syn:5x6"
constraints = "sharma2011"
[network]
delay_us = 250
links = { "lm:node" = 1000 }
[axes]
architectures = ["megha", "megha:gms=2", { name = "central", parameters = { heartbeat_s = 2.5 } }]
workers = [50, 100]
seeds = 2
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "small.toml"
    path.write_text(text)
    return path


def test_a_study_file_is_read(tmp_path: Path) -> None:
    study = read_study(written(tmp_path, GOOD))
    assert study.name == "small"
    assert study.seeds == (0, 1)
    assert study.architectures == (
        ArchitectureChoice("megha"),
        ArchitectureChoice("megha", {"gms": "2"}),
        ArchitectureChoice("central", {"heartbeat_s": 2.5}),
    )
    first, second = study.settings()
    assert (first.workers, second.workers) == (50, 100)
    assert first.trace == "syn:5x6"
    assert first.links == {"lm:node": 1000}
    assert (first.delay_us, first.constraints) == (250, "sharma2011")


def test_file_names_are_relative_to_the_study_file(tmp_path: Path) -> None:
    text = GOOD.replace('"syn:5x6"', '"../a.tr"').replace("delay_us", "delay_us")
    (tmp_path / "inner").mkdir()
    study = read_study(written(tmp_path / "inner", text))
    assert next(study.settings()).trace == str(tmp_path / "a.tr")


@pytest.mark.parametrize(
    ("wrong", "right", "message"),
    [
        ("workers = [50, 0]", "workers = [50, 100]", r"study\.axes\.workers\[1\]: expected int >= 1, not 0"),
        ("workers = 50", "workers = [50, 100]", r"study\.axes\.workers: an axis is a list, as \[50\]"),
        ("wrokers = [50]", "workers = [50, 100]", r"study\.axes\.wrokers: unknown key; did you mean 'workers'"),
        ("[axis]", "[axes]", r"study\.axis: unknown table; did you mean 'axes'"),
        ('nmae = "x"', 'name = "small"', r"study\.study\.nmae: unknown key; known are name|did you mean 'name'"),
        ("name = 5", 'name = "small"', r"study\.name: expected a name, not 5"),
        ('constraints = "sharma"', 'constraints = "sharma2011"', r"study\.workload\.constraints: there is no 'sharma'"),
        ("delay_us = -1", "delay_us = 250", r"study\.network\.delay_us: expected int >= 0, not -1"),
        ("seeds = 0", "seeds = 2", r"study\.axes\.seeds: expected a number of seeds >= 1"),
        ("seeds = [0, 1.5]", "seeds = 2", r"study\.axes\.seeds\[1\]: expected int"),
        ('"megha:gms"', '"megha:gms=2"', r"study\.axes\.architectures\[1\]: 'gms' in 'megha:gms'"),
        ('title = "central"', 'name = "central"', r"study\.axes\.architectures\[2\]\.title: unknown key"),
        ("heartbeat_s = [1]", "heartbeat_s = 2.5", r"architectures\[2\]\.parameters\.heartbeat_s: expected a single"),
        ("5,", '"megha",', r"study\.axes\.architectures\[0\]: expected an architecture's name, not 5"),
        ("", "workers = [50, 100]", r"study\.workload\.workers: is missing"),
        ("trace = 1", 'trace = "syn:5x6"', r"study\.workload\.trace: expected str"),
    ],
)
def test_a_mistake_is_named_by_its_dotted_path(tmp_path: Path, wrong: str, right: str, message: str) -> None:
    assert right in GOOD
    with pytest.raises(InputError, match=message):
        read_study(written(tmp_path, GOOD.replace(right, wrong)))


def test_a_value_cannot_be_given_alone_and_as_an_axis(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"study\.workload\.workers: is given under \[axes\] as well"):
        read_study(written(tmp_path, GOOD.replace("[network]", "workers = 5\n[network]")))


@pytest.mark.parametrize(
    ("table", "key", "home"),
    [("workload", "jitter_us = 5", "network"), ("network", "slots = 2", "workload"), ("study", "seeds = 3", "axes")],
)
def test_a_key_in_the_wrong_table_is_told_where_it_belongs(tmp_path: Path, table: str, key: str, home: str) -> None:
    text = GOOD.replace(f"[{table}]", f"[{table}]\n{key}")
    assert text != GOOD
    with pytest.raises(InputError, match=rf"study\.{table}\.\w+: unknown key; it belongs under \[{home}\]"):
        read_study(written(tmp_path, text))


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        ("workload", "load", "[0.2, 0.3]"),
        ("workload", "estimates", '["mean", "f:2"]'),
        ("workload", "limits", '["ignore", "enforce"]'),
        ("workload", "window", "[[0, 10], [10, 20]]"),
        ("network", "jitter_us", "[1, 2]"),
    ],
)
def test_a_list_of_values_outside_the_axes_is_told_where_it_belongs(
    tmp_path: Path, table: str, key: str, value: str
) -> None:
    text = GOOD.replace(f"[{table}]", f"[{table}]\n{key} = {value}")
    with pytest.raises(InputError, match=rf"study\.{table}\.{key}: expected one value, .* belongs under \[axes\]$"):
        read_study(written(tmp_path, text))


def test_a_parameter_under_the_workload_is_told_where_it_belongs(tmp_path: Path) -> None:
    for key in ('"sparrow.probe_ratio" = [1, 2]', "sparrow.probe_ratio = [1, 2]"):
        text = GOOD.replace("[workload]", f"[workload]\n{key}")
        with pytest.raises(InputError, match=r"study\.workload\.sparrow.*: unknown key; it belongs under \[axes\]$"):
            read_study(written(tmp_path, text))


def test_what_is_no_toml_or_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"small\.toml: is not TOML"):
        read_study(written(tmp_path, "axes = ["))
    with pytest.raises(InputError, match=r"gone\.toml: cannot be read: No such file"):
        read_study(tmp_path / "gone.toml")
    with pytest.raises(InputError, match=r"study\.axes: is a table: write \[axes\]"):
        read_study(written(tmp_path, "axes = 5"))


MODEL = CostModel(
    delay_us=0,
    links={"gm:lm": 120},
    hosts={
        "live": HostCosts(
            {"gm": {"Submit": EventCost(7.25, 1.5, 40)}, "lm": {"other": EventCost(2)}, "node": {}},
            EventCost(5.5),
            EventCost(2.25),
            4000.0,
        )
    },
)
SETTING: dict[str, Any] = {"trace": "syn:5x4,interval=0.05", "workers": 60}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "costs.toml"
    write_costs(MODEL, path, "Measured.\nSomewhere.", force=False)
    return path


def test_what_is_written_is_read(file: Path) -> None:
    read = read_costs(file)
    hosts = {name: set(costs.roles) for name, costs in read.hosts.items()}
    assert hosts == {"live": {"gm", "lm"}}, "a role without costs leaves no table"
    assert read.hosts["live"].roles["gm"] == MODEL.hosts["live"].roles["gm"]
    assert (read.delay_us, read.links, read.hosts["live"].turn.event_us) == (0, {"gm:lm": 120}, 5.5)
    assert file.read_text().startswith("# Measured.\n# Somewhere.\n")
    with pytest.raises(InputError, match="exists already"):
        write_costs(MODEL, file, "", force=False)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("delay = 3\n", r"costs.toml:delay: unknown key; did you mean 'delay_us'"),
        ("delay_us = -3\n", r"costs.toml:delay_us: [Ee]xpected"),
        ("[hosts.a.roles.gm]\nSubmit = { event_ms = 1 }\n", r"costs.toml:hosts.*unknown field event_ms"),
        ("delay_us =\n", "is not TOML"),
    ],
)
def test_what_is_wrong_is_named(text: str, match: str, tmp_path: Path) -> None:
    path = tmp_path / "costs.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=match):
        read_costs(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_costs(tmp_path / "none.toml")


def test_hosts_slow_a_run_down_and_belong_to_its_key(file: Path) -> None:
    measured = settings(read_costs(file))
    plain = compare("megha", **SETTING, delay_us=0).runs[0]
    slowed = compare("megha", **SETTING, **measured).runs[0]
    assert plain.allocation_s.total.mean == 0 < slowed.allocation_s.processing.mean
    assert slowed.digest != plain.digest


@pytest.mark.slow
def test_a_study_names_the_file_and_what_stands_beside_it_is_stronger(file: Path) -> None:
    study = file.with_name("s.toml")
    study.write_text(
        '[workload]\ntrace = "syn:5x4"\nworkers = 60\n[network]\ncosts = "costs.toml"\ndelay_us = 9\n'
        '[axes]\narchitectures = ["megha"]\n'
    )
    (setting,) = read_study(study).settings()
    assert (setting.delay_us, setting.links, setting.costs) == (9, {"gm:lm": 120}, {})
    assert setting.hosts["live"]["turn"]["event_us"] == 5.5
    results = run_study(read_study(study), folder=file.with_name("results"))
    again = run_study(read_study(study), folder=file.with_name("results"))
    assert (again.reused, results.runs[0].digest) == (1, again.runs[0].digest)
    assert verify(file.with_name("results")).agrees


def test_a_role_has_one_processor() -> None:
    twice = {"a": HostCosts({"gm": {}}), "b": HostCosts({"gm": {}})}
    with pytest.raises(InputError, match=r"hosts.b: 'gm' stands on host a, too"):
        compare("megha", **SETTING, hosts=twice)
    with pytest.raises(InputError, match=r"hosts.a: 'gm' stands in costs, too"):
        compare("megha", **SETTING, hosts={"a": HostCosts({"gm": {}})}, costs={"gm": 1})
    with pytest.raises(InputError, match=r"hosts.a: no architecture here has any of its roles, master"):
        compare("megha", **SETTING, hosts={"a": HostCosts({"master": {}})})


@pytest.mark.slow
def test_frames_are_written_read_and_played(tmp_path: Path) -> None:
    hosts = {
        name: HostCosts({name: {"other": EventCost(1)}}, made=EventCost(3), read=EventCost(40))
        for name in ("gm", "lm", "node", "submitter")
    }
    model = CostModel(hosts=hosts, frames=Frames((90, 110, 400), 12.5, 2))
    path = tmp_path / "apart.toml"
    write_costs(model, path, "apart", force=False)
    assert read_costs(path) == model
    measured = settings(read_costs(path))
    by_frames = compare("megha", **SETTING, **measured).runs[0]
    again = compare("megha", **SETTING, **measured).runs[0]
    assert by_frames.digest == again.digest != compare("megha", **SETTING, hosts=measured["hosts"]).runs[0].digest
    assert 3 * 90e-6 < by_frames.allocation_s.total.mean < 2e-3
