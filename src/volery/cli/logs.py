"""`volery logs`: the output of tasks, of one as it is, of several with the task before each line."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from volery.cli.jobs import Api, connected
from volery.cli.options import AsJson
from volery.cli.output import INTERRUPTED, print_error, print_json
from volery.cli.selection import JobFilters, JobSelection, JobsState, JobWords, Last, Mine, selected
from volery.core.errors import InputError

if TYPE_CHECKING:
    from volery.live.client import Client
    from volery.live.status import TaskStatus

FOLLOW_S: Final = 0.3
"""The shortest time between two requests of `--follow` for more output."""
LINE_BYTES_MAX: Final = 1 << 20
"""The longest line that is kept until its end is there."""


def logs(
    words: JobWords = None,
    stderr: Annotated[bool, typer.Option("--stderr", help="Standard error instead of standard output.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until all of them have ended.")] = False,
    state: JobsState = None,
    mine: Mine = False,
    last: Last = False,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Print what tasks have written; of several, each line after its task, as `12/3: line`."""
    if follow and as_json:
        raise InputError("--follow", "prints lines as they come, and --json one document; leave one out")

    with connected(api, as_json) as client:
        selections = selected(client, words, JobFilters(state, mine, last), as_json)
        is_single_task = sum(selection.task_count for selection in selections) == 1
        outputs = [
            _JobOutput(client, selection, "stderr" if stderr else "stdout", is_single_task) for selection in selections
        ]

        if as_json:
            contents = [content for output in outputs for content in output.contents()]
            print_json(contents[0] if is_single_task else contents)
        else:
            try:
                _print_outputs(outputs, follow)
            except KeyboardInterrupt:
                raise typer.Exit(INTERRUPTED) from None

    if any(output.has_failed for output in outputs):
        raise typer.Exit(2)


def _print_outputs(outputs: list[_JobOutput], follow: bool) -> None:
    while True:
        began_s = time.monotonic()
        outputs = [output for output in outputs if not output.print_news(is_last=not follow)]
        if not (follow and outputs):
            return
        # A job of many tasks takes long to ask about: half of the time is left to the API.
        time.sleep(max(FOLLOW_S, time.monotonic() - began_s))


class _TaskOutput:
    """The part of an attempt's output that was printed: bytes up to an offset, of which the last line has no end."""

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self.offset = 0
        self.line = b""


class _JobOutput:
    """The output of tasks of a job, as far as it was printed.

    Args:
        stream: stdout or stderr.
        is_single_task: print what the task has written, byte for byte.

    Attributes:
        has_failed: the output of a task could not be read.
    """

    def __init__(self, client: Client, selection: JobSelection, stream: str, is_single_task: bool) -> None:
        self.has_failed = False
        self._client = client
        self._selection = selection
        self._stream = stream
        self._is_single_task = is_single_task
        self._revision: int | None = None
        self._tasks: list[TaskStatus] = []
        self._open_outputs: dict[int, _TaskOutput] = {}
        self._ended_places = set[int]()
        self._first_open = 0

    def contents(self) -> Iterator[dict[str, Any]]:
        """The output of each task that has begun, for JSON."""
        for task in self._selection.tasks(self._client):
            if task.folder or self._is_single_task:
                content = {"job": task.job, "task": task.index, "stream": self._stream, "text": ""}
                with self._told(task, content):
                    text = self._client.logs(task.job, task.index, self._stream).decode(errors="replace")
                    content["text"] = text
                yield content

    @contextmanager
    def _told(self, task: TaskStatus, content: dict[str, Any] | None = None) -> Iterator[None]:
        """Tell about output that cannot be read, and go on with that of other tasks."""
        place = f"jobs/{task.job}/"
        try:
            yield
        except InputError as error:
            if self._is_single_task or not error.place.startswith(place):
                raise
            self.has_failed = True
            if content is None:
                print_error(error.place, error.problem, as_json=False)
            else:
                content["problem"] = error.problem
            self._ended_places.add(task.index)

    def print_news(self, is_last: bool) -> bool:
        """Print what was written since the last time; true if there will be no more.

        Args:
            is_last: print lines without an end, too.
        """
        from volery.live.status import ENDED_TASKS

        # Asked before the output is: what a task wrote last must not be missed.
        job = self._client.job(self._selection.job.id)
        if job.revision != self._revision:
            self._revision = job.revision
            tasks = self._selection.tasks(self._client, self._first_open)
            self._tasks = [task for task in tasks if task.index not in self._ended_places]
            self._first_open = self._tasks[0].index if self._tasks else job.tasks

        for task in self._tasks:
            has_ended = job.ended or task.state in ENDED_TASKS
            if task.folder:
                with self._told(task):
                    self._print_task(task, is_last or has_ended)
            if has_ended:
                self._ended_places.add(task.index)
                self._open_outputs.pop(task.index, None)

        self._tasks = [task for task in self._tasks if task.index not in self._ended_places]
        return not self._tasks

    def _print_task(self, task: TaskStatus, is_last: bool) -> None:
        from volery.live.node.output import OUTPUT_BYTES_MAX

        output = self._open_outputs.setdefault(task.index, _TaskOutput(task.attempt))
        if output.attempt != task.attempt:  # which writes from the beginning
            self._write(task, output, b"", is_last=True)
            output = self._open_outputs[task.index] = _TaskOutput(task.attempt)

        while True:
            piece = self._client.log_piece(task.job, task.index, self._stream, output.offset)
            output.offset = piece.end
            if len(piece.content) < OUTPUT_BYTES_MAX:
                self._write(task, output, piece.content, is_last)
                return
            self._write(task, output, piece.content, is_last=False)

    def _write(self, task: TaskStatus, output: _TaskOutput, content: bytes, is_last: bool) -> None:
        if not self._is_single_task:
            prefix = b"%d/%d: " % (task.job, task.index)
            *lines, output.line = (output.line + content).split(b"\n")
            if output.line and (is_last or len(output.line) > LINE_BYTES_MAX):
                lines.append(output.line)
                output.line = b""
            content = b"".join(prefix + line + b"\n" for line in lines)
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
