"""An API that was away shows what has started and ended meanwhile, with the times at which that happened."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.live.commands import serving
from tests.live.conftest import CALLS, RUN_AS

from volery.live.client import Client
from volery.live.status import TaskStatus

LIMIT_S = 60
CONFIG = f"""
run_as = "{RUN_AS}"
calls = {CALLS}
api = "127.0.0.1:0"
folder = "f"
broker = "BROKER"
[parameters]
gms = 1
lms = 1
reliable = RELIABLE
[[machines]]
count = 3
[hosts]
rest = ["gm/*", "lm/*", "node/*"]
"""
COMMAND = "echo $VOLERY_INDEX >> FOLDER/notes; read x < FOLDER/$VOLERY_INDEX"


def until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("reliable", [False, True], ids=["plain", "reliable"])
def test_tasks_that_start_while_the_api_is_away_are_shown_as_running_since_then(
    open_folder: Path, broker: str, reliable: bool
) -> None:
    file, notes = open_folder / "federation.toml", open_folder / "notes"
    file.write_text(CONFIG.replace("BROKER", broker).replace("RELIABLE", str(reliable).lower()))
    notes.touch()
    notes.chmod(0o666)
    for place in range(6):
        os.mkfifo(open_folder / str(place))
        (open_folder / str(place)).chmod(0o666)

    def begun(count: int) -> Callable[[], bool]:
        return lambda: len(notes.read_text().split()) == count

    def go_on(*places: str) -> None:
        for place in places:
            (open_folder / place).write_text("x\n")

    words = [["serve", name, "--config", str(file)] for name in ("api", "rest")]
    with serving(*words) as (api, _):
        with Client(api.ready()["api"]) as client:
            number = client.send({"command": COMMAND.replace("FOLDER", str(open_folder)), "tasks": 6}).id
            until(lambda: client.job(number).running == 3, "three tasks run")
        api.running.kill()
        api.running.wait(LIMIT_S)
        killed_us = time.time_ns() // 1000
        first = notes.read_text().split()
        go_on(*first)
        until(begun(6), "three more tasks start")
        ends_meanwhile = notes.read_text().split()[3]
        go_on(ends_meanwhile)
        back_us = time.time_ns() // 1000
        with serving(words[0]) as (again,), Client(again.ready()["api"]) as client:
            until(lambda: client.job(number).running == 2, f"two tasks run: {client.job(number)}")

            def found() -> list[TaskStatus]:
                return list(client.tasks(number))

            until(lambda: sum(task.state == "finished" for task in found()) == 4, "four tasks have ended")
            later = [task for task in found() if str(task.index) not in first]
            for task in later:
                assert task.started_us is not None
                assert killed_us < task.started_us < back_us
                assert task.node
            assert [task.state for task in later if str(task.index) == ends_meanwhile] == ["finished"]
            assert sum(node.running for node in client.nodes()) == 2
            go_on(*[str(task.index) for task in later if task.state == "running"])
            until(lambda: client.job(number).state == "done", "the job ends")
