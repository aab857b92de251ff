"""Several jobs at once: numbers, ranges, tasks, names and options, for each command that takes jobs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.live.cli.test_jobs import Command, Ended, command, written

from volery.live.jobs import read_job

__all__ = ["command"]


@pytest.fixture
def submitted(command: Command, tmp_path: Path) -> Command:
    """Jobs 0 and 1 are named sweep, of three tasks of which the second fails; job 2 is ada's; job 3 has one task."""
    sweep = written(
        tmp_path, 'name = "sweep"\ncommand = "echo out $VOLERY_INDEX; exit $((VOLERY_INDEX % 2))"\ntasks = 3'
    )
    command("submit", sweep, "--watch")
    command("submit", sweep, "--watch")
    command("submit", written(tmp_path, 'name = "sweep"\nuser = "ada"\ncommand = "echo ada"'), "--watch")
    command("submit", written(tmp_path, 'name = "a/b"\ncommand = "printf well"'), "--watch")
    return command


SELECTIONS = [
    (("0-2",), [2, 1, 0]),
    (("3", "0-1", "0"), [3, 1, 0]),
    (("0,2-3",), [3, 2, 0]),
    (("sweep",), [1, 0]),  # a name means one's own jobs alone
    (("a/b",), [3]),
    (("0-3", "--mine"), [3, 1, 0]),
    (("0-3", "--state", "failed"), [1, 0]),
    (("sweep", "--last"), [1]),
    (("--last",), [3]),
    (("--mine",), [3, 1, 0]),
    (("0-3", "--user", "ada"), [2]),
    (("0-3", "--limit", "2"), [3, 2]),
    (("2-900",), [3, 2]),
]


def test_jobs_are_named_in_every_way(submitted: Command) -> None:
    numbers = {words: [job["id"] for job in submitted("jobs", *words, "--json").json] for words, _ in SELECTIONS}
    assert numbers == dict(SELECTIONS)


def test_tables_for_programs_have_tabs(submitted: Command) -> None:
    heads, *rows = [line.split("\t") for line in submitted("jobs").out.splitlines()]
    assert heads == ["job", "name", "user", "state", "tasks", "submitted", "ran for", "reason"]
    assert [row[0] for row in rows] == ["3", "2", "1", "0"]
    assert rows[2][3:5] == ["failed", "2/3"]
    assert {len(row) for row in rows} == {8}
    _, heads_line, *task_rows = [line for line in submitted("job", "3").out.splitlines() if "confined" not in line]
    assert heads_line.split("\t")[:3] == ["task", "state", "node"]
    assert task_rows[0].split("\t")[:2] == ["0", "finished"]


def test_tasks_of_a_job_are_shown(submitted: Command) -> None:
    assert [task["index"] for task in submitted("job", "0/0,2", "--json").json[0]["listed"]] == [0, 2]
    assert submitted("job", "0/1", "--json").json["listed"][0]["reason"] == "exit code 1", "one task alone: no list"
    assert [job["id"] for job in submitted("job", "0", "sweep", "--json").json] == [0, 1]
    assert "1 of 2 tasks; --tasks N lists more." in submitted("job", "0/1-2", "--tasks", "1").out
    assert submitted("job", "0/3").err == "error: JOB: 0/3 is none of its tasks; job 0 has tasks 0 to 2\n"
    assert submitted("jobs", "0/1").err == "error: JOB: 0/1 names a task; `volery job 0/1` shows it\n"


def test_output_of_several_tasks_names_the_task(submitted: Command) -> None:
    assert submitted("logs", "3").out == "well", "one task as it is, byte for byte"
    assert submitted("logs", "0").out == "0/0: out 0\n0/1: out 1\n0/2: out 2\n"
    assert submitted("logs", "0/1-2,1", "3").out == "0/1: out 1\n0/2: out 2\n3/0: well\n"
    assert submitted("logs", "sweep/1").out == "0/1: out 1\n1/1: out 1\n"
    texts = submitted("logs", "0/0", "3", "--json").json
    assert [(text["job"], text["text"]) for text in texts] == [(0, "out 0\n"), (3, "well")]


def test_waiting_tells_how_each_has_ended(submitted: Command) -> None:
    assert submitted("wait", "3", "2") == Ended(0, "job 3: done: 1 finished\njob 2: done: 1 finished\n", "")
    assert submitted("wait", "0/0,1") == Ended(1, "0/0: finished\n0/1: failed: exit code 1\n", "")
    assert submitted("wait", "0/0").status == 0
    assert submitted("wait", "0", "--json").json["state"] == "failed"
    assert submitted("wait", "--last", "--json").json[0]["id"] == 3


NOTHING_LEFT = [
    (("wait", "--mine"), "none of your own fits being under way"),
    (("cancel", "sweep"), "none of these fits being under way"),
    (("job", "2-3", "--state", "failed"), "none of these fits --state failed"),
    (("logs", "2", "--mine"), "none of these fits --mine"),
    (("jobs", "--last", "--user", "ada"), "none of your own fits --user ada"),
    (("jobs", "0-1", "--reason", "lost", "--since", "1"), "none of these fits --reason lost and --since"),
]


def test_options_that_leave_nothing_are_told(submitted: Command) -> None:
    for words, told in NOTHING_LEFT:
        assert submitted(*words) == Ended(1, "", f"error: jobs: {told}\n")


def test_several_jobs_are_cancelled(command: Command, tmp_path: Path) -> None:
    assert command("cancel", "--last") == Ended(1, "", "error: jobs: none of your own fits being under way\n")
    assert command("job", "--last") == Ended(1, "", "error: jobs: you have none\n")
    command("submit", written(tmp_path, "command = 'true'"), "--watch")
    for name in ("long", "long", "other"):
        command("submit", written(tmp_path, f'name = "{name}"\ncommand = "sleep 600"'))
    tasks = command("cancel", "1/0")
    assert tasks.err == "error: JOB: 1/0 names a task; tasks are given up together, with their job: `volery cancel 1`\n"
    assert command("cancel", "long").out == "job 1 is being cancelled\njob 2 is being cancelled\n"
    assert [job["id"] for job in command("wait", "long", "--json").json] == [1, 2]
    assert [job["id"] for job in command("cancel", "0-3", "--json").json] == [3], "of a range, those under way"
    assert command("wait", "3", "0") == Ended(1, command("wait", "3").out + "job 0: done: 1 finished\n", "")


def test_output_of_a_whole_job_is_followed(command: Command, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = f'command = "printf part; while [ ! -e {gate} ]; do sleep 0.01; done; echo s $VOLERY_INDEX"\ntasks = 9'
    command("submit", written(tmp_path, job))
    command("submit", written(tmp_path, f"command = 'touch {gate}'\nconstraints = ['label.zone == \"b\"']"))
    lines = command("logs", "0", "--follow").out.splitlines()
    assert sorted(lines) == [f"0/{place}: parts {place}" for place in range(9)]


def test_failed_tasks_are_listed_with_their_last_line(submitted: Command, tmp_path: Path) -> None:
    listed = submitted("job", "0", "--failed", "--json").json["listed"]
    assert [(task["index"], task["reason"], task["last_line"]) for task in listed] == [(1, "exit code 1", "out 1")]
    line = "echo why >&2; echo '  at the end' >&2; echo; exit 3"
    submitted("submit", written(tmp_path, f'command = "{line}"\ntasks = 2'), "--watch")
    heads, *rows = [line.split("\t") for line in submitted("job", "4", "--failed").out.splitlines() if "\t" in line]
    assert [row[heads.index("last line")] for row in rows] == ["  at the end"] * 2
    assert "1 of 2 failed tasks; --tasks N lists more." in submitted("job", "4", "--failed", "--tasks", "1").out
    assert submitted("job", "3", "--failed").out.endswith("none of its tasks has failed\n")


def test_failed_tasks_are_submitted_again_with_their_index(submitted: Command, tmp_path: Path) -> None:
    line = "echo item $VOLERY_INDEX of $SET; [ -e again ] || [ $VOLERY_INDEX -lt 2 ] || [ $VOLERY_INDEX = 4 ]"
    job = f'key = "k"\ncwd = "{tmp_path}"\ncommand = "{line}"\n[[tasks]]\ncount = 4\nenv = {{ SET = "a" }}\n'
    submitted("submit", written(tmp_path, job + '[[tasks]]\ncount = 3\nenv = { SET = "b" }\n'), "--watch")
    (tmp_path / "again").touch()
    again = submitted("resubmit", "4", "--failed")
    assert again == Ended(0, "job 5: 4 tasks of job 4 again; volery job 5 shows it\n", "")
    assert submitted("wait", "5").status == 0
    lines = "item 2 of a\nitem 3 of a\nitem 5 of b\nitem 6 of b\n"
    assert "".join(submitted("logs", f"5/{place}").out for place in range(4)) == lines
    assert submitted("resubmit", "5", "--failed") == Ended(1, "", "error: jobs: none of their tasks has failed\n")
    assert submitted("resubmit", "5/1-2", "--json").json[0]["tasks"] == 2, "an index is kept over a second time"
    submitted("wait", "6")
    assert submitted("logs", "6").out == "6/0: item 3 of a\n6/1: item 5 of b\n"
    receipts = submitted("resubmit", "4", "2", "--json").json
    assert [(receipt["again"], receipt["id"], receipt["tasks"]) for receipt in receipts] == [(4, 7, 7), (2, 8, 1)]
    submitted("wait", "7", "8")
    assert submitted("job", "8", "--json").json["user"] == "ada"


def test_a_definition_reads_back_as_a_file(submitted: Command, tmp_path: Path) -> None:
    job = """
name = "d\u00e9j\u00e0 \\"vu\\""
user = "ada"
key = "k"
env = { A = "1\\n2\\u007f", "B C" = "\U0001f600" }
timeout_s = 0.5
constraints = ["cores >= 4"]
[[tasks]]
command = ["echo", "a b"]
count = 2
[[tasks]]
command = "true"
env = { D = "" }
"""
    path = written(tmp_path, job)
    submitted("submit", path)
    text = submitted("job", "4", "--toml").out
    again = tmp_path / "again.toml"
    again.write_text(text)
    assert read_job(again) == read_job(path)
    assert submitted("job", "4", "--toml", "--json").json["env"]["B C"] == "\U0001f600"
    assert (
        submitted("job", "0-1", "--toml").err == "error: --toml: prints one definition, of 2 jobs; name one job alone\n"
    )
    assert submitted("job", "sweep", "--last", "--toml").out.startswith('command = "echo out')
