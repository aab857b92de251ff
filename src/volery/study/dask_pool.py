"""Runs several runs on a Dask cluster: each is a task, and its outcome comes back here. No other file imports Dask.

Workers share nothing with this process but the files that a study names, at the same place. What a worker would run is
compared with what this process would run, by the key that stands for all that a result depends on: code and inputs.
A task whose worker dies is run again elsewhere, by Dask's scheduler.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any, Final

import distributed
import msgspec

import volery
from volery.core.errors import InputError
from volery.report.schema import TraceFacts
from volery.sim import Progress
from volery.study.plan import PlannedRun, code_digest, inputs_key, run_key
from volery.study.runs import RunOutcome, execute
from volery.study.sources import changed_since
from volery.study.watcher import LostRunError, Permit, Watcher, always, tell

CONNECT_S = 10.0
"""The longest wait for the answer of a scheduler."""
ADDRESS: Final = re.compile(r"(tcp|tls)://(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):[0-9]{1,5}")
REPORTS: Final[dict[str, type]] = {kind.__name__: kind for kind in (TraceFacts, Progress)}
BEGUN: Final = "begun"
LOADED_S: Final = time.time()
"""The time at which this process loaded its code; it does not run sources that are younger."""

_log = logging.getLogger("distributed.client")
_alone = threading.Lock()
"""A worker may have several threads, but runs one run at a time: they share the inputs of the run before, and the
interpreter; and memory is measured by process."""


class UnwantedRunError(RuntimeError):
    """The study that a run was for has ended; on a worker, where nobody hears it."""


class Code(msgspec.Struct, frozen=True):
    """The code of a worker: version of volery and digest of its sources, or the error of reading them."""

    version: str = ""
    digest: str = ""
    problem: str = ""


class DaskOutcomes:
    """An iterator over runs and their outcomes, in the order in which they finish.

    Closing it gives up the runs that are not finished: workers drop them at their next sign of progress.

    Args:
        address: address of the scheduler, tcp://HOST:PORT.
        watcher: receives the progress of the runs.
        may_begin: once it is false, runs that no worker has begun are given up.

    Raises:
        InputError: no scheduler answers there, it has no workers, or a worker has other code or other inputs; while
            iterating, also when a run's input is wrong.
        LostRunError: while iterating, when all workers that ran a run have died, or the scheduler is gone.
    """

    def __init__(
        self, runs: Sequence[PlannedRun], address: str, watcher: Watcher | None, may_begin: Permit = always
    ) -> None:
        self._runs = {run.key: run for run in runs}
        self._address = address
        self._watcher = watcher
        self._may_begin = may_begin
        self._begun: set[str] = set()
        self._pending: dict[str, Any] = {}
        self._arrivals: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._level = _log.level
        _log.setLevel(logging.CRITICAL)  # it would tell of a lost scheduler by a traceback, where we have a sentence

        try:
            self._client = _connect(address)
        except BaseException:
            _log.setLevel(self._level)
            raise

        try:
            self._check_workers()
        except BaseException:
            self.close()
            raise

        self._outcomes = self._collect()

    def __iter__(self) -> Iterator[tuple[PlannedRun, RunOutcome]]:
        return self

    def __next__(self) -> tuple[PlannedRun, RunOutcome]:
        """Wait for the next run to finish."""
        return next(self._outcomes)

    def close(self) -> None:
        """Give up what is not finished, and leave the cluster."""
        with contextlib.suppress(Exception):  # a scheduler that is gone has nothing to cancel
            self._client.cancel(list(self._pending.values()), force=True)
        self._client.close()
        _log.setLevel(self._level)

    def _check_workers(self) -> None:

        names = sorted({run.spec.architecture for run in self._runs.values()})
        own_code = Code(volery.__version__, code_digest(*names))
        answers = self._client.run(_examination(names), on_error="return")
        codes = {worker: code for worker, code in answers.items() if not isinstance(code, OSError)}

        if not codes:
            start = f"`dask worker {self._address} --nthreads 1`"
            raise InputError(self._address, f"the scheduler has no workers; start some, each with {start}")

        for worker, answer in codes.items():
            if isinstance(answer, BaseException):
                raise answer
            problem = _unlike(Code(*answer), own_code)
            if problem:
                raise InputError(f"worker {worker}", problem)

    def _collect(self) -> Iterator[tuple[PlannedRun, RunOutcome]]:
        # One queue receives the events of workers and the ends of futures, so that one thread handles them in order.
        topic = f"volery-{self._client.id}"
        self._client.subscribe_topic(topic, self._receive_event)
        for key, run in self._runs.items() if self._may_begin() else ():
            future = self._client.submit(
                run_on_worker, run, inputs_key(run.spec), topic, key=f"{topic}-{key}", pure=False
            )
            self._pending[key] = future
            future.add_done_callback(lambda ended, key=key: self._arrivals.put((key, ended)))

        while self._pending:
            key, arrived = self._arrivals.get()
            if not key:
                self._report_event(arrived)
            elif key in self._pending:
                outcome = self._outcome(self._runs[key], arrived)
                del self._pending[key]  # nobody needs the worker's copy now
                self._report_event({"run": key, "kind": BEGUN})
                tell(self._watcher, self._runs[key], outcome)
                yield self._runs[key], outcome
                if not self._may_begin():
                    self._give_up_waiting()

    def _receive_event(self, event: tuple[Any, dict[str, Any]]) -> None:
        self._arrivals.put(("", event[1]))

    def _give_up_waiting(self) -> None:
        """Cancel the runs that no worker has begun, as far as is known here."""
        waiting = {key: future for key, future in self._pending.items() if key not in self._begun}
        self._pending = {key: future for key, future in self._pending.items() if key in self._begun}
        self._begun |= waiting.keys()  # a worker that begins one now is not reported
        self._client.cancel(list(waiting.values()), force=True)

    def _report_event(self, event: dict[str, Any]) -> None:
        """Tell the watcher what a worker reports; nothing of a run that has ended, and each beginning once."""
        key = event["run"]
        if key not in self._pending and event["kind"] != BEGUN:
            return
        if key not in self._begun:
            self._begun.add(key)
            if self._watcher is not None:
                self._watcher.started(self._runs[key])
        if event["kind"] in REPORTS:
            tell(self._watcher, self._runs[key], msgspec.convert(event["report"], REPORTS[event["kind"]]))

    def _outcome(self, run: PlannedRun, future: Any) -> RunOutcome:

        name = f"{run.spec.label} (seed {run.spec.seed})"
        if future.status in ("cancelled", "lost"):
            raise LostRunError(
                f"the Dask scheduler {self._address} is gone, or has dropped {name}; what is finished is kept"
            )

        try:
            outcome: RunOutcome = future.result()
        except distributed.KilledWorker as error:
            raise LostRunError(
                f"{error.allowed_failures + 1} workers in turn have died while they ran {name}, the last at "
                f"{error.last_worker.address}; its log may tell why"
            ) from None
        except ModuleNotFoundError as error:
            if str(error.name).partition(".")[0] != "volery":
                raise
            raise InputError(self._address, "a worker that has joined the cluster lacks volery; install it") from None

        return outcome


def _connect(address: str) -> Any:

    if not ADDRESS.fullmatch(address):
        raise InputError("--dask", f"{address!r} is not an address like tcp://HOST:PORT")
    client: Any = distributed.Client
    try:
        return client(address, timeout=CONNECT_S, set_as_default=False, name="volery")
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(
            address, f"no Dask scheduler answers there ({reason}); start one with `dask scheduler`, or mend --dask"
        ) from None


def _examination(names: Sequence[str]) -> Callable[[], tuple[str, str, str]]:
    """A function that travels by value, so that a worker without volery can run it and say so."""

    def examine() -> tuple[str, str, str]:
        try:
            from volery.study.dask_pool import code_here
        except ModuleNotFoundError as error:
            return "", "", f"has no module {error.name!r}"
        except ImportError as error:
            return "", "", f"has another volery: {error}"
        return code_here(names)

    return examine


def code_here(names: Sequence[str]) -> tuple[str, str, str]:
    """The fields of `Code` for this process and these architectures."""
    if changed_since(LOADED_S):
        return volery.__version__, "", "was started before its sources of volery changed; restart it"
    try:
        return volery.__version__, code_digest(*names), ""
    except InputError as error:
        return volery.__version__, "", f"{error.place}: {error.problem}"


def _unlike(worker_code: Code, own_code: Code) -> str:
    """The advice for a worker with other code; empty where it has the same."""
    if worker_code.problem:
        return (
            f"{worker_code.problem} (volery {own_code.version} and the study's schedulers must be installed on every "
            "worker)"
        )

    if worker_code.version != own_code.version:
        return f"has volery {worker_code.version}, here is {own_code.version}; install the same on every worker"
    if worker_code.digest != own_code.digest:
        return (
            f"has other sources of volery {own_code.version} (SHA-256 {worker_code.digest[:12]}, here "
            f"{own_code.digest[:12]}); install the same on every worker and restart it"
        )
    return ""


def run_on_worker(run: PlannedRun, inputs: str, topic: str) -> RunOutcome:
    """The task: run it here, and report under a topic how far it is.

    Args:
        inputs: the key of its inputs, as the client has them.
        topic: where the client listens.

    Raises:
        InputError: the run's input is wrong, or code or inputs here are not the client's.
        UnwantedRunError: the client has gone or has given the run up.
    """
    worker: Any = distributed.get_worker()
    task = worker.get_current_task()

    def report(kind: str, content: Any = None) -> None:
        state = worker.state.tasks.get(task)
        if state is None or state.state == "cancelled":
            raise UnwantedRunError(run.spec.label)
        worker.log_event(topic, {"run": run.key, "kind": kind, "report": content})

    # A worker with several threads runs one run at a time, so that times and memory are those of one run.
    with _alone:
        report(BEGUN)
        _check_key(run, inputs, f"worker {worker.address}")
        return execute(run.spec, lambda facts: report(type(facts).__name__, msgspec.to_builtins(facts)))


def _check_key(run: PlannedRun, inputs: str, place: str) -> None:
    """Refuse to run what is another run here: workers may have joined since all were looked at."""
    if inputs_key(run.spec) != inputs:
        named = " or ".join(name for name in (run.spec.trace, run.spec.machines) if name)
        raise InputError(place, f"has other sources of volery, or another {named}, than the client; make them the same")
    if run_key(run.spec) != run.key:
        raise InputError(place, "has other sources of volery than the client; install the same and restart it")
