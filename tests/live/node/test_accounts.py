"""Whom tasks run as: never as root, each user's as the account named for them, and out of reach of each other."""

from __future__ import annotations

import asyncio
import os
import pickle
import pwd
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import cloudpickle
import pytest
from tests.live.bench import Bench, bench
from tests.live.commands import serving

from volery.core.errors import InputError
from volery.live.client import Client
from volery.live.command import Call, Command
from volery.live.node.agent import NodeAgent
from volery.live.node.call import demand_workers
from volery.live.node.spawn import Accounts
from volery.live.node.worker import CallAnswer, frame

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run processes as others")
ACCOUNTS = {"ada": "nobody", "bob": "daemon"}


def play(folder: Path, *commands: Command | Call) -> list[tuple[str, str, str]]:
    """How each has ended: state, reason and output."""
    found: list[tuple[str, str, str]] = []

    async def scenario(it: Bench) -> None:
        for command in commands:
            report = await it.run(command)
            output = Path(report.folder, "stdout").read_text() if report.folder else ""
            found.append((report.state, report.reason, output.strip()))

    bench(folder, scenario, accounts=Accounts(ACCOUNTS))
    return found


def test_each_users_tasks_run_as_their_account(open_folder: Path) -> None:
    script = "id -un; id -G; echo $HOME $USER; cat; echo late >> /dev/stdout; touch here"
    ends = play(open_folder, *(Command(("sh", "-c", script), user=user, stdin=b"in\n") for user in ACCOUNTS))
    for name, (state, _, output) in zip(ACCOUNTS.values(), ends, strict=True):
        account = pwd.getpwnam(name)
        lines = output.splitlines()
        assert (state, lines[0], lines[2:]) == ("finished", name, [f"{account.pw_dir} {name}", "in", "late"])
        assert "0" not in lines[1].split(), "root's group is nothing for tasks"


def test_one_users_task_reaches_neither_anothers_output_nor_the_federations_files(open_folder: Path) -> None:
    (open_folder / "tokens.json").write_text("secret")
    (open_folder / "tokens.json").chmod(0o600)
    mine = Command(("sh", "-c", "echo mine"), user="ada")
    theirs = f"{open_folder}/3/0.0"
    spy = f"cat {open_folder}/tokens.json {theirs}/stdout; rm -rf {theirs}; kill -9 {os.getpid()}; id -un"
    ends = play(open_folder, mine, Command(("sh", "-c", spy), user="bob"))
    assert [end[2] for end in ends] == ["mine", "daemon"]


def test_tasks_have_no_privilege_and_the_agent_keeps_its_own(open_folder: Path) -> None:
    ((_, _, output),) = play(open_folder, Command(("grep", "^Cap[PE]", "/proc/self/status"), user="ada"))
    assert {line.split()[1] for line in output.splitlines()} == {"0" * 16}
    assert (os.geteuid(), os.getegid()) == (0, 0)


def test_another_accounts_task_is_held_to_its_memory_also_where_root_may_limit_nobody_else(open_folder: Path) -> None:
    """Containers seldom have the capability that lifts limits of other accounts (CAP_SYS_RESOURCE)."""
    ((state, reason, output),) = play(
        open_folder, Command(("sh", "-c", "sleep 0.1; ulimit -d"), user="ada", memory_mb=3)
    )
    assert (state, reason, output) == ("finished", "", str(3 << 10))


def test_a_user_without_an_account_runs_nothing(open_folder: Path) -> None:
    ((state, reason, _),) = play(open_folder, Command(("true",), user="eve"))
    assert (state, "no account is named to run the tasks of user 'eve'" in reason) == ("failed", True)


def test_what_an_earlier_task_has_put_in_a_folder_is_not_followed(open_folder: Path) -> None:
    """Numbers may be used again by another federation: its folders stay, and no link there is followed."""
    victim = open_folder / "victim"
    victim.write_text("whole")
    for name in ("stdout", "stdin"):
        planted = open_folder / "3" / "0.0"
        planted.mkdir(parents=True, exist_ok=True)
        (planted / name).symlink_to(victim)
        ((state, reason, _),) = play(open_folder, Command(("true",), user="ada", stdin=b"x"))
        assert (state, reason) == ("finished", "")
        assert victim.read_text() == "whole"
    assert {path.name for path in (open_folder / "3").iterdir()} == {"0.0", "0.1", "0.2"}


@pytest.fixture
def worker_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers start by an interpreter that every account may execute: this one, or the system's of this version."""
    system = f"/usr/bin/python3.{sys.version_info.minor}"
    paths = ":".join(path for path in sys.path if path.endswith(("site-packages", "src")))
    for program, path in ((sys.executable, ""), (system, paths)):
        words = ["env", f"PYTHONPATH={path}", program, "-m", "volery.live.node.worker"]
        with suppress(OSError):
            tried = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, cwd="/", user="nobody")
            if tried.returncode == 0:
                monkeypatch.setattr("volery.live.node.call._COMMAND", tuple(words))
                return
    pytest.skip("no interpreter of this version, with what Volery needs, is within reach of other accounts")


def test_the_loop_of_these_tests_is_the_one_that_ships() -> None:
    async def loop() -> str:
        return type(asyncio.get_running_loop()).__module__

    assert asyncio.run(loop()) == "uvloop"


def test_a_worker_for_calls_is_started_as_the_account_on_the_loop_that_ships(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker is played by a shell, which every account may execute, and gives one prepared answer."""
    free = open_folder / "free"
    free.mkdir()
    free.chmod(0o777)
    (free / "answer").write_bytes(frame(1, CallAnswer(pickle.dumps("well"))))
    script = f"id -un > {free}/who; printf R; head -c 4 > /dev/null; cat {free}/answer; cat > /dev/null"
    monkeypatch.setattr("volery.live.node.call._COMMAND", ("/bin/sh", "-c", script))

    async def scenario(it: Bench) -> None:
        end = await it.run(Call(b"whatever", user="ada"))
        assert (end.state, end.reason, pickle.loads(end.result)) == ("finished", "", "well")
        assert (free / "who").read_text() == "nobody\n"

    bench(open_folder, scenario, accounts=Accounts(ACCOUNTS))


def test_an_interpreter_out_of_reach_of_an_account_is_named(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = open_folder / "python"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    monkeypatch.setattr("volery.live.node.call._COMMAND", (str(program),))
    with pytest.raises(InputError, match=f"run_as: nobody, whom .* may not execute {program}; install Volery where"):
        demand_workers(Accounts({"ada": "nobody"}), ())


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (("/no/such/python",), "No such file or directory"),
        (("/bin/sh", "-c", "echo 'ModuleNotFoundError: cannot read volery' >&2; exit 1"), "cannot read volery"),
        (("/bin/sh", "-c", "exit 3"), "exit code 3"),
    ],
)
def test_an_account_that_cannot_run_calls_is_refused_before_the_first_one(
    monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], problem: str
) -> None:
    monkeypatch.setattr("volery.live.node.call._COMMAND", command)
    with pytest.raises(InputError, match=f"run_as: nobody, .*{problem}"):
        demand_workers(Accounts("nobody"), ())


def test_up_ends_where_the_account_of_calls_cannot_reach_the_interpreter(open_folder: Path) -> None:
    """The federation is not even begun; without calls it is."""
    hidden = open_folder / "home"
    hidden.mkdir(mode=0o700)
    (hidden / "python").symlink_to(sys.executable)
    environment = {**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)}
    words = [str(hidden / "python"), "-m", "volery.cli.main", "up", "--api", "127.0.0.1:0", "--run-as", "nobody"]
    done = subprocess.run(
        [*words, "-o", str(open_folder / "f")], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "run_as: nobody, whom Python calls run as, may not execute" in " ".join(done.stderr.split())
    assert not (open_folder / "f" / "journal").exists()


def test_a_federation_without_calls_refuses_them_at_the_submission(open_folder: Path) -> None:
    words = ["up", "--api", "127.0.0.1:0", "--run-as", "nobody", "--no-calls", "-o", str(open_folder / "f")]
    with serving(words) as (up,), Client(up.ready()["api"]) as client:
        with pytest.raises(InputError, match="is a Python call, and this federation runs none"):
            client.map(abs, [-1])
        assert client.submit({"command": "true"}).result(timeout=60).state == "done"


@pytest.mark.usefixtures("worker_command")
def test_calls_run_as_their_users_account(open_folder: Path) -> None:
    ((state, reason, _),) = play(open_folder, Call(cloudpickle.dumps((os.setuid, (0,), {})), user="ada"))
    assert (state, reason) == ("failed", "PermissionError: [Errno 1] Operation not permitted")


@pytest.mark.parametrize(
    ("run_as", "said"),
    [
        ("", "tasks never do"),
        ("root", "is root, and tasks never run as root"),
        ({"ada": "nobody", "*": "root"}, "is root"),
        ("no-such-account", "there is no account"),
        ("a\0b", "there is no account"),
    ],
)
def test_accounts_that_will_not_do_are_named(run_as: str | dict[str, str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Accounts(run_as)


def test_a_folder_that_an_account_cannot_enter_is_named(open_folder: Path) -> None:
    open_folder.chmod(0o700)
    with pytest.raises(InputError, match=r"nobody, whom tasks run as, cannot get there; chmod o\+x"):
        NodeAgent(open_folder / "tasks", accounts=Accounts("nobody"))
