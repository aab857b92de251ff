"""The view of one task: what became of it, why, and the end of its output."""

from __future__ import annotations

from volery.live.dashboard import frame
from volery.live.dashboard.frame import View
from volery.live.dashboard.html import NOTHING, Piece, duration, facts, joined, link, moment, name_of, section, whole
from volery.live.dashboard.jobs import state_of
from volery.live.dashboard.logs import logs
from volery.live.dashboard.reasons import reasons
from volery.live.service.outputs import Outputs
from volery.live.service.view import Watched
from volery.live.status import ENDED_TASKS, UNCONFINED, TaskStatus, TaskUsage


async def task_view(queries: Watched, task: TaskStatus, outputs: Outputs | None) -> View:
    """One task.

    Args:
        queries: knows why.
        task: which.
        outputs: finds what tasks have said; None: that is not known.
    """
    why = await queries.explain(task.job, task.index)
    node = link(f"{frame.NODES}/{task.node}", task.node) if task.node else NOTHING
    took = None if task.started_us is None or task.ended_us is None else task.ended_us - task.started_us
    known = facts(
        ("job", link(f"{frame.JOBS}/{task.job}", task.job)), ("state", state_of(task.state)),
        ("reason", name_of(task.reason) if task.reason else NOTHING), ("attempt", task.attempt), ("node", node),
        ("exit code", NOTHING if task.exit_code is None else task.exit_code),
        ("started", moment(task.started_us, fine=True)), ("ended", moment(task.ended_us, fine=True)),
        ("took", duration(took)), *_used(task.usage),
    )  # fmt: skip
    said = None if outputs is None else await logs(task, outputs)
    live = joined((known, section("Why", reasons(why) if why else None), said))
    idle_s = 0.0 if task.state in ENDED_TASKS else 30.0
    return View(f"Task {task.index} of job {task.job}", live, place=frame.JOBS, idle_s=idle_s)


def _used(usage: TaskUsage | None) -> list[tuple[str, Piece]]:
    """What the last attempt has used, as far as it is known."""
    if usage is None:
        return []
    peak = NOTHING if usage.memory_peak_bytes is None else f"{whole(usage.memory_peak_bytes >> 20)} MiB"
    known: list[tuple[str, Piece]] = [("processor time", duration(usage.cpu_us)), ("most memory", peak)]
    return [*known, ("held", usage.held or UNCONFINED)]
