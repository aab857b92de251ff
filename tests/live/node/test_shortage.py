"""What a node lacks when a task starts never fails the task: it waits, and the node states what is short."""

from __future__ import annotations

import errno
import os
import pwd
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from tests.live.bench import Bench, bench, lines_of

from volery.live.command import Call, Command
from volery.live.config.limits import Isolation, NodeRules
from volery.live.node import shortage
from volery.live.node.call import CallExecutor
from volery.live.node.spawn import Accounts
from volery.live.node.worker import CallAnswer

TASKS = 30
ECHO = Command(("sh", "-c", "echo hello"))
HELD = NodeRules(Isolation(cgroups="off"), amounts=True)


class Lack:
    """Something that the machine lacks: a function of `os` fails so many times for what the filter names."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, number: int, of: Callable[..., bool]) -> None:
        self.left = 3
        self.met = 0
        self._whole = getattr(os, name)

        def lacking(*arguments: Any, **named: Any) -> Any:
            if self.left and of(*arguments):
                self.left -= 1
                self.met += 1
                raise OSError(number, os.strerror(number))
            return self._whole(*arguments, **named)

        monkeypatch.setattr(os, name, lacking)


def output(name: str) -> Callable[..., bool]:
    return lambda path, *_: str(path).endswith(name)


PLACES: dict[str, tuple[str, Callable[..., bool]]] = {
    "the folder of an attempt": ("mkdir", output("/0.0")),
    "its working folder": ("mkdir", output("/work")),
    "its output": ("open", output("/stdout")),
    "its second output": ("open", output("/stderr")),
    "its input": ("memfd_create", lambda *_: True),
    "the room on its disk": ("statvfs", lambda *_: True),
    "a pipe": ("pipe", lambda *_: True),
}
ERRORS = {
    errno.EMFILE: "file descriptors",
    errno.ENFILE: "file descriptors",
    errno.EAGAIN: "processes",
    errno.ENOMEM: "memory",
    errno.ENOSPC: "disk space",
    errno.EDQUOT: "disk space",
    errno.EROFS: "disk space",
}


@pytest.mark.parametrize("number", ERRORS, ids=errno.errorcode.get)
def test_every_shortage_delays_a_task_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    lack = Lack(monkeypatch, *_of("its output", number))
    seen: list[str] = []

    async def scenario(it: Bench) -> None:
        it.executor.watch_shortage(lambda: seen.append(it.executor.shortage))
        end = await it.run(ECHO)
        assert (end.state, end.reason, end.number) == ("finished", "", 0)
        assert lines_of(Path(end.folder) / "stdout") == ["hello"]
        assert [report.state for report in it.reports] == ["running", "finished"]

    bench(tmp_path, scenario)
    assert lack.met == 3
    assert f"short of {ERRORS[number]} ({os.strerror(number)}" in seen[0]


def _of(place: str, number: int) -> tuple[str, int, Callable[..., bool]]:
    name, of = PLACES[place]
    return name, number, of


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("held", [False, True])
def test_a_task_begins_once_wherever_its_start_meets_a_shortage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, *, held: bool
) -> None:
    lack = Lack(monkeypatch, *_of(place, errno.ENOSPC if "room" in place else errno.EMFILE))
    command = Command(("sh", "-c", f"echo once >>{tmp_path}/began; cat"), stdin=b"in", memory_mb=64 * held)

    async def scenario(it: Bench) -> None:
        end = await it.run(command)
        assert (end.state, end.reason, end.folder) == ("finished", "", str(tmp_path / "3" / "0.0"))
        assert lines_of(Path(end.folder) / "stdout") == ["in"]

    bench(tmp_path, scenario, rules=HELD if held else NodeRules())
    assert lines_of(tmp_path / "began") == ["once"]
    assert lack.met == 3 or (place == "its input" and held)
    assert {path.name for path in (tmp_path / "3").iterdir()} == {"0.0"}


def test_a_process_that_cannot_be_forked_is_forked_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = iter([errno.EAGAIN, errno.ENOMEM, errno.EAGAIN, 0, 0])
    whole = subprocess.Popen

    def forked(*arguments: Any, **named: Any) -> Any:
        if number := next(tries):
            raise OSError(number, os.strerror(number))
        return whole(*arguments, **named)

    monkeypatch.setattr(subprocess, "Popen", forked)

    async def scenario(it: Bench) -> None:
        assert (await it.run(ECHO)).state == "finished"

    bench(tmp_path, scenario)


def test_the_record_and_the_watch_of_a_process_never_fail_its_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both come when the task has begun; it must not begin twice, either."""
    Lack(monkeypatch, "pidfd_open", errno.EMFILE, lambda *_: True)

    async def scenario(it: Bench) -> None:
        Lack(monkeypatch, "write", errno.ENOSPC, lambda file, *_: file == it.executor._ledger._file).left = 1 << 30
        end = await it.run(Command(("sh", "-c", f"echo once >>{tmp_path}/began")))
        assert (end.state, end.reason) == ("finished", "")

    bench(tmp_path, scenario)
    assert lines_of(tmp_path / "began") == ["once"]


def test_a_user_s_own_error_is_no_shortage(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        for command in (Command(("no-such-program",)), Command(("true",), cwd="/no/such"), Command(("true\0",))):
            assert (await it.run(command)).state == "failed"
        assert it.executor.shortage == ""

    bench(tmp_path, scenario)


@pytest.mark.parametrize("place", ["the folder of an attempt", "the room on its disk"])
def test_a_call_waits_for_what_the_node_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    lack = Lack(monkeypatch, *_of(place, errno.ENOSPC))

    async def scenario(it: Bench) -> None:
        end = await it.run(Call(cloudpickle.dumps((pow, (2, 5), {}))))
        assert (end.state, cloudpickle.loads(end.result)) == ("finished", 32)

    bench(tmp_path, scenario)
    assert lack.met == 3


LACKING_WORKER = """
import os
from pathlib import Path
from volery.live.node.worker import main

whole = os.{name}

def lacking(path, *arguments, **named):
    tries = Path("{tries}").stat().st_size
    if str(path) == "{path}" and tries < 3:
        Path("{tries}").write_text("x" * (tries + 1))
        raise OSError({number}, os.strerror({number}))
    return whole(path, *arguments, **named)

os.{name} = lacking
main()
"""


@pytest.mark.parametrize(
    ("name", "path", "number"),
    [("open", "stdout", errno.EDQUOT), ("open", "stderr", errno.EMFILE), ("mkdir", "work", 28)],
)
def test_a_call_waits_for_what_its_worker_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, path: str, number: int
) -> None:
    tries = tmp_path / "tries"
    tries.touch()
    program = LACKING_WORKER.format(name=name, path=path, number=number, tries=tries)
    monkeypatch.setattr("volery.live.node.call._COMMAND", (sys.executable, "-c", program))

    async def scenario(it: Bench) -> None:
        seen: list[str] = []
        it.executor.watch_shortage(lambda: seen.append(it.executor.shortage))
        end = await it.run(Call(cloudpickle.dumps((pow, (2, 5), {}))))
        assert (end.state, cloudpickle.loads(end.result), end.folder) == ("finished", 32, str(tmp_path / "3" / "0.0"))
        assert f"short of {ERRORS[number]} ({os.strerror(number)})" in seen[0]

    bench(tmp_path, scenario)
    assert len(tries.read_text()) == 3
    assert [entry.name for entry in (tmp_path / "3").iterdir()] == ["0.0"]


def test_a_call_that_is_killed_as_its_worker_cannot_begin_it_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(it: Bench) -> None:
        async def ask(_worker: Any, _request: Any) -> CallAnswer:
            it.executor.kill(0, 0)
            return CallAnswer(b"", "no room", begun=False)

        with monkeypatch.context() as patched:
            patched.setattr("volery.live.node.worker_process.WorkerProcess.ask", ask)
            end = await it.run(Call(cloudpickle.dumps((pow, (2, 5), {}))))
        assert (end.state, end.reason) == ("killed", "killed on request")
        assert (await it.run(Call(cloudpickle.dumps((pow, (2, 5), {}))))).state == "finished"

    bench(tmp_path, scenario, workers=1)


def test_calls_that_wait_for_what_is_short_get_no_further_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lack = Lack(monkeypatch, "mkdir", errno.ENOSPC, output(".0"))
    lack.left = 0

    async def scenario(it: Bench) -> None:
        await it.run(Call(cloudpickle.dumps((pow, (2, 5), {}))))  # its worker is ready then
        monkeypatch.setattr("volery.live.node.call.GROW_S", 0.01)
        lack.left = 1 << 30
        for _ in range(4):
            it.start(Call(cloudpickle.dumps((pow, (2, 5), {}))))
        await it.until_polled(lambda: lack.met >= 3)
        assert len(it.executor._calls._serve_tasks) == 1
        lack.left = 0
        await it.until(lambda: len(it.outcomes) == 5)

    bench(tmp_path, scenario, workers=1)


def test_calls_that_wait_for_a_worker_that_is_slow_to_begin_get_no_further_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from volery.live.node import call

    gate, looks = tmp_path / "gate", list[int]()
    words = ("sh", "-c", f'while ! [ -e {gate} ]; do sleep 0.02; done; exec "$@"', "", *call._COMMAND)
    grow = CallExecutor._grow

    def looked(executor: CallExecutor) -> None:
        grow(executor)
        looks.append(len(executor._serve_tasks))

    monkeypatch.setattr(call, "_COMMAND", words)
    monkeypatch.setattr(call, "GROW_S", 0.01)
    monkeypatch.setattr(CallExecutor, "_grow", looked)

    async def scenario(it: Bench) -> None:
        for _ in range(4):
            it.start(Call(cloudpickle.dumps((pow, (2, 5), {}))))
        await it.until_polled(lambda: len(looks) >= 5)
        assert set(looks) == {1}
        gate.touch()
        await it.until(lambda: len(it.outcomes) == 4)

    bench(tmp_path, scenario, workers=1)


def test_a_worker_that_dies_before_it_can_take_a_call_does_not_fail_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of an interpreter that the kernel has ended for want of memory."""
    from volery.live.node import call

    gate = tmp_path / "gate"
    words = ("sh", "-c", f'[ -e {gate} ] && exec "$@"; echo x >>{tmp_path}/tries; kill -9 $$', "", *call._COMMAND)
    monkeypatch.setattr(call, "_COMMAND", words)

    async def scenario(it: Bench) -> None:
        seen: list[str] = []
        it.executor.watch_shortage(lambda: seen.append(it.executor.shortage))
        number = it.start(Call(cloudpickle.dumps((pow, (2, 5), {}))))
        await it.until_polled(lambda: len(lines_of(tmp_path / "tries")) >= 2)
        gate.touch()
        await it.until(lambda: number in it.outcomes)
        assert it.reports[-1].state == "finished"
        assert "short of worker processes (one has ended with signal SIGKILL before" in seen[0]

    bench(tmp_path, scenario)


def test_a_task_that_waits_for_what_the_node_lacks_can_be_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lack = Lack(monkeypatch, *_of("the room on its disk", errno.ENOSPC))
    lack.left = 1 << 30  # for a call, too: its worker opens the output, in a process that lacks nothing

    async def scenario(it: Bench) -> None:
        numbers = [it.start(ECHO), it.start(Call(cloudpickle.dumps((pow, (2, 5), {}))))]
        await it.until_polled(lambda: lack.met >= 2)
        for number in numbers:
            it.executor.kill(number, 0)
        await it.until(lambda: len(it.outcomes) == 2)
        assert set(it.outcomes.values()) == {"killed"}
        lack.left = 0
        assert (await it.run(ECHO)).state == "finished"

    bench(tmp_path, scenario)


def test_what_cannot_start_here_goes_back_where_tasks_can_go_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("volery.live.node.processes.GIVE_BACK_S", 0.0)
    monkeypatch.setattr("volery.live.node.call.GIVE_BACK_S", 0.0)
    Lack(monkeypatch, "mkdir", errno.ENOSPC, output(".0")).left = 1 << 30

    async def scenario(it: Bench) -> None:
        for command in (ECHO, Call(cloudpickle.dumps((pow, (2, 5), {})))):
            end = await it.run(command)
            assert end.state == "unstarted"
            assert end.reason == f"not begun: node/7 is short of disk space ({os.strerror(errno.ENOSPC)})"
        assert not [report for report in it.reports if report.state == "running"]

    bench(tmp_path, scenario, rules=NodeRules(gives_back=True))


@contextmanager
def limited(what: int, soft: int) -> Iterator[None]:
    """A limit of this process, for a while."""
    before, hard = resource.getrlimit(what)
    resource.setrlimit(what, (soft, hard))
    try:
        yield
    finally:
        resource.setrlimit(what, (before, hard))


async def all_end_after(it: Bench, lack: str, gate: Path, user: str = "") -> None:
    """Start tasks that run until the gate is there, which comes when the node is short of something; all succeed."""
    shortages: list[str] = []
    it.executor.watch_shortage(lambda: shortages.append(it.executor.shortage))
    for _ in range(TASKS):
        it.start(Command(("sh", "-c", f"until [ -e {gate} ]; do sleep 0.1; done; echo hello"), user=user))
    await it.until_polled(lambda: shortages)
    assert f"short of {lack}" in shortages[0]
    assert not it.outcomes
    gate.touch()
    await it.until(lambda: len(it.outcomes) == TASKS)
    assert set(it.outcomes.values()) == {"finished"}


def test_no_task_fails_on_a_node_with_few_descriptors(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        opened = len([*Path("/proc/self/fd").iterdir()])
        with limited(resource.RLIMIT_NOFILE, (opened + 16) * 4 // 3):  # a quarter is spared
            await all_end_after(it, "file descriptors", tmp_path / "gate")

    bench(tmp_path, scenario)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run tasks as an account without processes")
def test_no_task_fails_on_a_node_with_few_processes(open_folder: Path) -> None:
    """Each task starts a process of its own once it runs: it needs two, and the limit has room for few."""
    used = shortage._processes_of(pwd.getpwnam("bin").pw_uid)

    async def scenario(it: Bench) -> None:
        with limited(resource.RLIMIT_NPROC, (used + 24) * 4 // 3):
            await all_end_after(it, "processes", open_folder / "gate", user="ada")

    bench(open_folder, scenario, accounts=Accounts({"ada": "bin"}))


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of a megabyte."""
    folder = Path(tempfile.mkdtemp(prefix="volery-"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        folder.rmdir()
        pytest.skip("only root can mount a small file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
    folder.rmdir()


def test_no_task_fails_on_a_full_disk(small_disk: Path) -> None:
    async def scenario(it: Bench) -> None:
        shortages: list[str] = []
        it.executor.watch_shortage(lambda: shortages.append(it.executor.shortage))
        filler = small_disk / "filler"
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))
        numbers = [it.start(ECHO), it.start(Call(cloudpickle.dumps((pow, (2, 5), {})))), it.start(ECHO)]
        await it.until_polled(lambda: shortages)
        assert f"short of disk space (No space left on device: {small_disk}" in shortages[0]
        assert not it.outcomes
        filler.unlink()
        await it.until(lambda: len(it.outcomes) == len(numbers))
        assert set(it.outcomes.values()) == {"finished"}
        await it.until_polled(lambda: shortages[-1] == "")

    bench(small_disk, scenario)
