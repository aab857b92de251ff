"""Tasks outlive their node host: the next incarnation adopts them with their exit codes, unless the lease was over."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.live.bench import LIMIT_S, gone, written
from tests.live.chaos.roles import supervisor_process
from tests.live.conftest import RUN_AS

from volery.core.errors import InputError
from volery.core.events import Adopted
from volery.core.model import Address, Task
from volery.live.command import Command, encode_payload
from volery.live.config.limits import NO_RULES, Isolation, NodeRules
from volery.live.messages import TaskReport
from volery.live.node import supervisor_client
from volery.live.node.agent import NodeAgent
from volery.live.node.executor import OnEnd
from volery.live.node.supervisor_client import SupervisorClient, SupervisorLost


@pytest.fixture
def free_folder(open_folder: Path) -> Path:
    """Tasks, which may run as another account, write there."""
    open_folder.chmod(0o777)
    return open_folder


class Host:
    """What stands around an agent: who is reported to, and the components."""

    def __init__(self, folder: Path, lease_s: float = 0.0, rules: NodeRules = NO_RULES) -> None:
        self.reports: list[TaskReport] = []
        self.outcomes: dict[tuple[int, int], str] = {}
        self.lost: list[Exception] = []
        self._changed = asyncio.Event()
        self.agent = SupervisorClient(folder / "tasks", folder / "agent", lease_s, RUN_AS, rules)

    def _heard(self, report: TaskReport) -> None:
        self.reports.append(report)
        self._changed.set()

    def _lost(self, error: Exception) -> None:
        self.lost.append(error)
        self._changed.set()

    def end_of(self, node: Address) -> OnEnd:
        def ended(task: Task, attempt: int, outcome: str) -> None:
            self.outcomes[task.id, attempt] = outcome
            self._changed.set()

        return ended

    async def open(self) -> list[tuple[Address, int, int, bytes]]:
        adopted = await self.agent.open(("node/0", "node/1", "node/7"), self._heard, self._lost)
        self.agent.resume(self.end_of)
        assert all(isinstance(event, Adopted) for _, event in adopted)
        return [(node, event.task.id, event.attempt, event.note) for node, event in adopted]

    def start(self, number: int, *argv: str, gpus: int | None = None) -> None:
        task = Task(number, 3, payload=encode_payload(Command(argv, gpus=gpus)))
        self.agent.start("node/7", task, 2, self.end_of("node/7"), b"note %d" % number)

    async def until(self, ends: int) -> None:
        async with asyncio.timeout(LIMIT_S):
            while len(self.outcomes) < ends and not self.lost:
                self._changed.clear()
                await self._changed.wait()

    def die(self) -> None:
        """As SIGKILL would have it: nothing is said to anybody."""
        self.agent._closing = True
        self.agent._channel.close()  # type: ignore[union-attr]  # it is open


@asynccontextmanager
async def last_incarnation(folder: Path, lease_s: float = 0.0, rules: NodeRules = NO_RULES) -> AsyncIterator[Host]:
    """One that ends everything when it leaves."""
    host = Host(folder, lease_s, rules)
    try:
        yield host
    finally:
        await host.agent.close()


def test_the_next_life_hears_how_tasks_have_ended(free_folder: Path) -> None:
    async def scenario() -> None:
        os.mkfifo(free_folder / "fifo")
        (free_folder / "fifo").chmod(0o666)
        first = Host(free_folder)
        assert await first.open() == []
        first.start(0, "sh", "-c", "exit 3")
        await first.until(1)
        first.start(1, "sh", "-c", f"echo $$ >> {free_folder}/pids; read x < {free_folder}/fifo; exit 4")
        first.start(2, "sh", "-c", f"echo $$ >> {free_folder}/pids; sleep 1000")
        pids = [int(pid) for pid in await written(free_folder / "pids", 2)]
        first.agent.forget(0, 2)
        await asyncio.sleep(0.2)  # a socket that is closed over something unread takes the last words along
        first.die()
        await asyncio.sleep(0.05)
        (free_folder / "fifo").write_text("go on\n")
        await asyncio.sleep(0.3)
        async with last_incarnation(free_folder) as second:
            assert await second.open() == [("node/7", 1, 2, b"note 1"), ("node/7", 2, 2, b"note 2")]
            await second.until(1)
            assert second.outcomes == {(1, 2): "failed"}
            *begun, report = second.reports
            assert [(one.task, one.state) for one in begun] == [(1, "running"), (2, "running")]
            assert (report.task, report.exit_code, report.reason) == (1, 4, "exit code 4")
            second.start(3, "true")
            second.agent.kill(2, 2)
            await second.until(3)
            assert second.outcomes[2, 2] == "killed"
            assert second.outcomes[3, 2] == "finished"
        for pid in pids:
            await gone(pid)

    asyncio.run(scenario())


def test_what_ends_while_the_next_life_is_about_to_begin_is_heard_of_when_it_has(free_folder: Path) -> None:
    """Between the supervisor's account of what there is and the start of the components a host finds its broker."""

    async def scenario() -> None:
        os.mkfifo(free_folder / "fifo")
        (free_folder / "fifo").chmod(0o666)
        first = Host(free_folder)
        await first.open()
        first.start(0, "sh", "-c", f"echo $$ > {free_folder}/pid; read x < {free_folder}/fifo")
        (pid,) = await written(free_folder / "pid")
        first.die()
        async with last_incarnation(free_folder) as second:
            assert [
                event.task.id for _, event in await second.agent.open(("node/7",), second._heard, second._lost)
            ] == [0]
            (free_folder / "fifo").write_text("go on\n")
            await gone(int(pid))
            await asyncio.sleep(0.1)
            assert not second.outcomes
            second.agent.resume(second.end_of)
            assert second.outcomes == {(0, 2): "finished"}
            assert [report.state for report in second.reports] == ["running", "finished"]

    asyncio.run(scenario())


def test_tasks_keep_their_gpus_when_their_host_begins_anew(free_folder: Path) -> None:
    rules = NodeRules(Isolation("off", gpus=("0", "1")), amounts=True)

    def shown(number: int) -> Path:
        return free_folder / "tasks" / "3" / f"{number}.2" / "stdout"

    async def scenario() -> None:
        first = Host(free_folder, rules=rules)
        await first.open()
        assert "memory is limited per process" in first.agent.held
        first.start(0, "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exec sleep 60", gpus=1)
        assert await written(shown(0)) == ["0"]
        await asyncio.sleep(0.1)
        first.die()
        async with last_incarnation(free_folder, rules=rules) as second:
            assert [adopted[1] for adopted in await second.open()] == [0]
            assert second.agent.held == first.agent.held
            second.start(1, "sh", "-c", "echo $CUDA_VISIBLE_DEVICES", gpus=1)
            await second.until(1)
            assert await written(shown(1)) == ["1"]

    asyncio.run(scenario())


def test_tasks_of_a_host_that_stays_away_are_ended_and_are_nobodys_but_those_that_were_done(free_folder: Path) -> None:
    async def scenario() -> None:
        first = Host(free_folder, lease_s=0.4)
        await first.open()
        first.start(0, "true")
        await first.until(1)
        first.start(1, "sh", "-c", f"trap '' TERM; echo $$ > {free_folder}/pid; while :; do sleep 1; done")
        (pid,) = await written(free_folder / "pid")
        first.die()
        await gone(int(pid))
        async with last_incarnation(free_folder, 0.4) as second:
            assert await second.open() == [("node/7", 0, 2, b"note 0")], "it had come to its own end"
            async with asyncio.timeout(LIMIT_S):
                while len(second.reports) < 4:
                    await asyncio.sleep(0.01)
            assert [(report.task, report.state) for report in second.reports[:2]] == [(0, "running"), (1, "running")]
            assert sorted((it.task, it.state) for it in second.reports[2:]) == [(0, "finished"), (1, "killed")]
            assert second.outcomes == {(0, 2): "finished"}

    asyncio.run(scenario())


def test_ends_that_were_not_received_outlive_an_orderly_stop_and_what_runs_does_not(free_folder: Path) -> None:
    async def scenario() -> None:
        async with last_incarnation(free_folder, lease_s=10.0) as first:
            await first.open()
            for number in range(2):
                first.start(number, "sh", "-c", f"exit {number + 3}")
            await first.until(2)
            first.agent.forget(0, 2)
            first.start(2, "sh", "-c", f"echo $$ > {free_folder}/pid; exec sleep 1000")
            (pid,) = await written(free_folder / "pid")
        await gone(int(pid))
        async with last_incarnation(free_folder) as second:
            assert await second.open() == [("node/7", 1, 2, b"note 1")]
            assert second.outcomes == {(1, 2): "failed"}
            begun, report = second.reports
            assert (begun.task, begun.state) == (1, "running")
            assert (report.task, report.exit_code) == (1, 4)

    asyncio.run(scenario())


def test_a_host_that_leaves_its_supervisor_finds_what_runs(free_folder: Path) -> None:
    """As one does that cannot write its journal, or finds no broker when it begins."""

    async def scenario() -> None:
        first = Host(free_folder, lease_s=10.0)
        await first.open()
        first.start(0, "sleep", "1000")
        await asyncio.sleep(0.2)
        first.agent.leave()
        await first.agent.close()
        async with last_incarnation(free_folder) as second:
            assert await second.open() == [("node/7", 0, 2, b"note 0")]

    asyncio.run(scenario())


def test_a_supervisor_that_was_stopped_hears_its_host_out_before_it_counts_the_lease(free_folder: Path) -> None:
    async def scenario() -> None:
        async with last_incarnation(free_folder, lease_s=0.6) as it:
            await it.open()
            it.start(0, "sh", "-c", f"echo $$ > {free_folder}/pid; exec sleep 1000")
            await written(free_folder / "pid")
            os.kill(it.agent._child, signal.SIGSTOP)
            it.start(1, "true")
            await asyncio.sleep(1.2)
            os.kill(it.agent._child, signal.SIGCONT)
            await it.until(1)
            assert (it.outcomes, it.lost) == ({(1, 2): "finished"}, [])

    asyncio.run(scenario())


def test_nothing_is_begun_after_the_lease_and_the_next_life_waits_until_all_of_it_is_gone(free_folder: Path) -> None:
    """What a host has said before it knew that its lease was over would run beside what its room was given to."""

    async def scenario() -> None:
        first = Host(free_folder, lease_s=0.4)
        await first.open()
        assert first.agent._keep_alive_timer is not None
        first.agent._keep_alive_timer.cancel()  # as if it were stopped
        leaving, first.agent._give_up = first.agent._give_up, lambda error: None  # type: ignore[method-assign]  # and slow
        first.start(0, "sleep", "1000")
        async with asyncio.timeout(LIMIT_S):
            while [report.state for report in first.reports] != ["running"]:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.6)
        first.start(1, "sh", "-c", f"echo $$ > {free_folder}/pid; exec sleep 1000")
        await asyncio.sleep(0.2)
        leaving(SupervisorLost("the lease was over"))
        async with last_incarnation(free_folder, 0.4) as second:
            assert await second.open() == []
            ends = [(report.task, report.state) for report in second.reports if report.state != "running"]
            assert sorted(ends) == [(0, "killed"), (1, "killed")]
        assert not (free_folder / "pid").exists()

    asyncio.run(scenario())


def test_a_host_that_was_silent_too_long_begins_anew_and_so_does_one_without_a_supervisor(free_folder: Path) -> None:
    async def scenario() -> None:
        first = Host(free_folder, lease_s=0.4)
        await first.open()
        first.start(0, "sleep", "1000")
        await asyncio.sleep(0.2)
        assert first.agent._keep_alive_timer is not None
        first.agent._keep_alive_timer.cancel()  # as if it were stopped
        await first.until(1)
        assert isinstance(first.lost[0], SupervisorLost)
        assert first.outcomes == {}
        second = Host(free_folder)
        assert await second.open() == []
        second.start(1, "sh", "-c", f"echo $$ > {free_folder}/pid; sleep 1000")
        (pid,) = await written(free_folder / "pid")
        with pytest.raises(InputError, match="another node agent uses"):
            NodeAgent(free_folder / "tasks", free_folder / "agent")
        os.kill(first.agent._child, signal.SIGKILL)
        await second.until(1)
        assert isinstance(second.lost[0], SupervisorLost)
        os.waitpid(first.agent._child, 0)
        async with last_incarnation(free_folder) as third:
            assert await third.open() == []
            await gone(int(pid))

    asyncio.run(scenario())


@asynccontextmanager
async def stopped(folder: Path) -> AsyncIterator[None]:
    """The supervisor of a state folder is stopped, and goes on afterwards."""
    pid = supervisor_process(folder / "agent")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_host_does_not_wait_for_ever_for_a_supervisor_that_does_not_answer(
    free_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        first = Host(free_folder)
        await first.open()
        first.start(0, "sh", "-c", f"echo $$ > {free_folder}/pid; sleep 1000")
        await written(free_folder / "pid")
        first.die()
        async with stopped(free_folder):
            monkeypatch.setattr(supervisor_client, "ANSWER_S", 0.2)
            with pytest.raises(SupervisorLost, match=r"has not answered for 0\.2 s"):
                await Host(free_folder).open()
            monkeypatch.undo()
        async with last_incarnation(free_folder) as second:
            assert [task for _, task, _, _ in await second.open()] == [0], "what ran goes on"

    asyncio.run(scenario())


def test_a_host_ends_though_its_supervisor_does_not(
    free_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        first = Host(free_folder)
        await first.open()
        async with stopped(free_folder):
            monkeypatch.setattr(supervisor_client, "END_S", 0.2)
            await first.agent.close()
            assert "their supervisor goes on without this host" in caplog.text

    asyncio.run(scenario())
