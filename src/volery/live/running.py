"""A host of a federation at work: everything that belongs to one process, opened in order and closed in order."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from volery.core.component import Component, Deployment
from volery.core.errors import InputError, suggestion
from volery.core.events import Event
from volery.core.model import SUBMITTER, Address
from volery.live.config.accounts import Accounts
from volery.live.config.building import recovery, survives
from volery.live.config.federation import ALL, DISCOVERED, Federation, located
from volery.live.config.isolation import JournalSize
from volery.live.messages import HostName
from volery.live.node.executor import Executor
from volery.live.node.hands import Hands, hands_of
from volery.live.node.kept import KeeperLost
from volery.live.node.records import Recorder
from volery.live.node.reporting import Kept, reporter_of
from volery.live.runtime.host import Host
from volery.live.runtime.journal import Header, JournalWriter, journal_path, unix_us
from volery.live.runtime.lives import begin_life, coming_life, held
from volery.live.runtime.presence import Presence, Register
from volery.live.runtime.segments import SegmentedJournal
from volery.live.runtime.watching import Watches, watched_by
from volery.live.times import clock_from_now
from volery.live.transport.codec import Codec
from volery.live.transport.transport import Transport

if TYPE_CHECKING:
    from volery.live.service.desk import Desk

Post = Callable[[Event], None]
"""Hands an event to the submitter in its host's next turn."""
MakeSubmitter = Callable[[Deployment, Post], Component]

log = logging.getLogger(__name__)


class Front:
    """A submitter with something to open and to close around it: the desk and the API; a loader has neither.

    Args:
        component: it stands at `SUBMITTER`.

    Attributes:
        elsewhere: what stands on other hosts, of which each is told to `begun_anew` once it is heard of.
        agents: of each node on another host, the reporter of that host.
        register: of all hosts.
    """

    def __init__(self, component: Component) -> None:
        self.component = component
        self.elsewhere: Collection[Address] = ()
        self.agents: Mapping[Address, Address] = {}
        self.register: Register | None = None
        self.url = ""
        self.open_to_all = False

    async def open(self) -> None:
        """Called when the host has started."""

    def begun_anew(self, addresses: Collection[Address]) -> None:
        """Called when a host with these schedulers is heard of for the first time, or has begun to live again."""

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
    executor: Executor | None = None, make_host: type[Host] = Host, unreceived: Kept | None = None,
) -> AsyncIterator[Running]:  # fmt: skip
    """Run a host; leaving the context ends what runs there, hands over what was sent, and closes the journal.

    Leaving it by an exception leaves what runs to its keeper, where there is one: the host will be started again.

    Args:
        federation: of the file.
        name: of the host; `ALL` runs every component in this process, without a broker.
        front: makes the submitter; by default the desk with its API.
        recorder: hears of every attempt.
        executor: takes the place of the one that the file names.
        make_host: a kind of host that also measures itself.
        unreceived: ends of tasks that the host has told and that were not received, from one of its lives in this
            process to the next.

    Raises:
        InputError: there is no such host, or something that it needs cannot be had.
    """
    deployment = federation.plan.build(coming_life(federation.folder, name))
    layout = _layout(federation, name, deployment)
    _demand_safe(federation, deployment, layout[name], front, executor)
    with held(federation.folder, name):
        transport = _transport(federation) if name != ALL else None
        try:
            incarnation = await _incarnation(federation, name, transport, layout)
            started = _started(federation, name, incarnation, layout, transport, front, recorder, executor, make_host,
                               unreceived)  # fmt: skip
            async with started as at_work:
                yield at_work
        finally:
            if transport is not None:
                await transport.close()


async def _incarnation(
    federation: Federation, name: HostName, transport: Transport | None, layout: Collection[HostName]
) -> int:
    """The incarnation that a host begins: the next by its folder, or by what its peers have met.

    Raises:
        InputError: another process uses the name of the host, or the broker is not there.
    """
    known = coming_life(federation.folder, name)
    if transport is None:
        return known
    begins = await transport.claim(name, known, [host for host in layout if host != name])
    if begins != known:
        told = "host %s begins incarnation %d, not %d as its folder says: other hosts have met its incarnation %d"
        log.warning(told, name, begins, known, begins - 1)
    return begins


@asynccontextmanager
async def _started(
    federation: Federation, name: HostName, incarnation: int, layout: Mapping[HostName, tuple[Address, ...]],
    transport: Transport | None, front: MakeFront | None, recorder: Recorder | None, executor: Executor | None,
    make_host: type[Host], unreceived: Kept | None,
) -> AsyncIterator[Running]:  # fmt: skip
    """A host whose name is claimed; arguments as for `running`."""
    folder, file = federation.folder, federation.file
    deployment = federation.plan.build(incarnation)
    scheduling = tuple(address for address in layout[name] if address != SUBMITTER)
    hosted = federation.plan.components(deployment, scheduling, incarnation)
    where, hands = _with_reporters(layout, deployment), Hands()
    if any(address in deployment.machines for address in hosted):
        hands = hands_of(
            federation, name, deployment, lambda told, source: host.report(told, source), lambda why: host.stop(why),
            executor, unreceived,
        )  # fmt: skip
    if hands.reporter is not None:
        hosted[reporter_of(name)] = hands.reporter
    made = register = None
    if SUBMITTER in layout[name]:
        register = Register(layout, deployment.machines, name, incarnation)
        made = (front or desk_and_api)(federation, deployment, lambda event: host.post(SUBMITTER, event, SUBMITTER))
        made.elsewhere = [address for host, listed in layout.items() if host != name for address in listed]
        made.agents, made.register = _agents(layout, name, deployment.machines), register
        hosted[SUBMITTER] = made.component
    begin_life(folder, name, incarnation)
    log.info("host %s, incarnation %d: %s", name, incarnation, recovery(federation.plan.architecture, deployment))
    clock = clock_from_now()
    path = journal_path(folder / "journal", name, incarnation)
    journal = _journal(federation, name, incarnation, scheduling, hosted) if file.journal and scheduling else None
    host = make_host(
        name, hosted, executor=hands.executor, codec=Codec(federation.plan.architecture.messages),
        transport=transport, where=where, journal=journal,
        incarnation=incarnation, recorder=recorder, clock=clock, watches=_watches(federation, name, deployment, where),
        presence=Presence(where[SUBMITTER], register),
    )  # fmt: skip
    host.explains = file.reports
    host.on_new_life(_hearer(made, hands, layout, deployment.machines))
    try:
        await _begin(host, hands, made, [address for address in scheduling if address in deployment.machines])
        yield Running(host, made, str(path) if journal is not None else "")
    except Exception:
        if hands.kept is not None:
            hands.kept.leave()
        raise
    finally:
        await host.close()
        if made is not None:
            await made.close()


def _hearer(
    made: Front | None, hands: Hands, layout: Mapping[HostName, Collection[Address]], nodes: Collection[Address]
) -> Callable[[HostName, bool], None]:  # fmt: skip
    """What is done when a host is heard of."""

    def heard_of(peer: HostName, known: bool) -> None:
        schedulers = [address for address in layout[peer] if address not in nodes]
        if made is not None and schedulers:
            made.begun_anew(schedulers)
        if hands.reporter is not None and SUBMITTER in layout[peer] and known:
            hands.reporter.again()

    return heard_of


async def _begin(host: Host, hands: Hands, made: Front | None, nodes: Sequence[Address]) -> None:
    """Open and start everything, and take up what earlier lives have left."""
    adopted = await hands.kept.open(nodes) if hands.kept is not None else ()
    await host.open()
    host.start(adopted)
    if hands.reporter is not None:
        hands.reporter.again()
    if hands.kept is not None:
        hands.kept.go_on(host.ended)
    _introduce(hands, nodes, host)
    if made is not None:
        await made.open()


def _introduce(hands: Hands, nodes: Sequence[Address], host: Host) -> None:
    """Tell the submitter what holds the tasks of this host's nodes."""
    confined = hands.introduction(nodes)
    if confined is not None and hands.reporter is not None:
        hands.reporter.introduce(confined)
    elif confined is not None:
        host.report(confined)


def _demand_safe(
    federation: Federation, deployment: Deployment, here: Collection[Address], front: MakeFront | None,
    executor: Executor | None,
) -> None:  # fmt: skip
    """Refuse before anything is opened.

    Raises:
        InputError: tasks would run as root; strangers could use the API, or overhear tokens.
    """
    if executor is None and federation.file.executor == "agent" and any(one in deployment.machines for one in here):
        Accounts(federation.file.run_as)
    if front is None and SUBMITTER in here:
        from volery.live.config.tls import server_files
        from volery.live.service.api import demand_safe
        from volery.live.service.tokens import Gate, TokenFile

        tls = federation.file.tls
        files = server_files(tls, federation.base) if tls is not None else None
        demand_safe(federation.api[0], Gate(TokenFile(federation.folder)), files)


def _layout(federation: Federation, name: HostName, deployment: Deployment) -> dict[HostName, tuple[Address, ...]]:
    if name == ALL:
        return {ALL: (*deployment.components, SUBMITTER)}
    for place, table in enumerate(federation.file.machines):
        if table.get("capacity") == DISCOVERED:
            problem = (
                "differs from host to host, and now and then; write down what `volery discover` says on each machine"
            )
            raise InputError(f"machines[{place}].capacity", problem)
    layout = federation.layout(deployment.components)
    if name not in layout:
        raise InputError("host", f"there is no host {name!r}" + suggestion(name, layout))
    return layout


def _with_reporters(layout: Mapping[HostName, tuple[Address, ...]], deployment: Deployment) -> dict[Address, HostName]:
    """Where all components stand, the reporters of hosts with nodes included."""
    where = located(layout)
    for host, addresses in layout.items():
        if any(address in deployment.machines for address in addresses):
            where[reporter_of(host)] = host
    return where


def _agents(
    layout: Mapping[HostName, Collection[Address]], name: HostName, nodes: Collection[Address]
) -> dict[Address, Address]:  # fmt: skip
    """Of each node on another host than this one, the reporter of its host."""
    others = ((host, listed) for host, listed in layout.items() if host != name)
    return {address: reporter_of(host) for host, listed in others for address in listed if address in nodes}


def _watches(
    federation: Federation, name: HostName, deployment: Deployment, where: Mapping[Address, HostName]
) -> Watches | None:  # fmt: skip
    """Whom this host watches; None where nobody would know what to do with the news."""
    if not survives(federation.plan.architecture, deployment):
        return None
    pairs = [*deployment.watches, *((SUBMITTER, entry) for entry in deployment.standins if SUBMITTER in where)]
    return Watches(watched_by(pairs, where, name), deployment.detection_us)


def _journal(
    federation: Federation, name: HostName, incarnation: int, addresses: tuple[Address, ...],
    hosted: Mapping[Address, Component],
) -> JournalWriter:  # fmt: skip
    plan = federation.plan
    parameters = msgspec.to_builtins(plan.config)
    header = Header(
        federation.file.name, name, incarnation, plan.seed, plan.architecture.name, parameters, plan.cluster, addresses,
        plan.configuration, unix_us(),
    )  # fmt: skip
    size = federation.file.journal if isinstance(federation.file.journal, JournalSize) else JournalSize()
    components = {address: hosted[address] for address in addresses}
    return SegmentedJournal(federation.folder / "journal", header, federation.file.durability, size, components)


def _transport(federation: Federation) -> Transport:
    from volery.live.transport.broker import BrokerTransport

    return BrokerTransport(federation.broker, federation.file.name, federation.plan.configuration)


def desk_and_api(federation: Federation, deployment: Deployment, post: Post) -> Front:
    """The submitter that serves users."""
    from volery.live.config.tls import server_files
    from volery.live.dashboard.serving import window_routes
    from volery.live.service.api import ApiServer
    from volery.live.service.archiving import Archive
    from volery.live.service.desk import KEPT_REPORTS_LATE_S, REPORTS_LATE_S, Desk
    from volery.live.service.foretelling import Foreteller
    from volery.live.service.listening import Bounds
    from volery.live.service.store import JobStore
    from volery.live.service.tokens import Gate, TokenFile

    class _Served(Front):
        def __init__(self) -> None:
            folder, tls = federation.folder, federation.file.tls
            gate = Gate(TokenFile(folder))
            files = server_files(tls, federation.base) if tls is not None else None
            store = JobStore(folder / "jobs.sqlite")
            self._desk = (Desk if not federation.file.telemetry else traced(federation))(
                store, federation.fleet, deployment.entry_for, deployment.machines, post, deployment.in_charge,
                deployment.due, deployment.shares, deployment.sharers, deployment.looks,
                KEPT_REPORTS_LATE_S if federation.file.reports else REPORTS_LATE_S,
                deployment.standins, deployment.detection_us,
            )  # fmt: skip
            self._archive = Archive(
                store, self._desk.written, folder / "jobs.sqlite", folder / "archive", federation.file.retention
            )
            self._foreteller = Foreteller(federation, dict(deployment.machines), self._desk.lost)
            self._server = ApiServer(
                self._desk,
                folder / "tasks",
                *federation.api,
                gate=gate,
                tls=files,
                foreteller=self._foreteller,
                bounds=Bounds(federation.file.api_connections, federation.file.api_connections_per_address),
                pages=window_routes,
            )
            super().__init__(self._desk)
            self.url, self.open_to_all = self._server.url, self._server.open_to_all

        async def open(self) -> None:
            self._desk.asking.agents = self.agents
            if self.register is not None:
                self._desk.hosts, self.register.assigned = self.register, self._desk.assigned
            await self._desk.open(self.elsewhere)
            await self._server.start()
            self._archive.start()

        def begun_anew(self, addresses: Collection[Address]) -> None:
            asyncio.get_running_loop().create_task(self._desk.resubmit(addresses))

        async def close(self) -> None:
            await self._archive.close()
            await self._desk.close()
            await self._server.close()
            self._foreteller.close()

    return _Served()


def traced(federation: Federation) -> Callable[..., Desk]:
    """What makes a desk whose jobs become spans.

    Raises:
        InputError: OpenTelemetry is not installed.
    """
    endpoint = federation.file.telemetry
    if not endpoint.startswith(("http://", "https://")):
        raise InputError("telemetry", f"{endpoint!r} is no address of a collector; write it as http://127.0.0.1:4318")
    try:
        from volery.live.service import telemetry
    except ImportError as error:
        raise InputError("telemetry", f"{error.name} is not installed; install 'volery[otel]'") from None
    made = telemetry.Telemetry(federation.file.name, *telemetry.exporters(endpoint.rstrip("/")))
    return partial(telemetry.TracedDesk, made)


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
    unreceived: Kept = {}
    while True:
        try:
            async with running(federation, name, unreceived=unreceived) as at_work:
                gc.collect()
                gc.freeze()
                tell(at_work)
                await at_work.host.run()
            return
        except KeeperLost as error:
            log.warning("host %s begins anew: %s", name, error)
