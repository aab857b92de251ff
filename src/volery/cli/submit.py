"""`volery submit`: a command, a script or a file becomes a job of a federation, and is followed to its end."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from volery.cli.jobs import Api, _print_job, _words, connected, named_by_file
from volery.cli.options import AsJson, argument
from volery.cli.output import INTERRUPTED, print_answer
from volery.lab.progress import OneLine

if TYPE_CHECKING:
    from volery.live.client import Client
    from volery.live.status import JobStatus


def submit(
    job: Annotated[Path, argument("The job.", "JOB.toml")],
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Stay until it has ended; status 1 if not well.")
    ] = False,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Submit a job from a file."""
    with connected(api, as_json) as client:
        from volery.live.jobs import read_job

        description = read_job(job)
        with named_by_file(job):
            receipt = client.send(description)
        for warning in receipt.warnings:
            typer.echo(f"warning: {warning}", err=True)

        if watch:
            try:
                final_status = _watch(client, receipt.id, silent=as_json)
            except KeyboardInterrupt:
                typer.echo(f"job {receipt.id} goes on; volery cancel {receipt.id} ends it", err=True)
                raise typer.Exit(INTERRUPTED) from None
            _print_job(client, final_status, as_json, task_limit=0)
            raise typer.Exit(0 if final_status.state == "done" else 1)

    summary = f"job {receipt.id}: {receipt.tasks} task{'s' * (receipt.tasks != 1)}; volery job {receipt.id} shows it"
    if receipt.known:
        summary = f"job {receipt.id} was submitted before with the same key"

    print_answer(receipt, as_json, summary)


def _watch(client: Client, number: int, silent: bool) -> JobStatus:
    from volery.live.status import JobStatus

    status = client.job(number)

    with OneLine(silent) as line:
        for change in itertools.chain((status,), client.events(number)):
            if isinstance(change, JobStatus):
                status = change
                ended_tasks = status.finished + status.failed + status.killed + status.unsatisfiable
                state = f"{ended_tasks}/{status.tasks} tasks, {_words(status)}"
                line.moved(f"job {number}", ended_tasks, max(status.tasks, 1), state)
    return status if status.ended else client.job(number)
