"""`volery wait`, `cancel` and `resubmit`: what users want of jobs that were submitted, one or many at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from volery.cli.jobs import Api, connected, state_words
from volery.cli.options import AsJson
from volery.cli.output import INTERRUPTED, print_error, print_json
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
    from volery.live.jobs import JobDescription
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
                has_ended = f"had ended: {state_words(status)}"
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
        typer.echo(f"job {job.id}: {state_words(job)}")


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


def resubmit(
    words: JobWords = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only the tasks that have failed.")] = False,
    state: JobsState = None,
    mine: Mine = False,
    last: Last = False,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Submit jobs, or tasks of them, again as they were, under new numbers; all of them or none."""
    with connected(api, as_json) as client:
        from volery.live.jobs import resubmission, task_count

        jobs: list[tuple[int, JobDescription]] = []
        for selection in selected(client, words, JobFilters(state, mine, last), as_json):
            places = None if selection.spans is None else [place for span in selection.spans for place in span]
            if failed:
                places = [task.index for task in selection.failed_tasks(client)]
            if places != []:
                number = selection.job.id
                jobs.append((number, resubmission(client.definition(number), places)))

        if not jobs:
            print_error("jobs", "none of their tasks has failed", as_json)
            raise typer.Exit(1)
        receipts = client.send_many(job for _, job in jobs)

    contents = []
    for (number, job), receipt in zip(jobs, receipts, strict=True):
        contents.append({"again": number} | msgspec.to_builtins(receipt))
        for warning in receipt.warnings:
            typer.echo(f"warning: job {receipt.id}: {warning}", err=True)
        if not as_json:
            count = task_count(job)
            tasks = f"{count} task{'s' * (count != 1)} of job {number} again"
            typer.echo(f"job {receipt.id}: {tasks}; volery job {receipt.id} shows it")
    if as_json:
        print_json(contents[0] if is_single(words) else contents)
