"""What a federation's file may say, and how its components are dealt to hosts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from volery.architectures import configure, lookup
from volery.core.component import Architecture
from volery.core.errors import InputError
from volery.live.config.federation import read_federation, split

ADDRESSES = ("gm/0", "gm/1", "lm/0", "node/0", "node/1")


def choose(name: str, given: Mapping[str, Any]) -> tuple[Architecture, msgspec.Struct]:
    architecture = lookup(name)
    return architecture, configure(architecture, given)


def test_without_hosts_there_is_one_per_role_and_one_for_the_api() -> None:
    assert split(ADDRESSES, {}) == {
        "gm": ("gm/0", "gm/1"),
        "lm": ("lm/0",),
        "node": ("node/0", "node/1"),
        "api": ("submitter",),
    }


def test_the_first_pattern_that_fits_takes_an_address() -> None:
    hosts = {"first": ["gm/0"], "api": ["gm/*", "lm/*"], "node": ["node/*"]}
    assert split(ADDRESSES, hosts) == {
        "first": ("gm/0",),
        "api": ("gm/1", "lm/0", "submitter"),
        "node": ("node/0", "node/1"),
    }


@pytest.mark.parametrize(
    ("hosts", "problem"),
    [
        ({"gm": ["gm/*"], "node": ["node/*"]}, "no host takes lm/0"),
        ({"gm": ["gm/*", "gm/1"], "rest": ["*"]}, "nothing is left for 'gm/1'"),
    ],
)
def test_hosts_that_do_not_fit_are_told(hosts: dict[str, list[str]], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        split(ADDRESSES, hosts)


def test_a_file_becomes_a_plan(tmp_path: Path) -> None:
    path = tmp_path / "federation.toml"
    path.write_text(
        'architecture = "pigeon"\nseed = 3\n[parameters]\ngroups = 2\nreserved = 1\n'
        '[[machines]]\ncount = 5\nslots = 2\n[[machines]]\nlabels = { zone = "a" }\n'
    )
    federation = read_federation(path, choose)
    assert federation.plan.cluster.slots == (2, 2, 2, 2, 2, 1)
    assert federation.plan.seed == 3
    assert federation.folder == tmp_path / "federation"
    assert federation.api == ("127.0.0.1", 8642)
    assert len(federation.plan.configuration) == 64
    assert federation.plan.configuration == read_federation(path, choose).plan.configuration


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "machines"),
        ("machines = []", "there is none"),
        ("[[machines]]\ncount = 0", "expected a whole number"),
        ("[[machines]]\ncoutn = 1", "did you mean"),
        ('architecture = "mega"\n[[machines]]', "did you mean 'megha'"),
        ("[parameters]\nlmz = 2\n[[machines]]", "did you mean 'lms'"),
        ('api = "8642"\n[[machines]]', "is not HOST:PORT"),
        ('durability = "high"\n[[machines]]', "durability"),
        ('durability = "high"\n[[machines]]', r"toml.durability: .*'high'; allowed are 'flush', 'fsync', 'none'"),
        ('[isolation]\ncgroups = "maybe"\n[[machines]]', r"toml.isolation.cgroups: .*; allowed are 'auto', 'off', "),
        ("[isolation]\ncgrups = 1\n[[machines]]", r"toml.isolation.cgrups: unknown key; did you mean 'cgroups'"),
        ("seed = 1", r"toml.machines: is missing"),
        ("[retention]\ndays = -1\n[[machines]]", r"toml.retention.days: expected float >= 0"),
        ("brokr = 1\n[[machines]]", r"toml.brokr: unknown key; did you mean 'broker'"),
        ("[[machines]]\ncount = 1000000000", r"machines\[0\].count: makes more than 1,000,000 machines in all"),
        ('environment = ["CUDA_*", "A=B"]\n[[machines]]', r"environment\[1\]: 'A=B' is no name of a variable"),
        ('folder = "federation.toml"\n[[machines]]', "federation.toml: is no folder"),
        ("[[machines", "is not TOML"),
        ("[[machines]]\ncapacity = 3", r"machines\[0\].capacity: is a table, as capacity ="),
        ("[[machines]]\ncapacity = { gpus = -1 }", r"machines\[0\].capacity.gpus: expected a whole number"),
        ("[[machines]]\nslots = 2\ncapacity = { gpus = 1 }", "one or the other"),
        ("[[machines]]\ncapacity = { gpus = 1 }\n[[machines]]", "some offer gpus and some leave it out; write 0"),
        ('architecture = "pigeon"\n[[machines]]\ncapacity = { gpus = 1 }', "pigeon: places slots only"),
    ],
)
def test_mistakes_are_told_with_the_fix(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "federation.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=problem):
        read_federation(path, choose)


def test_machines_may_offer_amounts_instead_of_slots(tmp_path: Path) -> None:
    path = tmp_path / "federation.toml"
    path.write_text(
        'architecture = "megha"\n[parameters]\ngms = 1\nlms = 1\n[[machines]]\ncount = 2\n'
        "capacity = { cpu_milli = 4000, memory_mb = 8192 }\n[[machines]]\n"
        "capacity = { memory_mb = 1024, cpu_milli = 1000 }\n"
    )
    federation = read_federation(path, choose)
    assert federation.plan.cluster.resources == ("cpu_milli", "memory_mb")
    assert federation.plan.cluster.capacities == ((4000, 8192), (4000, 8192), (1000, 1024))
    assert federation.plan.build().components
