"""A federation whose hosts are processes of their own, over a broker, under the load of a trace.

The loader takes the place of the API in this process. Starts and ends of tasks are those that nodes report, by the wall
clock: all processes run on one machine.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple

from volery.core.model import NEVER, SECOND, Address, Message, Time
from volery.core.records import Records
from volery.core.trace import Trace
from volery.live.assembly import running
from volery.live.calibration.frames import FrameNotes, FramingHost
from volery.live.clock import run_loop, unix_now_us
from volery.live.config.federation import API_HOST, Choose, Federation, FederationFile, resolve
from volery.live.load.load import Loader
from volery.live.messages import HostName, TaskReport
from volery.live.runtime.host import Host
from volery.live.runtime.submitter import Frontend, SubmitterSite

REST_US: Final = SECOND
"""Before the first job: what hosts do at their beginning is no load."""
SETTLE_S: Final = 0.5
"""Reports come after answers."""
LIMIT_S: Final = 120


class LoadMeasurements(NamedTuple):
    """Measurements of a run.

    Args:
        records: starts and ends as nodes have reported them.
        noted: by host, what hosts that time themselves have noted.
        broker_us: what the broker has used of the processor per frame; 0 where that is not known.
        origin_us: by host, when its clock showed 0, by that of the machine.
    """

    federation: Federation
    records: Records
    noted: dict[HostName, FrameNotes]
    broker_us: float
    origin_us: dict[HostName, Time]


class RecordingLoader(Loader):
    """A loader that records the starts and ends of tasks by their nodes' clocks."""

    def start(self, now: Time) -> None:
        self._offset = unix_now_us() - now
        super().start(now + REST_US)

    def on_report(self, message: Message, source: Address, now: Time) -> None:  # noqa: ARG002 - as any handler
        if isinstance(message, TaskReport):
            column = self._records.start_us if message.state == "running" else self._records.finish_us
            column[message.task] = message.at_unix_us - self._offset


def load_apart(
    file: FederationFile, base: Path, choose: Choose, trace: Trace, make_host: type[Host] = Host,
    broker_s: Callable[[], float] = float,
) -> LoadMeasurements:  # fmt: skip
    """Load a federation, each of whose hosts is a process, until every task has ended.

    Args:
        file: with a broker, and hosts; tasks sleep as long as they are estimated to run.
        base: what its folder is relative to.
        choose: see `resolve`; processes import it.
        trace: what is submitted when.
        make_host: a kind of host that also measures itself.
        broker_s: what the broker has used of the processor so far, seconds.

    Raises:
        InputError: the federation cannot be built, or no broker answers.
        TimeoutError: it takes longer than two minutes.
    """
    federation = resolve(file, base, choose)
    found: list[LoadMeasurements] = []
    with ExitStack() as stack:
        lines = {
            name: stack.enter_context(_process_of(_hosted, file, base, choose, name, make_host)) for name in file.hosts
        }
        run_loop(_loaded(federation, trace, lines, make_host, broker_s, found))
    return found[0]


async def _loaded(
    federation: Federation, trace: Trace, lines: dict[HostName, Connection], make_host: type[Host],
    broker_s: Callable[[], float], found: list[LoadMeasurements],
) -> None:  # fmt: skip
    records = Records(trace)
    loaders: list[RecordingLoader] = []

    def front(site: SubmitterSite) -> Frontend:
        loaders.append(RecordingLoader(trace, records, site.deployment.entry_for, None))
        return Frontend(loaders[0])

    async with running(federation, API_HOST, front, make_host=make_host) as at_work, asyncio.timeout(LIMIT_S):
        await asyncio.sleep(REST_US / SECOND / 2)
        used_s = broker_s()
        await loaders[0].complete.wait()
        used_s = broker_s() - used_s
        while min(records.finish_us) == NEVER:
            await asyncio.sleep(SETTLE_S)
        told = {API_HOST: _measurements(at_work.host)}
    for name, line in lines.items():
        line.recv()
        line.send("stop")
        told[name] = line.recv()
    notes = {name: note for name, (note, _) in told.items() if note is not None}
    frames = sum(one.published for one in notes.values())
    clocks = {name: origin_us for name, (_, origin_us) in told.items()}
    found.append(LoadMeasurements(federation, records, notes, used_s * SECOND / max(1, frames), clocks))


def _measurements(host: Host) -> tuple[FrameNotes | None, Time]:
    """The measurements of a host, and the time by the machine's clock when the host's showed 0."""
    return FrameNotes(host) if isinstance(host, FramingHost) else None, time.monotonic_ns() // 1000 - host.now()


def _hosted(
    file: FederationFile, base: Path, choose: Choose, name: HostName, make_host: type[Host], orders: Connection
) -> None:  # fmt: skip
    """A process: one host, until it is told to stop; then it sends its measurements."""

    async def work() -> None:
        async with running(resolve(file, base, choose), name, make_host=make_host) as at_work:
            gc.collect()
            gc.freeze()
            orders.send("ready")
            await asyncio.to_thread(orders.recv)
            orders.send(_measurements(at_work.host))

    run_loop(work())


@contextmanager
def _process_of(target: Callable[..., None], *arguments: Any) -> Iterator[Connection]:
    """A process with a line to it; one that is not told to stop is ended."""
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=target, args=(*arguments, theirs))
    child.start()
    try:
        yield ours
        child.join(SETTLE_S * 10)
    finally:
        child.kill()
