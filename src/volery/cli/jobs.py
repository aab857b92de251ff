"""`volery jobs`, `job` and `record`: the jobs of a federation, by its API."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from volery.cli.options import AsJson, Replace, option
from volery.cli.output import (
    live_extra,
    moment,
    print_answer,
    print_error,
    print_json,
    print_listing,
    terminal,
)
from volery.cli.selection import (
    JobFilters,
    JobSelection,
    JobsState,
    JobWords,
    Last,
    Mine,
    check_state,
    is_single,
    listed_jobs,
    selected,
    whole_jobs,
)
from volery.core.errors import InputError
from volery.core.model import SECOND

if TYPE_CHECKING:
    from rich.text import Text

    from volery.live.client import Client
    from volery.live.status import JobStatus, TaskStatus

HOUR_S: Final = 3600
JOBS_LISTED: Final = 20
MIB: Final = 1 << 20
LINE_SHOWN: Final = 500
USED: Final = ("cpu", "memory")

Api = Annotated[
    str | None, option("The federation's API; else client.toml's, or here.", "--api", form="URL", envvar="VOLERY_API")
]
NUMBER_MAX: Final = 10**18 - 1
"""The largest number of a job that the API knows."""
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


def state_words(status: JobStatus) -> str:
    """`running: 3 finished, 2 running`."""
    counts = ("finished", "running", "failed", "killed", "unsatisfiable")
    counts_in_words = [f"{count} {name}" for name in counts if (count := getattr(status, name))]
    return status.state + (f": {', '.join(counts_in_words)}" if counts_in_words else "")


def hours_ago_us(hours: float | None) -> int | None:
    """Microseconds since 1970 of a moment so many hours ago; not before 1970."""
    return None if hours is None else max(0, round((time.time() - hours * HOUR_S) * SECOND))


def jobs(
    words: JobWords = None,
    state: JobsState = None,
    user: JobsUser = None,
    mine: Mine = False,
    last: Last = False,
    reason: Annotated[str | None, option("Only where the reason contains this.")] = None,
    since: Since = None,
    before: Annotated[
        int | None, option("Only below this number: the next page.", form="JOB", min=0, max=NUMBER_MAX)
    ] = None,
    limit: Annotated[
        int | None, option("At most so many; by default 20, or all that are named.", min=1, max=10_000)
    ] = None,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, the newest first."""
    check_state(state)
    since_us = hours_ago_us(since)
    with connected(api, as_json) as client:
        if words or last:
            if before is not None:
                raise InputError("--before", "pages through a list of all jobs; leave it out beside JOB and --last")
            selections = selected(client, words, JobFilters(state, mine, last, user, reason, since_us), as_json)
            named_jobs = whole_jobs(selections, f"`volery job {(words or [''])[0]}` shows it")
            jobs = sorted(named_jobs, key=lambda job: -job.id)[:limit]
        else:
            jobs = client.jobs(state, user, before, limit or JOBS_LISTED, reason, since_us, mine=mine)

    if as_json:
        print_json(jobs)
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
        for job in jobs
    )
    print_listing(heads, rows)


def job(
    words: JobWords = None,
    tasks: Annotated[int, typer.Option("--tasks", min=0, max=10_000, help="How many of its tasks are listed.")] = 20,
    failed: Annotated[
        bool, typer.Option("--failed", help="List tasks that have failed, with the last line that each has written.")
    ] = False,
    toml: Annotated[
        bool, typer.Option("--toml", help="Print the job's definition instead, which `volery submit` reads.")
    ] = False,
    state: JobsState = None,
    mine: Mine = False,
    last: Last = False,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Show jobs and their tasks."""
    with connected(api, as_json) as client:
        selections = selected(client, words, JobFilters(state, mine, last), as_json)
        if toml:
            _print_definition(client, selections, failed, as_json)
            return

        contents = [_print_selection(client, selection, as_json, tasks, failed) for selection in selections]
    if as_json:
        print_json(contents[0] if is_single(words) else contents)


def _print_definition(client: Client, selections: list[JobSelection], failed: bool, as_json: bool) -> None:
    from volery.live.config.tables import toml_of

    jobs = whole_jobs(selections, "--toml prints the definition of job JOB, with all tasks")
    if failed or len(jobs) > 1:
        problem = "goes without --failed" if failed else f"prints one definition, of {len(jobs)} jobs"
        raise InputError("--toml", f"{problem}; name one job alone")
    table = msgspec.to_builtins(client.definition(jobs[0].id))
    if as_json:
        print_json(table)
    else:
        sys.stdout.write(toml_of(table))


def print_job(client: Client, status: JobStatus, as_json: bool, task_limit: int) -> None:
    content = _print_selection(client, JobSelection(status), as_json, task_limit)
    if as_json:
        print_json(content)


def _print_selection(
    client: Client, selection: JobSelection, as_json: bool, task_limit: int, failed: bool = False
) -> dict[str, Any]:
    """Print a job with its first tasks, or make its JSON.

    Args:
        task_limit: number of tasks; 0: none, nor a list of them in JSON.
        failed: only tasks that have failed, with the last lines of their output.
    """
    count, last_lines = selection.task_count, None
    if failed:
        tasks = list(selection.failed_tasks(client))
        count = len(tasks)
        del tasks[task_limit:]
        last_lines = {task.index: _last_line(client, task) for task in tasks}
    else:
        tasks = list(itertools.islice(selection.tasks(client), task_limit)) if task_limit else []

    if not as_json:
        _print_job_lines(selection.job, tasks, count, last_lines)

    content: dict[str, Any] = msgspec.to_builtins(selection.job)
    listed = msgspec.to_builtins(tasks)
    if last_lines is not None:
        listed = [task | {"last_line": last_lines[task["index"]]} for task in listed]
    return content | ({"listed": listed} if task_limit else {})


def _last_line(client: Client, task: TaskStatus) -> str:
    """The last line of the errors of a task, or else of its output; what cannot be read is told."""
    for stream in ("stderr", "stdout") if task.folder else ():
        try:
            content = client.log_end(task.job, task.index, stream)
        except InputError as error:
            if not error.place.startswith(f"jobs/{task.job}/"):
                raise
            print_error(error.place, error.problem, as_json=False)
            continue
        if line := content.decode(errors="replace").rstrip().rpartition("\n")[2]:
            return line[-LINE_SHOWN:]
    return ""


def _print_job_lines(
    status: JobStatus, tasks: list[TaskStatus], count: int, last_lines: Mapping[int, str] | None
) -> None:
    from rich.text import Text

    from volery.live.status import UNCONFINED

    console = terminal()
    title = f"job {status.id}" + (f" ({status.name})" if status.name else "")
    console.print(Text(f"{title}: "), _coloured(state_words(status)), Text(f" of {status.tasks}"), sep="")

    if status.reason:
        console.print(Text(status.reason))
    if status.moved:
        console.print(Text(f"scheduled {status.moved}"))

    if tasks:
        _print_tasks(tasks, last_lines)
        for words in _held(tasks):
            console.print(Text(f"held to what they asked for: {words}" if words else UNCONFINED))
    if last_lines is not None and not count:
        typer.echo("none of its tasks has failed")
    elif tasks and count > len(tasks):
        typer.echo(
            f"{len(tasks)} of {count} {'tasks' if last_lines is None else 'failed tasks'}; --tasks N lists more."
        )


def _print_tasks(tasks: list[TaskStatus], last_lines: Mapping[int, str] | None) -> None:

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
            *(() if last_lines is None else (last_lines[task.index],)),
        )
        for task in tasks
    )
    last_heads = ("reason",) if last_lines is None else ("reason", "last line")
    print_listing((*first_heads, *(USED if has_usage else ()), *last_heads), rows)


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


def _coloured(words: str) -> Text:
    from rich.text import Text

    colours = {"done": "green", "finished": "green", "running": "cyan", "failed": "red", "unsatisfiable": "red"}
    return Text(words, colours.get(words.partition(":")[0], "yellow"))


def _span(status: JobStatus | TaskStatus) -> str:
    return "" if status.ran_us is None else f"{status.ran_us / SECOND:.2f} s"


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

    check_state(state)
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
                for job in listed_jobs(client, JobFilters(user=user, since_us=since_us), (state,))
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


def _line(record: str, content: Any) -> bytes:
    return msgspec.json.encode({"record": record} | msgspec.to_builtins(content)) + b"\n"
