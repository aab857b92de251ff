"""Python callables: results and exceptions come back, and what hangs or crashes harms nobody else."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec
import pytest
from tests.live.bench import Bench, bench, is_gone, lines_of, written

from volery.live.command import Call
from volery.live.messages import TaskReport
from volery.live.pickles import dumps


def call(function: Callable[..., Any], *arguments: object, timeout_s: float = 0.0, **named: object) -> Call:
    # by value: a worker cannot import the module of a test
    cloudpickle.register_pickle_by_value(__import__(function.__module__, fromlist=["_"]))
    return Call(dumps((function, arguments, named)), timeout_s=timeout_s)


def value(report: TaskReport) -> Any:
    return pickle.loads(report.result)


def divide(a: int, b: int = 1) -> float:
    sys.stdout.write(f"dividing {a} {os.environ['VOLERY_TASK']}\n")
    return a / b


def hang() -> None:
    sys.stdout.write(f"{os.getpid()}\n")
    sys.stdout.flush()
    time.sleep(60)


class TwoArgumentsError(Exception):
    """Pickles, but does not come back."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)


def fail_oddly() -> None:
    raise TwoArgumentsError("one", "two")


def test_results_and_prints_come_back(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        end = await it.run(call(divide, 6, b=4))
        assert (end.state, end.reason, value(end)) == ("finished", "", 1.5)
        assert lines_of(Path(end.folder) / "stdout") == ["dividing 6 0"]
        assert [report.state for report in it.reports] == ["running", "finished"]

    bench(tmp_path, scenario)


def test_what_one_user_leaves_in_a_worker_is_nothing_for_another(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        ends = [await it.run(msgspec.structs.replace(call(os.getpid), user=user)) for user in ("ada", "ada", "bob")]
        workers = [value(end) for end in ends]
        assert workers[0] == workers[1] != workers[2]

    bench(tmp_path, scenario, workers=1)


def test_exceptions_come_back_with_their_traceback(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        end = await it.run(call(divide, 6, 0))
        assert (end.state, end.reason) == ("failed", "ZeroDivisionError: division by zero")
        assert isinstance(value(end), ZeroDivisionError)
        assert "in divide" in (Path(end.folder) / "stderr").read_text()
        odd = await it.run(call(fail_oddly))
        assert isinstance(value(odd), TwoArgumentsError)
        assert str(value(odd)) == "one"
        assert "in fail_oddly" in str(value(odd).__cause__)

    bench(tmp_path, scenario)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (call(hang, timeout_s=0.3), "timeout: it ran for more than 0.3 s"),
        (call(lambda: os.kill(os.getpid(), signal.SIGSEGV)), "its worker process ended by signal SIGSEGV"),
        (call(lambda: os._exit(3)), "its worker process ended with exit code 3"),
        (call(lambda: b"x" * 600_000), "the result has 6000"),
        (call(lambda: (yield)), "cannot pickle 'generator' object"),
        (Call(b"no pickle"), "UnpicklingError"),
    ],
)
def test_what_goes_wrong_is_told_and_the_next_call_is_well(tmp_path: Path, asked: Call, reason: str) -> None:
    async def scenario(it: Bench) -> None:
        end = await it.run(asked)
        assert end.state == "failed"
        assert reason in end.reason
        assert value(await it.run(call(divide, 1))) == 1.0

    bench(tmp_path, scenario)


def daemons() -> list[int]:
    """Leave three processes: of this session, of another, and of another with nothing in its environment."""
    for words in ("sleep 77 & echo $!", "setsid sleep 77 & echo $!", "(env -i setsid sleep 77 & echo $!)"):
        subprocess.run(["sh", "-c", f"{words} >> pids"], check=True, stdout=subprocess.DEVNULL)
    return [int(line) for line in Path("pids").read_text().split()]


def test_what_a_call_has_started_ends_with_it_and_its_worker_makes_the_next(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        worker = value(await it.run(call(os.getpid)))
        end = await it.run(call(daemons))
        assert (end.state, end.reason, len(value(end))) == ("finished", "", 3)
        assert all(is_gone(pid) for pid in value(end))
        assert value(await it.run(call(os.getpid))) == worker, "it is the same worker"

    bench(tmp_path, scenario, workers=1)


def test_the_traceback_of_a_call_is_the_cause_of_what_comes_back(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        error = value(await it.run(call(divide, 6, 0)))
        assert isinstance(error, ZeroDivisionError)
        text = str(error.__cause__)
        assert "in divide" in text
        assert "return a / b" in text
        assert "in answer" not in text, "our own frames say nothing to whoever calls"
        printed = "".join(traceback.format_exception(error))
        assert "The above exception was the direct cause" in printed

    bench(tmp_path, scenario)


def test_a_killed_call_is_gone_and_the_next_one_is_well(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        task = it.start(call(hang))
        (pid,) = await written(tmp_path / "3" / "0.0" / "stdout")
        it.executor.kill(task, 0)
        await it.until(lambda: task in it.outcomes)
        assert it.outcomes[task] == "killed"
        assert is_gone(int(pid))
        assert value(await it.run(call(divide, 1))) == 1.0

    bench(tmp_path, scenario)


@pytest.mark.parametrize("ended_by", ["kill", "timeout", "crash"])
def test_a_call_that_waits_behind_one_that_is_ended_is_made(tmp_path: Path, ended_by: str) -> None:
    def crash() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    async def scenario(it: Bench) -> None:
        timeout_s = 0.5 if ended_by == "timeout" else 0.0
        first = it.start(call(crash if ended_by == "crash" else hang, timeout_s=timeout_s))
        waiting = it.start(call(divide, 1))
        if ended_by == "kill":
            await written(tmp_path / "3" / "0.0" / "stdout")
            it.executor.kill(first, 0)
        await it.until(lambda: len(it.outcomes) == 2)
        assert it.outcomes == {first: "killed" if ended_by == "kill" else "failed", waiting: "finished"}

    bench(tmp_path, scenario, workers=1)


def test_many_calls_share_few_workers(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        numbers = [it.start(call(lambda n: (n, os.getpid()), n)) for n in range(200)]
        waiting = it.start(call(divide, 1))
        it.executor.kill(waiting, 0)
        await it.until(lambda: len(it.outcomes) == 201)
        results = {report.task: value(report) for report in it.reports if report.state == "finished"}
        assert [results[n][0] for n in numbers] == list(range(200))
        assert len({pid for _, pid in results.values()}) <= (os.cpu_count() or 1)
        assert it.outcomes[waiting] == "killed"

    bench(tmp_path, scenario)


def test_closing_kills_what_is_being_called(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        it.start(call(hang))
        (pid,) = await written(tmp_path / "3" / "0.0" / "stdout")
        await it.executor.close()
        assert is_gone(int(pid))
        assert not it.outcomes

    bench(tmp_path, scenario)


def wait_for(path: Path) -> str:
    """Wait as a call does that has submitted another one."""
    while not path.exists():
        time.sleep(0.01)
    return "found"


def test_a_call_may_wait_for_calls_behind_it(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        outer = it.start(call(wait_for, tmp_path / "middle"))
        middle = it.start(call(lambda: Path(tmp_path / "middle").write_text(wait_for(tmp_path / "inner"))))
        inner = it.start(call((tmp_path / "inner").touch))
        await it.until(lambda: len(it.outcomes) == 3)
        assert it.outcomes == {outer: "finished", middle: "finished", inner: "finished"}
        assert value(await it.run(call(divide, 1))) == 1.0

    bench(tmp_path, scenario, workers=1)
