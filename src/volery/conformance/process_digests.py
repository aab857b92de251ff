"""Digests of a design's runs in this process and in others, one per hash seed.

The other processes outlive a check, because an interpreter that has imported the lab costs ten times what the runs
cost. A design reaches them pickled, by the name of its build function; the answer is its digests, or an error.
"""

from __future__ import annotations

import atexit
import functools
import os
import pickle
import subprocess
import sys
import traceback
from typing import IO, Final

from volery.conformance.cases import mixed_cases
from volery.conformance.verdict import run
from volery.core.component import Architecture

PROGRAM: Final = "from volery.conformance.process_digests import main; main()"


def digests(architecture: Architecture) -> list[str]:
    """The digests of some runs in this process."""
    return [run(architecture, case, seed=seed).digest() for seed in (0, 1) for case in mixed_cases(seed=10)]


def digests_under(hash_seed: str, architecture: Architecture) -> list[str] | str:
    """The digests of a design under a hash seed, in another process; a text is the error there.

    Args:
        hash_seed: PYTHONHASHSEED of that interpreter.
        architecture: can be pickled.
    """
    interpreter = _interpreter(hash_seed, os.pathsep.join(filter(None, sys.path)))
    asking, answering = _pipes(interpreter)
    try:
        pickle.dump(architecture, asking)
        asking.flush()
        answer: list[str] | str = pickle.load(answering)  # noqa: S301 - written by our own child
    except (BrokenPipeError, EOFError):
        _interpreter.cache_clear()
        return f"it ended with status {interpreter.wait()}"
    return answer


@functools.cache
def _interpreter(hash_seed: str, path: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
    interpreter = subprocess.Popen(  # noqa: S603 - our own interpreter runs our own program
        [sys.executable, "-c", PROGRAM], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    atexit.register(_end, interpreter)
    return interpreter


def _pipes(interpreter: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert interpreter.stdin is not None
    assert interpreter.stdout is not None
    return interpreter.stdin, interpreter.stdout


def _end(interpreter: subprocess.Popen[bytes]) -> None:
    interpreter.terminate()
    interpreter.wait()
    for pipe in _pipes(interpreter):
        pipe.close()


def main() -> None:
    """Answer for one design after another until the input ends."""
    answering, sys.stdout = sys.stdout.buffer, sys.stderr  # what a design prints is no answer
    answer: list[str] | str
    while True:
        try:
            answer = digests(pickle.load(sys.stdin.buffer))  # noqa: S301 - written by our own parent process
        except EOFError:
            return
        except Exception:
            answer = traceback.format_exc()[-500:]
        pickle.dump(answer, answering)
        answering.flush()
