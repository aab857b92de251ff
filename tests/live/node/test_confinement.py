"""Tasks are held to what they ask for: by the kernel's control groups where they are permitted, else per process."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec
import pytest
from tests.live.bench import LIMIT_S, Bench, bench, gone, is_gone, lines_of, written

from volery.core.errors import InputError
from volery.live.command import Call, Command
from volery.live.config.limits import Isolation, NodeRules
from volery.live.node.agent import NodeAgent
from volery.live.node.cgroups import TREE, ControlGroup, NotPermittedError, Tree, delegated_base
from volery.live.node.confinement import PER_PROCESS, mark_of

AMOUNTS = NodeRules(amounts=True)
WITHOUT_GROUPS = NodeRules(Isolation(cgroups="off"), amounts=True)


def sh(script: str, **settings: Any) -> Command:
    return Command(("sh", "-c", script), **settings)


def python(script: str, **settings: Any) -> Command:
    return Command((sys.executable, "-c", script), **settings)


def call(function: Any, *arguments: Any, **settings: Any) -> Call:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    return Call(cloudpickle.dumps((function, arguments, {})), **settings)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A real group that is delegated to us."""
    try:
        found = delegated_base()
        Tree(found, mark_of(tmp_path)).close()
    except NotPermittedError as error:
        pytest.skip(f"control groups are not permitted here: {error}")
    return found


@pytest.fixture
def tree(base: Path, tmp_path: Path) -> Iterator[Tree]:
    """Groups of ours."""
    made = Tree(base, mark_of(tmp_path))
    yield made
    made.close()


def groups_of(state: Path, base: Path) -> list[str]:
    return [path.name for path in (base / f"{TREE}{mark_of(state)}").glob("*") if path.is_dir()]


def needs(tree: Tree, *controllers: str) -> None:
    missing = {*controllers} - tree.controllers
    if missing:
        pytest.skip(f"the control groups of this machine have no controller for {', '.join(sorted(missing))}")


def started_in(group: ControlGroup, *words: str) -> subprocess.Popen[bytes]:
    running = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
    group.take_in(running.pid)
    return running


async def empty(group: ControlGroup) -> None:
    async with asyncio.timeout(LIMIT_S):
        while group.lives:
            await asyncio.sleep(0.005)


def test_a_group_ends_also_what_has_left_its_session(tree: Tree) -> None:
    group = tree.make("0.0")
    fled = "setsid sh -c 'setsid sleep 60 & echo $!' & wait; sleep 60"
    with started_in(group, "sh", "-c", f"sleep 0.1; {fled}") as running:
        assert running.stdout is not None
        stray = int(running.stdout.readline())
        assert {running.pid, stray} <= {*group.pids()}
        group.kill()
        assert running.wait(10) == -9
        asyncio.run(empty(group))  # also of those between the two
        asyncio.run(gone(stray))
    assert group.remove()
    assert not Path(group.folder).exists()


def test_a_group_knows_the_processor_time_of_processes_that_nobody_has_waited_for(tree: Tree) -> None:
    group = tree.make("0.0")
    # More than is asked for: on a busy machine a group's account was 2 ms behind the clock of its process for good.
    spin = "import time\nwhile time.process_time() < 0.3: pass"
    with started_in(group, "sh", "-c", f"sleep 0.05; setsid {sys.executable} -c '{spin}' & sleep 60") as running:
        deadline = time.monotonic() + 20
        while group.usage().cpu_us < 200_000 and time.monotonic() < deadline:
            time.sleep(0.02)
        used = group.usage()
        group.kill()
        running.wait(10)
    assert used.cpu_us >= 200_000
    assert not used.out_of_memory


def test_a_tree_that_is_opened_again_ends_what_was_left(base: Path, tmp_path: Path) -> None:
    mark = mark_of(tmp_path)
    first = Tree(base, mark)
    with started_in(first.make("0.0"), "sleep", "60") as running:
        second = Tree(base, mark)
        assert running.wait(10) == -9
    assert second.make("0.0").pids() == []
    second.close()
    assert not (base / f"{TREE}{mark}").exists()


def test_limits_are_those_that_were_asked_for(tree: Tree) -> None:
    needs(tree, "cpu", "memory", "pids")
    folder = Path(tree.limited("0.0", 1500, 64, 100, cpu_limit=True).folder)
    found = {name: (folder / name).read_text().strip() for name in ("cpu.max", "cpu.weight", "memory.max", "pids.max")}
    expected = {"cpu.max": "150000 100000", "cpu.weight": "150", "memory.max": str(64 << 20), "pids.max": "100"}
    assert found == expected
    assert (folder / "memory.oom.group").read_text() == "1\n"
    shared = Path(tree.limited("1.0", 200, 0, 0, cpu_limit=False).folder)
    assert (shared / "cpu.max").read_text().startswith("max")
    assert (shared / "cpu.weight").read_text() == "20\n"


def test_a_task_over_its_memory_is_ended_and_others_live_on(tree: Tree, tmp_path: Path) -> None:
    """Its processes are each within the limit, and together beyond it: per process nothing would have happened."""
    needs(tree, "memory")
    forty = f"{sys.executable} -c 'import time; kept = bytearray(40 << 20); time.sleep(20)'"

    async def scenario(it: Bench) -> None:
        other = it.start(sh("echo here; read never </dev/tty || sleep 0.5", memory_mb=64))
        greedy = await it.run(sh(f"{forty} & {forty} & wait; exit 0", memory_mb=64))
        assert (greedy.state, greedy.reason) == ("failed", "out of memory: 64 MiB asked")
        assert greedy.usage is not None
        assert greedy.usage.out_of_memory
        assert greedy.usage.memory_peak_bytes is None or 60 << 20 < greedy.usage.memory_peak_bytes <= 64 << 20
        called = await it.run(call(lambda: len(bytearray(200 << 20)), memory_mb=100))
        assert (called.state, called.reason) == ("failed", "out of memory: 100 MiB asked")
        await it.until(lambda: other in it.outcomes)
        assert it.outcomes[other] == "finished"
        assert (await it.run(call(lambda: len(bytearray(20 << 20)), memory_mb=100))).state == "finished"

    bench(tmp_path, scenario, rules=AMOUNTS)


def test_a_task_gets_the_processors_that_it_asks_for_and_no_more(base: Path, tree: Tree, tmp_path: Path) -> None:
    needs(tree, "cpu")
    stat = base / f"{TREE}{mark_of(tmp_path / 'agent')}" / "0.0" / "cpu.stat"
    spin = "import time\nbegun = time.monotonic()\nwhile time.monotonic() < begun + 1: pass\n"

    async def scenario(it: Bench) -> None:
        end = await it.run(python(f"{spin}print(open('{stat}').read())", cpu_milli=200))
        found = dict(line.split() for line in lines_of(Path(end.folder) / "stdout") if line)
        assert int(found["nr_throttled"]) >= 5, "it was not held back in most tenths of a second"
        assert end.usage is not None
        assert end.usage.cpu_us is not None
        assert end.usage.cpu_us >= 50_000

    bench(tmp_path, scenario, rules=AMOUNTS)


def test_an_attempt_has_a_group_of_its_own_and_leaves_none(base: Path, tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        fled = "setsid sh -c 'setsid sleep 60 & echo $!'"
        task = it.start(sh(f"sed -n 's/^0:://p' /proc/self/cgroup; {fled}; exec sleep 60", cpu_milli=500, memory_mb=64))
        lines = await written(tmp_path / "3" / "0.0" / "stdout", 2)
        assert lines[0].endswith("/0.0"), "it ran before it was in its group"
        it.executor.kill(task, 0)
        await it.until(lambda: task in it.outcomes)
        assert it.outcomes[task] == "killed"
        assert is_gone(int(lines[1])), "it had left the session, and lived on"
        end = await it.run(sh(f"{fled}; exit 3", cpu_milli=500, memory_mb=64))
        assert end.exit_code == 3
        assert is_gone(int(lines_of(Path(end.folder) / "stdout")[0]))
        assert end.usage is not None
        assert (end.usage.cpu_us or 0) > 0
        of_calls = await it.run(call(lambda: Path("/proc/self/cgroup").read_text(), cpu_milli=500))
        assert of_calls.state == "finished"
        assert it.outcomes == {0: "killed", 1: "failed", 2: "finished"}
        assert groups_of(tmp_path / "agent", base) == ["workers"]

    bench(tmp_path, scenario, rules=AMOUNTS)
    assert groups_of(tmp_path / "agent", base) == []


def test_control_groups_that_are_required_and_not_there_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere() -> Path:
        raise NotPermittedError("cgroup v2 is not mounted")

    monkeypatch.setattr("volery.live.node.confinement.delegated_base", nowhere)
    with pytest.raises(InputError, match=r"isolation\.cgroups: cgroup v2 is not mounted"):
        NodeAgent(tmp_path, rules=NodeRules(Isolation(cgroups="require"), amounts=True))
    assert PER_PROCESS in NodeAgent(tmp_path, rules=AMOUNTS).held, "the state folder was given up"


def test_without_control_groups_tasks_are_held_process_by_process_and_told_so(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        assert it.executor.held.startswith("no control groups: they are switched off; memory is limited per process")
        one = await it.run(python("import os; print(len(os.sched_getaffinity(0)))", cpu_milli=1000, memory_mb=500))
        assert lines_of(Path(one.folder) / "stdout") == ["1"]
        assert one.usage is not None
        assert PER_PROCESS in one.usage.held
        assert (one.usage.cpu_us or 0) > 0
        greedy = await it.run(python("bytearray(300 << 20)", memory_mb=100))
        assert greedy.reason == "exit code 1; each of its processes may have 100 MiB"
        called = await it.run(call(lambda: len(bytearray(300 << 20)), memory_mb=200, cpu_milli=1000))
        assert called.reason.startswith("MemoryError")
        freed = call(lambda: (len(bytearray(300 << 20)), len(os.sched_getaffinity(0))), gpus=0)
        assert (await it.run(freed)).state == "finished", "the worker was let go"
        large = await it.run(python("print(len(b'x' * (300 << 20)))"))  # zeros might never be touched
        assert large.usage is not None
        assert large.usage.held == ""
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        peak = large.usage.memory_peak_bytes  # of a smaller process the kernel says no more than of its parent
        assert peak is None if own > 400 << 20 else (peak or 0) > 300 << 20 or own > 300 << 20

    bench(tmp_path, scenario, workers=1, rules=WITHOUT_GROUPS)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (Command(("no-such-program",), memory_mb=50), "not started: no-such-program: No such file or directory"),
        (Command(("./none",), memory_mb=50), "not started: ./none: No such file or directory"),
        (Command(("/etc/passwd",), memory_mb=50), "not started: /etc/passwd: Permission denied"),
        (Command(("true",), cwd="/no/such", memory_mb=50), "not started: the working directory /no/such"),
        (Command(("cat",), stdin=b"given", memory_mb=50), ""),
        (Command(("b/speak",), cwd="{}", memory_mb=50), ""),
        (Command(("speak",), cwd="{}", env={"PATH": "b:/bin"}, memory_mb=50), ""),
    ],
)
def test_what_waits_to_be_held_starts_and_fails_as_anything_else(tmp_path: Path, command: Command, reason: str) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b/speak").write_text("#!/bin/sh\nprintf given\n")
    (tmp_path / "b/speak").chmod(0o755)

    async def scenario(it: Bench) -> None:
        end = await it.run(msgspec.structs.replace(command, cwd=command.cwd.format(tmp_path)))
        assert end.reason.startswith(reason)
        assert bool(end.reason) == bool(reason)
        assert reason or (Path(end.folder) / "stdout").read_bytes() == b"given"

    bench(tmp_path, scenario, rules=WITHOUT_GROUPS)


def test_each_attempt_is_given_gpus_of_its_own(tmp_path: Path) -> None:
    shown = "echo $CUDA_VISIBLE_DEVICES $HIP_VISIBLE_DEVICES"
    rules = NodeRules(Isolation("off", gpus=("0", "1", "GPU-7f")), amounts=True)

    async def scenario(it: Bench) -> None:
        held = [it.start(sh(f"{shown}; read go <{tmp_path}/go", gpus=count)) for count in (2, 1)]
        os.mkfifo(tmp_path / "go")
        given = [(await written(tmp_path / "3" / f"{task}.0" / "stdout"))[0] for task in held]
        assert given == ["0,1 0,1", "GPU-7f GPU-7f"]
        none = await it.run(sh(shown, gpus=0))
        assert lines_of(Path(none.folder) / "stdout") == ["-1 -1"]
        more = await it.run(sh("true", gpus=1))
        assert "it asks for 1 GPUs, and 0 of the 3 of this host are free" in more.reason
        for task in held:
            it.executor.kill(task, 0)
        await it.until(lambda: {*held} <= {*it.outcomes})
        called = await it.run(call(lambda: os.environ["CUDA_VISIBLE_DEVICES"], gpus=3))
        assert cloudpickle.loads(called.result) == "0,1,GPU-7f"

    bench(tmp_path, scenario, rules=rules)
