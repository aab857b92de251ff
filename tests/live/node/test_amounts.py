"""Federations whose tasks ask for amounts: on real processes no node ever gives more than it has, of anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.live import serving
from tests.live.bench import LIMIT_S
from tests.live.conftest import CALLS, RUN_AS

from volery.architectures import choose
from volery.cli.main import main
from volery.core.events import Outcome
from volery.core.model import Address, Task, TaskId
from volery.live.assembly import LiveHost, running
from volery.live.client import AsyncClient, Client
from volery.live.config.federation import ALL, Federation, FederationFile, resolve
from volery.live.config.limits import Isolation, NodeRules
from volery.live.messages import TaskReport
from volery.live.node.agent import NodeAgent
from volery.live.node.executor import OnEnd
from volery.live.status import UNCONFINED

AS_ACCOUNT: dict[str, Any] = {"run_as": RUN_AS, "calls": CALLS == "true"}
SMALL = {"count": 4, "capacity": {"cpu_milli": 2000, "memory_mb": 1000, "gpus": 0, "disk_mb": 900}}
LARGE = {"count": 2, "capacity": {"cpu_milli": 4000, "memory_mb": 3000, "gpus": 2, "disk_mb": 500}}
HOSTS = {"gm": ["gm/*"], "lm": ["lm/*"], "node": ["node/*"]}


class Audited:
    """A node agent, and what runs on each node by its own account: from each start to the end of the last process."""

    def __init__(self, federation: Federation, told: Callable[[TaskReport], None]) -> None:
        rules = NodeRules(Isolation(gpus=("0", "1", "2", "3")), amounts=True)
        folder = federation.folder
        self._agent = NodeAgent(folder / "tasks", folder / "agent", told, rules=rules)
        cluster = federation.fleet.cluster
        self.has = {f"node/{number}": amounts for number, amounts in enumerate(cluster.capacities)}
        self.gives = dict.fromkeys(self.has, (0,) * len(cluster.resources))
        self.most = dict(self.gives)
        self.starts = 0

    def start(self, node: Address, task: Task, attempt: int, on_end: OnEnd, note: bytes = b"") -> None:
        self.starts += 1
        self._count(node, task, 1)
        assert all(a <= b for a, b in zip(self.gives[node], self.has[node], strict=True)), (node, self.gives[node])

        def ended(task: Task, attempt: int, outcome: Outcome) -> None:
            self._count(node, task, -1)
            on_end(task, attempt, outcome)

        self._agent.start(node, task, attempt, ended, note)

    def _count(self, node: Address, task: Task, sign: int) -> None:
        self.gives[node] = tuple([a + sign * b for a, b in zip(self.gives[node], task.request, strict=True)])
        self.most[node] = tuple(map(max, self.most[node], self.gives[node]))

    def kill(self, task: TaskId, attempt: int) -> None:
        self._agent.kill(task, attempt)

    async def close(self) -> None:
        await self._agent.close()


@asynccontextmanager
async def at_work(folder: Path, broker: str, **parameters: Any) -> AsyncIterator[tuple[AsyncClient, Audited]]:
    """A federation in one host, or in one per role over a broker; and its nodes, audited."""
    given = {"gms": 2, "lms": 2, "heartbeat_s": 0.05} | parameters
    keys: dict[str, Any] = {"broker": broker, "hosts": HOSTS} if broker else {}
    file = FederationFile(
        machines=[SMALL, LARGE],
        folder=str(folder),
        api="127.0.0.1:0",
        journal=False,
        parameters=given,
        name=f"amounts-{folder.name}",
        **keys,
    )
    federation = resolve(file, Path(), choose)
    hosts: dict[str, LiveHost] = {}

    def told(report: TaskReport) -> None:
        hosts["node" if broker else ALL].host.inbox.report(report)

    audited = Audited(federation, told)
    async with AsyncExitStack() as stack, asyncio.timeout(LIMIT_S):
        names = ("api", *HOSTS) if broker else (ALL,)
        opened = [stack.enter_async_context(running(federation, name, executor=audited)) for name in names]
        hosts |= zip(names, await asyncio.gather(*opened), strict=True)
        driving = [asyncio.get_running_loop().create_task(one.host.run()) for one in hosts.values()]
        stack.callback(lambda: [task.cancel() for task in driving])
        front = next(one.front for one in hosts.values() if one.front is not None)
        client = await stack.enter_async_context(AsyncClient(front.url))
        yield client, audited
        assert [one.host.failed for one in hosts.values()] == [None] * len(hosts)


def play(
    folder: Path, scenario: Callable[[AsyncClient, Audited], Awaitable[None]], broker: str = "", **parameters: Any
) -> None:
    async def run() -> None:
        async with at_work(folder, broker, **parameters) as (client, audited):
            await scenario(client, audited)

    asyncio.run(run())


def asks(cpu_milli: int, memory_mb: int, gpus: int = 0, disk_mb: int = 0, **also: Any) -> dict[str, Any]:
    request = {"cpu_milli": cpu_milli, "memory_mb": memory_mb, "gpus": gpus, "disk_mb": disk_mb}
    return {"request": request} | also


@pytest.mark.parametrize("over", ["one process", "a broker"])
def test_no_node_gives_more_than_it_has_of_anything(over: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Each kind of task is short of something else; who is given a GPU has it alone."""
    alone = 'for d in $(echo $VOLERY_GPUS | tr , " "); do mkdir {0}/$d || exit 9; done; sleep 0.02; '
    alone += 'for d in $(echo $VOLERY_GPUS | tr , " "); do rmdir {0}/$d; done'

    async def scenario(client: AsyncClient, audited: Audited) -> None:
        tasks = [
            asks(700, 10, command="sleep 0.03", count=12),
            asks(10, 400, command="sleep 0.03", count=12),
            asks(10, 10, disk_mb=300, command="sleep 0.03", count=12),
            asks(100, 10, gpus=1, command=alone.format(tmp_path), count=12),
            asks(3000, 10, gpus=2, command=alone.format(tmp_path), count=4),
            asks(100, 10, gpus=3, command="true"),
        ]
        receipt = await client.submit({"tasks": tasks})
        assert receipt.warnings == ("task 52 will never run: needs 3 gpus; the largest machine has 2 gpus",)
        job = await client.wait(receipt.id)
        assert (job.finished, job.unsatisfiable, job.failed) == (52, 1, 0), job.reason
        assert audited.starts == 52
        assert set(audited.gives.values()) == {(0, 0, 0, 0)}
        assert [max(most[kind] for most in audited.most.values()) for kind in (1, 2, 3)] >= [800, 2, 300]

    play(tmp_path, scenario, request.getfixturevalue("broker") if over == "a broker" else "")


def test_users_get_their_dominant_shares_of_amounts_that_real_processes_hold(tmp_path: Path) -> None:
    """Ada has all processors when Ben comes, who asks for memory besides; he is due half of the federation."""

    async def scenario(client: AsyncClient, audited: Audited) -> None:
        ada = await client.submit(asks(1000, 100, command="exec sleep 60", tasks=40, user="ada"))
        await until(client, (ada.id, 16))
        ben = await client.submit(asks(1000, 200, command="exec sleep 60", tasks=40, user="ben"))
        await until(client, (ada.id, 8), (ben.id, 8))
        for number in (ada.id, ben.id):
            await client.cancel(number)
            await client.wait(number)
        assert set(audited.gives.values()) == {(0, 0, 0, 0)}

    async def until(client: AsyncClient, *running: tuple[int, int]) -> None:
        while [(await client.job(number)).running for number, _ in running] != [count for _, count in running]:
            await asyncio.sleep(0.02)

    play(tmp_path, scenario, shares="ada:1+ben:1")


@pytest.mark.parametrize("reliable", [False, True])
def test_where_nothing_confines_tasks_all_views_say_so(
    reliable: bool, open_folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = {"gms": 1, "lms": 1, "reliable": reliable}
    keys: dict[str, Any] = {
        "machines": [{}],
        "executor": "agent",
        **AS_ACCOUNT,
        "parameters": parameters,
    }
    with serving.at_work(open_folder, **keys) as url, Client(url) as client:
        monkeypatch.setenv("COLUMNS", "200")
        job = client.send({"command": "true"})
        for _ in client.events(job.id):
            pass
        for words in (["nodes"], ["job", "0"]):
            with pytest.raises(SystemExit):
                main([*words, "--api", url])
            assert UNCONFINED in capfd.readouterr().out
        with httpx2.Client(base_url=url, trust_env=False) as http:
            for path in ("nodes/node/0", "jobs/0/tasks/0"):
                assert UNCONFINED in http.get(f"/dashboard/{path}").text


@pytest.mark.parametrize("reliable", [False, True])
def test_nodes_say_what_they_offer_and_what_holds_tasks_there(reliable: bool, open_folder: Path) -> None:
    parameters = {"gms": 1, "lms": 1, "heartbeat_s": 0.05, "reliable": reliable}
    keys: dict[str, Any] = {
        "machines": [SMALL],
        "executor": "agent",
        **AS_ACCOUNT,
        "parameters": parameters,
    }
    with serving.at_work(open_folder, **keys) as url, Client(url) as client:
        job = client.send(asks(100, 50, command="true"))
        for _ in client.events(job.id):
            pass
        nodes = client.nodes()
        assert [node.offers for node in nodes] == [SMALL["capacity"]] * 4
        assert len({node.held for node in nodes}) == 1
        assert "memory" in nodes[0].held
        task = client.task(job.id, 0)
        assert task.usage is not None
        assert task.usage.held
        assert (task.usage.cpu_us or 0) > 0
        with httpx2.Client(base_url=url, trust_env=False) as http:
            assert task.usage.held in http.get(f"/dashboard/jobs/{job.id}/tasks/0").text
            assert "1000 MB, 0 gpus, 900 disk_mb" in http.get("/dashboard/nodes/node/0").text
