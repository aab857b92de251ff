"""Daemons of a task end with it: of other sessions, without a parent, and without anything in their environment."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.bench import LIMIT_S, Bench, bench, written
from tests.live.node.test_processes import sh

from volery.live.command import Command
from volery.live.node import descendants
from volery.live.node.agent import NodeAgent
from volery.live.node.descendants import READS_MAX, Descendants, agent_mark, children, is_marked, processes, status_of

FIFTY = "for i in $(seq 50); do (setsid sleep 77 &) ; done"
"""As an operator has tried it: each one a session of its own, and a child of nobody's."""
LISTS_CHILDREN = pytest.mark.skipif(
    not Path("/proc/thread-self/children").exists(), reason="the kernel lists no children"
)
CLEARED = "for i in 1 2 3; do (env -i setsid sh -c 'sleep 77 & sleep 77' &) ; done"
"""Daemons without anything in their environment, with children."""
HEADLESS = """\
import ctypes, os, threading, time
if not os.fork():
    os.setsid()
    threading.Thread(target=time.sleep, args=(77,)).start()
    open("headless", "w").write(f"{os.getpid()}\\n")
    ctypes.CDLL(None).pthread_exit(None)
pid = None
while not pid:
    time.sleep(0.01)
    pid = os.path.exists("headless") and open("headless").read()
while open(f"/proc/{pid.strip()}/stat").read().rpartition(")")[2].split()[0] != "Z":
    time.sleep(0.01)
"""
"""A daemon of which the first thread has ended, and another one runs."""


def daemons_of(agent: NodeAgent) -> list[int]:
    """What descends from an agent's attempts, wherever it is."""
    mark = agent_mark(agent._ledger.folder)
    return [status.pid for status in processes() if status.lives and is_marked(status.pid, mark)]


@pytest.mark.parametrize("script", [FIFTY, CLEARED])
def test_daemons_of_a_task_end_with_it(tmp_path: Path, script: str) -> None:
    async def scenario(it: Bench) -> None:
        # Another task, which is none of its business, goes on.
        other = it.start(sh("echo $$ >> pid; setsid sleep 77"))
        (pid,) = await written(tmp_path / "3" / "0.0" / "work" / "pid")
        end = await it.run(sh(script))
        assert (end.state, end.reason) == ("finished", "")
        left = daemons_of(it.executor)
        assert int(pid) in left
        assert len(left) <= 2, "of the other alone"
        it.executor.kill(other, 0)
        await it.until(lambda: other in it.outcomes)
        assert daemons_of(it.executor) == []

    bench(tmp_path, scenario)


def test_a_daemon_whose_first_thread_has_ended_ends_with_its_task(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        end = await it.run(Command((sys.executable, "-c", HEADLESS)))
        assert (end.state, end.reason) == ("finished", "")
        (pid,) = await written(tmp_path / "3" / "0.0" / "work" / "headless")
        status = status_of(int(pid))
        assert status is None or (status.state, status.threads) == ("Z", 1)

    bench(tmp_path, scenario)


def test_processes_that_end_without_a_pause_are_reaped_in_a_bounded_number_of_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = itertools.count()

    def child_that_has_ended(_: int) -> list[int]:
        assert next(rounds) <= descendants.ROUNDS_MAX
        child = subprocess.Popen(["true"], start_new_session=True)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        child.returncode = 0  # `adopted` reaps it
        return [child.pid]

    monkeypatch.setattr("volery.live.node.descendants.children", child_that_has_ended)
    monkeypatch.setattr("volery.live.node.descendants.soft_limit", lambda *_: agent_mark(tmp_path) | 1)
    assert Descendants(tmp_path).adopted() == {}
    assert next(rounds) == descendants.ROUNDS_MAX


def test_a_task_has_ended_when_what_was_killed_of_it_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[tuple[int, int]] = []
    # The signal to the group has no effect before the first look.
    monkeypatch.setattr("volery.live.node.processes._signal_group", lambda *told: killed.append(told))

    async def scenario(it: Bench) -> None:
        end = await it.run(sh("sleep 77 & exit 0"))
        assert (end.state, end.reason) == ("finished", "")
        assert len(killed) == 1
        assert daemons_of(it.executor) == []

    bench(tmp_path, scenario)


def test_a_task_that_ended_by_itself_is_not_killed_by_an_order_that_comes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("volery.live.node.processes._signal_group", lambda *_: None)
    kill_all = Descendants.kill_all

    async def scenario(it: Bench) -> None:
        task = it.start(sh("sleep 77 & exit 0"))

        def kill_and_order(descendants: Descendants, mark: int, first: int) -> bool:
            asyncio.get_running_loop().call_soon(it.executor.kill, task, 0)
            return kill_all(descendants, mark, first)

        monkeypatch.setattr(Descendants, "kill_all", kill_and_order)
        await it.until(lambda: task in it.outcomes)
        assert it.outcomes[task] == "finished"

    bench(tmp_path, scenario)


@pytest.mark.parametrize("script", [FIFTY, CLEARED])
@pytest.mark.parametrize("ended_by", ["kill", "timeout"])
def test_daemons_of_a_task_end_with_its_cancellation(tmp_path: Path, script: str, ended_by: str) -> None:
    async def scenario(it: Bench) -> None:
        timeout_s = 3.0 if ended_by == "timeout" else 0.0
        task = it.start(sh(f"{script}; echo $$ >> pid; sleep 60", timeout_s=timeout_s, grace_s=0.2))
        await written(tmp_path / "3" / "0.0" / "work" / "pid")
        async with asyncio.timeout(LIMIT_S):
            while len(daemons_of(it.executor)) <= 5:
                await asyncio.sleep(0.005)
        if ended_by == "kill":
            it.executor.kill(task, 0)
        await it.until(lambda: task in it.outcomes)
        assert daemons_of(it.executor) == []

    bench(tmp_path, scenario)


def test_whoever_loses_its_parent_while_daemons_are_listed_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(it: Bench) -> None:
        it.start(sh("(setsid sh -c 'sleep 77 & echo $$ > parent; wait' &) ; sleep 60"))
        (parent,) = map(int, await written(tmp_path / "3" / "0.0" / "work" / "parent"))
        (child,) = children(parent)
        async with asyncio.timeout(LIMIT_S):
            while parent not in children(os.getpid()):
                await asyncio.sleep(0.005)

        def list_and_kill(pid: int) -> list[int]:
            listed = children(pid)
            if parent in listed and child not in listed:
                os.kill(parent, signal.SIGKILL)
                while (status := status_of(parent)) is not None and status.lives:
                    time.sleep(0.001)
            return listed

        monkeypatch.setattr("volery.live.node.descendants.children", list_and_kill)
        (found,) = it.executor._means.descendants.adopted().values()
        assert [status.pid for status in found] == [child]

    bench(tmp_path, scenario)


@LISTS_CHILDREN
def test_children_of_a_thread_that_ends_while_children_are_listed_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    ready, end = threading.Event(), threading.Event()

    def start_and_wait() -> None:
        started.append(subprocess.Popen(["sleep", "77"]))
        ready.set()
        end.wait()

    thread = threading.Thread(target=start_and_wait)
    thread.start()
    of_thread = Path(f"/proc/self/task/{thread.native_id}")

    class Listed(list[str]):
        """Threads, of which the one with the child ends just before it is read."""

        def __iter__(self) -> Iterator[str]:
            for name in sorted(super().__iter__(), key=of_thread.name.__eq__):
                if name == of_thread.name:
                    end.set()
                    while of_thread.exists():
                        time.sleep(0.001)
                yield name

    list_folder = os.listdir
    monkeypatch.setattr("volery.live.node.descendants.os.listdir", lambda path: Listed(list_folder(path)))
    try:
        assert ready.wait(LIMIT_S)
        assert started[0].pid in children(os.getpid())
        assert end.is_set()
    finally:
        end.set()
        thread.join()
        for child in started:
            child.kill()
            child.wait()


@LISTS_CHILDREN
def test_a_process_whose_threads_never_settle_is_read_a_bounded_number_of_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listings = itertools.count()
    monkeypatch.setattr("volery.live.node.descendants.os.listdir", lambda _: [f"{next(listings)}"])
    assert children(os.getpid()) == []
    assert next(listings) == READS_MAX


def test_daemons_leave_no_zombies_while_their_task_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("volery.live.node.descendants.LOOK_S", 0.05)

    async def scenario(it: Bench) -> None:
        it.start(sh("for i in 1 2 3 4 5; do (setsid true &) ; done; echo done >> out; sleep 60"))
        await written(tmp_path / "3" / "0.0" / "work" / "out")
        async with asyncio.timeout(LIMIT_S):
            mark = agent_mark(it.executor._ledger.folder)
            while any(status.state == "Z" and is_marked(status.pid, mark) for status in processes()):
                await asyncio.sleep(0.01)

    bench(tmp_path, scenario)
