"""`volery why`: why a job or a task waits in a federation, or has waited in a run of a results folder with --why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from volery.cli.jobs import Api, connected, task_named
from volery.cli.options import AsJson, RunSeed, argument, option
from volery.cli.output import print_json, print_table, terminal
from volery.cli.plan import funnel_words
from volery.core.errors import InputError
from volery.core.model import SECOND
from volery.look.text import percent

if TYPE_CHECKING:
    from rich.console import Console

    from volery.live.status import Why
    from volery.metrics.explanations import Staleness
    from volery.study.answers import JobAnswer, TaskAnswer

CHOSEN = {
    "placed": "placed",
    "queued": "no place found",
    "refused": "refused",
    "unsatisfiable": "fits no machine",
    "preempted": "preempted",
    "lost": "lost",
}


def why(
    results: Annotated[Path | None, option("A results folder; by default the federation.", "--in", form="DIR")] = None,
    question: Annotated[
        str | None,
        argument(
            "A job, or a task by its place in its job; left out, with --in: how old the schedulers' views were.",
            "[JOB|JOB/TASK]",
        ),
    ] = None,
    run: Annotated[str | None, option("Architecture or label of the run.", "--run", form="NAME")] = None,
    seed: RunSeed = None,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Explain why a job or task waits or waited: the decisions of its schedulers, and what they passed over."""
    if results is None:
        _ask_federation(question, api, as_json)
        return
    from volery.study.answers import explain

    explanation = explain(results, question, label=run, seed=seed)
    if as_json:
        print_json(explanation)
        return

    console = terminal(highlight=False)
    other_runs = ", ".join(f"{label} seed {number}" for label, number in explanation.others)
    console.print(
        f"{explanation.label}, seed {explanation.seed}" + (f" (also here: {other_runs})" if other_runs else "")
    )
    if explanation.job is not None:
        _print_job(console, explanation.job)
    elif explanation.task is not None:
        _print_task(console, explanation.task)
    elif explanation.staleness is not None:
        _print_staleness(console, explanation.staleness)


def _ask_federation(question: str | None, api: str | None, as_json: bool) -> None:
    if question is None:
        raise InputError("JOB", "is missing; give a job or a task, as 14 or 14/3, or name a results folder by --in")

    try:
        job, place = task_named(question)
    except InputError as error:
        raise InputError(error.place, f"{error.problem}; a results folder is named by --in") from None

    with connected(api, as_json) as client:
        explanation = client.why(job, place)
    if as_json:
        print_json(explanation)
        return

    from rich.text import Text

    console = terminal(highlight=False)

    waiting = f"; {explanation.waiting:,} tasks of the job wait" if explanation.waiting else ""
    console.print(f"Task {explanation.index} of job {explanation.job}: {explanation.state}{waiting}.")
    if explanation.reason:
        console.print(Text(explanation.reason))
    for words in explanation.absent:
        console.print(Text(f"{words}."))
    console.print(f"Machines: {funnel_words(explanation.funnel)}")

    if not explanation.explained:
        console.print("The scheduler does not tell what it decides; Megha does with why = true under [parameters].")
    elif explanation.decisions:
        _print_decisions(explanation)


def _print_decisions(explanation: Why) -> None:
    from volery.look.text import utc

    rows: list[tuple[str, ...]] = []
    for step in explanation.decisions:
        if step.omitted:
            rows.append(("...", "", f"{step.omitted} more decisions"))

        at = utc(step.at_us, fine=True)
        passed = (
            _words(tuple((passed_over.scope, passed_over.reason, passed_over.count) for passed_over in step.passed))
            if step.passed
            else ""
        )
        age = f"{step.view_age_us / SECOND:.4f}"
        rows.append((at, step.by, CHOSEN[step.chosen], step.node, step.asked, age, passed))

    heads = ("at", "by", "decision", "node", "asked", "view age, s", "passed over")
    print_table(heads, rows, right=("view age, s",), bare=True)


def _s(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:,.4f} s"


def _words(passed: tuple[tuple[str, str, int], ...]) -> str:
    return ", ".join(f"{count:,} {scope} {reason}" for scope, reason, count in passed) or "nothing"


def _print_job(console: Console, job: JobAnswer) -> None:
    console.print(
        f"Job {job.job}: {job.tasks} tasks, submitted at {_s(job.submitted_s)}, finished at {_s(job.finished_s)}; "
        f"{job.started} of {job.tasks} have started, the last after {_s(job.waited_s)}."
    )
    for decision, count in job.chosen.items():
        console.print(f"  {CHOSEN[decision]}: {count} of its tasks, at least once")
    console.print(f"  passed over by what is kept (units, by why the task did not run there): {_words(job.passed)}")
    console.print("The task that started last:" if job.slowest.started_s is not None else "A task that never started:")
    _print_task(console, job.slowest)


def _print_task(console: Console, task: TaskAnswer) -> None:
    on_machine = f" on machine {task.machine}" if task.machine >= 0 else ""
    console.print(
        f"Task {task.job}/{task.place}: submitted at {_s(task.submitted_s)}, "
        f"started at {_s(task.started_s)}{on_machine}, finished at {_s(task.finished_s)}."
    )

    rows: list[tuple[str, ...]] = []
    for step in task.steps:
        if step.omitted:
            rows.append(("...", "", f"{step.omitted} more decisions"))

        machine = str(step.machine) if step.machine >= 0 else ""
        passed = _words(step.passed) if step.passed else ""
        decision = step.by, CHOSEN[step.chosen], machine, step.asked
        rows.append((f"{step.at_s:.4f}", *decision, f"{step.view_age_s:.4f}", passed))

    heads = ("at, s", "by", "decision", "machine", "asked", "view age, s", "passed over")
    print_table(heads, rows, right=("at, s", "machine", "view age, s"), bare=True)


def _print_staleness(console: Console, staleness: Staleness) -> None:
    share = staleness.refused / staleness.placed if staleness.placed else 0.0
    console.print(
        f"{staleness.placed:,} placements, {staleness.refused:,} of them ({percent(share)}) were refused: the view was "
        "out of date, and the request was wasted."
    )

    if staleness.view_age_s:
        ages = ", ".join(
            f"{name} {age:.4f} s" for name, age in zip(("p50", "p90", "p99", "max"), staleness.view_age_s, strict=True)
        )
        console.print(f"Age of the view at a placement: {ages}.")

    rows = (
        (by, asked_component, f"{placed:,}", f"{refused:,}", percent(refused / placed) if placed else "")
        for by, asked_component, placed, refused in staleness.rates
    )
    figures = ("placed", "refused", "rate")
    print_table(("scheduler", "asked", *figures), rows, right=figures, bare=True)
