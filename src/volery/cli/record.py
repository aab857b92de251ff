"""`volery record export`: what a federation has done, as JSON lines for other programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from volery.cli.jobs import Api, Since, connected, hours_ago_us
from volery.cli.options import AsJson
from volery.cli.output import print_json

if TYPE_CHECKING:
    from volery.live.client import Client
    from volery.live.status import JobStatus, TaskStatus

PAGE: Final = 1_000

record_app = typer.Typer(help="Records of a federation for other programs.", no_args_is_help=True)


@record_app.callback()
def record() -> None:
    """Records of a federation for other programs."""


@record_app.command("export")
def export(
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE.jsonl", help="The file to write.")],
    user: Annotated[str | None, typer.Option(help="Only this user's jobs.", show_default=False)] = None,
    state: Annotated[str | None, typer.Option(help="Only jobs in this state.", show_default=False)] = None,
    since: Since = None,
    archive: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Read archived jobs from this folder, not from the API.", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Write jobs and their tasks, one JSON object a line: each job, the newest first, then its tasks in order.

    Jobs of an archive come in the order of their ends.
    """
    from volery.workload.files import atomic_output

    since_us = hours_ago_us(since)
    jobs = tasks = 0
    with _source(archive, api, as_json, state, user, since_us) as found, atomic_output(output, force=force) as file:
        for job, tasks_of_job in found:
            jobs += 1
            file.write(_line("job", job))
            for task in tasks_of_job:
                tasks += 1
                file.write(_line("task", task))
    if as_json:
        print_json({"file": str(output), "jobs": jobs, "tasks": tasks})
    else:
        typer.echo(f"{output}: {jobs:,} jobs, {tasks:,} tasks")


@contextmanager
def _source(
    archive: Path | None, api: str | None, as_json: bool, state: str | None, user: str | None, since_us: int | None
) -> Iterator[Iterator[tuple[JobStatus, Iterable[TaskStatus]]]]:  # fmt: skip
    """Jobs with their tasks, of the API or of an archive."""
    if archive is None:
        with connected(api, as_json) as client:
            yield ((job, client.tasks(job.id)) for job in _jobs(client, state, user, since_us))
        return
    from volery.live.service.archive import archived

    yield (
        (job, tasks)
        for job, tasks in archived(archive)
        if state in (None, job.state) and user in (None, job.user) and job.submitted_us >= (since_us or 0)
    )


def _jobs(client: Client, state: str | None, user: str | None, since_us: int | None) -> Iterator[JobStatus]:
    """All of them, page by page; what is submitted meanwhile is not among them."""
    before: int | None = None
    while True:
        page = client.jobs(state, user, before, PAGE, since_us=since_us)
        yield from page
        if len(page) < PAGE:
            return
        before = page[-1].id


def _line(record: str, content: Any) -> bytes:
    return msgspec.json.encode({"record": record} | msgspec.to_builtins(content)) + b"\n"
