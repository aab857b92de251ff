"""Small federations for tests: any design of the registry, on one host or on several, with a loader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from volery.architectures import configure, lookup
from volery.core.component import Component
from volery.core.events import Cancel, JobAccepted, JobDone, Submit
from volery.core.model import SUBMITTER, Address, Cluster, Job, JobId, Message, Task, Time
from volery.live.clock import clock_from_now, unix_now_us
from volery.live.config.federation import located
from volery.live.config.limits import Durability, JournalSize
from volery.live.config.plan import FederationPlan
from volery.live.messages import HostName
from volery.live.node.executor import Executor
from volery.live.node.sleep import InstantExecutor
from volery.live.runtime.host import Host
from volery.live.runtime.journal import Header
from volery.live.runtime.mailboxes import Inbox
from volery.live.runtime.snapshots import SegmentedJournal
from volery.live.transport.delivery import Codec
from volery.live.transport.transport import Memory, Transport

LIMIT_S = 30
MEGHA = {"gms": 2, "lms": 2, "heartbeat_s": 0.05}
PIGEON = {"distributors": 2, "groups": 2, "reserved": 1}
TETRISCHED = {"gangs": False, "cycle_s": 0.05, "quantum_s": 0.01, "plan_ahead_s": 0.05}
DESIGNS: Mapping[str, Mapping[str, Any]] = {
    "megha": MEGHA,
    "megha-2021": MEGHA,
    "megha-2021-printed": MEGHA,
    "pigeon": PIGEON,
    "oracle": {},
    "tetrisched": TETRISCHED,
    "jockey": {"period_s": 0.05},
}


def plan(name: str, workers: int = 12, slots: int = 1, **parameters: Any) -> FederationPlan:
    architecture = lookup(name)
    return FederationPlan(
        architecture,
        configure(architecture, {**DESIGNS.get(name, {}), **parameters}),
        Cluster.uniform(workers, slots),
        seed=7,
    )


class Loader(Component):
    """Submits what it is told to and notes the answers."""

    def __init__(self, entry: dict[JobId, Address] | None = None) -> None:
        self.accepted: list[JobId] = []
        self.done: list[JobDone] = []
        self.changed = asyncio.Event()

    def on_answer(self, message: Message, source: Address, now: Time) -> None:
        if isinstance(message, JobDone):
            self.done.append(message)
        elif isinstance(message, JobAccepted):
            self.accepted.append(message.job)
        self.changed.set()

    receives = {JobAccepted: on_answer, JobDone: on_answer}  # noqa: RUF012 - replaced by the base class


class Federation:
    """Hosts on one loop; one of them holds the loader."""

    def __init__(
        self,
        plan: FederationPlan,
        executor: Executor | None = None,
        split: bool = False,
        journal: Path | None = None,
        durability: Durability = "flush",
        transport: Callable[[], Transport] | None = None,
        size: JournalSize | None = None,
    ) -> None:
        split = split or transport is not None
        self.plan = plan
        self.loader = Loader()
        self._deployment = plan.build()
        self._tasks = 0
        self._jobs = 0
        medium, codec = Memory(), Codec(plan.architecture.messages)
        built = plan.components(self._deployment, self._deployment.components, 1)
        components: dict[Address, Component] = {**built, SUBMITTER: self.loader}
        layout: dict[HostName, list[Address]] = {}
        for address in components:
            layout.setdefault(address.partition("/")[0] if split else "all", []).append(address)
        self.hosts: dict[HostName, Host] = {}
        clock, origin_unix_us = clock_from_now(), unix_now_us()
        for name, addresses in layout.items():
            if split:  # each process builds its own: what components of one build share grows with all of them
                components |= plan.components(plan.build(), [a for a in addresses if a != SUBMITTER], 1)
            hosted = {address: components[address] for address in addresses}
            writer = None
            if journal is not None and list(hosted) != [SUBMITTER]:
                header = header_of(plan, name, tuple(a for a in addresses if a != SUBMITTER), origin_unix_us)
                scheduling = {address: hosted[address] for address in header.addresses}
                writer = SegmentedJournal(journal, header, durability, size or JournalSize(), scheduling)
            self.hosts[name] = Host(
                name,
                hosted,
                Inbox(located(layout), clock),
                executor=executor or InstantExecutor(),
                codec=codec,
                transport=(transport or medium.transport)() if split else None,
                journal=writer,
            )
        self.entry = next(host for name, host in self.hosts.items() if SUBMITTER in layout[name])

    async def __aenter__(self) -> Federation:
        await asyncio.gather(*(host.open() for host in self.hosts.values()))
        for host in self.hosts.values():
            host.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for host in self.hosts.values():
            await host.close()

    def submit(self, tasks: int, estimate_us: Time = 0, constraints: Sequence[int] = (), payload: bytes = b"") -> JobId:
        job = self._jobs
        self._jobs += 1
        made = tuple(
            Task(self._tasks + k, job, constraints[k] if constraints else 0, estimate_us, payload) for k in range(tasks)
        )
        self._tasks += tasks
        self.post(job, Submit(Job(job, tasks, made, estimate_us)))
        return job

    def cancel(self, job: JobId) -> None:
        self.post(job, Cancel(job))

    def post(self, job: JobId, message: Message) -> None:
        self.entry.inbox.post(self._deployment.entry(job), message, SUBMITTER)

    async def until_done(self, jobs: int) -> None:
        await self._until(lambda: len(self.loader.done) >= jobs)

    async def until_accepted(self, job: JobId) -> None:
        await self._until(lambda: job in self.loader.accepted)

    async def _until(self, is_reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not is_reached():
                for host in self.hosts.values():
                    if host.failed is not None:
                        raise host.failed
                self.loader.changed.clear()
                await self.loader.changed.wait()


def header_of(plan: FederationPlan, host: HostName, addresses: tuple[Address, ...], origin_unix_us: Time = 0) -> Header:
    return Header(
        "test",
        host,
        1,
        plan.seed,
        plan.architecture.name,
        msgspec.to_builtins(plan.config),
        plan.cluster,
        addresses,
        plan.configuration,
        origin_unix_us,
    )
