"""`volery wait` and `cancel`: what users want of jobs that were submitted, one or many at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import typer

from volery.cli.jobs import Api, _words, connected
from volery.cli.options import AsJson
from volery.cli.output import INTERRUPTED, print_json
from volery.cli.selection import (
    JobFilters,
    JobSelection,
    JobsState,
    JobWords,
    Last,
    Mine,
    is_single,
    selected,
    whole_jobs,
)
from volery.core.errors import InputError

if TYPE_CHECKING:
    from volery.live.client import Client
    from volery.live.status import JobStatus, TaskStatus


def cancel(
    words: JobWords = None,
    state: JobsState = None,
    mine: Mine = False,
    last: Last = False,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Give jobs up: what waits never runs, what runs is killed."""
    with connected(api, as_json) as client:
        from volery.live.status import ENDED_JOBS

        if state in ENDED_JOBS:
            raise InputError("--state", f"jobs that are {state} have ended; give pending or running")
        selections = selected(client, words, JobFilters(state, mine, last), as_json, is_open=True)
        remedy = "tasks are given up together, with their job: `volery cancel JOB`"

        statuses: list[JobStatus] = []
        for job in whole_jobs(selections, remedy):
            status = client.cancel(job.id)
            statuses.append(status)
            if not as_json:
                has_ended = f"had ended: {_words(status)}"
                typer.echo(f"job {job.id} {has_ended if status.ended else 'is being cancelled'}")

    if as_json:
        print_json(statuses[0] if is_single(words) else statuses)


def wait(
    words: JobWords = None,
    state: JobsState = None,
    mine: Mine = False,
    last: Last = False,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Wait until jobs, or tasks of them, have ended; status 1 unless all of them went well."""
    with connected(api, as_json) as client:
        # The newest may have ended already, and then is the one to be told about.
        is_open = not words and not last
        selections = selected(client, words, JobFilters(state, mine, last), as_json, is_open=is_open)
        contents, is_well = [], True
        try:
            for selection in selections:
                job, tasks = _ended(client, selection)
                is_well &= all(task.state == "finished" for task in tasks) if tasks else job.state == "done"
                contents.append(msgspec.to_builtins(job) | ({"listed": tasks} if tasks else {}))
                if not as_json:
                    _print_end(job, tasks)
        except KeyboardInterrupt:
            typer.echo("the jobs go on; volery cancel ends them", err=True)
            raise typer.Exit(INTERRUPTED) from None

    if as_json:
        print_json(contents[0] if is_single(words) else contents)
    raise typer.Exit(0 if is_well else 1)


def _print_end(job: JobStatus, tasks: list[TaskStatus]) -> None:
    for task in tasks:
        typer.echo(f"{job.id}/{task.index}: {task.state}" + (f": {task.reason}" if task.reason else ""))
    if not tasks:
        typer.echo(f"job {job.id}: {_words(job)}")


def _ended(client: Client, selection: JobSelection) -> tuple[JobStatus, list[TaskStatus]]:
    """A job and the named tasks of it, once they have ended."""
    from volery.live.status import ENDED_TASKS, JobStatus

    job, open_places = selection.job, set[int]()
    if selection.spans is not None:
        open_places = {task.index for task in selection.tasks(client) if task.state not in ENDED_TASKS}

    if (not job.ended) and (selection.spans is None or open_places):
        for change in client.events(job.id):
            if isinstance(change, JobStatus):
                job = change
            elif change.state in ENDED_TASKS:
                open_places.discard(change.index)
            if job.ended or (selection.spans is not None and not open_places):
                break
    return client.job(job.id), [] if selection.spans is None else list(selection.tasks(client))
