"""Processes are read from the kernel's table: a zombie with a thread that runs is no zombie."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from volery.live.node.descendants import ProcessStatus, ancestors, boot, carries, children, processes, status_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the table is that of Linux")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen(
        ["sleep", "77"], env={"MARK": "here", "PATH": os.environ["PATH"]}, start_new_session=True
    )
    yield started
    started.kill()
    started.wait()


def test_a_process_has_a_parent_and_a_session(child: subprocess.Popen[bytes]) -> None:
    status = status_of(child.pid)
    assert status is not None
    assert (status.pid, status.parent, status.session, status.threads) == (child.pid, os.getpid(), child.pid, 1)
    assert status.lives
    assert child.pid in children(os.getpid())
    assert child.pid in [found.pid for found in processes()]
    assert {child.pid, os.getpid()} <= ancestors(child.pid)


def test_the_initial_environment_of_a_process_is_seen(child: subprocess.Popen[bytes]) -> None:
    while (status := status_of(child.pid)) is not None and not carries(child.pid, b"MARK=here"):
        assert status.lives, "it is about to run its program"
    assert not carries(child.pid, b"MARK=there")


def test_a_process_that_was_killed_is_a_zombie_until_it_is_reaped(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    status = status_of(child.pid)
    assert status is not None
    assert not status.lives
    child.wait()
    assert status_of(child.pid) is None
    assert children(child.pid) == []


@pytest.mark.parametrize(
    ("state", "threads", "lives"), [("S", 1, True), ("Z", 1, False), ("Z", 2, True), ("X", 2, False)]
)
def test_a_process_lives_while_one_of_its_threads_does(state: str, threads: int, lives: bool) -> None:
    assert ProcessStatus(1, state, 0, 1, 1, threads, 5).lives is lives


def test_a_machine_has_one_boot_id() -> None:
    assert boot() == boot() != ""
