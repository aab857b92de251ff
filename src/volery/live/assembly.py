"""Assembly of a live host: all parts of one process, handed to each other, opened in order and closed in order."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple

import msgspec

from volery.core.component import Component, Deployment
from volery.core.errors import InputError, suggestion
from volery.core.model import SUBMITTER, Address
from volery.live.clock import unix_now_us
from volery.live.config.federation import ALL, DISCOVERED, Federation, layout_digest, located
from volery.live.config.limits import JournalSize
from volery.live.config.plan import host_recovery, recovery_in_words
from volery.live.messages import HostName
from volery.live.node.call import demand_workers
from volery.live.node.executor import Executor, Recorder
from volery.live.node.runtime import NodeRuntime, Reporter, UnreceivedReports, node_runtime, reporter_of
from volery.live.node.spawn import Accounts
from volery.live.node.supervisor_client import SupervisorLost
from volery.live.runtime.failure_detector import Presence, WatchList, watched_by
from volery.live.runtime.host import Host
from volery.live.runtime.incarnations import host_lock, next_incarnation, persist_incarnation
from volery.live.runtime.journal import Header, JournalWriter, journal_path
from volery.live.runtime.mailboxes import Inbox
from volery.live.runtime.snapshots import SegmentedJournal
from volery.live.runtime.submitter import Frontend, MakeFrontend, SubmitterSite
from volery.live.transport.delivery import Codec
from volery.live.transport.transport import Transport

log = logging.getLogger(__name__)


class LiveHost(NamedTuple):
    """A host that runs.

    Args:
        front: frontend of the submitter, where that is on this host.
        journal: path of the journal; empty without one.
    """

    host: Host
    front: Frontend | None
    journal: str


@asynccontextmanager
async def running(
    federation: Federation,
    name: HostName = ALL,
    front: MakeFrontend | None = None,
    recorder: Recorder | None = None,
    executor: Executor | None = None,
    make_host: type[Host] = Host,
    unreceived: UnreceivedReports | None = None,
    gives_up_jobs: bool = False,
) -> AsyncIterator[LiveHost]:
    """Run a host; leaving the context ends what runs there, hands over what was sent, and closes the journal.

    Leaving it by an exception leaves what runs to its supervisor, where there is one: the host will be started again.

    Args:
        name: name of the host; `ALL` runs every component in this process, without a broker.
        front: makes the submitter; by default the job service with its API.
        executor: takes the place of the one that the file names.
        make_host: a kind of host that also measures itself.
        unreceived: ends of tasks that the host has reported and that were not received, from one of its incarnations
            in this process to the next.
        gives_up_jobs: see `SubmitterSite`.

    Raises:
        InputError: there is no such host, or something that it needs cannot be had.
    """
    deployment = federation.plan.build(next_incarnation(federation.folder, name))
    layout = _layout(federation, name, deployment)
    _demand_safe(federation, deployment, layout[name], front, executor)

    with host_lock(federation.folder, name):
        transport = _transport(federation, layout) if name != ALL else None
        try:
            incarnation = await _incarnation(federation, name, transport, layout)
            started = _started(
                federation,
                name,
                incarnation,
                layout,
                transport,
                front,
                recorder,
                executor,
                make_host,
                unreceived,
                gives_up_jobs,
            )
            async with started as at_work:
                yield at_work
        finally:
            if transport is not None:
                await transport.close()


async def _incarnation(
    federation: Federation, name: HostName, transport: Transport | None, layout: Mapping[HostName, Collection[Address]]
) -> int:
    """The incarnation that a host begins: the next by its folder, or by what its peers have met.

    Raises:
        InputError: another process uses the name of the host, or the broker is not there.
    """
    stored_incarnation = next_incarnation(federation.folder, name)
    if transport is None:
        # Without other hosts there is nobody that could have met a later incarnation than the folder has.
        return stored_incarnation

    peers = [host for host in layout if host != name]
    claimed = await transport.claim(name, stored_incarnation, peers, patient=SUBMITTER in layout[name])
    if claimed != stored_incarnation:
        text = "host %s begins incarnation %d, not %d as in its folder: other hosts have met its incarnation %d"
        log.warning(text, name, claimed, stored_incarnation, claimed - 1)

    return claimed


@asynccontextmanager
async def _started(
    federation: Federation,
    name: HostName,
    incarnation: int,
    layout: Mapping[HostName, tuple[Address, ...]],
    transport: Transport | None,
    make_front: MakeFrontend | None,
    recorder: Recorder | None,
    executor: Executor | None,
    make_host: type[Host],
    unreceived: UnreceivedReports | None,
    gives_up_jobs: bool,
) -> AsyncIterator[LiveHost]:
    """A host whose name is claimed; arguments as for `running`."""
    folder = federation.folder
    file = federation.file
    deployment = federation.plan.build(incarnation)
    scheduling = tuple(address for address in layout[name] if address != SUBMITTER)
    hosted_components = federation.plan.components(deployment, scheduling, incarnation)

    host_of = _with_reporters(layout, deployment)
    inbox = Inbox(host_of, recorder=recorder)

    node = node_runtime(federation, name, deployment, scheduling, inbox.report, executor, unreceived)
    if node.reporter is not None:
        hosted_components[reporter_of(name)] = node.reporter

    front = register = None
    if SUBMITTER in layout[name]:
        send = partial(inbox.post, source=SUBMITTER)
        site = SubmitterSite(federation, deployment, send, layout, name, incarnation, transport, gives_up_jobs)
        front = (make_front or job_frontend)(site)
        hosted_components[SUBMITTER], register = front.component, front.register or site.register()

    # Only now: a start that fails before uses up no incarnation.
    persist_incarnation(folder, name, incarnation)
    log.info(
        "host %s, incarnation %d: %s", name, incarnation, recovery_in_words(federation.plan.architecture, deployment)
    )

    path = journal_path(folder / "journal", name, incarnation)
    journal = (
        _journal(federation, name, incarnation, scheduling, hosted_components) if file.journal and scheduling else None
    )

    host = make_host(
        name,
        hosted_components,
        inbox,
        executor=node.executor,
        codec=Codec(federation.plan.architecture.messages),
        transport=transport,
        journal=journal,
        incarnation=incarnation,
        explains=file.reports,
        watches=_watches(federation, name, deployment, host_of),
        presence=Presence(host_of[SUBMITTER], register),
    )

    on_new_incarnation = partial(_greet, front, node.reporter, layout, deployment.machines)
    nodes = [address for address in scheduling if address in deployment.machines]

    try:
        await _begin(host, node, front, nodes, on_new_incarnation)
        yield LiveHost(host, front, str(path) if journal is not None else "")
    except Exception:
        if node.supervised is not None:
            node.supervised.leave()
        raise
    finally:
        await host.close()
        if front is not None:
            await front.close()


def _greet(
    front: Frontend | None,
    reporter: Reporter | None,
    layout: Mapping[HostName, Collection[Address]],
    nodes: Collection[Address],
    peer: HostName,
    has_predecessor: bool,
) -> None:
    """Repeat to an incarnation of another host what it may have missed."""
    schedulers = [address for address in layout[peer] if address not in nodes]
    if front is not None and schedulers:
        front.restarted(schedulers)

    if reporter is not None and SUBMITTER in layout[peer] and has_predecessor:
        reporter.repeat()


async def _begin(
    host: Host,
    node: NodeRuntime,
    front: Frontend | None,
    nodes: Sequence[Address],
    on_new_incarnation: Callable[[HostName, bool], None],
) -> None:
    """Open and start everything, and take up what earlier incarnations have left."""
    supervisor = node.supervised
    report = node.reporter.report if node.reporter is not None else host.inbox.report

    # First of all: attempts on nodes that this host has no more must end before they run elsewhere.
    adopted = await supervisor.open(nodes, report, host.stop) if supervisor is not None else ()
    await host.open(on_new_incarnation)
    host.start(adopted)

    if node.reporter is not None:
        node.reporter.repeat()

    if supervisor is not None:
        supervisor.resume(host.ended)

    node.introduce(nodes, host.inbox.report)
    if front is not None:
        await front.open()


def _demand_safe(
    federation: Federation,
    deployment: Deployment,
    addresses: Collection[Address],
    front: MakeFrontend | None,
    executor: Executor | None,
) -> None:
    """Refuse before anything is opened.

    Raises:
        InputError: tasks would run as root, or calls could not run; strangers could use the API, or overhear tokens.
    """
    if (
        executor is None
        and federation.file.executor == "agent"
        and any(address in deployment.machines for address in addresses)
    ):
        accounts = Accounts(federation.file.run_as)
        if federation.file.calls:
            demand_workers(accounts, federation.file.environment)
    if front is None and SUBMITTER in addresses:
        from volery.live.frontend import demand_safe_api

        demand_safe_api(federation)


def _layout(federation: Federation, name: HostName, deployment: Deployment) -> dict[HostName, tuple[Address, ...]]:
    if name == ALL:
        return {ALL: (*deployment.components, SUBMITTER)}

    for place, table in enumerate(federation.file.machines):
        if table.get("capacity") == DISCOVERED:
            problem = (
                "differs from host to host, and now and then; write down what `volery discover` prints on each machine"
            )
            raise InputError(f"machines[{place}].capacity", problem)

    layout = federation.layout(deployment.components)
    if name not in layout:
        raise InputError("host", f"there is no host {name!r}" + suggestion(name, layout))

    return layout


def _with_reporters(layout: Mapping[HostName, tuple[Address, ...]], deployment: Deployment) -> dict[Address, HostName]:
    host_of = located(layout)
    for host, addresses in layout.items():
        if any(address in deployment.machines for address in addresses):
            host_of[reporter_of(host)] = host
    return host_of


def _watches(
    federation: Federation, name: HostName, deployment: Deployment, host_of: Mapping[Address, HostName]
) -> WatchList | None:
    """The watching pairs of this host; None where the architecture cannot recover."""
    if (recovery := host_recovery(federation.plan.architecture, deployment)) is None:
        return None

    pairs = [*recovery.detector_pairs, *((SUBMITTER, entry) for entry in recovery.standins if SUBMITTER in host_of)]
    return WatchList(watched_by(pairs, host_of, name), recovery.detection_us)


def _journal(
    federation: Federation,
    name: HostName,
    incarnation: int,
    addresses: tuple[Address, ...],
    hosted_components: Mapping[Address, Component],
) -> JournalWriter:
    plan = federation.plan
    parameters = msgspec.to_builtins(plan.config)

    header = Header(
        federation.file.name,
        name,
        incarnation,
        plan.seed,
        plan.architecture.name,
        parameters,
        plan.cluster,
        addresses,
        plan.configuration,
        unix_now_us(),
    )

    size = federation.file.journal if isinstance(federation.file.journal, JournalSize) else JournalSize()
    components = {address: hosted_components[address] for address in addresses}

    return SegmentedJournal(federation.folder / "journal", header, federation.file.durability, size, components)


def _transport(federation: Federation, layout: Mapping[HostName, Collection[Address]]) -> Transport:
    from volery.live.transport.broker import BrokerTransport

    return BrokerTransport(
        federation.broker, federation.file.name, federation.plan.configuration, layout=layout_digest(layout)
    )


def job_frontend(site: SubmitterSite) -> Frontend:
    from volery.live.frontend import JobFrontend

    return JobFrontend(site)


async def serve(
    federation: Federation, name: HostName, tell: Callable[[LiveHost], None], gives_up_jobs: bool = False
) -> None:
    """Run a host until SIGINT or SIGTERM, or until one of its components fails.

    Args:
        tell: called when all parts are open.
        gives_up_jobs: see `SubmitterSite`.

    Raises:
        InputError: as `running`.
        Exception: whatever a component has raised.
    """
    stop_requested = asyncio.Event()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop_requested.set)

    serving = loop.create_task(_until_stopped(federation, name, tell, gives_up_jobs))
    waiting = loop.create_task(stop_requested.wait())
    await asyncio.wait((serving, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not serving.done():
        serving.cancel()

    try:
        await serving
    except asyncio.CancelledError:
        if not stop_requested.is_set():
            raise


async def _until_stopped(
    federation: Federation, name: HostName, tell: Callable[[LiveHost], None], gives_up_jobs: bool
) -> None:
    unreceived: UnreceivedReports = {}
    while True:
        try:
            async with running(federation, name, unreceived=unreceived, gives_up_jobs=gives_up_jobs) as at_work:
                # What the start has made stays for good: the collector need not look at it again.
                gc.collect()
                gc.freeze()
                tell(at_work)
                await at_work.host.run()
            return
        except SupervisorLost as error:
            log.warning("host %s restarts: %s", name, error)
