"""The view of one task: what became of it, why, and the end of its output."""

from __future__ import annotations

<<<<<<< HEAD
from typing import Final

from volery.live.node.output import STREAMS
from volery.live.service.errors import AwayError
from volery.live.service.outputs import Outputs
from volery.live.status import TaskStatus, TaskUsage
=======
from pathlib import Path

from volery.live.status import ENDED_TASKS, TaskStatus, TaskUsage
>>>>>>> main
from volery.live.window import frame
from volery.live.window.frame import View
from volery.live.window.html import NOTHING, Piece, duration, facts, joined, link, moment, name_of, section, whole
from volery.live.window.jobs import state_of
from volery.live.window.logs import logs
from volery.live.window.reasons import reasons
from volery.live.window.watched import Watched


async def task_view(desk: Watched, task: TaskStatus, outputs: Outputs | None) -> View:
    """One task.

    Args:
        desk: knows why.
        task: which.
        outputs: finds what tasks have said; None: that is not known.
    """
    why = await desk.explain(task.job, task.index)
    node = link(f"{frame.NODES}/{task.node}", task.node) if task.node else NOTHING
    took = None if task.started_us is None or task.ended_us is None else task.ended_us - task.started_us
    known = facts(
        ("job", link(f"{frame.JOBS}/{task.job}", task.job)), ("state", state_of(task.state)),
        ("reason", name_of(task.reason) if task.reason else NOTHING), ("attempt", task.attempt), ("node", node),
        ("exit code", NOTHING if task.exit_code is None else task.exit_code),
        ("started (UTC)", moment(task.started_us, fine=True)), ("ended (UTC)", moment(task.ended_us, fine=True)),
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
    return [*known, ("held", usage.held)] if usage.held else known
<<<<<<< HEAD


async def _log(task: TaskStatus, outputs: Outputs, stream: str) -> Markup:
    whole_log = link(f"/jobs/{task.job}/tasks/{task.index}/logs?stream={stream}", "all of it", id=f"log-{stream}")
    if not task.folder:
        return tag("p", "None yet.", class_="soft")
    try:
        output = await outputs.open(task, stream)
        if output is None:
            problem = f"It is neither here nor on the host of {task.node}, where the task ran, or no longer."
            return tag("p", problem, class_="soft")
        size = output.there.size
        content = [piece async for piece in output.content(max(output.there.kept, size - TAIL_BYTES), size)]
    except AwayError as error:
        return tag("p", f"{error.place}: {error.problem}.", class_="soft")
    text = b"".join(content).decode("utf-8", "replace")
    if not size:
        return tag("p", "Empty.", class_="soft")
    said = f"The last {whole(TAIL_BYTES)} of {whole(size)} bytes; " if size > TAIL_BYTES else f"{whole(size)} bytes; "
    return joined((tag("p", said, whole_log, class_="soft"), tag("pre", text, tabindex=0)))
=======
>>>>>>> main
