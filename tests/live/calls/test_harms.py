"""Whatever a called function does to its process, it has an end with the right reason, and the next call is well."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.live.bench import Bench, bench, is_gone, lines_of
from tests.live.calls import harms, mixed_calls
from tests.live.calls.call_state import seen
from tests.live.calls.harms import handles_signals
from tests.live.calls.test_call import call, value
from tests.live.serving import serving

from volery.live.client import Client
from volery.live.command import Command
from volery.live.node.descendants import children
from volery.live.node.spawn import Spawners

MIXED = 400
MIXED_S = 600


class Harm(NamedTuple):
    """A function, and the end of its call.

    Args:
        value: what it returns; where there is a reason, it fails.
        reason: a part of the reason of its failure.
    """

    function: Callable[[], Any]
    value: Any = None
    reason: str = ""


HARMS = {
    harm.function.__name__: harm
    for harm in (
        Harm(harms.forks_and_returns, "parent"),
        Harm(harms.forks_and_raises, "parent"),
        Harm(harms.forks_and_exits, "parent"),
        Harm(harms.forks_and_does_not_wait, "parent"),
        Harm(harms.forks_without_python, "parent"),
        Harm(harms.forks_as_it_is_pickled, "parent"),
        Harm(harms.forks_as_its_text_is_read, reason="ForkingError: of the parent"),
        Harm(harms.forks_as_its_output_is_written, "parent"),
        Harm(harms.leaves_its_copy_behind, reason="its worker process ended with exit code 7"),
        Harm(harms.becomes_another_program, reason="by another program (exec), which was ended: sleep 60"),
        Harm(harms.leaves_a_thread, "threads"),
        Harm(harms.leaves_a_pool, 3),
        Harm(harms.exits_in_a_thread, "well"),
        Harm(harms.starts_processes, [1, 2]),
        Harm(harms.returns, 1),
        Harm(harms.raises, reason="KeyError: 'missing'"),
        Harm(harms.exits, reason="SystemExit: with words"),
        Harm(harms.exits_at_once, reason="its worker process ended with exit code 3"),
        Harm(harms.aborts, reason="its worker process ended by signal SIGABRT"),
        Harm(harms.kills_itself, reason="its worker process ended by signal SIGKILL"),
        Harm(harms.kills_its_group, reason="its worker process ended by signal SIGTERM"),
        Harm(harms.is_interrupted, reason="KeyboardInterrupt"),
        Harm(harms.crashes, reason="its worker process ended by signal SIGSEGV"),
        Harm(harms.sets_an_alarm, "alarm"),
        Harm(harms.ignores_signals, "ignored"),
        Harm(harms.blocks_signals, "blocked"),
        Harm(harms.handles_signals_below_python, "below"),
        Harm(harms.lowers_soft_limits, "soft"),
        Harm(harms.lowers_hard_limits, "hard"),
        Harm(harms.lowers_its_priority, 3),
        Harm(harms.gives_up_privileges, 0),
        Harm(harms.moves_to_one_processor, "moved"),
        Harm(harms.closes_the_lowest_descriptors, "closed"),
        Harm(harms.closes_all_descriptors, reason="could not send the answer"),
        Harm(harms.covers_all_descriptors, reason="could not send the answer"),
        Harm(harms.writes_to_all_descriptors, reason="answer to another call"),
        Harm(harms.leaves_files_open, 100),
        Harm(harms.closes_its_output, 41),
        Harm(harms.has_no_output, 42),
        Harm(harms.replaces_its_output, 43),
        Harm(harms.detaches_its_output, 44),
        Harm(harms.encodes_its_output_otherwise, 45),
        Harm(harms.has_an_output_that_fails, 46),
        Harm(harms.prints_much, 47),
        Harm(harms.changes_its_folder, "/"),
        Harm(harms.removes_its_folder, "removed"),
        Harm(harms.masks_its_files, 0o22),
        Harm(harms.changes_variables, "changed"),
        Harm(harms.changes_variables_of_programs, "put"),
        Harm(harms.clears_variables, "cleared"),
        Harm(harms.replaces_variables, "replaced"),
        Harm(harms.changes_settings, "set"),
        Harm(harms.lives_in_another_zone, "JST"),
        Harm(harms.finds_no_modules, "none"),
        Harm(harms.unloads_all_modules, "unloaded"),
        Harm(harms.replaces_what_a_call_begins_with, "replaced"),
        Harm(harms.logs_into_its_file, "logs"),
        Harm(harms.recurses, reason="RecursionError"),
        Harm(harms.recurses_without_bound, reason="its worker process ended by signal SIGSEGV"),
        Harm(harms.takes_all_memory, reason="MemoryError"),
        Harm(harms.generates, reason="cannot pickle 'generator' object"),
        Harm(harms.waits, reason="cannot pickle 'coroutine' object"),
        Harm(harms.raises_without_a_text, reason="SilentError: its text cannot be read"),
        Harm(harms.raises_what_exits_as_it_is_read, reason="ExitingError: its text cannot be read: SystemExit"),
        Harm(harms.raises_what_is_no_text, reason="ValueError: no file \\udcff"),
        Harm(harms.raises_what_cannot_be_shown, reason="SyntaxError: wrong"),
        Harm(harms.raises_what_cannot_be_pickled, reason="OSError: [Errno 5] why"),
        Harm(harms.raises_very_much, reason="ValueError: xxxx"),
        Harm(harms.RaisesAsItIsPickled, reason="SystemExit: as it is pickled"),
    )
}
"""By name, without `handles_signals`: its signals may come before or after the end of its call."""


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
def test_a_call_that_harms_its_process_has_its_end_and_the_next_finds_the_process_as_ever(
    tmp_path: Path, harm: Harm
) -> None:
    async def scenario(it: Bench) -> None:
        worker = value(await it.run(call(os.getpid)))
        before = value(await it.run(call(seen)))
        end = await it.run(call(harm.function))
        if harm.reason:
            assert (end.state, harm.reason in end.reason) == ("failed", True), end.reason
        else:
            assert (end.state, end.reason, value(end)) == ("finished", "", harm.value)
        after = await it.run(call(seen))
        assert value(after) == before
        assert lines_of(Path(after.folder) / "stdout") == ["printed"]
        assert lines_of(Path(after.folder) / "stderr") == ["written"]
        later = value(await it.run(call(os.getpid)))
        assert later == worker or is_gone(worker), "no worker is left over"

    bench(tmp_path, scenario, workers=1)


def test_a_task_at_which_the_node_agent_fails_has_an_end_and_others_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise RuntimeError("a fault of ours")

    async def scenario(it: Bench) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Spawners, "start", failing)
            end = await it.run(call(os.getpid))
            assert (end.state, end.reason) == ("failed", "its node agent failed at it; see the log of its host")
            end = await it.run(Command(("true",)))
            assert (end.state, end.reason) == ("failed", "not started: a fault of ours")
        assert (await it.run(Command(("true",)))).state == "finished"
        assert (await it.run(call(os.getpid))).state == "finished"

    bench(tmp_path, scenario, workers=1)


def test_a_worker_that_was_killed_between_calls_fails_none(tmp_path: Path) -> None:
    """As by the kernel for want of memory: nobody's call has done it."""

    async def scenario(it: Bench) -> None:
        for _ in range(3):
            worker = value(await it.run(call(os.getpid)))
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
            while not is_gone(worker):  # in the same turn of the loop, which has not noted it
                time.sleep(0.001)
            assert value(await it.run(call(os.getpid))) != worker

    bench(tmp_path, scenario, workers=1)


def test_garbage_of_a_call_that_forks_between_calls_is_in_nobodys_way(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        for allocations in range(1, 120):
            assert value(await it.run(call(harms.leaves_garbage_that_forks, allocations))) == "left"
            end = await it.run(call(harms.prints_once))
            assert (end.state, lines_of(Path(end.folder) / "stdout")) == ("finished", ["once"]), allocations

    bench(tmp_path, scenario, workers=1)


def test_a_timer_of_a_call_ends_its_own_call_or_none(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        before = value(await it.run(call(seen)))
        for _ in range(20):
            end = await it.run(call(handles_signals))
            assert (end.state, end.reason) in (("finished", ""), ("failed", "SystemExit: 8"))
            assert value(await it.run(call(seen))) == before

    bench(tmp_path, scenario, workers=1)


def workers_below(parent: int) -> list[int]:
    found = []
    for pid in children(parent):
        with suppress(OSError):
            if b"volery.live.node.worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
        found += workers_below(pid)
    return found


def check_mixed_calls(folder: Path, job_count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    fails = {harm.function for harm in HARMS.values() if harm.reason}
    with serving(folder) as (api, _), Client(api) as ada, Client(api) as bob:
        sent = [
            client.map(mixed_calls.mixed, [(job, number) for number in range(MIXED)], unpack=True)
            for job, client in zip(range(job_count), cycle([ada, bob]), strict=False)
        ]
        ended = dict[str, int]()
        for job, futures in enumerate(sent):
            for number, future in enumerate(futures):
                harm = mixed_calls.harm_of(number)
                error = future.exception(MIXED_S)
                ended[type(error).__name__] = ended.get(type(error).__name__, 0) + 1
                assert (error is not None) == (harm in fails), (job, number, harm, error)
                if error is None:
                    assert future.result() == (job, number)
        assert len(workers_below(os.getpid())) <= 2 + (os.cpu_count() or 1)
        assert ended["NoneType"] > 0.9 * MIXED * job_count
    assert not workers_below(os.getpid()), "no worker is left over"


def test_every_future_of_many_calls_ends_with_what_its_own_call_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_mixed_calls(tmp_path, 1, monkeypatch)


@pytest.mark.slow
def test_every_future_of_20000_calls_ends_with_what_its_own_call_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_mixed_calls(tmp_path, 20_000 // MIXED, monkeypatch)
