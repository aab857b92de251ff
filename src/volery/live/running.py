"""A host of a federation at work: everything that belongs to one process, opened in order and closed in order."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from volery.core.component import Component, Deployment
from volery.core.errors import InputError, suggestion
from volery.core.events import Event
from volery.core.model import SUBMITTER, Address
from volery.live.accounts import Accounts
from volery.live.agent import NodeAgent
from volery.live.codec import Codec
from volery.live.executor import Executor, Report, TaskReport
from volery.live.federation import ALL, Federation
from volery.live.host import Host, clock_from_now, located
from volery.live.jobs import MEMORY
from volery.live.journal import Header, JournalWriter, journal_path, next_incarnation, unix_us
from volery.live.records import Recorder
from volery.live.sleep import InstantExecutor, SleepExecutor
from volery.live.transport import HostName, Transport

COLLECT_EVERY: Final = 50_000
"""Messages are never part of a cycle: looking for cycles after every 700 objects would only walk the queues."""

CONFINED: Final = (
    "each process of a task is held to its memory_mb, all of them together are not; cpu_milli is for placement alone"
)
"""What limits there are without control groups."""

Post = Callable[[Event], None]
"""Hands an event to the submitter in its host's next turn."""
MakeSubmitter = Callable[[Deployment, Post], Component]

log = logging.getLogger(__name__)


class Front:
    """A submitter with something to open and to close around it: the desk and the API; a loader has neither.

    Args:
        component: it stands at `SUBMITTER`.
    """

    def __init__(self, component: Component) -> None:
        self.component = component
        self.url = ""
        self.open_to_all = False

    async def open(self) -> None:
        """Called when the host has started."""

    async def close(self) -> None:
        """Called when the host has closed."""


MakeFront = Callable[[Federation, Deployment, Post], Front]


class Running:
    """What is at work.

    Attributes:
        host: drives the components.
        front: the submitter's, where it is on this host.
        journal: the path of the journal; empty without one.
    """

    def __init__(self, host: Host, front: Front | None, journal: str) -> None:
        self.host = host
        self.front = front
        self.journal = journal


@asynccontextmanager
async def running(
    federation: Federation, name: HostName = ALL, front: MakeFront | None = None, recorder: Recorder | None = None,
    executor: Executor | None = None, make_host: type[Host] = Host,
) -> AsyncIterator[Running]:  # fmt: skip
    """Run a host; leaving the context ends what runs there, hands over what was sent, and closes the journal.

    Args:
        federation: of the file.
        name: of the host; `ALL` runs every component in this process, without a broker.
        front: makes the submitter; by default the desk with its API.
        recorder: hears of every attempt.
        executor: takes the place of the one that the file names.
        make_host: a kind of host that also measures itself.

    Raises:
        InputError: there is no such host, or something that it needs cannot be had.
    """
    folder, file = federation.folder, federation.file
    incarnation = next_incarnation(folder / "journal", name)
    deployment = federation.plan.build(incarnation)
    layout = {ALL: (*deployment.components, SUBMITTER)} if name == ALL else federation.layout(deployment.components)
    if name not in layout:
        raise InputError("host", f"there is no host {name!r}" + suggestion(name, layout))
    if executor is None and file.executor == "agent" and any(here in deployment.machines for here in layout[name]):
        Accounts(file.run_as)
    if front is None and SUBMITTER in layout[name]:
        _demand_safe_api(federation)

    def post(event: Event) -> None:
        host.post(SUBMITTER, event, SUBMITTER)

    def report(told: TaskReport) -> None:
        host.report(told)

    made = (front or desk_and_api)(federation, deployment, post) if SUBMITTER in layout[name] else None
    hosted: dict[Address, Component] = {
        address: made.component if made is not None and address == SUBMITTER else deployment.components[address]
        for address in layout[name]
    }
    journal = None
    clock, origin_unix_us = clock_from_now(), unix_us()
    scheduling = tuple(address for address in hosted if address != SUBMITTER)
    path = journal_path(folder / "journal", name, incarnation)
    if file.journal and scheduling:
        journal = JournalWriter(
            path, _header(federation, name, incarnation, scheduling, origin_unix_us), file.durability
        )
    stands_here = any(address in deployment.machines for address in hosted)
    host = make_host(
        name, hosted, executor=(executor or _executor(federation, name, report)) if stands_here else None,
        codec=Codec(federation.plan.architecture.messages), transport=_transport(federation) if name != ALL else None,
        where=located(layout), journal=journal, incarnation=incarnation, recorder=recorder,
        clock=clock,
    )  # fmt: skip
    host.explains = file.reports
    try:
        await host.open()
        host.start()
        if made is not None:
            await made.open()
        yield Running(host, made, str(path) if journal is not None else "")
    finally:
        await host.close()
        if made is not None:
            await made.close()


def _demand_safe_api(federation: Federation) -> None:
    """Refuse before anything is opened.

    Raises:
        InputError: strangers could use the API, or overhear tokens.
    """
    from volery.live.api import demand_safe
    from volery.live.tls import server_files
    from volery.live.tokens import Gate, TokenFile

    tls = federation.file.tls
    files = server_files(tls, federation.base) if tls is not None else None
    demand_safe(federation.api[0], Gate(TokenFile(federation.folder)), files)


def _header(
    federation: Federation, name: HostName, incarnation: int, addresses: tuple[Address, ...], origin_unix_us: int
) -> Header:  # fmt: skip
    plan = federation.plan
    parameters = msgspec.to_builtins(plan.config)
    return Header(
        federation.file.name, name, incarnation, plan.seed, plan.architecture.name, parameters, plan.cluster, addresses,
        plan.configuration, origin_unix_us,
    )  # fmt: skip


def _executor(federation: Federation, name: HostName, report: Report) -> Executor:
    kind = federation.file.executor
    told = report if federation.file.reports else None
    if kind == "sleep":
        return SleepExecutor(report=told)
    if kind == "instant":
        return InstantExecutor(told)
    folder, accounts = federation.folder, Accounts(federation.file.run_as)
    if "cpu_milli" in federation.fleet.cluster.resources or MEMORY in federation.fleet.cluster.resources:
        log.info("host %s: %s", name, CONFINED)
    agent = NodeAgent(folder / "tasks", folder / "agents" / name, told, accounts=accounts)
    if agent.orphans:
        log.warning("host %s: ended %d processes that an earlier agent had left", name, len(agent.orphans))
    return agent


def _transport(federation: Federation) -> Transport:
    from volery.live.broker import BrokerTransport

    return BrokerTransport(federation.broker, federation.file.name, federation.plan.configuration)


def desk_and_api(federation: Federation, deployment: Deployment, post: Post) -> Front:
    """The submitter that serves users."""
    from volery.live.api import ApiServer
    from volery.live.desk import Desk
    from volery.live.store import JobStore
    from volery.live.tls import server_files
    from volery.live.tokens import Gate, TokenFile

    class _Served(Front):
        def __init__(self) -> None:
            folder, tls = federation.folder, federation.file.tls
            gate = Gate(TokenFile(folder))
            files = server_files(tls, federation.base) if tls is not None else None
            store = JobStore(folder / "jobs.sqlite")
            self._desk = Desk(
                store, federation.fleet, deployment.entry_for, deployment.machines, post, deployment.in_charge,
                deployment.due,
            )  # fmt: skip
            self._server = ApiServer(self._desk, folder / "tasks", *federation.api, gate=gate, tls=files)
            super().__init__(self._desk)
            self.url, self.open_to_all = self._server.url, self._server.open_to_all

        async def open(self) -> None:
            await self._desk.open()
            await self._server.start()

        async def close(self) -> None:
            await self._desk.close()
            await self._server.close()

    return _Served()


async def serve(federation: Federation, name: HostName, tell: Callable[[Running], None]) -> None:
    """Run a host until SIGINT or SIGTERM, or until one of its components fails.

    Args:
        federation: of the file.
        name: of the host.
        tell: called when everything is at work.

    Raises:
        InputError: as `running`.
        Exception: whatever a component has raised.
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    arriving = loop.create_task(_until_stopped(federation, name, tell))
    waiting = loop.create_task(stopping.wait())
    await asyncio.wait((arriving, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not arriving.done():
        arriving.cancel()
    try:
        await arriving
    except asyncio.CancelledError:
        if not stopping.is_set():
            raise


async def _until_stopped(federation: Federation, name: HostName, tell: Callable[[Running], None]) -> None:
    async with running(federation, name) as at_work:
        gc.collect()
        gc.freeze()
        tell(at_work)
        await at_work.host.run()


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run to the end, on uvloop where it is installed."""
    gc.set_threshold(COLLECT_EVERY, 20, 20)
    try:
        from uvloop import new_event_loop
    except ImportError:
        asyncio.run(main)
        return
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main)
