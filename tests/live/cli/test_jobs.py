"""The federation's commands against a federation that serves its API."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.live.bench import LIMIT_S
from tests.live.serving import serving

from volery.cli.main import main


class Ended(NamedTuple):
    status: object
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Ended]


@pytest.fixture
def command(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    with serving(tmp_path / "federation") as (url, _):
        monkeypatch.setenv("VOLERY_API", url)
        monkeypatch.setenv("COLUMNS", "200")

        def call(*words: str | Path) -> Ended:
            with pytest.raises(SystemExit) as leaving:
                main([str(word) for word in words])
            return Ended(leaving.value.code or 0, *capfd.readouterr())

        yield call


def written(folder: Path, text: str) -> Path:
    path = folder / "job.toml"
    path.write_text(text)
    return path


def test_a_job_from_file_to_logs(command: Command, tmp_path: Path) -> None:
    job = written(tmp_path, 'name = "hello"\nuser = "ada"\ncommand = "echo out $VOLERY_INDEX; echo err >&2"\ntasks = 2')
    assert command("submit", job) == Ended(0, "job 0: 2 tasks; volery job 0 shows it\n", "")
    watched = command("submit", job, "--watch", "--json")
    assert (watched.status, watched.json["state"], watched.json["id"]) == (0, "done", 1)
    assert command("logs", "1/1") == Ended(0, "out 1\n", ""), "a task is named as `why` names it"
    assert command("logs", "1", "--stderr", "--follow").out == "1/0: err\n1/1: err\n"
    assert command("logs", "1/0", "--json").json == {"job": 1, "task": 0, "stream": "stdout", "text": "out 0\n"}
    shown = command("job", "1")
    assert "job 1 (hello): done: 2 finished of 2" in shown.out
    assert "node/0" in shown.out
    assert "1 of 2 tasks; --tasks N lists more." in command("job", "1", "--tasks", "1").out
    assert [task["exit_code"] for task in command("job", "1", "--json").json["listed"]] == [0, 0]
    listed = command("jobs").out
    assert "hello" in listed
    assert "ada" in listed
    assert [entry["id"] for entry in command("jobs", "--limit", "1", "--json").json] == [1]


def test_a_job_that_fails_is_told_by_the_status(command: Command, tmp_path: Path) -> None:
    ended = command("submit", written(tmp_path, 'command = "exit 3"'), "--watch")
    assert ended.status == 3, "the job's own"
    assert "job 0: failed: 1 failed of 1" in ended.out
    assert "1 of 1 tasks failed; the first: exit code 3" in ended.out


def test_a_job_is_cancelled(command: Command, tmp_path: Path) -> None:
    command("submit", written(tmp_path, 'command = "sleep 60"'))
    assert command("cancel", "0").out == "job 0 is being cancelled\n"
    assert command("logs", "0", "--follow") == Ended(0, "", "")
    assert command("cancel", "0", "--json").json["state"] == "cancelled"
    assert command("cancel", "0").out.startswith("job 0 had ended: cancelled")


def test_nodes_are_listed(command: Command) -> None:
    shown = command("nodes").out
    assert "zone=a" in shown
    assert "1,024 MB" in shown
    assert [node["cores"] for node in command("nodes", "--json").json] == [4, 8]
    assert [node["address"] for node in command("nodes", "--text", "zone = b", "--json").json] == ["node/1"]
    assert command("nodes", "--state", "lost", "--json").json == []
    assert [len(command("nodes", "--state", state, "--json").json) for state in ("in use", "in-use")] == [2, 2]


def test_warnings_and_known_jobs_are_told(command: Command, tmp_path: Path) -> None:
    job = written(tmp_path, "key = 'k'\ncommand = 'true'\nconstraints = ['cores > 8']")
    ended = command("submit", job)
    assert ended.status == 0
    assert ended.err == "warning: task 0 will never run: no machine has cores > 8; there are 4, 8\n"
    assert command("submit", job).out == "job 0 was submitted before with the same key\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("submit", "none.toml"), "none.toml: cannot be read"),
        (("job", "7"), "jobs/7: there is no such job"),
        (("logs", "7"), "jobs/7: there is no such job"),
        (("cancel", "7"), "jobs/7: there is no such job"),
        (("jobs", "--state", "runing"), "--state: no job is ever 'runing'; did you mean 'running'?"),
        (("logs", "1/x"), "JOB: '1/x' is none: jobs are written 14, 12-15, 14/3 or 14/3-7,9, or as the name of jobs"),
        (("job", "9" * 20), "JOB: '99999999999999999999' is none"),
        (("cancel",), "JOB: is missing; jobs are written 14, 12-15"),
        (("cancel", "7-9"), "JOB: no job has a number from 7 to 9"),
        (("wait", "9-7"), "JOB: 9-7 runs backwards; write 7-9"),
        (("cancel", "--mine", "--state", "done"), "--state: jobs that are done have ended; give pending or running"),
        (("logs", "0", "--follow"), "--follow: prints lines as they come, and --json one document"),
        (("jobs", "--last", "--before", "7"), "--before: pages through a list of all jobs"),
        (("why",), "JOB: is missing; give a job or a task, as 14 or 14/3"),
        (("nodes", "--state", "los"), "--state: no node is ever 'los'; nodes are in use, short, drained, lost"),
        (("token", "list", "-o", "none"), "none: is no folder of a federation"),
        (("nodes", "--api", "here"), "here: is no address of an API"),
        (("nodes", "--api", "http://127.0.0.1:9"), "http://127.0.0.1:9: no federation answers there"),
    ],
)
def test_mistakes_are_named_without_a_traceback(command: Command, words: tuple[str, ...], told: str) -> None:
    ended = command(*words, "--json")
    assert ended.status == 2
    assert ended.err.startswith(f"error: {told}")
    assert ended.json["error"]["problem"]


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "--since", "1e300"),
        ("jobs", "--before", "9" * 20),
        ("record", "export", "-o", "none.jsonl", "--since", "1e300"),
        ("users", "preemptions", "--job", "9" * 20),
        ("token", "add", "ada", "--days", "1e300"),
    ],
)
def test_numbers_that_no_job_or_time_has_are_refused(command: Command, words: tuple[str, ...]) -> None:
    ended = command(*words)
    assert ended.status == 2
    assert "less than or equal to" in ended.err


def test_a_constraint_that_the_federation_does_not_know_is_named_in_the_file(command: Command, tmp_path: Path) -> None:
    job = written(tmp_path, "command = 'true'\n[[tasks]]\nconstraints = ['core > 1']")
    ended = command("submit", job)
    assert ended.status == 2
    assert ended.err == "error: job.toml.tasks[0].constraints[0]: unknown attribute 'core'; did you mean 'cores'?\n"


def test_an_answer_that_makes_no_sense_is_a_failure(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOLERY_API", os.environ["VOLERY_API"] + "/healthz?")
    ended = command("jobs")
    assert ended.status in (1, 2)
    assert ended.err.startswith("error: ")


def _listen() -> None:
    """Whoever is started in the background of a shell ignores Ctrl-C, and so does all that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_leaving_a_watch_leaves_the_job_running(command: Command, tmp_path: Path) -> None:
    job = written(tmp_path, f"command = 'touch {tmp_path}/begun; sleep 60'")
    argv = [sys.executable, "-m", "volery.cli.main", "submit", str(job), "--watch"]
    with subprocess.Popen(
        argv, stderr=subprocess.PIPE, start_new_session=True, text=True, preexec_fn=_listen
    ) as watching:
        while not (tmp_path / "begun").exists():
            assert watching.poll() is None
            time.sleep(0.005)
        while command("job", "0", "--json").json["state"] != "running":
            time.sleep(0.005)
        watching.send_signal(signal.SIGINT)
        _, told = watching.communicate(timeout=LIMIT_S)
    assert (watching.returncode, told) == (130, "job 0 goes on; volery cancel 0 ends it\n")
    assert command("job", "0", "--json").json["state"] == "running"
