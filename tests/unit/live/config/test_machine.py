"""A machine is discovered from the trees of its kernel; wrong declarations are named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from volery.core.errors import InputError
from volery.live.config.constraints import holds, parse_conditions
from volery.live.config.machine import (
    MEMORY_STEP_MB,
    UNKNOWN_DISK,
    Machine,
    amounts,
    check_labels,
    discover,
    disk_of,
    installed_gpus,
    machine_from_table,
    process_limits,
    usable_cpu_milli,
    usable_memory_mb,
)

V2_MOUNT = "31 23 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"


def put(root: Path, **files: str) -> None:
    """Files of control groups by their paths."""
    for path, content in files.items():
        at = root / "sys/fs/cgroup" / path
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(content)


def grouped(root: Path, cgroup: str, mountinfo: str) -> Path:
    """A tree in which this process is in these groups."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup)
    (root / "proc/self/mountinfo").write_text(mountinfo)
    return root


def test_limits_of_all_groups_above_count(tmp_path: Path) -> None:
    root = grouped(tmp_path, "0::/pod/box\n", V2_MOUNT)
    put(root, **{"pod/box/cpu.max": "max 100000\n", "pod/cpu.max": "50000 100000\n"})
    put(root, **{"pod/box/memory.max": "max\n", "pod/memory.max": f"{600 << 20}\n"})
    assert (usable_cpu_milli(root), usable_memory_mb(root)) == (500, 600)
    machine = discover(root=root)
    assert (machine.cores, machine.memory_mb) == (1, 512)
    assert amounts(tmp_path, 2, root) | {"disk_mb": 0} == {"cpu_milli": 250, "memory_mb": 281, "gpus": 0, "disk_mb": 0}


def test_limits_of_processes_of_all_groups_above_count(tmp_path: Path) -> None:
    root = grouped(tmp_path, "0::/pod/box\n", V2_MOUNT)
    put(root, **{"pod/box/pids.max": "max\n", "pod/box/pids.current": "7\n"})
    put(root, **{"pod/pids.max": "200\n", "pod/pids.current": "30\n"})
    assert [*process_limits(root)] == [(200, 30)], "the topmost group has no limit"


def test_a_container_sees_its_own_group_as_the_root_of_what_is_mounted(tmp_path: Path) -> None:
    mounted = V2_MOUNT.replace(" / /sys", " /docker/4f /sys")
    root = grouped(tmp_path, "0::/docker/4f\n", mounted)
    put(root, **{"cpu.max": "25000 50000\n"})
    assert usable_cpu_milli(root) == 500


def test_limits_of_groups_of_version_1_count(tmp_path: Path) -> None:
    mounts = (
        "32 31 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        "33 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    )
    root = grouped(tmp_path, "5:cpu,cpuacct:/box\n4:memory:/box\n", mounts)
    put(root, **{"cpu/box/cpu.cfs_quota_us": "20000", "cpu/box/cpu.cfs_period_us": "100000"})
    put(root, **{"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"})
    put(root, **{"memory/box/memory.limit_in_bytes": str(300 << 20), "memory/memory.limit_in_bytes": str(1 << 62)})
    assert (usable_cpu_milli(root), usable_memory_mb(root)) == (200, 300)


def test_a_machine_that_says_nothing_of_groups_has_what_its_affinity_allows(tmp_path: Path) -> None:
    assert usable_cpu_milli(tmp_path) == 1000 * len(os.sched_getaffinity(0))
    assert usable_memory_mb(tmp_path) == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20


def test_gpus_of_nvidia_are_numbered_in_order_of_the_bus(tmp_path: Path) -> None:
    assert installed_gpus(tmp_path) == ()
    for bus, model in (("0000:65:00.0", "NVIDIA A100-SXM4-40GB"), ("0000:17:00.0", "NVIDIA L4")):
        card = tmp_path / "proc/driver/nvidia/gpus" / bus
        card.mkdir(parents=True)
        (card / "information").write_text(f"Model: \t\t {model}\nIRQ:   \t\t 185\nDevice Minor: \t 0\n")
    assert installed_gpus(tmp_path) == (("0", "NVIDIA L4"), ("1", "NVIDIA A100-SXM4-40GB"))
    machine = discover(root=tmp_path)
    assert (machine.gpus, machine.gpu) == (2, "NVIDIA L4")
    assert holds(parse_conditions(["gpus >= 2", 'gpu == "NVIDIA L4"'], "constraints"), machine)


def test_gpus_of_amd_are_the_cards_of_their_vendor(tmp_path: Path) -> None:
    for number, bus, vendor, product in (
        (0, "0000:c3:00.0", "0x1002", "Instinct MI210"),
        (1, "0000:03:00.0", "0x1002", ""),
        (2, "0000:04:00.0", "0x8086", ""),
    ):
        device = tmp_path / "sys/devices" / bus
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
        if product:
            (device / "product_name").write_text(f"{product}\n")
        card = tmp_path / f"sys/class/drm/card{number}"
        card.mkdir(parents=True)
        (card / "device").symlink_to(device)
    (tmp_path / "sys/class/drm/card0-DP-1").mkdir()
    assert installed_gpus(tmp_path) == (("0", "AMD"), ("1", "Instinct MI210"))


@pytest.mark.parametrize(("rotational", "kind"), [("1\n", "hdd"), ("0\n", "ssd")])
def test_the_disk_of_a_folder_is_told_also_where_it_lies_on_a_partition(
    tmp_path: Path, rotational: str, kind: str
) -> None:
    assert disk_of(tmp_path, tmp_path).kind == UNKNOWN_DISK
    device = tmp_path.stat().st_dev
    partition = tmp_path / "sys/devices/disk/part1"
    partition.mkdir(parents=True)
    (tmp_path / "sys/devices/disk/queue").mkdir()
    (tmp_path / "sys/devices/disk/queue/rotational").write_text(rotational)
    (tmp_path / "sys/dev/block").mkdir(parents=True)
    (tmp_path / f"sys/dev/block/{os.major(device)}:{os.minor(device)}").symlink_to(partition)
    found = disk_of(tmp_path / "not" / "yet", tmp_path)
    assert found.kind == kind
    assert 0 < found.free_mb <= found.size_mb
    assert holds(parse_conditions([f'disk == "{kind}"'], "constraints"), discover(folder=tmp_path, root=tmp_path))


def test_this_machine_describes_itself() -> None:
    machine = discover({"zone": "a"})
    assert machine.arch == os.uname().machine
    assert machine.os == os.uname().sysname.lower()
    assert os.uname().release.startswith(machine.kernel)
    assert machine.cores == len(os.sched_getaffinity(0))
    assert machine.memory_mb % MEMORY_STEP_MB == 0 or machine.memory_mb == 1
    assert machine.attributes()["label.zone"] == "a"


def test_what_a_file_leaves_out_is_taken_from_the_base() -> None:
    base = Machine("x86_64", "linux", "6.1", 8, 4096, {"zone": "a"})
    declared = machine_from_table({"cores": 2, "labels": {"rank": 3}}, "nodes[0]", base)
    assert declared == Machine("x86_64", "linux", "6.1", 2, 4096, {"zone": "a", "rank": 3})


@pytest.mark.parametrize(
    ("table", "place", "problem"),
    [
        ({"core": 2}, "nodes[0].core", "did you mean 'cores'"),
        ({"cores": 0}, "nodes[0].cores", "whole number >= 1"),
        ({"cores": True}, "nodes[0].cores", "whole number >= 1"),
        ({"arch": 86}, "nodes[0].arch", "text in quotes"),
        ({"labels": "a"}, "nodes[0].labels", "is a table"),
        ({"labels": {"zone": 1.5}}, "nodes[0].labels.zone", "text or a whole number"),
        ({"labels": {"a.b": "c"}}, "nodes[0].labels.a.b", "a label's name has"),
    ],
)
def test_a_wrong_declaration_is_named(table: dict[str, object], place: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        machine_from_table(table, "nodes[0]")
    assert caught.value.place == place
    assert problem in caught.value.problem


def test_a_label_is_never_a_truth_value() -> None:
    with pytest.raises(InputError, match="text or a whole number"):
        check_labels({"fast": True}, "labels")
