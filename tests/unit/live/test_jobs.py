"""Job descriptions become tasks; what is wrong with them is named by file, line or key."""

from __future__ import annotations

from pathlib import Path

import pytest

from volery.core.errors import InputError
from volery.core.events import MoreTasks, Submit
from volery.core.model import CHUNK_TASKS, Task
from volery.live.command import Call, Command, decode_payload
from volery.live.config.constraints import NOWHERE, Fleet
from volery.live.config.machine import Machine
from volery.live.jobs import (
    CHUNK_BYTES,
    JobDescription,
    PlannedTask,
    TaskDescription,
    demand_commands,
    job_from_table,
    place_of,
    plan,
    read_job,
    resubmission,
    submission,
    task_count,
)

FLEET = Fleet(
    [Machine("x86_64", "linux", "6.1", cores, 1024, {"zone": zone}) for cores, zone in ((4, "a"), (8, "b"))], [1, 2]
)
WHOLE = """
name = "sweep"
user = "ada"
command = ["run", "--fast"]
constraints = ["cores >= 4"]
timeout_s = 60
env = { COLOUR = "blue" }

[[tasks]]
count = 2
constraints = ['label.zone == "b"']
estimate_s = 10

[[tasks]]
command = "echo $COLOUR > a.txt"
cwd = "work"
env = { SHAPE = "round" }
timeout_s = 0
outputs = ["a.txt"]
estimate_s = 40
"""


def tasks_of(job: JobDescription, number: int, first: int, fleet: Fleet) -> list[PlannedTask]:
    return list(plan(job, number, first, fleet))


def job_in(folder: Path, text: str) -> JobDescription:
    path = folder / "job.toml"
    path.write_text(text)
    return read_job(path)


def commands(job: JobDescription) -> list[Command]:
    payloads = [decode_payload(planned.task.payload) for planned in tasks_of(job, 7, 100, FLEET)]
    return [payload for payload in payloads if isinstance(payload, Command)]


def test_a_file_becomes_tasks(tmp_path: Path) -> None:
    job = job_in(tmp_path, WHOLE)
    planned = tasks_of(job, 7, 100, FLEET)
    assert task_count(job) == 3
    assert [task.id for task, _ in planned] == [100, 101, 102]
    assert {task.job for task, _ in planned} == {7}
    assert {task.estimate_us for task, _ in planned} == {20_000_000}
    assert [obstacle for _, obstacle in planned] == ["", "", ""]
    fits = [[task.constraints & ~offered == 0 for offered in FLEET.cluster.constraints] for task, _ in planned]
    assert fits == [[False, True], [False, True], [True, True]]
    first, second, last = commands(job)
    assert first == Command(("run", "--fast"), 100, {"COLOUR": "blue"}, timeout_s=60.0, user="ada")
    assert second == first, "equal tasks carry equal payloads"
    assert last.argv == ("sh", "-c", "echo $COLOUR > a.txt")
    assert last.env == {"COLOUR": "blue", "SHAPE": "round"}
    assert last.cwd == str(tmp_path / "work")
    assert (last.timeout_s, last.outputs) == (0.0, ("a.txt",))


def test_a_number_of_equal_tasks(tmp_path: Path) -> None:
    job = job_in(tmp_path, 'command = "true"\ntasks = 3\nestimate_s = 2')
    assert [command.first for command in commands(job)] == [100, 100, 100]
    assert tasks_of(job, 0, 0, FLEET)[0].task.estimate_us == 2_000_000


def test_a_callable_comes_in_base64() -> None:
    job = job_from_table({"call": "AQI="}, "job")
    assert decode_payload(tasks_of(job, 0, 0, FLEET)[0].task.payload) == Call(b"\1\2")


def test_a_task_that_no_machine_can_run_says_why() -> None:
    job = job_from_table({"command": "true", "constraints": ["cores > 8"]}, "job")
    (planned,) = tasks_of(job, 0, 0, FLEET)
    assert planned.task.constraints == NOWHERE
    assert planned.obstacle == "no machine has cores > 8; there are 4, 8"


OFFERING = Fleet(FLEET.machines, [1, 1], capacities=[{"memory_mb": 65536, "gpus": 2}, {"gpus": 0, "memory_mb": 131072}])


def test_tasks_ask_for_amounts_in_the_order_of_the_fleet() -> None:
    text = {"command": "true", "request": {"gpus": 1}, "tasks": [{}, {"request": {"memory_mb": 512}, "count": 2}]}
    planned = tasks_of(job_from_table(text, "job"), 0, 0, OFFERING)
    assert [one.task.request for one in planned] == [(0, 1), (512, 0), (512, 0)]
    assert not any(one.obstacle for one in planned)
    assert [one.task.request for one in tasks_of(job_from_table({"command": "true"}, "job"), 0, 0, FLEET)] == [()]


def test_a_request_that_no_machine_ever_holds_names_the_nearest_miss() -> None:
    wanted = {"command": "true", "request": {"memory_mb": 98304}, "constraints": ["cores >= 4", 'label.zone == "a"']}
    (planned,) = tasks_of(job_from_table(wanted, "job"), 0, 0, OFFERING)
    meets = 'that meets cores >= 4, label.zone == "a"'
    assert planned.obstacle == f"needs 96 GB; the largest machine {meets} has 64 GB"


@pytest.mark.parametrize(
    ("fleet", "request_", "problem"),
    [
        (OFFERING, {"gpu": 1}, "job.request.gpu: no machine offers it; did you mean 'gpus'"),
        (OFFERING, {}, "job.request: write how much of memory_mb, gpus"),
        (FLEET, {"gpus": 1}, "job.request: machines have slots here; leave it out"),
    ],
)
def test_a_request_that_the_fleet_does_not_know_is_named(fleet: Fleet, request_: dict[str, int], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        tasks_of(job_from_table({"command": "true", "request": request_}, "job"), 0, 0, fleet)


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("name = 'x'\ncommand = ", "job.toml:2", "is not TOML: Invalid value"),
        ("command = x", "job.toml:1:11", "is not TOML: Invalid value"),
        ("name = 'x'", "job.toml.command", "is missing; write command = "),
        ("command = 'x'\ncomand = 'y'", "job.toml.comand", "unknown key; did you mean 'command'?"),
        ("command = 'x'\ntimeout = 3", "job.toml.timeout", "write timeout_s, in seconds"),
        ("command = 'x'\n[[tasks]]\ncont = 3", "job.toml.tasks[0].cont", "did you mean 'count'?"),
        ("command = 'x'\ntasks = 0", "job.toml.tasks", "expected int >= 1"),
        ("command = 'x'\ntasks = []", "job.toml.tasks", "at least one task"),
        ("command = 'x'\ntimeout_s = -1", "job.toml.timeout_s", "expected float >= 0"),
        ("command = 'x'\ncall = 'AQI='", "job.toml.command", "leave one out"),
        ("call = 'AQI='\nstdin = 'x'", "job.toml.call", "takes no env, stdin"),
        ("[[tasks]]\ncount = 1", "job.toml.tasks[0].command", "is missing"),
        ('command = ["a\\u0000"]', "job.toml.command", "NUL"),
        ("command = 'x'\nenv = {'A=B' = 'c'}", "job.toml.env", "no name of a variable"),
        ("command = 'x'\nenv = {A = 1}", "job.toml.env", "expected str, got int"),
        ("command = 'x'\nconstraints = ['cores = 8']", "job.toml.constraints[0]", "column 7"),
        ("command = 'x'\n[[tasks]]\nconstraints = ['8']", "job.toml.tasks[0].constraints[0]", "column 1"),
        ("command = 'x'\n[[tasks]]\ncount = 999_999\n[[tasks]]\ncount = 2", "job.toml.tasks", "more than 1,000,000"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, place: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        job_in(tmp_path, text)
    assert caught.value.place.removeprefix(f"{tmp_path}/").startswith(place)
    assert problem in caught.value.problem


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_job(tmp_path / "none.toml")
    (tmp_path / "job.toml").write_bytes(b"\xff")
    with pytest.raises(InputError, match="is not UTF-8"):
        read_job(tmp_path / "job.toml")


def test_a_constraint_that_the_fleet_does_not_know_is_named_with_its_place() -> None:
    job = job_from_table({"command": "x", "tasks": [{"constraints": ["core >= 8"]}]}, "job")
    with pytest.raises(InputError, match=r"job.tasks\[0\].constraints\[0\]: unknown attribute 'core'"):
        tasks_of(job, 0, 0, FLEET)


def test_a_directory_on_nodes_is_absolute() -> None:
    with pytest.raises(InputError, match=r"job.cwd: 'work' is not an absolute path"):
        tasks_of(job_from_table({"command": "x", "cwd": "work"}, "job"), 0, 0, FLEET)


@pytest.mark.parametrize(
    ("count", "payload_bytes"), [(1, 0), (CHUNK_TASKS, 1), (2 * CHUNK_TASKS + 1, 1), (7, CHUNK_BYTES // 3)]
)
def test_a_large_job_travels_in_chunks_that_brokers_take(count: int, payload_bytes: int) -> None:
    tasks = tuple(Task(n, 5, payload=bytes(payload_bytes)) for n in range(count))
    first, *others = submission(5, tasks, count, "ada")
    assert isinstance(first, Submit)
    assert (first.job.task_count, first.job.user) == (count, "ada")
    together = list(first.job.tasks)
    for message in others:
        assert isinstance(message, MoreTasks)
        assert message.first == len(together)
        assert len(message.tasks) <= CHUNK_TASKS
        assert sum(len(task.payload) for task in message.tasks) <= CHUNK_BYTES
        together += message.tasks
    assert together == list(tasks)


def test_where_no_calls_run_the_first_task_that_is_one_is_named() -> None:
    call, command = b"a pickled callable", ("true",)
    demand_commands(JobDescription(command=command, tasks=2))
    demand_commands(JobDescription(command=command, tasks=(TaskDescription(), TaskDescription(command=command))))
    demand_commands(JobDescription(call=call, tasks=(TaskDescription(command=command),)))
    for job, place in (
        (JobDescription(call=call, tasks=2), "job.call"),
        (JobDescription(command=command, tasks=(TaskDescription(), TaskDescription(call=call))), "job.tasks[1].call"),
        (JobDescription(call=call, tasks=(TaskDescription(command=command), TaskDescription())), "job.tasks[1].call"),
    ):
        with pytest.raises(InputError, match="is a Python call, and this federation runs none") as refused:
            demand_commands(job)
        assert refused.value.place == place


def test_entries_with_an_index_stay_apart() -> None:
    listed = {"command": "true", "tasks": [{"index": 3}, {"index": 3}, {}, {}]}
    tasks = job_from_table(listed, "job").tasks
    assert isinstance(tasks, tuple)
    assert [(task.index, task.count) for task in tasks] == [(3, 1), (3, 1), (None, 2)]


def test_a_resubmission_has_the_tasks_at_the_places_in_runs() -> None:
    job = JobDescription(command="true", key="k", parent="3/0", tasks=100)
    assert resubmission(job) == JobDescription(command="true", tasks=100)
    tasks = resubmission(job, [3, 4, 5, 9, 99]).tasks
    assert tasks == tuple(TaskDescription(count=count, index=index) for index, count in ((3, 3), (9, 1), (99, 1)))
    listed = JobDescription(command="true", tasks=(TaskDescription(count=2, cwd="/a"), TaskDescription(index=7)))
    assert resubmission(listed, [1, 2]).tasks == (TaskDescription(cwd="/a", index=1), TaskDescription(index=7))


def test_the_index_of_a_task_is_found_from_its_number_and_leads_back_to_its_place() -> None:
    job = JobDescription(command="true", tasks=(TaskDescription(count=2, index=8), TaskDescription(count=2)))
    tasks = [planned.task for planned in tasks_of(job, 7, 100, FLEET)]
    assert [task.id - decode_payload(task.payload).first for task in tasks] == [8, 9, 2, 3]
    assert [place_of(job, index) for index in (8, 9, 2, 3, 0)] == [0, 1, 2, 3, None]
    assert [place_of(JobDescription(command="true", tasks=3), index) for index in (2, 3)] == [2, None]
