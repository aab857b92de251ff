"""Starts of all hosts at once while one is dead for good: each is at work within its limit, and jobs go on.

    python -m tests.live.chaos.starts --starts 300

A start is measured from the line with which a host begins its incarnation to the line with which it is at work. It may
wait for the dead host as long as a failure takes to be detected. What else it does takes as long as the machine needs,
so the rest of its limit is a multiple of what the same process has needed to get to its first line.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx2
from tests.live.chaos.roles import Role, roles_at_work
from tests.live.conftest import CALLS, RUN_AS, Server, program

DETECTION_S: Final = 1.5
SLACK_S: Final = 2.0
BOOTS: Final = 1.0
"""So many times what a process takes to its first line may go into its opening, beside the wait."""
STUCK_S: Final = 90.0
"""Nothing takes so long that ends at all."""
LOOK_S: Final = 0.02
JOBS_PER_S: Final = 4
DEAD: Final = "gm-0"
HOSTS: Final = ("gm-0", "gm-1", "lm", "node", "api")
FILE: Final = """
name = "starts-{port}"
broker = "{broker}"
api = "127.0.0.1:{port}"
run_as = "{run_as}"
calls = {calls}

[parameters]
gms = 2
lms = 2
reliable = true
detection_s = {detection_s}

[[machines]]
count = 8

[hosts]
gm-0 = ["gm/0"]
gm-1 = ["gm/1"]
lm = ["lm/*"]
node = ["node/*"]
"""


class Start(NamedTuple):
    """A start of a host, in seconds: until its first line, and from there until it was at work."""

    host: str
    boot_s: float
    opening_s: float
    detection_s: float

    @property
    def limit_s(self) -> float:
        return self.detection_s + SLACK_S + BOOTS * self.boot_s


class Watched:
    """The log of a host, read as it grows."""

    def __init__(self, role: Role, path: Path, detection_s: float) -> None:
        self.role = role
        self._detection_s = detection_s
        self._path = path
        self._at = path.stat().st_size
        self._began = time.monotonic()
        self._first = 0.0
        self.start: Start | None = None

    def look(self) -> None:
        """Take in what was logged since the last look."""
        with self._path.open("rb") as file:
            file.seek(self._at)
            text = file.read()
        now, name = time.monotonic(), self.role.name
        if not self._first and f"host {name}, incarnation".encode() in text:
            self._first = now
        if self._first and self.start is None and f"host {name} is at work".encode() in text:
            self.start = Start(name, self._first - self._began, now - self._first, self._detection_s)


class Starts:
    """A federation of which one host is dead for good, and the others are started again and again.

    Attributes:
        measured: all starts that were followed to their end.
        wrong: what must not be, in words.
        url: of the API.
    """

    def __init__(
        self,
        folder: Path,
        broker: str,
        seed: int = 1,
        tell: Callable[[str], None] = lambda line: None,
        detection_s: float = DETECTION_S,
    ) -> None:
        self.measured: list[Start] = []
        self.wrong: list[str] = []
        self._folder = folder
        self._random = random.Random(seed)
        self._tell = tell
        self._detection_s = detection_s
        self._quiet = threading.Event()
        self._config = folder / "federation.toml"
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._config.write_text(
            FILE.format(broker=broker, port=port, run_as=RUN_AS, calls=CALLS, detection_s=detection_s)
        )

    def play(self, count: int) -> None:
        """Start hosts until so many starts are measured, or one is stuck."""
        with self.at_work() as roles:
            others = [role for name, role in roles.items() if name != DEAD]
            with self._load():
                while len(self.measured) < count and not self.wrong:
                    self._start_all(others)

    @contextmanager
    def at_work(self) -> Iterator[dict[str, Role]]:
        """All hosts at work, but one that is dead for good by now."""
        with roles_at_work(dict.fromkeys(HOSTS, (self._config, ()))) as roles:
            self.follow([self._watched(role) for role in roles.values()], has_limit=False)
            assert not self.wrong, self.wrong
            self.measured.clear()  # first incarnations wait longer
            self._demand_presence()  # a host that the API has never met is "unseen", not lost
            roles[DEAD].kill()
            yield roles

    def _start_all(self, roles: list[Role]) -> None:
        """Kill all of them at once, some of them again while they open, and follow the starts."""
        for role in roles:
            role.running.kill()
        for role in roles:
            role.kill()
        watched = [self.started(role) for role in self._random.sample(roles, len(roles))]
        if self._random.random() < 0.25:
            victim = self._random.choice(watched)
            time.sleep(self._random.uniform(0.5, 4.0))
            victim.role.kill()
            watched[watched.index(victim)] = self.started(victim.role)
        if self.follow(watched):
            self._demand_progress()
        time.sleep(self._random.uniform(0.0, 1.0))

    def started(self, role: Role) -> Watched:
        """Start a host, and follow its log from there."""
        watched = self._watched(role)
        role.start()
        return watched

    def _watched(self, role: Role) -> Watched:
        return Watched(role, self._folder / f"{role.name}.log", self._detection_s)

    def follow(self, watched: list[Watched], *, has_limit: bool = True) -> bool:
        """Follow starts until all are at work, or one is stuck; true if none is."""
        end = time.monotonic() + STUCK_S
        while waiting := [one for one in watched if one.start is None]:
            for one in waiting:
                one.look()
            if time.monotonic() > end:
                names = ", ".join(one.role.name for one in waiting)
                self.wrong.append(f"not at work after {STUCK_S:g} s: {names}; hosts: {self._hosts()}")
                return False
            time.sleep(LOOK_S)
        for start in (one.start for one in watched if one.start is not None):
            self.measured.append(start)
            if len(self.measured) % 20 == 0:
                self._tell(f"{len(self.measured)} starts")
            if has_limit and start.opening_s > start.limit_s:
                self.wrong.append(
                    f"{start.host} took {start.opening_s:.1f} s to open; its limit is {start.limit_s:.1f} s"
                )
        return True

    def _demand_presence(self) -> None:
        """The API shows all hosts as up."""
        end = time.monotonic() + STUCK_S
        while any(state != "up" for _, state, _ in self._hosts() or [("", "", ())]):
            assert time.monotonic() < end, self._hosts()
            time.sleep(LOOK_S)

    def _demand_progress(self) -> None:
        """A job that is submitted now comes to its end."""
        end = time.monotonic() + STUCK_S
        number = None
        while time.monotonic() < end:
            with suppress(httpx2.TransportError):
                if number is None:
                    number = self._submitted()
                elif (job := httpx2.get(f"{self.url}/jobs/{number}", timeout=5).json())["ended_us"]:
                    if job["state"] != "done":
                        self.wrong.append(f"job {number} is {job['state']}: {job['reason']}")
                    return
            time.sleep(0.1)
        self.wrong.append(f"job {number} has not ended after {STUCK_S:g} s; hosts: {self._hosts()}")

    def _submitted(self) -> int | None:
        answer = httpx2.post(f"{self.url}/jobs", json={"command": ["sleep", "0.1"], "tasks": 4}, timeout=5)
        return int(answer.json()["id"]) if answer.is_success else None

    def _hosts(self) -> Any:
        with suppress(httpx2.TransportError):
            return [
                (host["name"], host["state"], host["waits_for"])
                for host in httpx2.get(f"{self.url}/hosts", timeout=5).json()
            ]
        return "the API does not answer"

    @contextmanager
    def _load(self) -> Iterator[None]:
        thread = threading.Thread(target=self._submit_all)
        thread.start()
        try:
            yield
        finally:
            self._quiet.set()
            thread.join()

    def _submit_all(self) -> None:
        while not self._quiet.wait(1 / JOBS_PER_S):
            with suppress(httpx2.TransportError):
                self._submitted()

    def summary(self) -> dict[str, Any]:
        """The figures of all starts."""
        openings = sorted(start.opening_s for start in self.measured)
        boots = sorted(start.boot_s for start in self.measured)
        part = max((start.opening_s / start.limit_s for start in self.measured), default=0.0)
        return {
            "starts": len(openings),
            "opening_s": {name: round(_quantile(openings, at), 2) for name, at in QUANTILES.items()},
            "boot_s": {name: round(_quantile(boots, at), 2) for name, at in QUANTILES.items()},
            "largest part of its limit": round(part, 2),
            "wrong": self.wrong,
        }


QUANTILES: Final = {"p50": 0.5, "p99": 0.99, "max": 1.0}


def _quantile(ordered: list[float], at: float) -> float:
    return ordered[min(len(ordered) - 1, int(at * len(ordered)))] if ordered else 0.0


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _spin() -> None:
    while True:
        pass


@contextmanager
def spinning(count: int) -> Iterator[None]:
    """So many endless loops beside."""
    loops = [get_context("spawn").Process(target=_spin, daemon=True) for _ in range(count)]
    for loop in loops:
        loop.start()
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.join()


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def main() -> None:
    """Measure so many starts, and print them as JSON; status 1 where something is wrong."""
    words = argparse.ArgumentParser(description="start all hosts but one that is dead for good, again and again")
    words.add_argument("--starts", type=int, default=300)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--loops", type=int, default=1, help="endless loops beside")
    given = words.parse_args()
    path = program()
    if path is None:
        sys.exit("nats-server is not installed (Debian package nats-server)")
    folder = Path(tempfile.mkdtemp(prefix="volery-starts-"))
    folder.chmod(0o755)
    with ExitStack() as stack:
        broker = Server(path)
        stack.callback(broker.kill)
        stack.enter_context(spinning(given.loops))
        starts = Starts(folder, broker.url, given.seed, _say)
        starts.play(given.starts)
    sys.stdout.write(json.dumps({"folder": str(folder), **starts.summary()}) + "\n")
    sys.exit(1 if starts.wrong or len(starts.measured) < given.starts else 0)


if __name__ == "__main__":
    main()
