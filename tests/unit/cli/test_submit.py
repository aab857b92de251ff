"""`volery submit`: the job that its words and options make, and the place that an error names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Command

from volery.core.errors import InputError
from volery.live.jobs import JobDescription, TaskDescription
from volery.live.status import JobStatus, NodeStatus, Receipt, TaskStatus

NODE = NodeStatus(
    address="node/0", slots=1, running=0, arch="x86_64", os="linux", kernel="6.1", cores=4, memory_mb=1024, labels={},
    offers={"cpu_milli": 4000, "memory_mb": 1024},
)  # fmt: skip

Answer = Callable[..., Any]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[JobDescription]:
    """The jobs that were sent."""
    jobs: list[JobDescription] = []

    def send(job: JobDescription) -> Receipt:
        jobs.append(job)
        return Receipt(id=7, tasks=2)

    serve(monkeypatch, send=send, nodes=lambda: [NODE])
    return jobs


def serve(monkeypatch: pytest.MonkeyPatch, **answers: Answer) -> None:
    class Client:
        def __init__(self, api: str | None) -> None: ...

        def __enter__(self) -> Client:
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def __getattr__(self, name: str) -> Answer:
            return answers[name]

    monkeypatch.setattr("volery.live.client.Client", Client)


def ending(monkeypatch: pytest.MonkeyPatch, state: Any, codes: list[int | None]) -> None:
    """Serve one job, which ends so, with tasks of these exit codes."""
    status = JobStatus(id=7, name="", user="ann", state=state, tasks=len(codes), submitted_us=0, revision=1)
    tasks = [TaskStatus(job=7, index=at, state="failed", exit_code=code) for at, code in enumerate(codes)]
    serve(
        monkeypatch,
        send=lambda _: Receipt(id=7, tasks=len(codes)),
        job=lambda _: status,
        events=lambda _: iter([status]),
        tasks=lambda _: iter(tasks),
    )


def test_a_command_with_options_is_a_job(
    command: Command, sent: list[JobDescription], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HERE", "set")
    options = (
        "--name", "sweep", "--array", "0-99", "--cpus", 0.5, "--memory", "2G", "--gpus", 1, "--request", "disk_mb=5",
        "--constraint", "cores >= 4", "--constraint", 'arch == "x86_64"', "--env", "A=b=c", "--env", "HERE",
        "--cwd", "sub",
        "--timeout", 60, "--grace", 1, "--estimate", 30, "--outputs", "a.txt", "--key", "k", "--user", "ann",
    )  # fmt: skip
    ended = command("submit", *map(str, options), "--", "run", "--name", "x", "--")
    assert (ended.out, ended.err) == ("job 7: 2 tasks; volery job 7 shows it\n", "")
    assert sent == [
        JobDescription(
            command=("run", "--name", "x", "--"),
            name="sweep",
            tasks=100,
            request={"cpu_milli": 500, "memory_mb": 2048, "gpus": 1, "disk_mb": 5},
            constraints=("cores >= 4", 'arch == "x86_64"'),
            env={"A": "b=c", "HERE": "set"},
            cwd=str(tmp_path / "sub"),
            timeout_s=60,
            grace_s=1,
            estimate_s=30,
            outputs=("a.txt",),
            key="k",
            user="ann",
        )
    ]


def test_json_is_the_number_alone(command: Command, sent: list[JobDescription]) -> None:
    assert command("submit", "--json", "--", "true").out == "7\n"
    assert sent == [JobDescription(command=("true",))], "what is not stated is not sent"


def test_options_change_the_job_of_a_file(command: Command, sent: list[JobDescription], tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text('command = "true"\nname = "a"\nenv = { A = "1", B = "1" }\nconstraints = ["cores >= 2"]\ncwd = "x"')
    command("submit", "--name", "b", file, "--env", "B=2", "--constraint", "cores < 9", "--array", "3,5")
    (job,) = sent
    assert (job.name, job.env, job.constraints) == ("b", {"A": "1", "B": "2"}, ("cores >= 2", "cores < 9"))
    assert job.cwd == str(tmp_path / "x"), "beside the file, still"
    assert job.tasks == tuple(TaskDescription(index=index) for index in (3, 5))


def test_a_script_takes_options_from_its_head_and_arguments_from_the_command_line(
    command: Command, sent: list[JobDescription], tmp_path: Path
) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        "#!/bin/bash -e\n#SBATCH --job-name=theirs --mem=512M -o x.out\n"
        "#VOLERY --name ours --env A=1\n#VOLERY --timeout 5\n"
    )
    ended = command("submit", "--timeout", "9", "--cpus", "2", script, "--watch", "-x", "--", "y")
    (job,) = sent
    assert (job.name, job.timeout_s, job.env["A"]) == ("ours", 9, "1"), "ours above Slurm's, words above both"
    assert job.request == {"cpu_milli": 2000, "memory_mb": 512}
    assert isinstance(job.command, tuple)
    assert job.command[3:] == ("run.sh", "/bin/bash", "-e", "/dev/fd/3", "--watch", "-x", "--", "y")
    assert job.stdin == script.read_text()
    assert ended.err.splitlines() == [
        "warning: run.sh:2: --output: is left out; what a task prints is kept, and `volery logs JOB` shows it",
        "warning: run.sh: runs in a new folder, not in this one; --cwd . or --chdir names it",
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("#VOLERY --retries 3", "run.sh:2: No such option: --retries"),
        ("#VOLERY --timeout soon", "run.sh:2: Invalid value for '--timeout'"),
        ("#VOLERY --timeout -1", "run.sh:2: --timeout: expected float >= 0.0"),
        ("#VOLERY --array 0-9%3", "run.sh:2: --array: '0-9%3' limits how many tasks run at once"),
        ("#VOLERY --name x y", "run.sh:2: 'y' is no option; write #VOLERY --option value"),
        ("#SBATCH --nodes=3", "run.sh:2: --nodes: a task runs on one machine here"),
    ],
)
def test_a_wrong_line_of_a_script_is_named(
    command: Command, sent: list[JobDescription], tmp_path: Path, line: str, problem: str
) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"#!/bin/sh\n{line}\ntrue\n")
    ended = command("submit", script)
    assert ended.status == 2
    assert ended.err.startswith(f"error: {problem}")
    assert not sent


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "JOB: is missing; give a job's file, a script, or -- and a command"),
        (("--",), "JOB: is missing"),
        (("echo", "hi"), "echo: is no script, which begins with #!; a command is `volery submit -- echo hi`"),
        (("plain.sh",), "plain.sh: is no script, which begins with #!"),
        (("--", ""), "COMMAND: names no program"),
        (("--request", "gpus", "--", "x"), "--request: 'gpus' is not NAME=N, as cpu_milli=500"),
        (("--cpus", "-1", "--", "x"), "--cpus: -1.0 is no number of processors"),
        (("--gpus", "-1", "--", "x"), "--gpus: expected int >= 0"),
        (("--memory", "big", "--", "x"), "--memory: 'big' is no amount of memory; write it as 512M or 4G"),
        (("--env", "NO_SUCH_NAME", "--", "x"), "--env: 'NO_SUCH_NAME' is not set here; write it as NAME=VALUE"),
        (("--constraint", "cores >", "--", "x"), "--constraint: "),
        (("--name", "a\nb", "--", "x"), "--name: holds a control character"),
        (("--array", "x", "--json", "--", "x"), "--array: 'x' is no array"),
        (("listed.toml", "--array", "0-3"), "--array: the file lists tasks; leave the list or the array out"),
        (("listed.toml", "--timeout", "-1"), "--timeout: expected float >= 0.0"),
    ],
)
def test_what_is_wrong_is_named_by_its_option(
    command: Command,
    sent: list[JobDescription],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: tuple[str, ...],
    problem: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plain.sh").write_text("echo hi\n")
    Path("listed.toml").write_text("[[tasks]]\ncommand = 'true'\n")
    ended = command("submit", *words)
    assert ended.status == 2
    assert ended.err.startswith(f"error: {problem}")
    if "--json" in words:
        assert json.loads(ended.out)["error"]["place"] == "--array"
    assert not sent


@pytest.mark.parametrize(
    ("place", "words", "origin"),
    [
        ("job.request.gpus", ("--gpus", "1"), "--gpus"),
        ("job.request", ("--cpus", "1", "--gpus", "1"), "--cpus, --gpus"),
        ("job.request", (), "--request"),
        ("job.constraints[0]", ("--constraint", "cores > 2"), "--constraint"),
        ("job", (), "COMMAND"),
        ("jobs/7", (), "jobs/7"),
    ],
)
def test_what_the_federation_refuses_is_named_by_its_option(
    command: Command, monkeypatch: pytest.MonkeyPatch, place: str, words: tuple[str, ...], origin: str
) -> None:
    def refuse(_: object) -> None:
        raise InputError(place, "is wrong")

    serve(monkeypatch, send=refuse)
    assert command("submit", *words, "--", "true").err == f"error: {origin}: is wrong\n"


@pytest.mark.parametrize(
    ("state", "codes", "status"),
    [
        ("done", [0, 0], 0),
        ("failed", [2, 7, None], 7),
        ("failed", [-9, None], 1),
        ("cancelled", [], 1),
    ],
)
@pytest.mark.parametrize("name", ["--watch", "--wait", "-w"])
def test_the_status_of_a_job_is_the_command_s(
    command: Command, monkeypatch: pytest.MonkeyPatch, name: str, state: str, codes: list[int | None], status: int
) -> None:
    ending(monkeypatch, state, codes)
    ended = command("submit", name, "--", "x")
    assert ended.status == status
    assert f"job 7: {state}" in ended.out


def test_ctrl_c_leaves_the_job_and_says_so(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    serve(monkeypatch, send=lambda _: Receipt(id=7, tasks=1), job=interrupt)
    ended = command("submit", "--wait", "--", "x")
    assert (ended.status, ended.err) == (130, "job 7 goes on; volery cancel 7 ends it\n")
