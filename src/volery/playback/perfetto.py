"""A recording as a Chrome trace (Trace Event Format, JSON), which https://ui.perfetto.dev and chrome://tracing open.

Tracks: a thread per lane of each machine with the attempts that ran there; a span per job; a thread per component with
the messages that it sent and received, joined by arrows; counters of waiting tasks per role, of messages of each kind,
of errors in the views of schedulers, and of counted facts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np

from volery.core.model import NEVER
from volery.metrics.timeline import in_lanes
from volery.playback.run_log import ATTEMPT_COLUMNS, FAILED, FINISHED, KILLED, RUNNING, RunLog

MACHINES, JOBS, COMPONENTS, COUNTERS = 1, 2, 3, 4
"""The processes of the trace."""
_NAMES: Final = {MACHINES: "machines", JOBS: "jobs", COMPONENTS: "components", COUNTERS: "counters"}
_OUTCOMES: Final = {FINISHED: "finished", KILLED: "killed", FAILED: "failed", RUNNING: "running"}
_LANES: Final = 1000
"""Thread numbers that a machine has for its lanes."""

Event = dict[str, Any]


def chrome_trace(log: RunLog, machines: int, title: str) -> bytes:
    """The log as JSON; times in microseconds since the run or the federation began.

    Args:
        log: log of a tracer. It has a few messages of each kind per interval; counters count all.
    """
    events = [
        *({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}} for pid, name in _NAMES.items()),
        *_attempts(log, machines),
        *_jobs(log),
        *_messages(log),
        *_counters(log),
        *({"ph": "i", "s": "g", "name": text, "pid": COMPONENTS, "tid": 0, "ts": at} for at, text in log.moments),
    ]

    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"title": title}})


def _thread(pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}


def _attempts(log: RunLog, machines: int) -> Iterator[Event]:
    attempts = {name: np.array(log.attempts[name], dtype=np.int64) for name in ATTEMPT_COLUMNS}
    attempts, lane, peak = in_lanes(attempts, machines)

    for machine, lanes in enumerate(peak.tolist()):
        for number in range(lanes):
            name = f"machine {machine}" + (f", lane {number}" if lanes > 1 else "")
            yield _thread(MACHINES, machine * _LANES + number + 1, name)

    rows = zip(*(attempts[name].tolist() for name in ATTEMPT_COLUMNS), lane.tolist(), strict=True)
    for task, job, machine, start_us, finish_us, attempt, outcome, number in rows:
        yield {
            "ph": "X",
            "name": f"job {job}",
            "pid": MACHINES,
            "tid": machine * _LANES + number + 1,
            "ts": start_us,
            "dur": finish_us - start_us,
            "args": {"task": task, "attempt": attempt, "outcome": _OUTCOMES[outcome]},
        }


def _jobs(log: RunLog) -> Iterator[Event]:
    for job in log.jobs:
        ends = [at for at in (job.done_us, job.cancelled_us) if at != NEVER]
        common = {"cat": "job", "name": f"job {job.id}", "id": str(job.id), "pid": JOBS, "tid": 0}
        yield {"ph": "b", "ts": job.submitted_us, "args": {"user": job.user, "tasks": job.tasks}, **common}
        yield {"ph": "e", "ts": min(ends, default=log.end_us), **common}


def _messages(log: RunLog) -> Iterator[Event]:
    for number, address in enumerate(log.addresses):
        yield _thread(COMPONENTS, number + 1, address)

    for number, flight in enumerate(log.flights):
        kind = log.kinds[flight.kind]

        ends = (
            (flight.sender, flight.sent_us, {"ph": "s"}),
            (flight.receiver, flight.received_us, {"ph": "f", "bp": "e"}),
        )
        for component, at, arrow in ends:
            place = {"name": kind, "pid": COMPONENTS, "tid": component + 1, "ts": log.begin_us + at}
            yield {"ph": "X", "dur": 1, "args": {"says": log.meanings[flight.kind]}, **place}
            yield {"cat": "message", "id": number, **arrow, **place}


def _counters(log: RunLog) -> Iterator[Event]:
    series = {f"waiting at {role.name}": role.waiting for role in log.roles} | log.facts
    series |= {f"sent: {kind}": counts for kind, counts in zip(log.kinds, log.sent, strict=True)}
    for view in log.views:
        series |= {f"wrongly free for {view.by}": view.free, f"wrongly taken for {view.by}": view.taken}
    for name, values in series.items():
        for interval, value in enumerate(values):
            at = log.begin_us + interval * log.step_us
            yield {"ph": "C", "name": name, "pid": COUNTERS, "ts": at, "args": {"count": value}}
