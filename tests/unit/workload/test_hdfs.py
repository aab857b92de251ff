"""Work that reads replicated blocks: sizes, placement by racks, and errors that name the key."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.comparison import compare

from volery.core.errors import InputError
from volery.workload import load_cluster, load_trace, with_blocks
from volery.workload.hdfs import BINS, machine_racks


def test_sizes_of_the_preset_are_the_papers() -> None:
    trace = load_trace("hdfs:facebook")
    sizes = Counter(trace.first[job + 1] - trace.first[job] for job in range(trace.job_count))
    assert sizes == dict(BINS["facebook"])
    assert trace.task_count == 26_410
    assert load_trace("hdfs:facebook,jobs=10").job_count == 10


def test_replicas_lie_as_the_file_system_places_them() -> None:
    """The second in another rack than the first, the third beside the second; never two on a machine."""
    racks = machine_racks(23, 4)
    trace = load_trace("hdfs:500x4,workers=23,racks=4,replicas=4")
    use: Counter[int] = Counter()
    for task in range(trace.task_count):
        first, second, third, fourth = trace.replicas_of([task])[0]
        assert racks[first] != racks[second] == racks[third]
        assert len({first, second, third, fourth}) == 4
        use.update((first, second, third, fourth))
    assert set(use) == set(range(23))
    assert max(use.values()) < 1.5 * min(use.values())


def test_hot_blocks_are_read_by_many_and_may_have_more_replicas() -> None:
    plain, hot = (load_trace(f"hdfs:200x5{keys}") for keys in ("", ",hot=0.4,hot_blocks=2,hot_replicas=20"))
    held, before = hot.replicas_of(range(1000)), plain.replicas_of(range(1000))
    many = [machines for machines in held if len(machines) == 20]
    assert 350 < len(many) < 450
    assert len(set(many)) == 2
    assert all(one == other for one, other in zip(held, before, strict=True) if len(one) == 3)


def test_in_one_rack_they_lie_anywhere() -> None:
    trace = load_trace("hdfs:400x5,workers=9,replicas=9,any=2,rack=1.25")
    assert all(sorted(held) == list(range(9)) for held in trace.replicas_of(range(400)))
    assert trace.far_permille == (1250, 2000)


def test_a_cut_trace_keeps_the_replicas_of_its_jobs() -> None:
    whole, cut = (load_trace("hdfs:7x9,workers=20", job_count=jobs) for jobs in (None, 4))
    assert cut.replicas_of(range(28)) == whole.replicas_of(range(28))
    assert len(cut.replica_first) == 29
    moved = load_trace("hdfs:7x9,workers=20,gap=0", arrivals="dephased")
    assert moved.replicas_of(range(63)) == load_trace("hdfs:7x9,workers=20,gap=0").replicas_of(range(63))


def test_any_trace_may_read_blocks_which_lie_as_those_of_hdfs_do() -> None:
    placed = with_blocks(load_trace("syn:7x9"), "replicas=2,rack=1.5,any=2", workers=20, racks=4, seed=3)
    drawn = load_trace("hdfs:7x9,workers=20,racks=4,replicas=2", seed=3)
    assert placed.replicas_of(range(63)) == drawn.replicas_of(range(63))
    assert placed.far_permille == (1500, 2000)
    with pytest.raises(InputError, match=r"blocks: the tasks of .* have input on machines already"):
        with_blocks(drawn, "replicas=2", workers=20, racks=4, seed=3)
    for blocks, racks, match in (
        ("gap=2", 4, "blocks:gap: no such key"),
        ("replicas=21", 4, "blocks:replicas"),
        ("", 21, "racks"),
    ):
        with pytest.raises(InputError, match=match):
            with_blocks(load_trace("syn:7x9"), blocks, workers=20, racks=racks, seed=3)


def test_tasks_that_wait_for_others_read_no_block() -> None:
    trace = load_trace("workflow:chain,jobs=3,fanout=4")
    held = with_blocks(trace, "replicas=2", workers=20, racks=1, seed=0).replicas_of(range(trace.task_count))
    waits = [trace.parent_first[task] < trace.parent_first[task + 1] for task in range(trace.task_count)]
    assert [len(machines) for machines in held] == [0 if is_waiting else 2 for is_waiting in waits]
    assert any(waits)


def test_a_run_places_blocks_on_its_machines() -> None:
    """On an idle cluster a job waits for a machine with its input, and without delay finds one by accident."""
    results = compare(
        "hfs:out_of_band=false,node_wait_s=60",
        "hfs:out_of_band=false,delay=off",
        trace="syn:1x60",
        workers=40,
        racks=4,
        blocks="replicas=2,rack=1.5,any=2",
    )
    waiting, naive = (summary.locality.node for summary in results.runs if summary.locality)
    assert waiting == 1.0
    assert naive < 0.5


def test_clusters_have_racks_of_neighbours() -> None:
    assert load_cluster(7, racks=3).racks == (0, 0, 1, 1, 2, 2, 2)
    assert load_cluster(7).racks == ()
    with pytest.raises(InputError, match="8 racks for 7 workers"):
        load_cluster(7, racks=8)


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ("hdfs:workers=9", "lacks its first part"),
        ("hdfs:yahoo", "neither TASKSxJOBS nor a preset"),
        ("hdfs:0x4", "has no tasks"),
        ("hdfs:2x4,jobs=4", "hdfs:jobs"),
        ("hdfs:2x4,replicas=5,workers=4", "hdfs:replicas"),
        ("hdfs:2x4,racks=5,workers=4", "hdfs:racks"),
        ("hdfs:2x4,gap=-1", "a number from 0"),
        ("hdfs:2x4,any=0", "above 0"),
    ],
)
def test_wrong_specs_name_the_key(spec: str, match: str) -> None:
    with pytest.raises(InputError, match=match):
        load_trace(spec)
