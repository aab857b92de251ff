"""Which part of the hierarchy of control groups is ours; the groups themselves are tried on the kernel's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from volery.live.node import cgroups
from volery.live.node.cgroups import AGENTS, NotPermittedError, delegated_base
from volery.live.node.confinement import Processors


def hierarchy(root: Path, own: str, mounted: str = "/", options: str = "rw") -> Path:
    """What /proc says of a process in a group; the hierarchy is mounted in ROOT/fs."""
    proc = root / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self/cgroup").write_text(f"4:memory:/elsewhere\n0::{own}\n")
    line = f"40 24 0:31 {mounted} {root}/fs {options},relatime shared:9 - cgroup2 cgroup2 rw\n"
    (proc / "self/mountinfo").write_text(f"24 1 8:1 / / rw - ext4 /dev/sda1 rw\n{line}")
    (root / "fs" / own.removeprefix(mounted).strip("/")).mkdir(parents=True, exist_ok=True)
    return proc


def delegated(monkeypatch: pytest.MonkeyPatch, *groups: Path) -> None:
    monkeypatch.setattr(cgroups, "is_delegated", lambda group: group in groups)


def test_a_service_with_delegation_divides_its_own_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = tmp_path / "fs/system.slice/volery.service"
    proc = hierarchy(tmp_path, "/system.slice/volery.service")
    delegated(monkeypatch, group)
    assert delegated_base(proc) == group


def test_a_process_that_was_moved_below_divides_the_group_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = tmp_path / "fs/system.slice/volery.service"
    proc = hierarchy(tmp_path, f"/system.slice/volery.service/{AGENTS}")
    delegated(monkeypatch, group)
    assert delegated_base(proc) == group


def test_a_group_of_somebody_else_is_left_alone_and_the_way_out_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc = hierarchy(tmp_path, "/user.slice/session-1.scope")
    delegated(monkeypatch)
    with pytest.raises(NotPermittedError, match=r"session-1\.scope is not delegated .* Delegate=yes"):
        delegated_base(proc)


def test_root_divides_the_root_of_what_it_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container; also once it has moved into a group below."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    delegated(monkeypatch)
    assert delegated_base(hierarchy(tmp_path / "a", "/docker/4f", "/docker/4f")) == tmp_path / "a/fs"
    assert delegated_base(hierarchy(tmp_path / "b", f"/{AGENTS}")) == tmp_path / "b/fs"
    with pytest.raises(NotPermittedError):
        delegated_base(hierarchy(tmp_path / "c", "/init.scope"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NotPermittedError):
        delegated_base(hierarchy(tmp_path / "d", "/"))


def test_machines_without_the_second_version_are_told(tmp_path: Path) -> None:
    proc = hierarchy(tmp_path, "/")
    (proc / "self/mountinfo").write_text("24 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
    with pytest.raises(NotPermittedError, match="cgroup v2 is not mounted"):
        delegated_base(proc)
    outside = hierarchy(tmp_path / "other", "/a", "/b")
    with pytest.raises(NotPermittedError, match="in no group"):
        delegated_base(outside)


def test_processors_are_given_to_those_who_ask_for_fewer_than_there_are() -> None:
    processors = Processors([4, 5, 6, 7])
    assert processors.take(0) == ()
    assert processors.take(4000) == ()
    first, second = processors.take(1500), processors.take(2000)
    assert (first, second) == ((4, 5), (6, 7))
    assert processors.take(250) == (4,)
    processors.give_back(second, 2000)
    assert processors.take(1000) == (6,)
