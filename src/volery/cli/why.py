"""`volery why`: why a job or a task waits in a federation, or has waited in a run of a results folder with --why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from volery.cli.jobs import Api, connected, task_named
from volery.cli.options import AsJson
from volery.cli.output import print_json, terminal
from volery.cli.plan import funnel_words
from volery.core.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from volery.live.status import Why
    from volery.metrics.why import Staleness
    from volery.study.why import JobAnswer, Step, TaskAnswer

SECONDS = 1_000_000
CHOSEN = {
    "placed": "placed", "queued": "no place found", "refused": "refused", "unsatisfiable": "fits no machine",
    "preempted": "preempted", "lost": "lost",
}  # fmt: skip


def why(
    results: Annotated[
        Path | None,
        typer.Option("--in", metavar="DIR", help="A results folder; by default the federation.", show_default=False),
    ] = None,
    question: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB|JOB/TASK]",
            help="A job, or a task by its place in its job; left out, with --in: how old the schedulers' views were.",
            show_default=False,
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="NAME", help="Architecture or label of the run.", show_default=False),
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Seed of the run.", show_default=False)] = None,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Explain why a job or task waits or waited: the decisions of its schedulers, and what they passed over."""
    if results is None:
        _ask_federation(question, api, as_json)
        return
    from volery.study.why import explain

    found = explain(results, question, label=run, seed=seed)
    if as_json:
        print_json(found)
        return

    console = terminal(highlight=False)
    others = ", ".join(f"{label} seed {number}" for label, number in found.others)
    console.print(f"{found.label}, seed {found.seed}" + (f" (also here: {others})" if others else ""))
    if found.job is not None:
        _print_job(console, found.job)
    elif found.task is not None:
        _print_task(console, found.task)
    elif found.staleness is not None:
        _print_staleness(console, found.staleness)


def _ask_federation(question: str | None, api: str | None, as_json: bool) -> None:
    if question is None:
        raise InputError("JOB", "is missing; give a job or a task, as 14 or 14/3, or name a results folder by --in")
    try:
        job, place = task_named(question)
    except InputError as error:
        raise InputError(error.place, f"{error.problem}; a results folder is named by --in") from None
    with connected(api, as_json) as client:
        found = client.why(job, place)
    if as_json:
        print_json(found)
        return
    from rich.text import Text

    console = terminal(highlight=False)
    waiting = f"; {found.waiting:,} tasks of the job wait" if found.waiting else ""
    console.print(f"Task {found.index} of job {found.job}: {found.state}{waiting}.")
    if found.reason:
        console.print(Text(found.reason))
    for words in found.absent:
        console.print(Text(f"{words}."))
    console.print(f"Machines: {funnel_words(found.funnel)}")
    if not found.explained:
        console.print("The scheduler does not tell what it decides; Megha does with why = true under [parameters].")
    elif found.decisions:
        _print_decisions(console, found)


def _print_decisions(console: Console, found: Why) -> None:
    from rich.table import Table

    from volery.look.text import utc

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("at", "by", "decision", "node", "asked", "view age, s", "passed over"):
        table.add_column(column, justify="right" if column == "view age, s" else "left")
    for step in found.decisions:
        if step.omitted:
            table.add_row("...", "", f"{step.omitted} more decisions")
        at = utc(step.at_us, fine=True)
        passed = _words(tuple((one.scope, one.reason, one.count) for one in step.passed)) if step.passed else ""
        age = f"{step.view_age_us / SECONDS:.4f}"
        table.add_row(at, step.by, CHOSEN[step.chosen], step.node, step.asked, age, passed)
    console.print(table)


def _s(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:,.4f} s"


def _words(passed: tuple[tuple[str, str, int], ...]) -> str:
    return ", ".join(f"{count:,} {scope} {reason}" for scope, reason, count in passed) or "nothing"


def _print_job(console: Console, job: JobAnswer) -> None:
    console.print(
        f"Job {job.job}: {job.tasks} tasks, submitted at {_s(job.submitted_s)}, finished at {_s(job.finished_s)}; "
        f"{job.started} of {job.tasks} have started, the last after {_s(job.waited_s)}."
    )
    for chosen, count in job.chosen.items():
        console.print(f"  {CHOSEN[chosen]}: {count} of its tasks, at least once")
    console.print(f"  passed over by what is kept (units, by why the task did not run there): {_words(job.passed)}")
    console.print("The task that started last:" if job.slowest.started_s is not None else "A task that never started:")
    _print_task(console, job.slowest)


def _print_task(console: Console, task: TaskAnswer) -> None:
    where = f" on machine {task.machine}" if task.machine >= 0 else ""
    console.print(
        f"Task {task.job}/{task.place}: submitted at {_s(task.submitted_s)}, started at {_s(task.started_s)}{where}, "
        f"finished at {_s(task.finished_s)}."
    )
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("at, s", "by", "decision", "machine", "asked", "view age, s", "passed over"):
        table.add_column(column, justify="right" if column in ("at, s", "machine", "view age, s") else "left")
    for step in task.steps:
        _add_step(table.add_row, step)
    console.print(table)


def _add_step(add: object, step: Step) -> None:
    assert callable(add)
    if step.omitted:
        add("...", "", f"{step.omitted} more decisions", "", "", "", "")
    machine = str(step.machine) if step.machine >= 0 else ""
    add(
        f"{step.at_s:.4f}", step.by, CHOSEN[step.chosen], machine, step.asked, f"{step.view_age_s:.4f}",
        _words(step.passed) if step.passed else "",
    )  # fmt: skip


def _print_staleness(console: Console, found: Staleness) -> None:
    share = found.refused / found.placed if found.placed else 0.0
    console.print(
        f"{found.placed:,} placements, {found.refused:,} of them ({share:.1%}) were refused: the view was out of "
        "date, and the request was wasted."
    )
    if found.view_age_s:
        ages = ", ".join(
            f"{name} {age:.4f} s" for name, age in zip(("p50", "p90", "p99", "max"), found.view_age_s, strict=True)
        )
        console.print(f"Age of the view at a placement: {ages}.")
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("scheduler", "asked", "placed", "refused", "rate"):
        table.add_column(column, justify="left" if column in ("scheduler", "asked") else "right")
    for by, asked, placed, refused in found.rates:
        table.add_row(by, asked, f"{placed:,}", f"{refused:,}", f"{refused / placed:.1%}" if placed else "")
    console.print(table)
