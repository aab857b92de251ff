"""The whole way on one host: API, desk, schedulers, node agent, real processes; for every design that federates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.live.bench import LIMIT_S, is_gone, written
from tests.live.federations import DESIGNS

from volery.architectures import configure, lookup
from volery.core.model import SUBMITTER, Address, Message
from volery.live.client import AsyncClient
from volery.live.config.constraints import Fleet
from volery.live.config.machine import Machine
from volery.live.config.plan import FederationPlan
from volery.live.node.agent import NodeAgent
from volery.live.runtime.host import Host
from volery.live.service.api import ApiServer
from volery.live.service.job_service import job_service
from volery.live.service.store import JobStore

MACHINES = [
    Machine("x86_64", "linux", "6.1", cores, 1024, {"zone": zone})
    for cores, zone in ((4, "a"), (4, "b"), (8, "a"), (8, "b"), (4, "a"), (4, "b"), (8, "a"), (8, "b"))
]


@asynccontextmanager
async def federation(name: str, folder: Path, capacity: dict[str, int] | None = None) -> AsyncIterator[AsyncClient]:
    """A client of a federation of eight machines with two slots each, or with this capacity."""
    fleet = Fleet(MACHINES, [2] * len(MACHINES), capacities=[capacity] * len(MACHINES) if capacity else ())
    architecture = lookup(name)
    deployment = FederationPlan(architecture, configure(architecture, DESIGNS[name]), fleet.cluster, seed=1).build()

    def send(to: Address, message: Message) -> None:
        host.inbox.post(to, message, SUBMITTER)

    service = job_service(JobStore(folder / "jobs.sqlite"), fleet, deployment, send)
    agent = NodeAgent(folder / "tasks", report=lambda report: host.inbox.report(report), workers=2)
    host = Host("all", {**deployment.components, SUBMITTER: service.component}, executor=agent)
    await host.open()
    host.start()
    await service.open()
    server = ApiServer(service, folder / "tasks", port=0)
    await server.start()
    try:
        async with asyncio.timeout(LIMIT_S), AsyncClient(server.url) as client:
            yield client
    finally:
        await host.close()
        await service.close()
        await server.close()


def play(
    name: str, folder: Path, scenario: Callable[[AsyncClient], Awaitable[None]], capacity: dict[str, int] | None = None
) -> None:
    async def run() -> None:
        async with federation(name, folder, capacity) as client:
            await scenario(client)

    asyncio.run(run())


design = pytest.mark.parametrize("name", ["megha", "pigeon"])


@design
def test_more_tasks_than_slots_all_run_where_they_may(name: str, tmp_path: Path) -> None:
    async def scenario(client: AsyncClient) -> None:
        placed = {"constraints": ["cores >= 8", 'label.zone == "b"'], "count": 20}
        number = (await client.submit({"command": "exit $((VOLERY_INDEX % 2))", "tasks": [placed, {"count": 20}]})).id
        job = await client.wait(number)
        assert (job.state, job.finished, job.failed, job.killed) == ("failed", 20, 20, 0)
        tasks = await client.tasks(number)
        assert [task.exit_code for task in tasks] == [0, 1] * 20
        machine_of = {node.address: node for node in await client.nodes()}
        used = [machine_of[task.node] for task in tasks[:20]]
        assert {(node.cores, node.labels["zone"]) for node in used} == {(8, "b")}

    play(name, tmp_path, scenario)


@design
def test_a_cancelled_job_leaves_nothing_behind_and_its_slots_are_free(name: str, tmp_path: Path) -> None:
    async def scenario(client: AsyncClient) -> None:
        stubborn = "sh -c \"trap '' TERM; echo \\$\\$; while :; do sleep 0.01; done\" & wait"
        number = (await client.submit({"command": stubborn, "tasks": 40, "grace_s": 0.1})).id
        pids = []
        for place in range(40):
            task = await client.task(number, place)
            if task.state == "running":
                pids += await written(Path(task.folder) / "stdout")
        await client.cancel(number)
        job = await client.wait(number)
        assert (job.state, job.running) == ("cancelled", 0)
        assert job.killed + job.finished <= 16
        assert pids
        assert [pid for pid in pids if not is_gone(int(pid))] == []
        after = await client.wait((await client.submit({"command": "true", "tasks": 32})).id)
        assert (after.state, after.finished) == ("done", 32)

    play(name, tmp_path, scenario)


@design
def test_callables_timeouts_and_tasks_that_fit_nowhere(name: str, tmp_path: Path) -> None:
    async def scenario(client: AsyncClient) -> None:
        assert await client.run(divmod, 7, 2) == (3, 1)
        tasks = [{"command": "sleep 60", "timeout_s": 0.1}, {"command": "true", "constraints": ["cores > 8"]}]
        job = await client.wait((await client.submit({"tasks": tasks})).id)
        assert (job.state, job.failed, job.unsatisfiable) == ("failed", 1, 1)
        assert "timeout" in job.reason

    play(name, tmp_path, scenario)


@pytest.mark.parametrize("name", ["megha", "megha-2021", "oracle"])
def test_amounts_are_given_to_as_many_tasks_as_they_suffice_for(name: str, tmp_path: Path) -> None:
    """Eight machines of 1,000 MB: one task of 600 MB each, however many processors are left."""

    async def scenario(client: AsyncClient) -> None:
        large = {"command": "sleep 0.3", "request": {"cpu_milli": 100, "memory_mb": 600}, "count": 20}
        impossible = {"command": "true", "request": {"cpu_milli": 1, "memory_mb": 3000}, "constraints": ["cores >= 8"]}
        receipt = await client.submit({"tasks": [large, impossible]})
        assert receipt.warnings == (
            "task 20 will never run: needs 2.92969 GB; the largest machine that meets cores >= 8 has 1000 MB",
        )
        most = 0
        while (job := await client.job(receipt.id)).state not in ("done", "failed"):
            most = max(most, *(node.running for node in await client.nodes()))
            await asyncio.sleep(0.02)
        assert (job.finished, job.unsatisfiable, most) == (20, 1, 1)

    play(name, tmp_path, scenario, {"cpu_milli": 4000, "memory_mb": 1000})
