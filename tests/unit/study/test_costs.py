"""Files of costs: written, read, and taken over into settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from volery.core.costs import CostModel, EventCost, Frames, HostCosts
from volery.core.errors import InputError
from volery.study import compare, read_costs, read_study, run_study, verify, write_costs
from volery.study.costs import settings

MODEL = CostModel(
    delay_us=0,
    links={"gm:lm": 120},
    hosts={
        "live": HostCosts(
            {"gm": {"Submit": EventCost(7.25, 1.5, 40)}, "lm": {"other": EventCost(2)}, "node": {}},
            EventCost(5.5), EventCost(2.25), 4000.0,
        )
    },
)  # fmt: skip
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
