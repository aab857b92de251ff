"""Commands that ask a federation: what they print of its answers, and what they refuse before they ask."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Command

from volery.core.errors import InputError
from volery.core.forecast import MomentQuantiles, Quantiles
from volery.live.status import (
    DecisionStep,
    Forecast,
    ForecastRecord,
    FunnelStep,
    HostStatus,
    JobPlan,
    JobStatus,
    MomentRecord,
    NodeStatus,
    PlannedGroup,
    PreemptionStatus,
    Receipt,
    RejectionCount,
    SharePart,
    ShareStatus,
    TaskStatus,
    TaskUsage,
    UserStatus,
    Why,
)

SECOND = 1_000_000
DONE = JobStatus(
    id=7,
    name="sort[red]",
    user="ann",
    state="done",
    tasks=2,
    finished=2,
    submitted_us=SECOND,
    started_us=2 * SECOND,
    ended_us=5 * SECOND,
    revision=1,
)
RUNNING = JobStatus(id=8, name="", user="bob", state="running", tasks=3, running=1, submitted_us=0, revision=1)
TASKS = [
    TaskStatus(
        job=7,
        index=0,
        state="finished",
        node="node/3",
        exit_code=0,
        started_us=2 * SECOND,
        ended_us=4 * SECOND,
        usage=TaskUsage(cpu_us=1_500_000, memory_peak_bytes=3 << 20, held="a group"),
    ),
    TaskStatus(job=7, index=1, state="finished", attempt=1, node="node/4"),
]
NODE = NodeStatus(
    address="node/3",
    slots=2,
    running=1,
    drained=True,
    arch="x86_64",
    os="Linux",
    kernel="6.1",
    cores=4,
    memory_mb=8192,
    labels={"rack": "r1"},
    held="nothing holds tasks",
    host="nodes",
)
JOB_FILE = 'command = ["true"]\n'

Answer = Callable[..., Any]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Answer]:
    """What the API answers, by the client's method; a request for which there is nothing is an error."""
    found: dict[str, Answer] = {}

    class Client:
        def __init__(self, api: str | None) -> None:
            self.api = api

        def __enter__(self) -> Client:
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def __getattr__(self, name: str) -> Answer:
            return found[name]

    monkeypatch.setattr("volery.live.client.Client", Client)
    return found


def test_jobs_are_listed_as_they_are(command: Command, answers: dict[str, Answer]) -> None:
    asked: list[tuple[object, ...]] = []

    def jobs(*given: object, mine: bool) -> list[JobStatus]:
        asked.append(given)
        return [RUNNING, DONE]

    answers["jobs"] = jobs
    shown = command("jobs", "--state", "done", "--user", "ann", "--limit", 5).out
    assert asked == [("done", "ann", None, 5, None, None)]
    assert "sort[red]" in shown, "brackets in a name are no markup"
    assert "2/2" in shown
    assert "3.00 s" in shown
    assert [job["id"] for job in command("jobs", "--json").json] == [8, 7]


@pytest.mark.parametrize("words", [("jobs",), ("record", "export", "-o", "no.jsonl")])
def test_a_state_that_no_job_is_in_is_refused_before_anything_is_asked(
    command: Command, answers: dict[str, Answer], words: tuple[str, ...]
) -> None:
    ended = command(*words, "--state", "dnoe")
    assert ended.status == 2
    assert ended.err == "error: --state: no job is ever 'dnoe'; did you mean 'done'?\n"
    assert not Path("no.jsonl").exists()


def test_a_job_is_shown_with_its_tasks_and_what_they_used(command: Command, answers: dict[str, Answer]) -> None:
    answers |= {"job": lambda _: DONE, "tasks": lambda *_: iter(TASKS)}
    shown = command("job", 7).out
    assert "job 7 (sort[red]): done: 2 finished of 2" in shown
    assert "1.50 s" in shown
    assert "3 MiB" in shown
    assert "held to what they asked for: a group" in shown
    assert "1 of 2 tasks; --tasks N lists more." in command("job", 7, "--tasks", 1).out
    assert [task["index"] for task in command("job", 7, "--json").json["listed"]] == [0, 1]


def test_a_submitted_job_is_told_and_watched_to_its_end(
    command: Command, answers: dict[str, Answer], tmp_path: Path
) -> None:
    file = tmp_path / "sort.toml"
    file.write_text(JOB_FILE, encoding="utf-8")
    answers["send"] = lambda _: Receipt(id=7, tasks=2, warnings=("it is large",))
    ended = command("submit", file)
    assert (ended.out, ended.err) == ("job 7: 2 tasks; volery job 7 shows it\n", "warning: it is large\n")
    answers |= {"job": lambda _: RUNNING, "events": lambda _: iter([RUNNING, DONE])}
    ended = command("submit", file, "--watch")
    assert ended.status == 0
    assert "done: 2 finished of 2" in ended.out
    failed = JobStatus(id=7, name="", user="ann", state="failed", tasks=2, failed=2, submitted_us=0, revision=2)
    answers |= {"events": lambda _: iter([failed]), "job": lambda _: failed, "tasks": lambda _: iter(())}
    assert command("submit", file, "--watch").status == 1


def test_what_is_wrong_with_a_job_is_named_by_its_file(
    command: Command, answers: dict[str, Answer], tmp_path: Path
) -> None:
    file = tmp_path / "sort.toml"
    file.write_text(JOB_FILE, encoding="utf-8")

    def refuse(_: object) -> None:
        raise InputError("job.count", "is 0")

    answers |= {"send": refuse, "plan": refuse}
    for words in (("submit", file), ("plan", file)):
        ended = command(*words)
        assert (ended.status, ended.err) == (2, "error: sort.toml.count: is 0\n")


def test_records_are_exported_page_by_page(
    command: Command, answers: dict[str, Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("volery.cli.selection.PAGE", 1)

    def page(state: object, user: object, before: int | None, *_: object, **__: object) -> list[JobStatus]:
        return {None: [RUNNING], 8: [DONE], 7: []}[before]

    answers |= {"jobs": page, "tasks": lambda number, *_: iter(TASKS if number == 7 else [])}
    output = tmp_path / "all.jsonl"
    assert command("record", "export", "-o", output).out == f"{output}: 2 jobs, 2 tasks\n"
    lines = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert [(line["record"], line.get("id"), line.get("index")) for line in lines] == [
        ("job", 8, None),
        ("job", 7, None),
        ("task", None, 0),
        ("task", None, 1),
    ]
    assert "exists already" in command("record", "export", "-o", output).err


def test_nodes_and_hosts_are_listed_and_drained(command: Command, answers: dict[str, Answer]) -> None:
    answers |= {"nodes": lambda *_: [NODE], "drain": lambda _: NODE, "undrain": lambda _: NODE}
    shown = command("nodes", "--state", "in-use").out
    assert "drained" in shown
    assert "rack=r1" in shown
    assert "node/3: nothing holds tasks" in shown
    assert command("drain", "node/3").out == "node/3 is drained: it gets no new task; 1 task still runs there\n"
    assert command("undrain", "node/3").out == "node/3 is used again\n"
    assert "no node is ever 'drianed'" in command("nodes", "--state", "drianed").err
    host = HostStatus(name="nodes", state="up", components=("gm/0",), nodes=2)
    answers["hosts"] = lambda: [host]
    assert "gm/0, 2 nodes" in command("hosts").out


def test_users_shares_and_preemptions_are_listed(command: Command, answers: dict[str, Answer]) -> None:
    lost = PreemptionStatus(
        number=1,
        at_us=0,
        by="lm/0",
        reason="share",
        job=7,
        index=0,
        attempt=0,
        user="ann",
        for_job=-1,
        for_index=0,
        for_user="bob",
        loss=SharePart(0.5, 0.75, 0.7),
    )
    share = ShareStatus(name="ann", within=("org",), weight=3, share=0.25)
    answers |= {
        "users": lambda: [UserStatus(user="ann", share=0.25, weight=3, tasks_running=1234)],
        "shares": lambda: [share],
        "share": lambda *_: share,
        "preemptions": lambda *_: [lost],
    }
    shown = command("users").out
    assert "25.0 %" in shown
    assert "1,234" in shown
    assert "  ann" in command("users", "share").out
    told = "ann has weight 3 from now on, and is due 25.0 % of the federation\n"
    assert command("users", "share", "ann", 3).out == told
    shown = command("users", "preemptions").out
    assert "7/0" in shown
    assert "75.0 % > 70.0 % of 50.0 %" in shown


def test_tokens_are_made_listed_and_revoked(command: Command, tmp_path: Path) -> None:
    assert "expected" in command("token", "add", "ann", "--role", "king", "-o", tmp_path).err
    assert "lets everyone in" in command("token", "list", "-o", tmp_path).out
    made = command("token", "add", "ann", "-o", tmp_path, "--json").json
    assert "ann" in command("token", "list", "-o", tmp_path).out
    assert command("token", "revoke", made["id"], "-o", tmp_path).out.endswith(f"{made['id']}\n")
    assert "is no folder of a federation" in command("token", "list", "-o", tmp_path / "other").err


def test_a_plan_tells_what_never_runs_and_when_the_rest_would(
    command: Command, answers: dict[str, Answer], tmp_path: Path
) -> None:
    file = tmp_path / "sort.toml"
    file.write_text(JOB_FILE, encoding="utf-8")
    interval = Quantiles(SECOND, 2 * SECOND, None)
    moments = MomentQuantiles(interval, interval, interval, interval)
    steps = (FunnelStep("machines", 6), FunnelStep("meet its constraints", 0))
    groups = (PlannedGroup(first=0, count=2, funnel=steps, obstacle="no machine has 9 GPUs"),)
    answers["plan"] = lambda _: JobPlan(tasks=2, waiting=5, groups=groups, lost=1)
    answers["forecast"] = lambda _: Forecast(made_us=0, tasks=2, runs=3, moments=moments)
    ended = command("plan", file)
    assert ended.status == 1, "a task could never run"
    assert "tasks 0 to 1: 6 machines > 0 meet its constraints" in ended.out
    assert "would never run: no machine has 9 GPUs" in ended.out
    assert "2.0 s" in ended.out
    assert "not known" in ended.out
    record = ForecastRecord(
        expected=0.8,
        open=4,
        moments=(MomentRecord(moment="first_start", settled=10, covered=7, off_us=SECOND),),
        last=(),
    )
    answers["forecasts"] = lambda: record
    assert "70.0 % (7)" in command("plan", "--record").out
    assert command("plan").status == 2


def test_why_tells_what_was_passed_over(command: Command, answers: dict[str, Answer]) -> None:
    step = DecisionStep(
        at_us=0, by="gm/0", chosen="queued", view_age_us=500, passed=(RejectionCount("slots", "busy", 1234),), omitted=2
    )
    answers["why"] = lambda *_: Why(
        job=7,
        index=1,
        state="pending",
        waiting=3,
        funnel=(FunnelStep("machines", 6),),
        decisions=(step,),
        explained=True,
    )
    shown = command("why", "7/1").out
    assert "Task 1 of job 7: pending; 3 tasks of the job wait." in shown
    assert "1,234 slots busy" in shown
    assert "2 more decisions" in shown
    assert "no place found" in shown
    assert "a results folder is named by --in" in command("why", "seven").err
