"""The view of a task: why it is where it is, and its output, readable whatever it holds, as it grows."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from volery.live.dashboard import frame
from volery.live.dashboard.frame import Column, PageView, state_of, table
from volery.live.node.output import OUTPUT_BYTES_MAX, STREAMS
from volery.live.service.outputs import AwayError, Outputs
from volery.live.service.queries import FederationView
from volery.live.status import ENDED_TASKS, UNCONFINED, DecisionStep, FunnelStep, TaskStatus, TaskUsage, Why
from volery.look.html import Markup, Piece, bar, facts, joined, link, moment, name_of, part, section, tag
from volery.look.text import NOTHING, straight, time_span, whole

TAIL_BYTES: Final = 16 << 10
DUMP_BYTES: Final = 512
STRANGE: Final = 0.1
"""With more than this part of what is no text, an output is shown in hexadecimal."""
_COLOURS: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_MIB: Final = 1 << 20


class Tail(msgspec.Struct, frozen=True):
    """A piece of an output up to its present end.

    Args:
        end: the offset that follows it.
        size: Size of all of it, in bytes.
        skipped: bytes between what was asked for and this.
        gone: bytes at its beginning that are kept no longer.
        told: how much there is, in words.
        strange: it is no text.
    """

    text: str
    end: int
    size: int
    skipped: int
    gone: int
    told: str
    strange: bool


class NewOutput(msgspec.Struct, frozen=True):
    """The output of a task since the last request.

    Args:
        over: nothing more will come, or the page is about another attempt.
    """

    over: bool
    stdout: Tail | None = None
    stderr: Tail | None = None


def legible(content: bytes, *, partial: bool = False) -> str:
    """Output as text: colours and movements of a terminal's cursor are left out.

    Args:
        partial: more may follow, so that half a character at its end is left for then.
    """
    text = _cut(content).decode("utf-8", "replace") if partial else content.decode("utf-8", "replace")
    return straight(_COLOURS.sub("", re.sub("\r+\n?", "\n", text)))


def _cut(content: bytes) -> bytes:
    """Without the bytes of a character at its end that is not whole."""
    for back in range(1, min(4, len(content)) + 1):
        byte = content[-back]
        if byte & 0xC0 != 0x80:
            length = 1 if byte < 0xC0 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4 if byte < 0xF8 else 1
            return content[:-back] if length > back else content
    return content


def is_text(content: bytes) -> bool:
    """True if most of the bytes are text."""
    text = legible(content, partial=True)
    return b"\0" not in content and text.count("\N{REPLACEMENT CHARACTER}") <= STRANGE * len(text)


def dumped(content: bytes, offset: int) -> str:
    """Bytes in hexadecimal, sixteen to a line, with what of them is ASCII beside."""
    lines = []
    for at in range(0, len(content), 16):
        row = content[at : at + 16]
        words = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{offset + at:010x}  {row.hex(' '):<47}  {words}")
    return "\n".join(lines)


async def tail_of(outputs: Outputs, task: TaskStatus, stream: str, since: int | None = None) -> Tail | None:
    """The end of an output, at most what was written since an offset; None: it is nowhere.

    Args:
        since: the offset; None: whatever is at its end.

    Raises:
        AwayError: the host that has it does not answer.
    """
    output = await outputs.open(task, stream)
    if output is None:
        return None
    size, dropped = output.extent
    start = max(dropped, size - TAIL_BYTES, 0 if since is None else min(since, size))
    content = b"".join([piece async for piece in output.content(start, min(start + TAIL_BYTES, max(start, size)))])
    strange = not is_text(content)
    if strange:
        shown = content[-DUMP_BYTES:]
        text, end = dumped(shown, start + len(content) - len(shown)), start + len(content)
    else:
        text, end = legible(content, partial=True), start + len(_cut(content))
    skipped = 0 if since is None else max(0, start - since)
    # A page that goes on from an offset needs no size of the new piece.
    shown_bytes = len(content) if since is None or strange else 0
    return Tail(text, end, size, skipped, dropped, _size_words(size, dropped, shown_bytes, strange=strange), strange)


def _size_words(size: int, dropped: int, shown: int, *, strange: bool) -> str:
    words = f"{whole(size)} bytes"
    if dropped:
        words += f", of which the first {whole(dropped)} are kept no longer"
    if strange:
        return f"{words}, which are no text; here are the last {min(shown, DUMP_BYTES)} in hexadecimal"
    return f"The last {whole(shown)} of {words}" if shown and shown < size - dropped else words


async def news(task: TaskStatus, outputs: Outputs, attempt: int, since: dict[str, int]) -> NewOutput:
    """The output of a task since the last request.

    Args:
        attempt: that the page shows.
        since: stream -> offset up to which the page has it.
    """
    if task.attempt != attempt or not task.folder:
        return NewOutput(over=True)
    try:
        tails = {stream: await tail_of(outputs, task, stream, since[stream]) for stream in since}
    except AwayError:  # the page goes on with what it has
        tails = {}
    return NewOutput(over=task.state in ENDED_TASKS, **tails)


async def logs(task: TaskStatus, outputs: Outputs, title: str = "") -> Markup:
    """The ends of both outputs; while the task runs, a script goes on with them.

    Args:
        title: comes before the names of the outputs.
    """
    if not task.folder:
        return section(f"{title}Output", tag("p", "None yet.", class_="soft"))
    parts = await asyncio.gather(*(_log(task, outputs, stream, title) for stream in STREAMS))
    path = f"{frame.JOBS}/{task.job}/tasks/{task.index}"
    if task.state in ENDED_TASKS:
        return tag("div", *parts)
    key = f"logs-{task.job}-{task.index}-{task.attempt}"
    return tag("div", *parts, data_keep=key, data_tail=f"{path}/tail", data_attempt=task.attempt)


async def _log(task: TaskStatus, outputs: Outputs, stream: str, title: str) -> Markup:
    heading = f"{title}{stream}"
    try:
        output = await tail_of(outputs, task, stream)
    except AwayError as error:
        return section(heading, tag("p", f"{error.place}: {error.problem}.", class_="soft"))
    if output is None:
        problem = f"It is neither here nor on the host of {task.node}, where the task ran, or no longer."
        return section(heading, tag("p", problem, class_="soft"))
    path, running = f"/jobs/{task.job}/tasks/{task.index}/logs?stream={stream}", task.state not in ENDED_TASKS
    whole_log: Markup | None = link(path, "download", id=f"log-{stream}")
    if output.size - output.gone > OUTPUT_BYTES_MAX:
        words = f"download the last {OUTPUT_BYTES_MAX // _MIB} MiB"
        whole_log = link(f"{path}&offset={output.size - OUTPUT_BYTES_MAX}", words, id=f"log-{stream}")
    if not output.size and not running:
        return section(heading, tag("p", "Empty.", class_="soft"))
    size_text = tag("span", output.told if output.size else "Nothing yet", id=f"size-{stream}")
    shown = tag(
        "pre", output.text, tabindex=0, role="log" if running else None, aria_label=stream, hidden=not output.size,
        data_stream=stream, data_at=output.end,
    )  # fmt: skip
    return section(heading, tag("p", joined((size_text, whole_log), "; "), class_="soft"), shown)


_DECISIONS: Final = (
    Column("when", text=True),
    Column("by", text=True),
    Column("decided", text=True),
    Column("node", text=True),
    Column("asked", text=True),
    Column("view was old"),
    Column("passed over", text=True),
)


UNREPORTED: Final = "No scheduler reports its decisions; Megha does with the parameter why = true."
IS: Final = {
    "pending": "waits", "running": "runs", "finished": "has finished", "failed": "has failed",
    "killed": "was killed", "cancelled": "was cancelled", "unsatisfiable": "can never run",
    "unknown": "has ended, nobody has heard how",
}  # fmt: skip
"""What a state means, in words."""
PAST: Final = frozenset({"running", "finished", "failed", "killed", "cancelled", "unknown"})
"""Of a task in these states a scheduler has decided already: what is left of all machines now is another matter."""


def reasons(answer: Why, task: str = "") -> Markup:
    """The answer to the question why.

    Args:
        task: the address of the task's page, where this is another.
    """
    about = joined((link(task, f"Task {answer.index}") if task else "This task", f" {IS[answer.state]}."))
    paragraphs: list[Piece] = [tag("p", about)]
    if answer.reason:
        paragraphs.append(tag("p", name_of(answer.reason), class_="reason"))
    if answer.waiting:
        paragraphs.append(tag("p", f"{whole(answer.waiting)} tasks of the job have not been started.", class_="soft"))
    paragraphs += [tag("p", f"{words}.", class_="reason absent") for words in answer.absent]
    now = "Machines that it could have if it came now, of all; and where it was accepted:"
    paragraphs.append(tag("p", now if answer.state in PAST else "Machines that it could have, of all:"))
    return joined((*paragraphs, steps(answer.funnel), tag("h3", "What schedulers have decided"), decisions(answer)))


def steps(funnel: Sequence[FunnelStep]) -> Markup:
    """Machines that are left after each demand, as bars."""
    most = funnel[0].machines if funnel and funnel[0].machines else 1
    rows = [
        tag(
            "li",
            tag("span", step.demand, class_="demand"),
            tag("span", whole(step.machines), class_="count"),
            bar(part(min(100.0, 100 * step.machines / most))),
        )
        for step in funnel
    ]
    return tag("ol", *rows, class_="funnel", aria_label="machines that are left of all")


def decisions(answer: Why) -> Markup:
    if not answer.explained:
        return tag("p", UNREPORTED, class_="soft")
    rows = [_row(step) for step in answer.decisions]
    return table(_DECISIONS, rows, empty="No decision about it is known.", label="decisions")


def _row(step: DecisionStep) -> tuple[Piece, ...]:
    passed = "; ".join(f"{whole(rejection.count)} {rejection.scope}: {rejection.reason}" for rejection in step.passed)
    decided = step.chosen + (f" (after {whole(step.omitted)} more)" if step.omitted else "")
    return moment(step.at_us, fine=True), step.by, decided, step.node, step.asked, time_span(step.view_age_us), passed


async def task_view(queries: FederationView, task: TaskStatus, outputs: Outputs | None) -> PageView:
    """One task.

    Args:
        outputs: finds the output of tasks; None: it is not known.
    """
    answer = await queries.explain(task.job, task.index)
    node = link(f"{frame.NODES}/{task.node}", task.node) if task.node else NOTHING
    took = task.ran_us
    task_facts = facts(
        ("job", link(f"{frame.JOBS}/{task.job}", task.job)), ("state", state_of(task.state)),
        ("reason", name_of(task.reason) if task.reason else NOTHING), ("attempt", task.attempt), ("node", node),
        ("exit code", NOTHING if task.exit_code is None else task.exit_code),
        ("started", moment(task.started_us, fine=True)), ("ended", moment(task.ended_us, fine=True)),
        ("took", time_span(took)), *_used(task.usage),
    )  # fmt: skip
    output = None if outputs is None else await logs(task, outputs)
    live = joined((task_facts, section("Why", reasons(answer) if answer else None), output))
    idle_s = 0.0 if task.state in ENDED_TASKS else 30.0
    return PageView(f"Task {task.index} of job {task.job}", live, place=frame.JOBS, idle_s=idle_s)


def _used(usage: TaskUsage | None) -> list[tuple[str, Piece]]:
    if usage is None:
        return []
    peak = NOTHING if usage.memory_peak_bytes is None else f"{whole(usage.memory_peak_bytes >> 20)} MiB"
    rows: list[tuple[str, Piece]] = [("processor time", time_span(usage.cpu_us)), ("most memory", peak)]
    return [*rows, ("held", usage.held or UNCONFINED)]
