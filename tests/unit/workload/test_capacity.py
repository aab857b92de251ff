"""Machines that offer amounts, from options and files; machines turned into slots."""

from __future__ import annotations

from pathlib import Path

import pytest

from volery.core.errors import InputError
from volery.workload import as_slots, ask, load_cluster, synthesize
from volery.workload.clusters import parse_amounts

NAMES = ("cpu_milli", "memory_mb")
FILE = "name,memory_mb,c0,cpu_milli,c1\na,2048,1,4000,0\nb,1024,0,1000,1\n"


def machine_file(folder: Path, text: str = FILE) -> Path:
    path = folder / "machines.csv"
    path.write_text(text)
    return path


def test_every_machine_offers_what_the_option_says_in_the_order_of_the_tasks() -> None:
    cluster = load_cluster(3, resources=NAMES, capacity="memory_mb=16384, cpu_milli=64000, gpus=2")
    assert cluster.resources == NAMES
    assert cluster.capacities == ((64_000, 16_384),) * 3
    assert load_cluster(1, capacity="gpus=2,cpu_milli=1").resources == ("gpus", "cpu_milli")
    assert not load_cluster(3, resources=NAMES).resources


def test_a_file_says_what_each_machine_offers_and_meets(tmp_path: Path) -> None:
    cluster = load_cluster(2, machines=machine_file(tmp_path), resources=NAMES)
    assert cluster.capacities == ((4000, 2048), (1000, 1024))
    assert cluster.constraints == (0b01, 0b10)
    unconstrained = machine_file(tmp_path, "cpu_milli,memory_mb\n7,8\n")
    assert load_cluster(1, machines=unconstrained, resources=NAMES).constraints == (0,)
    assert not load_cluster(2, machines=machine_file(tmp_path)).resources, "nobody asks"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (FILE.replace("1024", "much"), r"machines.csv:3: column memory_mb holds 'much'; write a whole number"),
        (FILE.replace("1024", "-1"), r"machines.csv:3: column memory_mb holds '-1'"),
        (FILE.replace("1024", str(1 << 40)), r"machines.csv:3: column memory_mb holds"),
        (FILE.replace("memory_mb", "memory"), r"machines.csv:1: has no column memory_mb, which tasks ask for"),
        (FILE.replace(",1,4000", ",2,4000"), r"machines.csv:2: column c0 holds '2'"),
    ],
)
def test_a_wrong_file_is_named_by_its_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        load_cluster(2, machines=machine_file(tmp_path, text), resources=NAMES)


@pytest.mark.parametrize(
    "text", ["cpu_milli", "cpu_milli=-1", "cpu_milli=1.5", "=3", "a=1,a=2", "A b=1", f"a={1 << 40}"]
)
def test_amounts_are_refused_with_their_form(text: str) -> None:
    with pytest.raises(InputError, match=r"^capacity: "):
        parse_amounts(text, "capacity")


def test_a_resource_that_tasks_ask_for_must_be_offered() -> None:
    with pytest.raises(InputError, match="capacity: says nothing of memory_mb, which tasks ask for; add memory_mb=N"):
        load_cluster(2, resources=NAMES, capacity="cpu_milli=1")


def test_machines_become_as_many_slots_as_they_hold(tmp_path: Path) -> None:
    trace = ask(synthesize("syn:2x3"), "alibaba-like", 0)
    cluster = load_cluster(2, machines=machine_file(tmp_path), resources=NAMES)
    plain, slots = as_slots(trace, cluster, "cpu_milli=1000,memory_mb=600", "slot_request")
    assert slots.slots == (3, 1)
    assert slots.constraints == cluster.constraints
    assert not slots.resources
    assert plain.digest() == synthesize("syn:2x3").digest()
    assert as_slots(trace, cluster, "cpu_milli=9000,memory_mb=0", "slot_request")[1].slots == (1, 1)
    for wrong, at, problem in (
        ("cpu_milli=0,memory_mb=0", cluster, "stands for nothing"),
        ("cpu_milli=1", cluster, "says nothing of memory_mb"),
        ("cpu_milli=1,memory_mb=1", slots, "slots already"),
    ):
        with pytest.raises(InputError, match=problem):
            as_slots(trace, at, wrong, "slot_request")
