"""The other processes of `check_same_seed_same_digest`: one per hash seed, which answers for every design.

They outlive the check, because an interpreter that has imported the lab costs ten times what the runs cost. A design
reaches them pickled, which is to say by the name of its build function; the answer is its digests, or what went wrong.
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

from volery.core.component import Architecture

PROGRAM: Final = "from volery.conformance.elsewhere import main; main()"


def digests_under(hash_seed: str, architecture: Architecture) -> list[str] | str:
    """The digests of a design under a hash seed, in another process; a text says what went wrong there.

    Args:
        hash_seed: PYTHONHASHSEED of that process.
        architecture: can be pickled.
    """
    process = _process(hash_seed, os.pathsep.join(filter(None, sys.path)))
    asking, answering = _pipes(process)
    try:
        pickle.dump(architecture, asking)
        asking.flush()
        answer: list[str] | str = pickle.load(answering)  # noqa: S301 - written by our own child
    except (BrokenPipeError, EOFError):
        _process.cache_clear()
        return f"it ended with status {process.wait()}"
    return answer


@functools.cache
def _process(hash_seed: str, path: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
    process = subprocess.Popen(  # noqa: S603 - our own interpreter runs our own program
        [sys.executable, "-c", PROGRAM], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    atexit.register(_end, process)
    return process


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait()
    for pipe in _pipes(process):
        pipe.close()


def main() -> None:
    """Answer for one design after another until nobody asks any more."""
    from volery.conformance.determinism import digests

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
