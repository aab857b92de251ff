"""`volery jobs`, `job`, `logs`, `cancel` and `record`: the jobs of a federation, by its API."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

import msgspec
import typer

from volery.cli.options import AsJson, Replace, argument, option
from volery.cli.output import (
    live_extra,
    moment,
    print_answer,
    print_error,
    print_json,
    print_table,
    terminal,
)
from volery.core.errors import InputError, suggestion
from volery.core.model import SECOND

if TYPE_CHECKING:
    from rich.text import Text

    from volery.live.client import Client
    from volery.live.status import JobStatus, TaskStatus

FOLLOW_S: Final = 0.3
"""The time between two requests of `logs --follow` for more output."""
HOUR_S: Final = 3600
MIB: Final = 1 << 20
USED: Final = ("cpu", "memory")

Api = Annotated[
    str | None, option("The federation's API; else client.toml's, or here.", "--api", form="URL", envvar="VOLERY_API")
]
NUMBER_MAX: Final = 10**18 - 1
"""The largest number of a job that the API knows."""
JobNumber = Annotated[int, argument("The number of a job.", "JOB", min=0, max=NUMBER_MAX)]
JobsState = Annotated[str | None, option("Only jobs in this state.")]
JobsUser = Annotated[str | None, option("Only this user's jobs.")]
HOURS_MAX: Final = 1_000_000.0
Since = Annotated[float | None, option("Only of the last hours.", "--since", form="HOURS", min=0, max=HOURS_MAX)]


@contextmanager
def connected(api: str | None, as_json: bool) -> Iterator[Client]:
    """A client; what fails beyond the user's reach ends with status 1."""
    with live_extra():
        from volery.live.api_calls import ApiError
        from volery.live.client import Client
    with Client(api) as client:
        try:
            yield client
        except ApiError as error:
            print_error("api", str(error), as_json)
            raise typer.Exit(1) from None


@contextmanager
def named_by_file(job: Path) -> Iterator[None]:
    """Name what is wrong with a job by its file: the API knows it by its content alone.

    Raises:
        InputError: as it was, with the name of the file.
    """
    try:
        yield
    except InputError as error:
        place = error.place.removeprefix("job")
        raise (error if place == error.place else InputError(job.name + place, error.problem)) from None


def _words(status: JobStatus) -> str:
    """`running: 3 finished, 2 running`."""
    counts = ("finished", "running", "failed", "killed", "unsatisfiable")
    counts_in_words = [f"{count} {name}" for name in counts if (count := getattr(status, name))]
    return status.state + (f": {', '.join(counts_in_words)}" if counts_in_words else "")


def hours_ago_us(hours: float | None) -> int | None:
    """Microseconds since 1970 of a moment so many hours ago; not before 1970."""
    return None if hours is None else max(0, round((time.time() - hours * HOUR_S) * SECOND))


def jobs(
    state: JobsState = None,
    user: JobsUser = None,
    reason: Annotated[str | None, option("Only where the reason contains this.")] = None,
    since: Since = None,
    before: Annotated[
        int | None, option("Only below this number: the next page.", form="JOB", min=0, max=NUMBER_MAX)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 20,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, the newest first."""
    _check_state(state)
    with connected(api, as_json) as client:
        listed_jobs = client.jobs(state, user, before, limit, reason, hours_ago_us(since))

    if as_json:
        print_json(listed_jobs)
        return

    heads = ("job", "name", "user", "state", "tasks", "submitted", "ran for", "reason")
    rows = (
        (
            str(job.id),
            job.name,
            job.user,
            _coloured(job.state),
            f"{job.finished}/{job.tasks}",
            moment(job.submitted_us),
            _span(job),
            job.reason,
        )
        for job in listed_jobs
    )
    print_table(heads, rows)


def _check_state(state: str | None) -> None:
    """Raise InputError for a state that no job is ever in."""
    from volery.live.status import JobState

    if state is not None and state not in get_args(JobState):
        raise InputError("--state", f"no job is ever {state!r}{suggestion(state, get_args(JobState))}")


def job(
    number: JobNumber,
    tasks: Annotated[int, typer.Option("--tasks", min=0, max=10_000, help="How many of its tasks are listed.")] = 20,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Show a job and its tasks."""
    with connected(api, as_json) as client:
        _print_job(client, client.job(number), as_json, tasks)


def _print_job(client: Client, status: JobStatus, as_json: bool, task_limit: int) -> None:

    tasks = list(itertools.islice(client.tasks(status.id), task_limit)) if task_limit else []
    if as_json:
        content = msgspec.to_builtins(status)
        print_json(content | {"listed": tasks} if task_limit else content)
        return
    from rich.text import Text

    from volery.live.status import UNCONFINED

    console = terminal()
    title = f"job {status.id}" + (f" ({status.name})" if status.name else "")
    console.print(Text(f"{title}: "), _coloured(_words(status)), Text(f" of {status.tasks}"), sep="")

    if status.reason:
        console.print(Text(status.reason))
    if status.moved:
        console.print(Text(f"scheduled {status.moved}"))

    if tasks:
        _print_tasks(tasks)
        for words in _held(tasks):
            console.print(Text(f"held to what they asked for: {words}" if words else UNCONFINED))
        if status.tasks > len(tasks):
            typer.echo(f"{len(tasks)} of {status.tasks} tasks; --tasks N lists more.")


def _print_tasks(tasks: list[TaskStatus]) -> None:

    has_usage = any(task.usage is not None for task in tasks)
    attempt_head = ("attempt",) if any(task.attempt for task in tasks) else ()
    first_heads = ("task", "state", *attempt_head, "node", "exit code", "started", "ran for")

    rows = (
        (
            str(task.index),
            _coloured(task.state),
            *((str(task.attempt),) if attempt_head else ()),
            task.node,
            "" if task.exit_code is None else str(task.exit_code),
            moment(task.started_us),
            _span(task),
            *(_used(task) if has_usage else ()),
            task.reason,
        )
        for task in tasks
    )
    print_table((*first_heads, *(USED if has_usage else ()), "reason"), rows)


def _used(task: TaskStatus) -> tuple[str, str]:
    """Processor seconds and the most memory of a task, as far as they are known."""
    usage = task.usage
    if usage is None:
        return "", ""
    cpu = "" if usage.cpu_us is None else f"{usage.cpu_us / SECOND:.2f} s"
    return cpu, "" if usage.memory_peak_bytes is None else f"{usage.memory_peak_bytes / MIB:,.0f} MiB"


def _held(tasks: Iterable[TaskStatus]) -> list[str]:
    """The kinds of isolation that tasks ran under, each once; empty for those without."""
    return sorted({task.usage.held for task in tasks if task.usage is not None})


def task_named(named: str) -> tuple[int, int | None]:
    """The job that JOB or JOB/TASK names, and the place of the task.

    Raises:
        InputError: it is neither.
    """
    job, slash, place = named.partition("/")
    if not all(text.isascii() and text.isdigit() and len(text) < 19 for text in ([job, place] if slash else [job])):
        raise InputError("JOB", f"{named[:40]!r} is not JOB or JOB/TASK, as 14 or 14/3")
    return int(job), int(place) if slash else None


def logs(
    named: Annotated[str, argument("A job, or a task by its place in its job.", "JOB[/TASK]")],
    place: Annotated[
        int | None,
        typer.Argument(
            metavar="[TASK]", min=0, max=NUMBER_MAX, help="The same place, after a space; 0 if neither is given."
        ),
    ] = None,
    stderr: Annotated[bool, typer.Option("--stderr", help="Standard error instead of standard output.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the task has ended.")] = False,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Print what a task has written."""
    number, place_in_name = task_named(named)
    if place_in_name is not None and place is not None:
        raise InputError("TASK", f"is given twice, in {named!r} and as {place}; leave one out")

    task = place_in_name if place_in_name is not None else place or 0
    stream = "stderr" if stderr else "stdout"

    with connected(api, as_json) as client:
        from volery.live.node.output import OUTPUT_BYTES_MAX

        if as_json:
            content = client.logs(number, task, stream)
            print_json({"job": number, "task": task, "stream": stream, "text": content.decode(errors="replace")})
            return

        offset = 0
        while True:
            # Asked before the output is: what a task wrote last must not be missed.
            has_ended = client.task(number, task).ended_us is not None or client.job(number).ended

            piece = client.log_piece(number, task, stream, offset)
            sys.stdout.buffer.write(piece.content)
            sys.stdout.buffer.flush()
            offset = piece.end

            # There may be more already: no wait.
            if len(piece.content) == OUTPUT_BYTES_MAX:
                continue

            if has_ended or not follow:
                return
            time.sleep(FOLLOW_S)


def cancel(number: JobNumber, api: Api = None, as_json: AsJson = False) -> None:
    """Give a job up: what waits never runs, what runs is killed."""
    with connected(api, as_json) as client:
        status = client.cancel(number)
    outcome = f"job {number} had ended: {_words(status)}" if status.ended else f"job {number} is being cancelled"
    print_answer(status, as_json, outcome)


def _coloured(words: str) -> Text:
    from rich.text import Text

    colours = {"done": "green", "finished": "green", "running": "cyan", "failed": "red", "unsatisfiable": "red"}
    return Text(words, colours.get(words.partition(":")[0], "yellow"))


def _span(status: JobStatus | TaskStatus) -> str:
    return "" if status.ran_us is None else f"{status.ran_us / SECOND:.2f} s"


PAGE: Final = 1_000

record_app = typer.Typer(help="Records of a federation for other programs.", no_args_is_help=True)


@record_app.callback()
def record() -> None:
    """Records of a federation for other programs."""


@record_app.command("export")
def export(
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE.jsonl", help="The file to write.")],
    user: JobsUser = None,
    state: JobsState = None,
    since: Since = None,
    archive: Annotated[
        Path | None, option("Read archived jobs from this folder, not from the API.", form="DIR")
    ] = None,
    force: Replace = False,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Write jobs and their tasks, one JSON object a line: each job, the newest first, then its tasks in order.

    Jobs of an archive come in the order of their ends. What is damaged is named and left out, with status 1.
    """
    from volery.workload.files import atomic_output

    _check_state(state)
    since_us = hours_ago_us(since)
    jobs = tasks = 0
    damages = list[str]()
    with (
        _source(archive, api, as_json, state, user, since_us, damages) as listed_jobs,
        atomic_output(output, force=force) as file,
    ):
        for job, tasks_of_job in listed_jobs:
            if job.state == "damaged":
                damages.append(job.reason)
            jobs += 1
            file.write(_line("job", job))
            for task in tasks_of_job:
                tasks += 1
                file.write(_line("task", task))

    content = {"file": str(output), "jobs": jobs, "tasks": tasks} | ({"damages": damages} if damages else {})
    print_answer(content, as_json, "\n".join((*damages, f"{output}: {jobs:,} jobs, {tasks:,} tasks")))

    if damages:
        raise typer.Exit(1)


@contextmanager
def _source(
    archive: Path | None,
    api: str | None,
    as_json: bool,
    state: str | None,
    user: str | None,
    since_us: int | None,
    damages: list[str],
) -> Iterator[Iterator[tuple[JobStatus, Iterable[TaskStatus]]]]:
    """Jobs with their tasks, of the API or of an archive, whose damages are added to a list."""
    if archive is None:
        with connected(api, as_json) as client:
            yield (
                (job, () if job.state == "damaged" else client.tasks(job.id))
                for job in _jobs(client, state, user, since_us)
            )

        return
    from volery.live.service.archive import archived

    archive_damages = list[InputError]()
    yield (
        (job, tasks)
        for job, tasks in archived(archive, archive_damages)
        if state in (None, job.state) and user in (None, job.user) and job.submitted_us >= (since_us or 0)
    )
    damages += map(str, archive_damages)


def _jobs(client: Client, state: str | None, user: str | None, since_us: int | None) -> Iterator[JobStatus]:
    """All of them, page by page; what is submitted meanwhile is not among them."""
    before_id: int | None = None
    while True:
        page = client.jobs(state, user, before_id, PAGE, since_us=since_us)
        yield from page

        if len(page) < PAGE:
            return
        # The newest come first: the next page begins below the last of this one.
        before_id = page[-1].id


def _line(record: str, content: Any) -> bytes:
    return msgspec.json.encode({"record": record} | msgspec.to_builtins(content)) + b"\n"
