"""The verdict: the rules of storms over what tasks have told, and what the API has said to its users."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

from tests.live.chaos.evidence import attempts_of, read_told
from tests.live.chaos.harming import Fault

from volery.core.model import NEVER, SECOND, Amounts, JobId
from volery.faults.judge import Attempts, excesses, losses, overlaps, reported_twice
from volery.faults.scenario import RESOURCES
from volery.faults.schedule import Schedule

WRONG_SHOWN = 20
PROBES = 4
"""Recovery is over when so many jobs that were submitted after the fault have ended."""
REPLAY_S = 600


@dataclass
class Heard:
    """What the API has told.

    Attributes:
        jobs: number -> how it stands in the end.
        tasks: job, place -> how it stands in the end.
        successes: job, place -> attempts that were ever told to have finished.
    """

    jobs: dict[JobId, dict[str, Any]] = field(default_factory=dict)
    tasks: dict[tuple[JobId, int], dict[str, Any]] = field(default_factory=dict)
    successes: dict[tuple[JobId, int], set[int]] = field(default_factory=dict)

    def finished(self, job: JobId, place: int, attempt: int) -> None:
        """An attempt was told to have succeeded."""
        self.successes.setdefault((job, place), set()).add(attempt)

    def take(self, task: dict[str, Any]) -> None:
        """How a task stands in the end."""
        self.tasks[task["job"], task["index"]] = task
        if task["state"] == "finished":
            self.finished(task["job"], task["index"], task["attempt"])


@dataclass
class Run:
    """What was seen of a run.

    Attributes:
        faults: what was done.
        revived: how often a process had ended by itself.
        accepted: number of a job in the schedule -> the API's.
        heard: what has become of jobs.
        attempts: of tasks, by their own account.
        wrong: what must not be.
    """

    faults: list[Fault] = field(default_factory=list)
    revived: int = 0
    accepted: dict[int, JobId] = field(default_factory=dict)
    heard: Heard = field(default_factory=Heard)
    attempts: Attempts = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


def judge(schedule: Schedule, run: Run, folder: Path) -> None:
    """Add to a run what is wrong with it.

    Args:
        schedule: that was played.
        run: as it was seen.
        folder: with what tasks have told, and the journals.
    """
    accepted, heard = run.accepted, run.heard
    first = [0, *accumulate(len(job.durations_us) for job in schedule.jobs)]
    jobs = {job: range(first[job], first[job + 1]) for job in accepted}
    task_of = {(accepted[job], place): task for job, tasks in jobs.items() for place, task in enumerate(tasks)}
    told = read_told((folder / "told").read_text())
    run.attempts = attempts = attempts_of([line for line in told if (line.job, line.place) in task_of], task_of)
    requests = [request for job in schedule.jobs for request in job.requests or ((1,),) * len(job.durations_us)]
    offered: tuple[Amounts, ...] = (schedule.capacity or (1,),) * schedule.machines
    names = RESOURCES if schedule.capacity else ("tasks",)

    def answered_us(job: int) -> int:
        found = heard.jobs.get(accepted[job])
        return found["ended_us"] if found is not None and found["state"] == "done" else NEVER

    successes = {task_of[at]: numbers for at, numbers in heard.successes.items() if at in task_of}
    run.wrong += _states(heard)
    for breaches in (
        overlaps(attempts),
        excesses(attempts, offered, names, requests.__getitem__),
        losses(attempts, jobs, answered_us),
        reported_twice(successes),
    ):
        run.wrong += [f"{breach.kind}: {breach.problem}" for breach in breaches]
    run.wrong += _unplayable(folder)


def _states(heard: Heard) -> list[str]:
    """Jobs that are not done, and tasks that have not finished."""
    wrong = [
        f"job {number} is {job['state']}: {job['reason']}"
        for number, job in heard.jobs.items()
        if job["state"] != "done" or job["reason"]
    ]
    for (number, place), task in heard.tasks.items():
        if task["state"] != "finished":
            where = f"task {place} of job {number}, attempt {task['attempt']} on {task['node']}"
            wrong.append(f"{where} is {task['state']}: {task['reason']}")
    return wrong


def _unplayable(folder: Path) -> list[str]:
    """Journals that fresh components answer otherwise than they say, torn ends apart."""
    words = [sys.executable, "-m", "volery.cli.main", "replay", str(folder / "federation")]
    played = subprocess.run(words, capture_output=True, text=True, timeout=REPLAY_S, check=False, env=dict(os.environ))
    return [] if played.returncode == 0 else [f"volery replay: {(played.stdout + played.stderr)[-2000:]}"]


def repeated(attempts: Attempts) -> int:
    """How many ends of tasks there are more than tasks."""
    return sum(max(0, sum(attempt.whole for attempt in of_task) - 1) for of_task in attempts.values())


def recoveries(run: Run) -> dict[str, list[float]]:
    """Per kind of harm and role: seconds until `PROBES` jobs that were submitted after its beginning have ended."""
    times = sorted((job["submitted_us"], job["ended_us"]) for job in run.heard.jobs.values() if job["ended_us"])
    found: dict[str, list[float]] = {}
    for harm, at, _ in run.faults:
        after = [ended for submitted, ended in times if submitted >= at * SECOND][:PROBES]
        if len(after) == PROBES:
            whom = harm.host.replace("-a", "").replace("-b", "")
            found.setdefault(f"{harm.kind} {whom}".strip(), []).append(max(after) / SECOND - at)
    return found


def report(run: Run) -> str:
    """The verdict in words."""
    again = sum(len(attempts) > 1 for attempts in run.attempts.values())
    lines = [
        f"{len(run.accepted)} jobs accepted, {len(run.heard.tasks)} tasks; {len(run.faults)} faults",
        f"{run.revived} times a process ended by itself and was started again",
        f"{again} tasks ran again, {repeated(run.attempts)} of them to a second end; one end of each was told",
        f"from the fault until {PROBES} jobs that came after it had ended (they take up to 2 s themselves):",
    ]
    for what, seconds in sorted(recoveries(run).items()):
        lines.append(
            f"  {what:<24} {len(seconds):3} times, median {median(seconds):5.1f} s, longest {max(seconds):5.1f} s"
        )
    lines += [f"WRONG: {problem}" for problem in run.wrong[:WRONG_SHOWN]]
    lines.append("nothing was lost" if not run.wrong else f"{len(run.wrong)} things are wrong")
    return "\n".join(lines)
