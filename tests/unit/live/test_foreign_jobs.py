"""Descriptions that people bring from other systems: an error names the place, and what there is instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from volery.core.errors import InputError
from volery.live.config.foreign_keys import FOREIGN_KEYS
from volery.live.jobs import JobDescription, TaskDescription, job_from_json, job_from_table, read_job


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("retries", "a task that fails is not run again"),
        ("max_retries", "is not run again"),
        ("depends_on", "jobs do not wait for each other"),
        ("dependencies", "jobs do not wait for each other"),
        ("needs", "jobs do not wait for each other"),
        ("priority", "the shares of users decide"),
        ("array", "write tasks = 10"),
        ("Mem-Per-CPU", "memory_mb = 512"),
        ("time_limit", "write timeout_s"),
        ("working_directory", "write cwd"),
        ("stdout", "`volery logs JOB` shows it"),
        ("image", "no containers"),
    ],
)
def test_a_key_of_another_system_is_answered_with_what_there_is_instead(key: str, instead: str, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(f'command = "true"\n"{key}" = 3\n')
    with pytest.raises(InputError) as refused:
        read_job(file)
    assert str(refused.value).startswith(f"job.toml.{key}: unknown key; ")
    assert instead in refused.value.problem
    with pytest.raises(InputError, match=rf"job.tasks\[1\].{key}: unknown key; "):
        job_from_json(json.dumps({"command": "true", "tasks": [{}, {key: 3}]}).encode(), "job")


def test_no_key_of_another_system_is_one_of_ours_and_each_answer_fits_an_error() -> None:
    ours = {*JobDescription.__struct_fields__, *TaskDescription.__struct_fields__}
    assert not ours & set(FOREIGN_KEYS)
    assert all(word == word.lower() and "-" not in word for word in FOREIGN_KEYS)
    assert all(0 < len(answer) < 120 and answer.count(". ") == 0 for answer in FOREIGN_KEYS.values())


@pytest.mark.parametrize(
    ("job", "place"),
    [
        ({"env": {"FINE": "x", "A": 1}}, "job.env.A: expected str, got int"),
        ({"env": {"FINE": "x", "A": None}}, "job.env.A: expected str, got null"),
        ({"tasks": [{}, {"env": {"B": "y", "A": ["x"]}}]}, r"job.tasks[1].env.A: expected str"),
        ({"env": {"FINE": "x", "A": "y" * 100_001}}, "job.env.A: expected str of length <= 100000"),
        ({"env": {"y" * 100_001: "x"}}, "job.env: a key: Expected str of length <= 100000"),
        ({"env": {"FINE": "x", "A": "\0"}}, "job.env.A: holds a NUL character"),
        ({"tasks": [{"env": {"A\0B": "x"}}]}, r"job.tasks[0].env.A\x00B: holds a NUL character"),
        ({"env": {"A=B": "x"}}, "job.env: 'A=B' is no name of a variable"),
        ({"request": {"memory_mb": 5, "gpus": "1"}}, "job.request.gpus: expected int, got str"),
        ({"request": {"memory_mb": 5, "gpus": -1}}, "job.request.gpus: expected int >= 0"),
    ],
)
def test_what_is_wrong_with_a_variable_or_an_amount_names_it(job: dict[str, object], place: str) -> None:
    given = {"command": "true", **job}
    with pytest.raises(InputError) as refused:
        job_from_table(given, "job")
    assert str(refused.value).startswith(place)
    with pytest.raises(InputError) as refused:
        job_from_json(json.dumps(given).encode(), "job")
    assert str(refused.value).startswith(place)


@pytest.mark.parametrize("command", [[""], ["", "x"], "", "   ", "\n", []])
def test_a_command_without_a_program_is_refused(command: object) -> None:
    for given in ({"command": command}, {"command": "true", "tasks": [{"command": command, "call": ""}]}):
        if not command and "tasks" in given:
            continue  # a task that leaves its command out has that of its job
        with pytest.raises(InputError, match=r"command: (names no program|is missing); write command = "):
            job_from_table(given, "job")


HALVES = (
    r'{"command":"true","name":"a\ud800"}',
    r'{"command":["echo","\udc00x"]}',
    r'{"command":"x","env":{"A":"\ud83d"}}',
)


@pytest.mark.parametrize(("text", "place"), [*zip(HALVES, ("job.name", "job.command[1]", "job.env.A"), strict=True)])
def test_half_a_character_in_json_is_refused_with_its_place(text: str, place: str) -> None:
    with pytest.raises(InputError) as refused:
        job_from_json(text.encode(), "job")
    assert refused.value.place == place
    assert "half a character that UTF-8 does not have" in refused.value.problem
    assert refused.value.problem.isascii()
    assert job_from_json(rb'{"command":"echo \ud83d\ude80"}', "job").command == "echo \N{ROCKET}"
    for wrong in (rb'{"command":"\ud8"}', b'{"command":NaN}', b"{", b"\xff"):
        with pytest.raises(InputError, match="body: is not JSON"):
            job_from_json(wrong, "job")
