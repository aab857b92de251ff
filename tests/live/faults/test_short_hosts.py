"""Hosts that lack something: their nodes are named, and tasks start on other hosts first."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path

from tests.live.chaos.roles import supervisor_of
from tests.live.commands import serving
from tests.live.conftest import CALLS, RUN_AS

from volery.live.client import Client
from volery.live.status import JobStatus, NodeStatus

CONFIG = """
name = "short"
broker = "{broker}"
api = "127.0.0.1:0"
run_as = "{run_as}"
calls = {calls}
folder = "f"
[parameters]
gms = 1
lms = 1
reliable = true
[[machines]]
count = 4
slots = 2
[hosts]
head = ["gm/*", "lm/*"]
left = ["node/0", "node/1"]
right = ["node/2", "node/3"]
"""
LIMIT_S = 60
TASKS = 24


def until(client: Client, holds: Callable[[list[NodeStatus]], bool]) -> list[NodeStatus]:
    end = time.monotonic() + LIMIT_S
    while not holds(nodes := client.nodes()):
        assert time.monotonic() < end, nodes
        time.sleep(0.1)
    return nodes


def ended(client: Client, number: int) -> JobStatus:
    for status in client.events(number):
        if isinstance(status, JobStatus) and status.ended:
            return status
    raise AssertionError("its events have ended before the job")


def test_tasks_of_a_host_without_descriptors_run_on_another(open_folder: Path, broker: str) -> None:
    """Not one fails, `nodes` and `why` name what is short, and the host takes tasks again once it is not."""
    config = open_folder / "federation.toml"
    config.write_text(CONFIG.format(broker=broker, run_as=RUN_AS, calls=CALLS))
    hosts = [["serve", name, "--config", str(config)] for name in ("api", "head", "left", "right")]
    with serving(*hosts) as (api, *others), Client(api.ready()["api"]) as client:
        for other in others:
            other.ready()
        pid = supervisor_of(open_folder / "f", "left")
        assert pid, "nothing runs tasks of the host"
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, hard))
        go = open_folder / "go"
        held_back = f"until test -e {go}; do sleep 0.05; done; echo hello"  # `why` says nothing of a job that has ended
        commands = (("echo hello", 8), (held_back, TASKS))
        jobs = [client.send({"command": command, "tasks": count}).id for command, count in commands]

        nodes = until(client, lambda nodes: sum(node.state == "short" for node in nodes) == 2)
        assert {node.host for node in nodes if node.shortage} == {"left"}
        (words,) = [words for words in client.why(jobs[1]).absent if "cannot start tasks" in words]
        assert words.startswith("node/0 and 1 more cannot start tasks, short of file descriptors (Too many open files")
        for other in others:
            assert other.running.poll() is None

        go.touch()
        ends = [ended(client, job) for job in jobs]
        assert [(end.state, end.finished, end.failed) for end in ends] == [("done", 8, 0), ("done", TASKS, 0)]
        tasks = [task for job in jobs for task in client.tasks(job)]
        assert {task.node for task in tasks} <= {"node/2", "node/3"}
        assert [task for task in tasks if task.attempt], "some had waited on the host that was short"

        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
        until(client, lambda nodes: all(node.state == "in use" for node in nodes))
        client.send({"command": "sleep 1", "tasks": 8})
        until(client, lambda nodes: sum(node.running for node in nodes if node.host == "left") == 4)
