"""One run: a federation for a schedule, its load, its harm, and the verdict."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from tests.live.certificates import Authority
from tests.live.chaos.harming import Harming
from tests.live.chaos.judging import Run, judge
from tests.live.chaos.links import BRIDGE, Namespaces, Relay
from tests.live.chaos.roles import Supervisor, roles_at_work
from tests.live.conftest import CALLS, RUN_AS, Server

from volery.core.model import SECOND
from volery.faults.scenario import RESOURCES, ScenarioJob
from volery.faults.schedule import API, Schedule
from volery.live.api_calls import EventReader
from volery.live.config.tls import trusting
from volery.live.status import TaskStatus

REST_S = 150
"""More than the submitter waits for ends that do not come: what is unknown then is told to be so."""
AWAIT_S = 60
ASK_S = 5.0
AGAIN_S = 0.3
UNITS = (1_000, 512)
"""Of the resources; a task takes so many locks of each."""


class Chaos:
    """One run.

    Args:
        folder: for everything; others than its owner can enter it.
        program: nats-server.
        schedule: of harm and load.
        tell: takes lines.
        tls: broker and API have certificates, and ask hosts for theirs.
        namespaces: hosts have networks of their own instead of relays.
    """

    def __init__(
        self,
        folder: Path,
        program: str,
        schedule: Schedule,
        tell: Callable[[str], None],
        *,
        tls: bool = False,
        namespaces: bool = False,
    ) -> None:
        self._folder = folder
        self._program = program
        self._schedule = schedule
        self._tell = tell
        self._tls = tls
        self._namespaces = namespaces
        self._quiet = threading.Event()
        self._verify: Any = True
        self.run = Run()

    def play(self) -> Run:
        """Do harm, let it rest, and judge."""
        self._lay_out()
        names = [*self._schedule.hosts, API]
        if self._tls:
            self._certify(names)
        with ExitStack() as stack:
            broker = Server(self._program, *self._broker_words())
            stack.callback(broker.kill)
            links = Namespaces(names, broker.port, outside=(API,)) if self._namespaces else Relay(names, broker.port)
            stack.callback(links.close)
            self._api = f"{'https' if self._tls else 'http'}://127.0.0.1:{_free_port()}"
            words = {name: (self._write_file(name, links), links.words(name)) for name in names}
            roles = stack.enter_context(roles_at_work(words))
            supervisor = Supervisor(roles, self._revived)
            self._client = stack.enter_context(self._client_of())
            self._await_api(supervisor)
            threads = [threading.Thread(target=run) for run in (self._submit_all, self._follow)]
            stack.callback(self._stop, threads)
            for thread in threads:
                thread.start()
            harming = Harming(self._folder / "federation", roles, broker, links, self._schedule.seed)
            self.run.faults = harming.run(self._schedule.faults, supervisor, self._tell)
            supervisor.until(self._began + self._schedule.lasts_us / SECOND)
            self._rest(supervisor)
            self._ask_for_all()
        judge(self._schedule, self.run, self._folder)
        return self.run

    # What it stands on.

    def _lay_out(self) -> None:
        (self._folder / "locks").mkdir()
        (self._folder / "locks").chmod(0o777)  # tasks may run as another account
        (self._folder / "told").touch()
        (self._folder / "told").chmod(0o666)
        shutil.copy(Path(__file__).parent / "task.sh", self._folder / "task.sh")
        (self._folder / "schedule.json").write_bytes(msgspec.json.format(msgspec.json.encode(self._schedule)))

    def _certify(self, names: list[str]) -> None:
        authority = Authority(self._folder / "tls")
        for name in ("broker", *names):
            authority.sign(name, BRIDGE)
        self._verify = trusting(Path(authority.of("ca.crt")))

    def _broker_words(self) -> list[str]:
        words = ["-a", "0.0.0.0"] if self._namespaces else []
        if self._tls:
            tls = self._folder / "tls"
            words += ["--tlsverify", f"--tlscert={tls}/broker.crt", f"--tlskey={tls}/broker.key"]
            words.append(f"--tlscacert={tls}/ca.crt")
        return words

    def _write_file(self, name: str, links: Relay) -> Path:
        """The federation's file for one host; they differ in where the broker is."""
        schedule = self._schedule
        address, port = links.broker_of(name)
        offered = "slots = 1"
        if schedule.capacity:
            amounts = ", ".join(f"{name} = {amount}" for name, amount in zip(RESOURCES, schedule.capacity, strict=True))
            offered = f"capacity = {{ {amounts} }}"
        parameters = "\n".join(f"{name} = {json.dumps(value)}" for name, value in schedule.parameters.items())
        hosts = "\n".join(f"{name} = {json.dumps(addresses)}" for name, addresses in schedule.hosts.items())
        tables = ""
        if self._tls:
            names = 'ca = "tls/ca.crt", certificate = "tls/{host}.crt", key = "tls/{host}.key"'
            tables = f'broker_tls = {{ {names} }}\ntls = {{ certificate = "tls/api.crt", key = "tls/api.key" }}\n'
        text = (
            f'name = "chaos-{os.getpid()}"\narchitecture = "{schedule.architecture}"\n'
            f'run_as = "{RUN_AS}"\ncalls = {CALLS}\n'
            f'seed = {schedule.seed}\nbroker = "{"tls" if self._tls else "nats"}://{address}:{port}"\n'
            f'api = "{self._api.partition("//")[2]}"\n{tables}[parameters]\n{parameters}\n'
            f"[[machines]]\ncount = {schedule.machines}\n{offered}\n[hosts]\n{hosts}\n"
        )
        path = self._folder / f"{name}.toml"
        path.write_text(text)
        return path

    def _client_of(self) -> httpx2.Client:
        return httpx2.Client(base_url=self._api, timeout=ASK_S, trust_env=False, verify=self._verify)

    def _revived(self, name: str) -> None:
        self.run.revived += 1
        self._tell(f"           {name} had ended and was started again")

    def _await_api(self, supervisor: Supervisor) -> None:
        end = time.monotonic() + AWAIT_S
        while time.monotonic() < end:
            with contextlib.suppress(httpx2.TransportError):
                if self._client.get("/healthz").is_success:
                    self._began = time.monotonic()
                    return
            supervisor.until(time.monotonic() + AGAIN_S)
        raise AssertionError(f"the API does not answer; see {self._folder}/api.log")

    def _stop(self, threads: list[threading.Thread]) -> None:
        self._quiet.set()
        for thread in threads:
            if thread.is_alive():
                thread.join()

    # What is asked of it.

    def _submit_all(self) -> None:
        with self._client_of() as client:
            for number, job in enumerate(self._schedule.jobs):
                if self._quiet.wait(max(0.0, self._began + job.arrival_us / SECOND - time.monotonic())):
                    return
                self._submit(client, number, self._described(number, job))

    def _described(self, number: int, job: ScenarioJob) -> dict[str, Any]:
        seconds = job.durations_us[0] / SECOND
        command = ["bash", str(self._folder / "task.sh"), str(self._folder), f"{seconds:g}"]
        described: dict[str, Any] = {"key": f"job-{number}", "estimate_s": seconds, "user": job.user}
        if not job.requests:
            return described | {"command": [*command, "slot:1:1"], "tasks": len(job.durations_us)}
        tasks = []
        for request in job.requests:
            locks = [
                f"{name}:{amount // unit}:{offered // unit}"
                for name, amount, offered, unit in zip(RESOURCES, request, self._schedule.capacity, UNITS, strict=True)
            ]
            amounts = dict(zip(RESOURCES, request, strict=True))
            tasks.append({"command": [*command, *locks], "request": amounts})
        return described | {"tasks": tasks}

    def _submit(self, client: httpx2.Client, number: int, job: dict[str, Any]) -> None:
        while not self._quiet.is_set():
            with contextlib.suppress(httpx2.TransportError):
                answer = client.post("/jobs", json=job)
                if answer.status_code in (200, 201):  # 200: it was taken when no answer came
                    self.run.accepted[number] = answer.json()["id"]
                    return
                if answer.status_code != 503:
                    self.run.wrong.append(f"{job['key']} was answered with {answer.status_code}: {answer.text}")
                    return
            self._quiet.wait(AGAIN_S)

    def _follow(self) -> None:
        """Hear of every end while it is news."""
        reader = EventReader(0)
        with self._client_of() as client:
            while not self._quiet.is_set():
                with contextlib.suppress(httpx2.TransportError):
                    self._listen(client, reader)
                self._quiet.wait(AGAIN_S)

    def _listen(self, client: httpx2.Client, reader: EventReader) -> None:
        with client.stream("GET", "/events", headers=reader.headers()) as response:
            for line in response.iter_lines():
                status = reader.feed(line)
                if isinstance(status, TaskStatus) and status.state == "finished":
                    self.run.heard.finished(status.job, status.index, status.attempt)
                if self._quiet.is_set():
                    return

    def _get(self, path: str, supervisor: Supervisor | None = None) -> Any:
        end = time.monotonic() + AWAIT_S
        while True:
            with contextlib.suppress(httpx2.TransportError):
                answer = self._client.get(path)
                if answer.is_success:
                    return answer.json()
            if time.monotonic() > end:
                raise AssertionError(f"{path} is not answered")
            if supervisor is not None:
                supervisor.until(time.monotonic() + AGAIN_S)

    def _rest(self, supervisor: Supervisor) -> None:
        """Nothing is done any more: everything has to come to an end, within `REST_S`."""
        end = time.monotonic() + REST_S
        while time.monotonic() < end:
            supervisor.until(time.monotonic() + AGAIN_S)
            newest = self._get("/jobs?limit=1000", supervisor)
            if len(self.run.accepted) == len(self._schedule.jobs) and all(job["ended_us"] for job in newest):
                return

    def _ask_for_all(self) -> None:
        for job in self._pages():
            self.run.heard.jobs[job["id"]] = job
            for task in self._get(f"/jobs/{job['id']}/tasks"):
                self.run.heard.take(task)

    def _pages(self) -> Iterator[dict[str, Any]]:
        for number in sorted(self.run.accepted.values()):
            yield self._get(f"/jobs/{number}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
