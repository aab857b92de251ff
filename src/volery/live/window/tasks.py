"""The view of one task: what became of it, why, and the end of its output."""

from __future__ import annotations

from typing import Final

from volery.live.node.output import STREAMS
from volery.live.service.errors import AwayError
from volery.live.service.outputs import Outputs
from volery.live.status import TaskStatus, TaskUsage
from volery.live.window import frame
from volery.live.window.frame import View
from volery.live.window.html import Markup, Piece, duration, facts, joined, link, moment, name_of, section, tag, whole
from volery.live.window.jobs import state_of
from volery.live.window.reasons import reasons
from volery.live.window.watched import Watched

TAIL_BYTES: Final = 16 << 10


async def task_view(desk: Watched, task: TaskStatus, outputs: Outputs | None) -> View:
    """One task.

    Args:
        desk: knows why.
        task: which.
        outputs: finds what tasks have said; None: that is not known.
    """
    why = await desk.explain(task.job, task.index)
    node = link(f"{frame.NODES}/{task.node}", task.node) if task.node else "\N{EN DASH}"
    took = None if task.started_us is None or task.ended_us is None else task.ended_us - task.started_us
    known = facts(
        ("job", link(f"{frame.JOBS}/{task.job}", task.job)), ("state", state_of(task.state)),
        ("reason", name_of(task.reason) if task.reason else "\N{EN DASH}"), ("attempt", task.attempt), ("node", node),
        ("exit code", "\N{EN DASH}" if task.exit_code is None else task.exit_code),
        ("started", moment(task.started_us)), ("ended", moment(task.ended_us)), ("took", duration(took)),
        *_used(task.usage),
    )  # fmt: skip
    logs = [] if outputs is None else [section(stream, await _log(task, outputs, stream)) for stream in STREAMS]
    live = joined((known, section("Why", reasons(why) if why else None), *logs))
    return View(f"Task {task.index} of job {task.job}", live, place=frame.JOBS)


def _used(usage: TaskUsage | None) -> list[tuple[str, Piece]]:
    """What the last attempt has used, as far as it is known."""
    if usage is None:
        return []
    peak = "\N{EN DASH}" if usage.memory_peak_bytes is None else f"{whole(usage.memory_peak_bytes >> 20)} MiB"
    known: list[tuple[str, Piece]] = [("processor time", duration(usage.cpu_us)), ("most memory", peak)]
    return [*known, ("held", usage.held)] if usage.held else known


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
