"""Cluster descriptions."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from volery.core.errors import InputError
from volery.core.trace import Trace, longs
from volery.workload import as_slots, ask, counted_resources, load_cluster, synthesize
from volery.workload.clusters import parse_amounts, read_machines


def machine_file(folder: Path, text: str) -> Path:
    path = folder / "machines.csv"
    path.write_text(text)
    return path


def test_a_plain_cluster_has_equal_workers_without_constraints() -> None:
    cluster = load_cluster(3, slots=2)
    assert cluster.constraints == (0, 0, 0)
    assert cluster.slots == (2, 2, 2)
    assert cluster.name == "3 workers"


def test_a_drawn_population_follows_the_seed_and_grows_at_its_end() -> None:
    small, large = (
        load_cluster(20, constraints="sharma2011", seed=9),
        load_cluster(50, constraints="sharma2011", seed=9),
    )
    assert large.constraints[:20] == small.constraints
    assert load_cluster(20, constraints="sharma2011", seed=10).constraints != small.constraints


def test_a_csv_file_gives_bit_k_for_column_ck(tmp_path: Path) -> None:
    path = machine_file(tmp_path, "machine,c1,c0,rack,c2\n0,1,0,r1,0\n1,0,1,r1,1\r\n\n2, 1 ,1,r2,1\n")
    assert read_machines(path).constraints == [0b010, 0b101, 0b111]
    assert load_cluster(2, machines=path).constraints == (0b010, 0b101)


def test_a_compressed_csv_file_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "m.csv.gz"
    path.write_bytes(gzip.compress(b"c0\n1\n0\n"))
    assert load_cluster(2, machines=path).constraints == (1, 0)


def test_fewer_workers_take_the_first_rows_and_read_no_further(tmp_path: Path) -> None:
    path = machine_file(tmp_path, "c0\n1\n1\nbroken\n")
    assert load_cluster(2, machines=path).constraints == (1, 1)


def test_more_workers_than_rows_are_refused_with_the_fix(tmp_path: Path) -> None:
    path = machine_file(tmp_path, "c0\n1\n1\n")
    with pytest.raises(InputError, match="holds 2 machines, fewer than the 3 workers; give --workers 2"):
        load_cluster(3, machines=path)


@pytest.mark.parametrize(
    ("text", "line", "complaint"),
    [
        ("c0,c1\n1,0\n1,2\n", 3, "column c1 holds '2'; write 0 or 1"),
        ("c0,c1\n1,\n", 2, "column c1 holds ''"),
        ("c0,c1\n11,\n", 2, "column c0 holds '11'"),
        ("c0,c1\n01,1\n", 2, "column c0 holds '01'"),
        ("c0,c1\nyes,1\n", 2, "column c0 holds 'yes'"),
        ("c0,c1\n1\n", 2, "has 1 fields where the header has 2"),
        ("c0,c2\n1,1\n", 1, "without gaps, at most 63 of them; found c0, c2"),
        ("machine,rack\n0,1\n", 1, "found none"),
        (",".join(f"c{k}" for k in range(64)) + "\n", 1, "at most 63"),
    ],
)
def test_a_wrong_file_is_refused_by_line(tmp_path: Path, text: str, line: int, complaint: str) -> None:
    path = machine_file(tmp_path, text)
    with pytest.raises(InputError) as caught:
        load_cluster(1, machines=path) if line < 3 else load_cluster(2, machines=path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert complaint in str(caught.value)


def test_a_file_without_machines_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no machine"):
        load_cluster(1, machines=machine_file(tmp_path, "c0,c1\n"))
    with pytest.raises(InputError, match="no such file"):
        load_cluster(1, machines=tmp_path / "absent.csv")


@pytest.mark.parametrize("workers", [0, -3, 10**9])
def test_impossible_numbers_of_workers_are_refused(workers: int) -> None:
    with pytest.raises(InputError, match=f"workers: {workers} workers cannot run anything; give from 1 to"):
        load_cluster(workers)


def test_impossible_numbers_of_slots_are_refused() -> None:
    with pytest.raises(InputError, match="slots: 0 slots per worker"):
        load_cluster(1, slots=0)


def test_a_file_says_how_fast_machines_are_where_a_reference_is_given(tmp_path: Path) -> None:
    path = tmp_path / "machines.csv"
    path.write_text("cpu_milli,speed_mhz\n4000,4100\n2000,3500\n")
    cluster = load_cluster(2, machines=path, resources=("cpu_milli",), reference_mhz=4000)
    assert (cluster.capacities, cluster.speeds, cluster.reference_speed) == (((4000,), (2000,)), (4100, 3500), 4000)
    plain = load_cluster(2, machines=path, resources=("cpu_milli",))
    assert (plain.speeds, plain.reference_speed) == ((), 0)
    slots = load_cluster(2, machines=path, slots=3, reference_mhz=4000)
    assert (slots.slots, slots.constraints, slots.speeds) == ((3, 3), (0, 0), (4100, 3500))
    trace = Trace("t", longs(1), longs(2), longs(1), longs(1), resources=("cpu_milli",), requests=((1000,),))
    _, made = as_slots(trace, cluster, "cpu_milli=1000", "slot_request")
    assert (made.slots, made.resources, made.speeds, made.reference_speed) == ((4, 2), (), (4100, 3500), 4000)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("c0\n1\n", r"machines.csv:1: has no column speed_mhz; add it"),
        ("c0,speed_mhz\n1,0\n", r"machines.csv:2: column speed_mhz holds 0"),
        ("c0,speed_mhz\n1,fast\n", r"machines.csv:2: column speed_mhz holds 'fast'"),
    ],
)
def test_wrong_speeds_are_refused_by_line(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "machines.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=complaint):
        load_cluster(1, machines=path, reference_mhz=4000)
    with pytest.raises(InputError, match="no file says how fast machines are"):
        load_cluster(1, reference_mhz=4000)


NAMES = ("cpu_milli", "memory_mb")
FILE = "name,memory_mb,c0,cpu_milli,c1\na,2048,1,4000,0\nb,1024,0,1000,1\n"


def offers_file(folder: Path, text: str = FILE) -> Path:
    path = folder / "machines.csv"
    path.write_text(text)
    return path


def setup_file(folder: Path, *racks: list[list[int]]) -> Path:
    """A setup of one room, a list of machines a rack."""
    objects = [
        {"type": "RACK", "machines": [{"cpus": cpus, "ethernet_speed": 1000.0} for cpus in rack]} for rack in racks
    ]
    path = folder / "setup.json"
    path.write_text(json.dumps({"name": "sc18", "rooms": [{"type": "SERVER", "objects": objects}]}))
    return path


def test_a_setup_file_of_sc18_is_read_as_its_machines(tmp_path: Path) -> None:
    """Section V-A: 16 machines with 4 cores of 4.1 GHz each, and 16 with 2 of 3.5 GHz (appendix A-G)."""
    path = setup_file(tmp_path, [[1]] * 16, [[2]] * 16)
    cluster = load_cluster(32, machines=path, resources=("cpu_milli",), reference_mhz=4000)
    table = Path(__file__).parents[3] / "experiments" / "machines" / "sc18.csv"
    of_table = load_cluster(32, machines=table, resources=("cpu_milli",), reference_mhz=4000)
    assert (cluster.capacities, cluster.speeds) == (of_table.capacities, of_table.speeds)
    assert counted_resources("", "", path) == ("cpu_milli",)


def test_processors_of_a_machine_of_a_setup_file_add_up(tmp_path: Path) -> None:
    rows = read_machines(setup_file(tmp_path, [[1, 1], [2]]), 2, ("cpu_milli",))
    assert rows.capacities == [(8000,), (2000,)]
    assert len(read_machines(setup_file(tmp_path, [[1], [2]]), 1).constraints) == 1


@pytest.mark.parametrize(
    ("machines", "resources", "complaint"),
    [
        ([[3]], (), r"setup.json: machine 0: has the processors \[3\]; give 1 .i7. or 2"),
        ([[1], []], (), r"setup.json: machine 1: has the processors \[\]"),
        ([[1, 2]], (), "machine 0: has processors of two speeds"),
        ([], (), "setup.json: holds no machine"),
        ([[1]], ("cpu_milli", "memory_mb"), "tells of processors alone, and tasks ask for cpu_milli, memory_mb"),
    ],
)
def test_a_wrong_setup_file_is_refused_by_its_machine(
    tmp_path: Path, machines: list[list[int]], resources: tuple[str, ...], complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        read_machines(setup_file(tmp_path, machines), 5, resources)


def test_a_file_that_is_no_setup_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "setup.json"
    path.write_text('{"rooms": [{"objects": [{"type": "DESK", "machines": []}]}]}')
    with pytest.raises(InputError, match=r"is no setup file of SC18's experiments: .*DESK"):
        read_machines(path)


def test_every_machine_offers_what_the_option_says_in_the_order_of_the_tasks() -> None:
    cluster = load_cluster(3, resources=NAMES, capacity="memory_mb=16384, cpu_milli=64000, gpus=2")
    assert cluster.resources == NAMES
    assert cluster.capacities == ((64_000, 16_384),) * 3
    assert load_cluster(1, capacity="gpus=2,cpu_milli=1").resources == ("gpus", "cpu_milli")
    assert not load_cluster(3, resources=NAMES).resources


def test_a_file_says_what_each_machine_offers_and_meets(tmp_path: Path) -> None:
    cluster = load_cluster(2, machines=offers_file(tmp_path), resources=NAMES)
    assert cluster.capacities == ((4000, 2048), (1000, 1024))
    assert cluster.constraints == (0b01, 0b10)
    unconstrained = offers_file(tmp_path, "cpu_milli,memory_mb\n7,8\n")
    assert load_cluster(1, machines=unconstrained, resources=NAMES).constraints == (0,)
    assert not load_cluster(2, machines=offers_file(tmp_path)).resources, "nobody asks"


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
        load_cluster(2, machines=offers_file(tmp_path, text), resources=NAMES)


def test_a_machine_without_any_of_a_resource_makes_no_slot_of_it(tmp_path: Path) -> None:
    path = tmp_path / "machines.csv"
    path.write_text("cpu_milli,gpus\n4000,2\n4000,0\n")
    cluster = load_cluster(2, machines=path, resources=("cpu_milli", "gpus"))
    trace = Trace("t", longs(1), longs(2), longs(1), longs(1), resources=("cpu_milli", "gpus"), requests=((1000, 1),))
    with pytest.raises(InputError, match="a slot takes 1 gpus, and machine 1 has none; give gpus=0 here"):
        as_slots(trace, cluster, "cpu_milli=1000,gpus=1", "slot_request")
    assert as_slots(trace, cluster, "cpu_milli=1000,gpus=0", "slot_request")[1].slots == (4, 4)


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
    cluster = load_cluster(2, machines=offers_file(tmp_path), resources=NAMES)
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
