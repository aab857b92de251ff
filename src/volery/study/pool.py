"""Runs several runs: one after another in this process, each in a fresh process of its own, or on a Dask cluster."""

from __future__ import annotations

import itertools
import multiprocessing
import signal
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any

from volery import architectures
from volery.architectures.pipeline.policies import SESSION as POLICIES
from volery.core.errors import InputError, install_command
from volery.study.plan import PlannedRun
from volery.study.runs import RunOutcome, execute
from volery.study.spec import RunSpec
from volery.study.watcher import LostRunError, Outcomes, Permit, Watcher, always, tell

GRACE_S = 5.0
NO_GUARD = (
    '; if a script asked for several processes, put what it runs under `if __name__ == "__main__":`, '
    "since each process imports the script again"
)
"""A script without a guard begins its study anew in each process, which ends there with status 1."""


def each_outcome(
    runs: Sequence[PlannedRun],
    processes: int,
    watcher: Watcher | None,
    dask: str | None = None,
    may_begin: Permit = always,
) -> Outcomes:
    """Run them and yield each as it finishes.

    Args:
        processes: 1 runs in this process; a larger number runs so many fresh processes at once, one per run.
        dask: address of the scheduler of a Dask cluster that runs them instead. It is reached before this returns.
        may_begin: once it is false, no run begins, and those that run are finished.

    Raises:
        InputError: when a run's input is wrong, the Dask cluster cannot be used, or `processes` is given beside it.
        LostRunError: when a run's process or worker died.
    """
    if watcher is not None:
        watcher.expected(len(runs))

    if dask is not None and runs:
        return _elsewhere(runs, dask, watcher, may_begin)

    permitted = _permitted(runs, may_begin)
    return _here(permitted, watcher) if processes <= 1 else _apart(permitted, processes, watcher)


def check_places(processes: int, dask: str | None) -> None:
    """Refuse an impossible place for runs.

    Raises:
        InputError: for less than one process, or for more than one beside a Dask cluster.
    """
    if processes < 1:
        raise InputError("processes", f"expected a number >= 1, not {processes}")
    if dask is not None and processes > 1:
        raise InputError("processes", "a Dask cluster has workers of its own; give -p or --dask, not both")


def _permitted(runs: Sequence[PlannedRun], may_begin: Permit) -> Iterator[PlannedRun]:
    return itertools.takewhile(lambda _: may_begin(), runs)


def _elsewhere(runs: Sequence[PlannedRun], dask: str, watcher: Watcher | None, may_begin: Permit) -> Outcomes:
    try:
        from volery.study.dask_pool import DaskOutcomes
    except ModuleNotFoundError as error:
        if error.name not in ("dask", "distributed"):
            raise
        raise InputError("--dask", f"Dask is not installed; {install_command('dask')} installs it") from None
    return DaskOutcomes(runs, dask, watcher, may_begin)


def _here(runs: Iterable[PlannedRun], watcher: Watcher | None) -> Generator[tuple[PlannedRun, RunOutcome], None, None]:
    for run in runs:
        if watcher is not None:
            watcher.started(run)
        outcome = execute(run.spec, lambda report, run=run: tell(watcher, run, report))  # type: ignore[misc]  # run=run binds now
        tell(watcher, run, outcome)
        yield run, outcome


def _apart(
    waiting: Iterator[PlannedRun], processes: int, watcher: Watcher | None
) -> Generator[tuple[PlannedRun, RunOutcome], None, None]:
    """Each run in a process of its own, so that its peak of memory is its own too."""
    # What a program has defined itself is in its memory alone: only a copy of the process has it.
    is_forked = bool(architectures.SESSION.get() or POLICIES.get())
    context: Any = multiprocessing.get_context("fork" if is_forked else "spawn")
    running: dict[Connection, tuple[PlannedRun, Any]] = {}

    try:
        while True:
            while len(running) < processes and (run := next(waiting, None)) is not None:
                if watcher is not None:
                    watcher.started(run)
                own_end, child_end = context.Pipe(duplex=False)
                running_ends = [*running, own_end] if is_forked else []
                child = context.Process(target=_answer, args=(run.spec, child_end, running_ends), daemon=True)
                running[own_end] = (run, child)
                with _undisturbed():
                    child.start()
                # The child holds the other end alone now: its death closes the connection, and `recv` ends with
                # EOFError.
                child_end.close()

            if not running:
                return

            for connection in wait(list(running)):
                assert isinstance(connection, Connection)
                run, child = running[connection]
                report = _received(connection, run, child)
                tell(watcher, run, report)
                if isinstance(report, RunOutcome):
                    del running[connection]
                    connection.close()
                    child.join()
                    yield run, report
    finally:
        for connection, (_, child) in running.items():
            connection.close()
            _end(child)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Put Ctrl-C off until a process has been started: half-started, it would complain about its missing orders.

    The new process inherits the blocked signal, so that it stays silent until it ignores Ctrl-C itself.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    pressed: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})

    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)

    if pressed and handler is not signal.SIG_IGN:
        raise KeyboardInterrupt


def _end(child: Any) -> None:
    """End a process that we started; one that never came to life needs no ending."""
    if child.pid is None:
        return
    child.terminate()
    child.join(GRACE_S)
    if child.is_alive():
        child.kill()
        child.join()


def _received(connection: Connection, run: PlannedRun, child: Any) -> Any:
    try:
        report = connection.recv()
    except EOFError:
        child.join(GRACE_S)
        problem = (
            f"the process of {run.spec.label} (seed {run.spec.seed}) ended with status {child.exitcode} and no answer"
        )
        raise LostRunError(problem + (NO_GUARD if child.exitcode == 1 else "")) from None

    if isinstance(report, BaseException):
        raise report
    return report


def _answer(spec: RunSpec, connection: Connection, ends_of_parent: Sequence[Connection]) -> None:
    """The life of a run's process. Ctrl-C reaches the whole terminal: only the parent answers it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A reader that a forked child holds open would keep its siblings waiting when the parent dies.
    for parent_end in ends_of_parent:
        parent_end.close()
    try:
        connection.send(execute(spec, connection.send))
    except BrokenPipeError:
        return
    except Exception as error:
        connection.send(_portable(error))
    finally:
        connection.close()


def _portable(error: Exception) -> Exception:
    """The error itself where it survives pickling, else its text."""
    import pickle
    import traceback

    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes, only to see whether they can be read back
    except Exception:
        return RuntimeError("".join(traceback.format_exception(error)))
    return error
