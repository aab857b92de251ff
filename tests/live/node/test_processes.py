"""The process executor: real processes come back right, and none is ever left behind."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
from tests.live.bench import LIMIT_S, Bench, bench, gone, is_gone, lines_of, written

from volery.core.errors import InputError
from volery.core.model import Task
from volery.live.command import Command, encode_payload
from volery.live.config.limits import NodeRules, OutputLimits
from volery.live.node.agent import NodeAgent
from volery.live.node.descendants import ProcessLedger, carries, processes, status_of, with_checksum
from volery.live.node.output import HOLE_BYTES, kept_from


def sh(script: str, **settings: object) -> Command:
    return Command(("sh", "-c", script), **settings)  # type: ignore[arg-type]  # settings of whatever kind they are


def test_a_process_gets_its_folder_environment_and_input(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        script = (
            "cat; pwd; echo $COLOUR $VOLERY_JOB $VOLERY_TASK $VOLERY_INDEX $VOLERY_ATTEMPT $VOLERY_NODE; echo bad >&2"
        )
        end = await it.run(sh(script, first=-5, stdin=b"given\n", env={"COLOUR": "blue"}))
        assert (end.state, end.exit_code, end.reason, end.node) == ("finished", 0, "", "node/7")
        folder = tmp_path / "3" / "0.0"
        assert end.folder == str(folder)
        assert lines_of(folder / "stdout") == ["given", str(folder / "work"), "blue 3 0 5 0 node/7"]
        assert lines_of(folder / "stderr") == ["bad"]
        assert [report.state for report in it.reports] == ["running", "finished"]
        assert it.reports[0].at_unix_us <= it.reports[1].at_unix_us

    bench(tmp_path, scenario)


def test_each_process_leads_a_session_of_its_own(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        end = await it.run(sh("cut -d' ' -f5,6 /proc/self/stat; echo $$"))
        numbers, own = lines_of(Path(end.folder) / "stdout")
        assert numbers == f"{own} {own}"

    bench(tmp_path, scenario)


@pytest.mark.parametrize(
    ("command", "exit_code", "reason"),
    [
        (sh("exit 3"), 3, "exit code 3"),
        (sh("kill -USR1 $$"), -signal.SIGUSR1, "ended by signal SIGUSR1"),
        (sh("exec sleep 60", timeout_s=0.05), -signal.SIGTERM, "timeout: it ran for more than 0.05 s"),
        (sh("trap '' TERM; while :; do read x; done </dev/zero", timeout_s=0.05, grace_s=0.05), -9, "timeout"),
        (sh("echo x >a.txt", outputs=("a.txt", "b.txt")), 0, "it left no b.txt"),
        (Command(("no-such-program",)), None, "not started: no-such-program: No such file or directory"),
        (Command(("true",), cwd="/no/such/folder"), None, "not started: the working directory /no/such/folder"),
        (Command(("true\0",)), None, "not started: embedded null byte"),
        (Command(()), None, "not started: the task carries no command"),
    ],
)
def test_what_goes_wrong_is_told(tmp_path: Path, command: Command, exit_code: int | None, reason: str) -> None:
    async def scenario(it: Bench) -> None:
        end = await it.run(command)
        assert (end.state, end.exit_code) == ("failed", exit_code)
        assert reason in end.reason

    bench(tmp_path, scenario)


def test_a_task_without_payload_fails_with_a_reason(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        it.executor.start("node/0", Task(0, 0), 0, it._ended)
        await it.until(lambda: it.outcomes)
        assert "carries no payload" in it.reports[0].reason

    bench(tmp_path, scenario)


def test_outputs_that_are_there_are_a_success(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        assert (await it.run(sh("echo x >a.txt", outputs=("a.txt",)))).state == "finished"

    bench(tmp_path, scenario)


def test_programs_are_found_on_the_path_of_the_task_as_it_is_now(tmp_path: Path) -> None:
    def program(folder: str, says: str) -> None:
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "speak").write_text(f"#!/bin/sh\necho {says}\n")
        (tmp_path / folder / "speak").chmod(0o755)

    async def said(it: Bench, path: str) -> list[str]:
        end = await it.run(Command(("speak",), env={"PATH": path}, cwd=str(tmp_path)))
        return lines_of(Path(end.folder) / "stdout")

    async def scenario(it: Bench) -> None:
        both = f"{tmp_path}/a:{tmp_path}/b:/usr/bin:/bin"
        program("b", "second")
        assert await said(it, both) == ["second"]
        assert await said(it, "b:/usr/bin:/bin") == ["second"]
        (tmp_path / "b" / "speak").unlink()
        program("a", "first")
        assert await said(it, both) == ["first"]
        missing = await it.run(Command(("speak",), env={"PATH": f"{tmp_path}/b"}))
        assert missing.reason == "not started: speak: No such file or directory"

    bench(tmp_path, scenario)


def test_ten_megabytes_of_output_come_back_right(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        program = "import sys; [sys.stdout.write('%09d\\n' % n) for n in range(1_000_000)]"
        end = await it.run(Command((sys.executable, "-c", program)))
        content = (Path(end.folder) / "stdout").read_bytes()
        assert content == b"".join(b"%09d\n" % n for n in range(1_000_000))

    bench(tmp_path, scenario)


def test_many_processes_all_end_once(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        for n in range(100):
            it.start(sh(f"exit {n % 3}"))
        await it.until(lambda: len(it.outcomes) == 100)
        codes = {report.task: report.exit_code for report in it.reports if report.state != "running"}
        assert codes == {n: n % 3 for n in range(100)}

    bench(tmp_path, scenario)


def test_a_killed_task_leaves_nothing_even_of_what_ignores_the_request(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        stubborn = "trap '' TERM; echo $$; while :; do sleep 0.01; done"
        moved = (
            f'{sys.executable} -c "import os, time; os.setpgid(0, 0); print(os.getpid(), flush=True); time.sleep(60)"'
        )
        task = it.start(sh(f'(sh -c "$STUBBORN" &) ; {moved} & wait', env={"STUBBORN": stubborn}, grace_s=0.1))
        pids = [int(line) for line in await written(tmp_path / "3" / "0.0" / "stdout", 2)]
        it.executor.kill(task, 0)
        await it.until(lambda: task in it.outcomes)
        assert it.outcomes[task] == "killed"
        assert it.reports[-1].exit_code == -signal.SIGTERM
        assert [pid for pid in pids if not is_gone(pid)] == []

    bench(tmp_path, scenario)


def test_the_whole_group_has_its_grace_although_the_first_process_has_none_left(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        tidy = "trap 'sleep 0.1; echo tidied; exit' TERM; echo ready; while :; do sleep 0.01; done"
        task = it.start(sh('sh -c "$TIDY" & wait', env={"TIDY": tidy}, grace_s=20.0))
        out = tmp_path / "3" / "0.0" / "stdout"
        await written(out)
        begun = time.monotonic()
        it.executor.kill(task, 0)
        await it.until(lambda: task in it.outcomes)
        assert lines_of(out) == ["ready", "tidied"]
        assert time.monotonic() - begun < 10

    bench(tmp_path, scenario)


def test_what_a_finished_command_leaves_running_ends_with_it(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        end = await it.run(sh("trap '' TERM; sleep 60 & echo $!"))
        assert end.state == "finished"
        await gone(int(lines_of(Path(end.folder) / "stdout")[0]))

    bench(tmp_path, scenario)


def test_a_task_gets_the_usual_variables_of_its_host_and_those_that_the_file_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"AWS_SECRET_ACCESS_KEY": "1", "CUDA_HOME": "/cuda", "LC_TIME": "C", "TZ": "UTC", "VOLERY_TOKEN": "secret"}
    for name, text in given.items():
        monkeypatch.setenv(name, text)

    async def scenario(it: Bench) -> None:
        end = await it.run(sh("env", env={"OWN": "1"}))
        found = dict(line.split("=", 1) for line in lines_of(Path(end.folder) / "stdout"))
        assert {name for name in given if name in found} == {"CUDA_HOME", "LC_TIME", "TZ"}
        usual = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TMPDIR", "PWD", "_", "SHLVL")
        others = {name for name in found if name not in usual and not name.startswith(("VOLERY_", "LC_"))}
        assert others == {"OWN", "CUDA_HOME", "TZ"}

    bench(tmp_path, scenario, rules=NodeRules(environment=("CUDA_*", "VOLERY_TOKEN")))


def test_accounts_have_a_limit_of_processes_which_tasks_inherit(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        end = await it.run(sh("grep 'Max processes' /proc/self/limits"))
        soft, hard = lines_of(Path(end.folder) / "stdout")[0].split()[2:4]
        assert int(soft) <= int(hard) <= NodeRules().isolation.account_pids_max

    bench(tmp_path, scenario)


def test_the_limit_of_processes_is_the_one_of_the_file_and_never_raises_another() -> None:
    script = (
        "import resource; from volery.live.node.confinement import limit_processes as limit\n"
        "for most in (0, 300, 400, 200): limit(most); print(*resource.getrlimit(resource.RLIMIT_NPROC))"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    first, *others = said.splitlines()
    assert first == " ".join(map(str, resource.getrlimit(resource.RLIMIT_NPROC)))
    assert others == ["300 300", "300 300", "200 200"]


def test_what_runs_is_for_the_owner_of_the_agent_to_read(tmp_path: Path) -> None:
    ledger = ProcessLedger(tmp_path / "agent")
    ledger.add(os.getpid())
    for name in ("processes", "lock"):
        assert (tmp_path / "agent" / name).stat().st_mode & 0o777 == 0o600, name
    ledger.close()


def test_a_task_that_waits_is_killed_without_being_started(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        task = it.start(sh("echo started"))
        it.executor.kill(task, 0)
        it.executor.kill(task, 0)
        it.executor.kill(99, 0)
        assert it.outcomes == {task: "killed"}
        assert [report.state for report in it.reports] == ["killed"]
        assert not (tmp_path / "3").exists()

    bench(tmp_path, scenario)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_every_attempt_ends_once_and_nothing_is_left(tmp_path: Path, seed: int) -> None:
    """Commands that end, fail, hang, ignore the request to end and leave children, killed at random moments."""
    random = Random(seed)
    scripts = (
        "exit 0",
        "exit 3",
        "exec sleep 60",
        "sleep 60 & wait",
        "trap '' TERM; while :; do sleep 0.02; done",
        "sleep 60 & exit 0",
        "no-such-program",
    )

    async def scenario(it: Bench) -> None:
        for _ in range(40):
            timeout_s = random.choice((0.0, 0.02, 0.2))
            it.start(sh(random.choice(scripts), timeout_s=timeout_s, grace_s=random.choice((0.0, 0.05))))
            await asyncio.sleep(random.random() * 0.02)
            if random.random() < 0.5:
                it.executor.kill(random.randrange(40), 0)
        await it.until(lambda: len({report.task for report in it.reports}) == 40)
        for number in range(40):
            it.executor.kill(number, 0)
        await it.until(lambda: len(it.outcomes) == 40)
        ends = [report for report in it.reports if report.state != "running"]
        assert sorted(report.task for report in ends) == list(range(40))
        assert {report.task: report.state for report in ends} == it.outcomes
        variable = f"VOLERY_STATE={tmp_path / 'agent'}".encode()
        for status in processes():
            if status.lives and carries(status.pid, variable):
                await gone(status.pid)

    bench(tmp_path, scenario)


def test_a_repeated_start_is_ignored(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        task = Task(0, 3, payload=encode_payload(sh("echo once")))
        it.executor.start("node/7", task, 0, it._ended)
        it.executor.start("node/7", task, 0, it._ended)
        await it.until(lambda: it.outcomes)
        assert len(it.reports) == 2

    bench(tmp_path, scenario)


def test_closing_ends_everything_in_silence(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        it.start(sh("trap '' TERM; echo $$; while :; do sleep 0.01; done", grace_s=0.05))
        (line,) = await written(tmp_path / "3" / "0.0" / "stdout")
        it.start(sh("true"))
        await it.executor.close()
        assert is_gone(int(line))
        assert not it.outcomes
        it.start(sh("true"))

    bench(tmp_path, scenario)


def killed_agent(folder: Path, script: str) -> list[int]:
    """The pids that a task has printed whose agent was killed then."""
    argv = [sys.executable, str(Path(__file__).parent / "agent.py"), str(folder), "sh", "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == b"running\n"
        asyncio.run(written(folder / "0" / "0.0" / "stdout", 2))
        agent.kill()
    return [int(line) for line in lines_of(folder / "0" / "0.0" / "stdout")]


def test_an_agent_that_was_killed_leaves_no_orphan_after_its_restart(tmp_path: Path) -> None:
    daemon = f'{sys.executable} -c "import os, time; os.setsid(); print(os.getpid(), flush=True); time.sleep(60)"'
    pids = killed_agent(tmp_path, f"trap '' TERM; {daemon} & sh -c 'echo $$; sleep 60; :'")
    assert not any(is_gone(pid) for pid in pids)
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)

    async def scenario(it: Bench) -> None:
        assert {*pids} <= {*it.executor.orphans}
        assert other.pid not in it.executor.orphans

    bench(tmp_path, scenario)
    assert all(is_gone(pid) for pid in pids)
    assert other.poll() is None
    other.kill()
    other.wait()
    assert not [status.pid for status in processes() if status.lives and status.pid in pids]


def test_a_pid_that_now_belongs_to_another_is_never_killed(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        ledger = ProcessLedger(tmp_path)
        ledger.add(other.pid)
        ledger.close()
        status = status_of(other.pid)
        assert status is not None
        record = tmp_path / "processes"
        boot, _ = record.read_bytes().splitlines(keepends=True)
        record.write_bytes(boot + with_checksum(f"+{other.pid} {status.started - 1}"))
        ledger = ProcessLedger(tmp_path)
        ledger.close()
        assert ledger.killed == []
        assert other.poll() is None
        other.kill()


def test_records_of_another_boot_and_torn_lines_are_no_records(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        status = status_of(other.pid)
        assert status is not None
        record = tmp_path / "processes"
        line = with_checksum(f"+{status.pid} {status.started}")
        record.write_bytes(with_checksum("boot another") + line)
        ProcessLedger(tmp_path).close()
        assert other.poll() is None
        record.write_bytes(record.read_bytes() + line[:-3])
        ProcessLedger(tmp_path).close()
        assert other.poll() is None
        record.write_bytes(record.read_bytes() + line)
        ledger = ProcessLedger(tmp_path)
        ledger.close()
        assert ledger.killed == [other.pid]
        assert other.wait() == -signal.SIGKILL


def test_the_record_of_what_runs_stays_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("volery.live.node.descendants.COMPACT_LINES", 10)
    ledger = ProcessLedger(tmp_path)
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        for _ in range(100):
            ledger.add(other.pid)
            ledger.remove(other.pid)
        ledger.add(other.pid)
        assert len(lines_of(tmp_path / "processes")) < 30
        ledger.close()
        assert ProcessLedger(tmp_path).killed == [other.pid]


def test_two_agents_cannot_share_a_state_folder(tmp_path: Path) -> None:
    ledger = ProcessLedger(tmp_path)
    with pytest.raises(InputError, match="another node agent uses this state folder"):
        ProcessLedger(tmp_path)
    ledger.close()
    with pytest.raises(InputError, match="cannot be used"):
        ProcessLedger(Path(os.devnull) / "state")


def test_an_agent_elsewhere_than_on_linux_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    with pytest.raises(InputError, match="need Linux"):
        NodeAgent(tmp_path)


def test_of_long_output_the_newest_is_kept_while_the_task_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("volery.live.node.output.LOOK_S", 0.05)
    stdout, go = tmp_path / "3" / "0.0" / "stdout", tmp_path / "go"
    os.mkfifo(go)

    async def until_cut() -> None:
        async with asyncio.timeout(LIMIT_S):
            while not stdout.exists() or stdout.stat().st_size < 3_000_000 or stdout.stat().st_blocks > 4000:
                await asyncio.sleep(0.02)

    async def scenario(it: Bench) -> None:
        task = it.start(sh(f"seq -w 1 300000 | sed 's/$/123/'; read go <{go}; seq -w 1 200000 | sed 's/$/123/'"))
        await until_cut()
        assert task not in it.outcomes
        go.write_text("now\n")
        await it.until(lambda: task in it.outcomes)
        with stdout.open("rb") as file:
            start = kept_from(file.fileno())
            file.seek(start)
            kept = file.read()
        assert (start + len(kept), kept[-11:]) == (5_000_000, b"\n200000123\n")
        assert 1 << 20 <= len(kept) <= (9 << 17) + HOLE_BYTES
        assert kept.startswith(b"[volery: the first ")

    bench(tmp_path, scenario, rules=NodeRules(output=OutputLimits(stream_mb=1)))


def test_old_folders_go_while_tasks_run(tmp_path: Path) -> None:
    old = tmp_path / "1" / "0.0"
    old.mkdir(parents=True)
    os.utime(old, (0, 0))

    async def scenario(it: Bench) -> None:
        end = await it.run(sh("true"))
        async with asyncio.timeout(LIMIT_S):
            while old.exists():
                await asyncio.sleep(0.01)
        assert Path(end.folder).exists()

    bench(tmp_path, scenario, rules=NodeRules(output=OutputLimits(keep_days=1)))


def test_a_task_does_not_get_more_memory_than_it_has_asked_for(tmp_path: Path) -> None:
    """What it starts is held to the same limit; who asks for none has none."""
    greedy = f"sleep 0.2; {sys.executable} -c 'bytearray(300 << 20)'"

    async def scenario(it: Bench) -> None:
        small = await it.run(Command(("sh", "-c", greedy), memory_mb=200))
        assert (small.state, small.reason) == ("failed", "exit code 1; each of its processes may have 200 MiB")
        assert "MemoryError" in (Path(small.folder) / "stderr").read_text()
        for memory_mb in (600, 0):
            assert (await it.run(Command(("sh", "-c", greedy), memory_mb=memory_mb))).state == "finished"

    bench(tmp_path, scenario)
