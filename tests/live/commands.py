"""`volery` in processes of its own, as users run it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

LIMIT_S = 120
READY_S = 180
"""Who waits for others that have died would wait for ever."""
_VOLERY = (sys.executable, "-m", "volery.cli.main")


class Serving:
    """A running `volery up` or `volery serve`."""

    def __init__(self, words: Sequence[str]) -> None:
        self.running = subprocess.Popen(
            [*_VOLERY, *words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def ready(self) -> dict[str, Any]:
        """What it says when it is at work."""
        assert self.running.stdout is not None
        lines: list[str] = []
        late = threading.Timer(READY_S, self.running.kill)
        late.start()
        for line in self.running.stdout:
            lines.append(line)
            if line.rstrip() == "}":
                late.cancel()
                found: dict[str, Any] = json.loads("".join(lines))
                return found
        late.cancel()
        assert self.running.stderr is not None
        raise AssertionError(f"it ended before it was ready: {self.running.stderr.read()}")

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Status and what it said on standard error."""
        self.running.send_signal(number)
        _, errors = self.running.communicate(timeout=LIMIT_S)
        return self.running.returncode, errors


@contextmanager
def serving(*commands: Sequence[str]) -> Iterator[list[Serving]]:
    """Started together; whatever still runs at the end is killed."""
    with ExitStack() as stack:
        started = []
        for words in commands:
            one = Serving(words)
            stack.callback(one.running.wait, LIMIT_S)
            stack.callback(one.running.kill)
            for pipe in (one.running.stdout, one.running.stderr):
                assert pipe is not None
                stack.callback(pipe.close)
            started.append(one)
        yield started


def volery(*words: str | Path, status: int = 0) -> str:
    """What a command prints."""
    done = subprocess.run([*_VOLERY, *map(str, words)], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout
