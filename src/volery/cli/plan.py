"""`volery plan`: what a job would meet if it were submitted now, and how good earlier answers were."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from volery.cli.jobs import Api, connected, named_by_file
from volery.cli.options import AsJson, argument
from volery.cli.output import print_json, print_table
from volery.core.errors import InputError
from volery.core.model import SECOND
from volery.look.text import percent

if TYPE_CHECKING:
    from volery.core.forecast import Quantiles
    from volery.live.status import Forecast, ForecastRecord, FunnelStep, JobPlan

MOMENTS: Final = {
    "first_start": "first task starts",
    "first_end": "first task ends",
    "last_start": "last task starts",
    "last_end": "last task ends",
}
KNOWN: Final = {
    "history": "earlier runs of it",
    "estimate": "estimates",
    "user": "other jobs of their user",
    "federation": "other users' jobs",
}
PREEMPTS_SHOWN: Final = 10
NO_BOTH: Final = "--record is about earlier jobs; leave one out"


def plan(
    job: Annotated[Path | None, argument("The job.", "JOB.toml")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Without the lab: only where it could go now.")] = False,
    record: Annotated[
        bool, typer.Option("--record", help="How good earlier forecasts were, of jobs that were then submitted.")
    ] = False,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Print when a job would start now, and what it would preempt; status 1 if a task could never run.

    The federation is forked into the lab as it stands, and played on over durations drawn from what is known.
    """
    if (job is None) != record:
        raise InputError("JOB.toml", "is missing; `volery plan --record` goes without" if job is None else NO_BOTH)

    with connected(api, as_json) as client:
        if job is None:
            _print_record(client.forecasts(), as_json)
            return
        with named_by_file(job):
            job_plan = client.plan(job)
            forecast = None if quick else client.forecast(job)

    if as_json:
        import msgspec

        print_json(msgspec.to_builtins(job_plan) | {"forecast": forecast})
    else:
        _print_plan(job_plan)
        if forecast is not None:
            _print_forecast(forecast)

    if any(group.obstacle for group in job_plan.groups):
        raise typer.Exit(1)


def _print_plan(job_plan: JobPlan) -> None:
    typer.echo(f"{job_plan.tasks:,} tasks; {job_plan.waiting:,} tasks of all users wait already")

    if job_plan.lost:
        typer.echo(f"{job_plan.lost:,} nodes do not answer; this plan counts only what answers")
    for words in job_plan.absent:
        typer.echo(words)

    for group in job_plan.groups:
        last = group.first + group.count - 1

        named_tasks = f"task {group.first}" if group.count == 1 else f"tasks {group.first} to {last}"
        room = "" if group.at_once is None else f"; room for {group.at_once:,} now"
        typer.echo(f"{named_tasks}: {funnel_words(group.funnel)}{room}")

        if group.obstacle:
            typer.echo(f"  would never run: {group.obstacle}")
        elif group.nodes:
            typer.echo(f"  could go to {', '.join(group.nodes)}")


def funnel_words(steps: Sequence[FunnelStep]) -> str:
    """`6 machines > 3 meet its constraints > ..`."""
    return " > ".join(f"{step.machines:,} {step.demand}" for step in steps)


def _print_forecast(forecast: Forecast) -> None:
    if forecast.moments is None:
        typer.echo(f"no forecast: {forecast.problem}")
        return

    runs = f"{forecast.runs} runs of the lab" if forecast.runs else "part of one run of the lab: there was no more time"
    intervals: dict[str, Quantiles] = {words: getattr(forecast.moments, name) for name, words in MOMENTS.items()}
    rows = ((words, _s(listed.low_us), _s(listed.median_us), _s(listed.high_us)) for words, listed in intervals.items())
    print_table(("after submission", "10%", "median", "90%"), rows, title=runs)

    known_durations = [f"{count:,} from {KNOWN[name]}" for name in KNOWN if (count := getattr(forecast.known, name))]
    if known_durations:
        typer.echo(f"durations of tasks are known: {', '.join(known_durations)}")

    if guessed := forecast.known.nothing:
        typer.echo(
            f"durations of {guessed:,} tasks are not known: from a second to an hour is assumed; give estimate_s"
        )

    for listed in forecast.preempts[:PREEMPTS_SHOWN]:
        losers = "jobs of others lose" if listed.job is None else f"job {listed.job} of {listed.user or '-'} loses"
        typer.echo(f"{losers} {listed.tasks:.1f} running tasks to it on average, in {listed.runs} runs")


def _print_record(record: ForecastRecord, as_json: bool) -> None:
    if as_json:
        print_json(record)
        return

    rows = (
        (
            MOMENTS[moment_record.moment],
            str(moment_record.settled),
            f"{percent(moment_record.covered / moment_record.settled)} ({moment_record.covered})"
            if moment_record.settled
            else "-",
            _s(moment_record.off_us),
        )
        for moment_record in record.moments
    )
    print_table(("moment", "forecasts", "within the interval", "median off by"), rows)

    meant = f"intervals are meant to hold {percent(record.expected)} of what comes"
    damaged = f"; {record.damaged} are damaged, see `volery check`" if record.damaged else ""
    typer.echo(f"{meant}; {record.open} forecasts are not decided yet{damaged}")


def _s(us: int | None) -> str:
    return "not known" if us is None else f"{us / SECOND:,.1f} s"
