"""Job descriptions: what a user writes into job.toml or sends to the API, and the tasks that come of it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from volery.core.errors import InputError
from volery.core.events import MoreTasks, Submit
from volery.core.model import (
    AMOUNT_MAX,
    CHUNK_TASKS,
    NO_TASK,
    SECOND,
    Amounts,
    Job,
    JobId,
    Message,
    Task,
    TaskId,
    Time,
)
from volery.live.command import GRACE_S, Call, Command, encode_payload
from volery.live.config.constraints import Fleet, parse_conditions
from volery.live.config.foreign_keys import answer_to
from volery.live.config.tables import json_of, misfit, read_table, refuse_surrogates

TASKS_MAX: Final = 1_000_000
INDEX_MAX: Final = 1_000_000_000
LISTED_MAX: Final = 100_000
"""Tasks that are listed one by one and differ from their neighbour, in one job or in jobs submitted together."""
KINDS_MAX: Final = 1_000
"""Different combinations of constraints and request in one job: schedulers look through all of them."""
JOBS_MAX: Final = 1_000
"""Jobs that are submitted together."""
NAME_MAX: Final = 200
USER_MAX: Final = 64
TEXT_MAX: Final = 100_000
"""Characters of one argument or variable; the kernel takes 131,071 bytes."""
MEMORY: Final = "memory_mb"
CPU: Final = "cpu_milli"
GPUS: Final = "gpus"
"""Resources that tasks are held to, or are given as devices; all others count for placement alone."""
LIST_MAX: Final = 1_000
"""Entries of each list of a task: arguments, variables, conditions, outputs, resources."""
CONDITION_MAX: Final = 1_000
STDIN_MAX: Final = 1 << 20
CALL_BYTES_MAX: Final = 8 << 20
SECONDS_MAX: Final = 1e9
_UNSHOWABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Control characters and line ends, and characters that turn the direction of the text around them."""
JOB_BYTES_MAX: Final = 512 << 20
"""Bytes that the tasks of one job carry together: a million tasks of 500 bytes, or 500 of a megabyte."""
CHUNK_BYTES: Final = 512 * 1024
"""Payloads of the tasks in one message: brokers commonly refuse messages of a megabyte."""

WorkT = TypeVar("WorkT", bound="WorkFields")
Seconds = Annotated[float, Meta(ge=0, le=SECONDS_MAX)]
Text = Annotated[str, Meta(max_length=TEXT_MAX)]
Texts = Annotated[tuple[Text, ...], Meta(max_length=LIST_MAX)]
Amount = Annotated[int, Meta(ge=0, le=AMOUNT_MAX)]


class WorkFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Fields that jobs and tasks share; a task inherits from its job the fields that it leaves out."""

    command: Annotated[Text | Texts, Meta(description="program and arguments, or a line for the shell")] = ()
    call: Annotated[
        bytes,
        Meta(max_length=CALL_BYTES_MAX, description="instead: a pickled Python callable with its arguments, in base64"),
    ] = b""
    env: Annotated[
        dict[Text, Text], Meta(max_length=LIST_MAX, description="added to the node agent's environment")
    ] = {}
    cwd: Annotated[Text, Meta(description="directory to run in, on the node; by default a new one per attempt")] = ""
    stdin: Annotated[str, Meta(max_length=STDIN_MAX, description="what the command reads")] = ""
    timeout_s: Annotated[Seconds | None, Meta(description="seconds after which a task has failed; 0: never")] = None
    grace_s: Annotated[Seconds | None, Meta(description="seconds between SIGTERM and SIGKILL")] = None
    estimate_s: Annotated[Seconds | None, Meta(description="how long a task takes, for the schedulers")] = None
    outputs: Annotated[Texts, Meta(description="files that a task has to leave where it runs, or below")] = ()
    constraints: Annotated[
        tuple[Annotated[str, Meta(max_length=CONDITION_MAX)], ...],
        Meta(max_length=LIST_MAX, description='what the machine must have, all of it, as ["cores >= 8"]'),
    ] = ()
    request: Annotated[
        dict[str, Amount],
        Meta(max_length=LIST_MAX, description="units of each resource, where machines offer more than slots"),
    ] = {}


class TaskDescription(WorkFields, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A task, or several equal ones."""

    count: Annotated[int, Meta(ge=1, le=TASKS_MAX, description="how many")] = 1
    index: Annotated[
        Annotated[int, Meta(ge=0, le=INDEX_MAX)] | None,
        Meta(description="VOLERY_INDEX of the first of them, from which the others count on; by default its place"),
    ] = None


class JobDescription(WorkFields, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A job as a user describes it."""

    name: Annotated[str, Meta(max_length=NAME_MAX, description="what lists call it")] = ""
    user: Annotated[str, Meta(max_length=USER_MAX, description="whose it is; who submits, when left out")] = ""
    key: Annotated[
        str, Meta(max_length=NAME_MAX, description="a job of this user with the same key is not submitted again")
    ] = ""
    parent: Annotated[
        str,
        Meta(pattern=r"^([0-9]{1,18}/[0-9]{1,18})?$", description="the task that submits it, as 3/0; clients name it"),
    ] = ""
    tasks: Annotated[
        Annotated[int, Meta(ge=1, le=TASKS_MAX)] | tuple[TaskDescription, ...],
        Meta(description="how many equal tasks, or a list of tasks"),
    ] = 1


_decode_job: Final = msgspec.json.Decoder(JobDescription).decode
_decode_jobs: Final = msgspec.json.Decoder(list[JobDescription]).decode


class PlannedTask(NamedTuple):
    """A task before it is submitted; `obstacle` is the reason why no machine can run it."""

    task: Task
    obstacle: str


def read_job(path: Path, changes: Mapping[str, Any] = MappingProxyType({})) -> JobDescription:
    """The job that a TOML file describes; a relative `cwd` in it is relative to the file's folder.

    Args:
        changes: see `with_keys`.

    Raises:
        InputError: naming file and line, or file and key, and what to write instead.
    """
    table = read_table(path)
    if "tasks" in changes and not isinstance(table.get("tasks", 1), int):
        raise InputError(f"{path.name}.tasks", "the file lists tasks; leave the list or the array out")
    job = job_from_table(with_keys(table, changes), path.name)
    if isinstance(job.tasks, int):
        return _beside(job, path)
    tasks = tuple(_beside(task, path) for task in job.tasks)
    return msgspec.structs.replace(_beside(job, path), tasks=tasks)


def with_keys(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The table of a job with further keys: variables, amounts and conditions are added, others are replaced."""
    merged_keys = {**table, **changes}
    for key in table.keys() & changes.keys():
        if isinstance(first := table[key], dict):
            merged_keys[key] = first | changes[key]
        elif isinstance(first, list) and key == "constraints":
            merged_keys[key] = first + changes[key]
    return merged_keys


def _beside(work: WorkT, path: Path) -> WorkT:
    return msgspec.structs.replace(work, cwd=str(path.parent.resolve() / work.cwd)) if work.cwd else work


def job_from_table(table: Mapping[str, Any], place: str) -> JobDescription:
    """A job from parsed TOML or JSON.

    Args:
        place: beginning of error messages, as `job.toml`.

    Raises:
        InputError: naming the key.
    """
    try:
        job = msgspec.convert(table, JobDescription)
    except msgspec.ValidationError as error:
        raise misfit(error, place, JobDescription, table, answer_to) from None
    refuse_surrogates(table, place)
    return _checked(job, place)


def job_from_json(text: bytes | bytearray, place: str) -> JobDescription:
    """A job from JSON as it arrives, without a table between.

    Raises:
        InputError: naming the key; or "body", where it is no JSON at all.
    """
    try:
        job = _decode_job(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return job_from_table(json_of(text), place)
    return _checked(job, place)


def jobs_from_json(text: bytes | bytearray, place: str) -> list[JobDescription]:
    """Several jobs from a list in JSON.

    Raises:
        InputError: as `job_from_json`, naming which job; or there are none, or too many.
    """
    try:
        jobs = _decode_jobs(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        tables = json_of(text)
        if not isinstance(tables, list):
            raise InputError(place, "are a list") from None
        jobs = [job_from_table(table, f"{place}[{at}]") for at, table in enumerate(tables[:JOBS_MAX])]

    if not 1 <= len(jobs) <= JOBS_MAX:
        raise InputError(place, f"has {len(jobs):,} jobs; send 1 to {JOBS_MAX:,}")

    jobs = [_checked(job, f"{place}[{at}]") for at, job in enumerate(jobs)]
    if sum(map(task_count, jobs)) > TASKS_MAX:
        raise InputError(place, f"have more than {TASKS_MAX:,} tasks together; submit fewer at once")
    if sum(len(job.tasks) for job in jobs if isinstance(job.tasks, tuple)) > LISTED_MAX:
        raise InputError(place, f"list more than {LISTED_MAX:,} different tasks together; submit fewer at once")

    return jobs


def _checked(job: JobDescription, place: str) -> JobDescription:
    """A job that can be planned; one task represents equal tasks that follow each other.

    Raises:
        InputError: naming the key.
    """
    merged_job = merged(job)
    if isinstance(merged_job.tasks, tuple) and len(merged_job.tasks) > LISTED_MAX:
        problem = f"lists more than {LISTED_MAX:,} different tasks"
        raise InputError(f"{place}.tasks", f"{problem}; write count, or submit several jobs")

    try:
        _check(merged_job, place)
    except InputError:
        _check(job, place)  # which names the task by its place in the list that was given
        raise

    return merged_job


def merged(job: JobDescription) -> JobDescription:
    """A job in which one task represents equal tasks that follow each other; merging it again changes nothing."""
    return job if isinstance(job.tasks, int) else with_tasks(job, merged_tasks(job.tasks))


def merged_tasks(tasks: Iterable[TaskDescription]) -> Iterator[TaskDescription]:
    """Tasks, of which one represents equal ones that follow each other; one by one, as they are taken."""
    # Indices count on within one entry, not from one to the next: those entries stay apart.
    for _, run in groupby(tasks, lambda task: _one_of(task) if task.index is None else object()):
        first, *other_tasks = run
        other_count = sum(task.count for task in other_tasks)
        yield msgspec.structs.replace(first, count=first.count + other_count) if other_tasks else first


def with_tasks(job: JobDescription, tasks: Iterable[TaskDescription]) -> JobDescription:
    """A job with its tasks merged; the same object, where none of them were equal neighbours."""
    task_tuple = tuple(tasks)
    assert isinstance(job.tasks, tuple)
    return job if len(task_tuple) == len(job.tasks) else msgspec.structs.replace(job, tasks=task_tuple)


def _one_of(task: TaskDescription) -> TaskDescription:
    return task if task.count == 1 else msgspec.structs.replace(task, count=1)


def _check(job: JobDescription, place: str) -> None:
    if isinstance(job.tasks, tuple):
        if not job.tasks:
            raise InputError(f"{place}.tasks", "a job needs at least one task; write tasks = 1 or a [[tasks]] table")
        if sum(task.count for task in job.tasks) > TASKS_MAX:
            raise InputError(f"{place}.tasks", f"more than {TASKS_MAX:,} tasks; submit several jobs")
        if len({_demand_key(task) for task in job.tasks}) > KINDS_MAX:
            problem = f"have more than {KINDS_MAX:,} different combinations of constraints and request"
            raise InputError(f"{place}.tasks", f"{problem}; submit several jobs")

    for name in ("name", "user", "key"):
        if _UNSHOWABLE.search(getattr(job, name)):
            raise InputError(f"{place}.{name}", "holds a control character; text that is shown has none")

    parse_conditions(job.constraints, f"{place}.constraints")
    if (size := sum(_size(work) * task_count(work) for work, _ in _works(job, place))) > JOB_BYTES_MAX:
        raise InputError(place, f"its tasks carry {size:,} bytes, more than {JOB_BYTES_MAX:,}; submit several jobs")

    for work, work_place in _works(job, place):
        _check_work(work, work_place)


def _demand_key(work: WorkFields) -> tuple[tuple[str, ...], tuple[tuple[str, int], ...]]:
    return work.constraints, tuple(sorted(work.request.items()))


def _check_work(work: WorkFields, place: str) -> None:
    has_command = bool(work.command.strip() if isinstance(work.command, str) else work.command and work.command[0])
    if bool(work.command) == bool(work.call) or (work.command and not has_command):
        problem_start = "names no program" if work.command else "is missing"
        problem = f'{problem_start}; write command = ["program", "argument"] or a line for the shell'
        raise InputError(f"{place}.command", "is given beside call; leave one out" if work.call else problem)

    if work.call and (work.env or work.stdin or work.cwd or work.outputs):
        raise InputError(f"{place}.call", "a callable takes no env, stdin, cwd or outputs; leave them out")

    variables = ((f"env.{ascii(name)[1:-1]}", (name, value)) for name, value in work.env.items())
    for name, texts in (("command", _argv(work)), ("cwd", (work.cwd,)), *variables):
        if any("\0" in text for text in texts):
            raise InputError(f"{place}.{name}", "holds a NUL character, which no process can be given")

    for output in work.outputs:
        if not output or output.startswith("/") or ".." in output.split("/"):
            raise InputError(f"{place}.outputs", f"{output[:80]!r} leads out of where the task runs; name a file there")

    for name in work.env:
        if not name or "=" in name:
            raise InputError(f"{place}.env", f"{name[:80]!r} is no name of a variable: it is empty or holds '='")

    parse_conditions(work.constraints, f"{place}.constraints")


def _works(job: JobDescription, place: str) -> Iterator[tuple[WorkFields, str]]:
    """Works of a job, completed by the words of the job, and their place."""
    if isinstance(job.tasks, int):
        yield job, place
        return
    for at, task in enumerate(job.tasks):
        yield _completed(task, job), f"{place}.tasks[{at}]"


def _completed(task: TaskDescription, job: JobDescription) -> TaskDescription:
    """A task with what it takes over from its job; constraints of the job stay with the job."""

    def first(own: float | None, shared: float | None) -> float | None:
        return shared if own is None else own

    own_work = bool(task.command or task.call)
    return TaskDescription(
        command=task.command if own_work else job.command,
        call=task.call if own_work else job.call,
        env=job.env | task.env,
        cwd=task.cwd or job.cwd,
        stdin=task.stdin or job.stdin,
        timeout_s=first(task.timeout_s, job.timeout_s),
        grace_s=first(task.grace_s, job.grace_s),
        estimate_s=first(task.estimate_s, job.estimate_s),
        outputs=task.outputs or job.outputs,
        constraints=task.constraints,
        request=task.request or job.request,
        count=task.count,
        index=task.index,
    )


def _argv(work: WorkFields) -> tuple[str, ...]:
    return ("sh", "-c", work.command) if isinstance(work.command, str) else work.command


def _size(work: WorkFields) -> int:
    """Bytes that a task of it carries, about."""
    texts = (*_argv(work), *work.env, *work.env.values(), work.cwd, work.stdin, *work.outputs)
    return sum(map(len, texts)) + len(work.call)


def resubmission(job: JobDescription, places: Sequence[int] | None = None) -> JobDescription:
    """A job to be submitted again: without key and parent, which are those of the first.

    Args:
        places: places of the tasks that it has, in order, each with the index that it had; None: all tasks.
    """
    job = msgspec.structs.replace(job, key="", parent="")
    if places is None:
        return job

    tasks = (TaskDescription(count=job.tasks),) if isinstance(job.tasks, int) else job.tasks
    ends = list(accumulate(task.count for task in tasks))
    entries = list[TaskDescription]()
    last = -2
    for place in places:
        at = bisect_right(ends, place)
        first = ends[at] - tasks[at].count
        if place == last + 1 and place > first:
            entries[-1] = msgspec.structs.replace(entries[-1], count=entries[-1].count + 1)
        else:
            first_index = first if (index := tasks[at].index) is None else index
            entries.append(msgspec.structs.replace(tasks[at], count=1, index=first_index + place - first))
        last = place
    return msgspec.structs.replace(job, tasks=tuple(entries))


def place_of(job: JobDescription, index: int) -> int | None:
    """The place of the first task with an index; None where no task has it."""
    if isinstance(job.tasks, int):
        return index if index < job.tasks else None

    first = 0
    for task in job.tasks:
        offset = index - (first if task.index is None else task.index)
        if 0 <= offset < task.count:
            return first + offset
        first += task.count
    return None


def task_count(job: WorkFields) -> int:
    if isinstance(job, TaskDescription):
        return job.count
    assert isinstance(job, JobDescription)
    return job.tasks if isinstance(job.tasks, int) else sum(task.count for task in job.tasks)


def plan(
    job: JobDescription, number: JobId, first: TaskId, fleet: Fleet, place: str = "job", token: str = ""
) -> Iterator[PlannedTask]:
    """The tasks of a job, numbered from `first`, with constraints compiled for a fleet; one by one, as they are taken.

    Equal tasks share one payload, so that a million of them take no more memory than their numbers.

    Args:
        token: token of its tasks.

    Raises:
        InputError: constraints that the fleet's machines give no meaning to, or a relative `cwd`.
    """
    estimated_us = estimate_us(job)
    for work, demand in _works_with_demands(job, fleet, place):
        # A payload tells the index of a task by the number of the task whose index is 0.
        index = work.index if isinstance(work, TaskDescription) and work.index is not None else demand.first
        payload = encode_payload(_payload(work, first + demand.first - index, job.user, fleet, token))
        for index in range(demand.first, demand.first + demand.tasks):
            task = Task(first + index, number, demand.mask, estimated_us, payload, demand.request)
            yield PlannedTask(task, demand.obstacle)


class _Compiled:
    """Constraints and requests of a job's tasks, each combination compiled once."""

    def __init__(self, job: JobDescription, fleet: Fleet, place: str) -> None:
        self._shared_conditions = parse_conditions(job.constraints, f"{place}.constraints")
        self._fleet = fleet
        self._by_key: dict[Any, tuple[int, Amounts, str]] = {}

    def of(self, work: WorkFields, place: str) -> tuple[int, Amounts, str]:
        """Constraint set, amounts, and why no machine has them (empty where one has)."""
        key = _demand_key(work)
        if key not in self._by_key:
            # Conditions of the job are compiled once, with every combination; those of a task are its own alone.
            conditions = work.constraints if isinstance(work, TaskDescription) else ()
            own = parse_conditions(conditions, f"{place}.constraints")
            request = self._fleet.request(work.request, f"{place}.request")
            mask, obstacle = self._fleet.needed(self._shared_conditions + own, request)
            self._by_key[key] = mask, request, obstacle
        return self._by_key[key]


class TaskDemand(NamedTuple):
    """Demand of equal tasks of a job: `tasks` from place `first` on; `obstacle`: why no machine meets it.

    Their own `estimate_us` is what their user expects of them, where schedulers get the mean of the job.
    """

    first: int
    tasks: int
    mask: int
    request: Amounts
    obstacle: str
    estimate_us: Time


def demands(job: JobDescription, fleet: Fleet, place: str = "job") -> Iterator[TaskDemand]:
    """The demands of a job's tasks, in order.

    Raises:
        InputError: constraints that the fleet's machines give no meaning to, or a relative `cwd`.
    """
    return (demand for _, demand in _works_with_demands(job, fleet, place))


def demand_commands(job: JobDescription, place: str = "job") -> None:
    """Refuse Python calls.

    Raises:
        InputError: a task is one.
    """
    problem = "is a Python call, and this federation runs none (calls = false in its file); submit a command"
    if isinstance(job.tasks, int):
        if job.call:
            raise InputError(f"{place}.call", problem)
        return

    # Tasks are not completed for this: a job may list 100,000, and requests of others wait meanwhile.
    for at, task in enumerate(job.tasks):
        if task.call or (job.call and not task.command):
            raise InputError(f"{place}.tasks[{at}].call", problem)


def _works_with_demands(job: JobDescription, fleet: Fleet, place: str) -> Iterator[tuple[WorkFields, TaskDemand]]:
    compiled = _Compiled(job, fleet, place)
    first = 0
    for work, work_place in _works(job, place):
        if work.cwd and not work.cwd.startswith("/"):
            raise InputError(f"{work_place}.cwd", f"{work.cwd[:80]!r} is not an absolute path; nodes know no other")

        mask, request, obstacle = compiled.of(work, work_place)
        estimate = round((work.estimate_s or 0.0) * SECOND)
        yield work, TaskDemand(first, task_count(work), mask, request, obstacle, estimate)
        first += task_count(work)


def demand_at(job: JobDescription, place: int, fleet: Fleet) -> TaskDemand:
    """The demand of the task at a place of a job.

    Raises:
        InputError: as `demands`.
        IndexError: the job has fewer tasks.
    """
    first = 0
    for task in job.tasks if isinstance(job.tasks, tuple) else ():
        if place < first + task.count:
            # Only the one task is compiled: a job may list 100,000 of them.
            (demand,) = demands(msgspec.structs.replace(job, tasks=(task,)), fleet)
            return demand._replace(first=first)
        first += task.count

    if isinstance(job.tasks, tuple) or place >= job.tasks:
        raise IndexError(place)

    return next(demands(job, fleet))


def estimate_us(job: JobDescription) -> Time:
    """The estimate that schedulers get of a job: the mean, in microseconds; 0: none."""
    if isinstance(job.tasks, int):
        return round((job.estimate_s or 0.0) * SECOND)

    total = sum((task.estimate_s or job.estimate_s or 0.0) * task.count for task in job.tasks)
    return round(total / task_count(job) * SECOND)


def label(job: JobDescription) -> str:
    """The label of jobs of one kind: their name, else the command of their first task."""
    if job.name:
        return job.name
    work = job.tasks[0] if isinstance(job.tasks, tuple) and job.tasks[0].command else job
    return " ".join(_argv(work))


def _payload(work: WorkFields, first: TaskId, user: str, fleet: Fleet, token: str) -> Command | Call:
    timeout_s = work.timeout_s or 0.0
    amounts = {name: work.request.get(name, 0) for name in (MEMORY, CPU)}
    gpus = work.request.get(GPUS, 0) if GPUS in fleet.cluster.resources else None
    if work.call:
        return Call(work.call, first, timeout_s, user, gpus=gpus, token=token, **amounts)

    grace_s = GRACE_S if work.grace_s is None else work.grace_s
    stdin = work.stdin.encode()
    argv = _argv(work)
    return Command(
        argv,
        first,
        work.env,
        work.cwd,
        stdin,
        timeout_s,
        grace_s,
        work.outputs,
        user,
        gpus=gpus,
        token=token,
        **amounts,
    )


def submission(
    number: JobId, tasks: Iterable[Task], count: int, user: str, chunk_tasks: int = CHUNK_TASKS
) -> Iterator[Message]:
    """The messages that submit a job: one Submit, and MoreTasks where it has more tasks or bytes than one may hold.

    Args:
        tasks: tasks in order, each taken as its message is made.
        count: number of the tasks.
        chunk_tasks: most tasks of one message.
    """
    sent_count, chunk, size, last_id = 0, list[Task](), 0, NO_TASK
    for task in tasks:
        if chunk and (size + len(task.payload) > CHUNK_BYTES or len(chunk) == chunk_tasks):
            yield _chunk(number, sent_count, chunk, count, user, last_id)
            sent_count, chunk, size, last_id = sent_count + len(chunk), [], 0, chunk[-1].id
        chunk.append(task)
        size += len(task.payload)
    if chunk or not sent_count:
        yield _chunk(number, sent_count, chunk, count, user, last_id)


def _chunk(number: JobId, sent_count: int, chunk: Sequence[Task], count: int, user: str, last_id: TaskId) -> Message:
    if sent_count:
        return MoreTasks(number, sent_count, tuple(chunk), after=last_id, left=count - sent_count)
    return Submit(Job(number, count, tuple(chunk), chunk[0].estimate_us if chunk else 0, user))
