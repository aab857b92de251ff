"""Chaos on real processes: a federation over a real broker, and whatever can be done to its processes and its disk.

python -m tests.live.chaos --minutes 10 --seed 1; `make chaos` runs it. Every role is a process; all of them are killed,
stopped and continued at random, so is the broker; the store of jobs finds garbage behind its last commit, and disks
are full for a while. Meanwhile jobs are submitted by key, and submitted again when no answer comes.

Checked from outside. A task holds a lock per task and one per node (each has one slot) for as long as it lives; the
kernel knows better than any scheduler when that is over. It ends with exit code 98 where another attempt of it lives
still, and with 99 where its node is taken. At the end every job that was ever answered with 201 has to be done, with
every task finished; of no task may two attempts have been told to have succeeded.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from tests.live.conftest import RUN_AS, Server, program

TASKS = 4
NODES = 8
JOBS_PER_S = 1.5
REST_S = 90
WEIGHTS = (6, 4, 2, 2, 2)
"""Of kills, stops, restarts of the broker, torn and full disks."""
WRONG_SHOWN = 20
PROBES = 4
"""Recovery is over when so many jobs that were submitted after the fault have ended."""
HOSTS = {
    "gm-0": ["gm/0"],
    "gm-1": ["gm/1"],
    "lm-a": ["lm/0", "lm/1/standby"],
    "lm-b": ["lm/1", "lm/0/standby"],
    "node-a": ["node/0", "node/2", "node/4", "node/6"],
    "node-b": ["node/*"],
}
COMMAND = (
    'exec flock -n -E 98 {locks}/task-$VOLERY_TASK flock -n -E 99 {locks}/node-$(basename $VOLERY_NODE) '
    'sh -c "sleep {seconds}; echo $VOLERY_TASK $VOLERY_ATTEMPT >> {done}"'
)  # fmt: skip


class Role:
    """A process of the federation, started again whenever it has ended."""

    def __init__(self, name: str, config: Path) -> None:
        self.name = name
        self._words = [sys.executable, "-m", "volery.cli.main", "serve", name, "-c", str(config)]
        self._log = (config.parent / f"{name}.log").open("ab")
        self._held = False
        self.start()

    def start(self) -> None:
        self.running = subprocess.Popen(self._words, stdout=self._log, stderr=self._log, start_new_session=True)
        self._held = False

    def kill(self) -> None:
        """It stays dead until `start`."""
        self._held = True
        self.running.kill()
        self.running.wait()

    def signal(self, number: int) -> None:
        if self.running.poll() is None:
            self.running.send_signal(number)

    def revive(self) -> bool:
        """Start it again if it has ended by itself; whether it had."""
        if self._held or self.running.poll() is None:
            return False
        self.start()
        return True

    def end(self) -> None:
        self._held = True
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            self.running.wait(20)
        except subprocess.TimeoutExpired:
            self.running.kill()
            self.running.wait()
        self._log.close()


@dataclass
class Fault:
    """What was done, when (Unix seconds), and until when it lasted."""

    what: str
    at: float
    until: float = 0.0


@dataclass
class Verdict:
    """What has come of it all."""

    accepted: int = 0
    tasks: int = 0
    ran_again: int = 0
    revived: int = 0
    wrong: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    recovered_s: dict[str, list[float]] = field(default_factory=dict)


class Chaos:
    """One run.

    Args:
        folder: for everything.
        broker: to be killed.
        seed: of what is done and when.
        tell: takes lines.
    """

    def __init__(self, folder: Path, broker: Server, seed: int, tell: Callable[[str], None]) -> None:
        self._folder = folder
        self._broker = broker
        self._random = random.Random(seed)
        self._tell = tell
        self._locks = folder / "locks"
        self._done = folder / "done"
        self._locks.mkdir()
        self._locks.chmod(0o777)  # tasks may run as another account
        self._done.touch()
        self._done.chmod(0o666)
        self._api = f"http://127.0.0.1:{_free_port()}"
        self._began = time.time()
        config = folder / "federation.toml"
        config.write_text(self._configuration())
        self._roles = {name: Role(name, config) for name in (*HOSTS, "api")}
        self._client = httpx2.Client(base_url=self._api, timeout=5.0, trust_env=False)
        self._accepted: dict[int, str] = {}
        self._quiet = threading.Event()
        self._next: list[Callable[[], str]] = []
        self.verdict = Verdict()

    def _configuration(self) -> str:
        hosts = "\n".join(f"{name} = {json.dumps(patterns)}" for name, patterns in HOSTS.items())
        return (
            f'name = "chaos-{os.getpid()}"\nrun_as = "{RUN_AS}"\nbroker = "{self._broker.url}"\napi = "{self._api.removeprefix("http://")}"\n'
            "[parameters]\ngms = 2\nlms = 2\nreliable = true\ndetection_s = 1.5\nheartbeat_s = 1.0\n"
            f"[[machines]]\ncount = {NODES}\n[hosts]\n{hosts}\n"
        )

    def run(self, seconds: float) -> Verdict:
        """Do harm for so long, then let it rest, and judge."""
        submitting = threading.Thread(target=self._submit_all)
        try:
            self._await_api()
            submitting.start()
            end = time.time() + seconds
            while time.time() < end:
                self._harm()
                self._pause(self._random.uniform(1.0, 3.0))
            self._quiet.set()
            submitting.join()
            self._rest()
            self._judge()
        finally:
            self._quiet.set()
            if submitting.is_alive():
                submitting.join()
            self._client.close()
            for role in self._roles.values():
                role.end()
        return self.verdict

    # What is done to it.

    def _harm(self) -> None:
        acts = (self._kill, self._stop, self._restart_broker, self._tear, self._fill)
        if not self.verdict.faults:
            self._next = self._random.sample(acts, len(acts))  # each once, however short the run
        act = self._next.pop() if self._next else self._random.choices(acts, WEIGHTS)[0]
        at = time.time()
        what = act()
        fault = Fault(what, at, time.time())
        self.verdict.faults.append(fault)
        self._tell(f"{at - self._began:7.1f} s  {what}, for {fault.until - at:.1f} s")

    def _any(self) -> Role:
        return self._roles[self._random.choice(sorted(self._roles))]

    def _kill(self) -> str:
        role = self._any()
        role.kill()
        self._pause(self._random.choice((0.0, 0.3, 3.0, 8.0)))
        role.start()
        return f"killed {role.name}"

    def _stop(self) -> str:
        role = self._any()
        role.signal(signal.SIGSTOP)
        self._pause(self._random.choice((0.5, 2.0, 9.0)))
        role.signal(signal.SIGCONT)
        return f"stopped {role.name}"

    def _restart_broker(self) -> str:
        self._broker.kill()
        self._pause(self._random.choice((0.0, 1.0, 4.0)))
        self._broker.start()
        return "killed the broker"

    def _tear(self) -> str:
        """What a write that was under way when everything ended leaves behind the last commit."""
        role = self._roles["api"]
        role.kill()
        torn = self._random.randbytes(self._random.choice((7, 500, 5000)))
        with (self._folder / "federation" / "jobs.sqlite-wal").open("ab") as file:
            file.write(torn)
        role.start()
        return f"killed api, and wrote {len(torn)} bytes of garbage behind its last commit"

    def _fill(self) -> str:
        """No file of one process may grow beyond a size that some have long reached: a full disk, to that process."""
        role = self._any()
        pid = role.running.pid
        with contextlib.suppress(ProcessLookupError):
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, hard))
            self._pause(2.0)
            if role.running.pid == pid:
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
        return f"filled the disk of {role.name}"

    def _pause(self, seconds: float) -> None:
        """Let time pass; whoever has ended by itself is started again, as any supervisor would."""
        end = time.time() + seconds
        while True:
            for role in self._roles.values():
                if role.revive():
                    self.verdict.revived += 1
                    self._tell(f"{time.time() - self._began:7.1f} s  {role.name} had ended and was started again")
            if time.time() >= end:
                return
            time.sleep(min(0.2, max(0.0, end - time.time())))

    # What is asked of it.

    def _await_api(self) -> None:
        end = time.time() + 60
        while time.time() < end:
            with contextlib.suppress(httpx2.TransportError):
                if self._client.get("/healthz").is_success:
                    return
            self._pause(0.2)
        raise AssertionError(f"the API does not answer; see {self._folder}/api.log")

    def _submit_all(self) -> None:
        number = 0
        with httpx2.Client(base_url=self._api, timeout=5.0, trust_env=False) as client:
            while not self._quiet.is_set():
                self._submit(client, number)
                number += 1
                self._quiet.wait(1 / JOBS_PER_S)

    def _submit(self, client: httpx2.Client, number: int) -> None:
        seconds = (0.05, 0.3, 0.3, 2.0)[number % 4]
        command = COMMAND.format(locks=self._locks, done=self._done, seconds=seconds)
        key = f"job-{number}"
        job = {"command": command, "tasks": TASKS, "key": key, "estimate_s": seconds}
        while True:
            with contextlib.suppress(httpx2.TransportError):
                answer = client.post("/jobs", json=job)
                if answer.status_code in (200, 201):  # 200: it was taken when no answer came
                    self._accepted[answer.json()["id"]] = key
                    return
                if answer.status_code != 503:
                    self.verdict.wrong.append(f"{key} was answered with {answer.status_code}: {answer.text}")
                    return
            if self._quiet.wait(0.3):
                return

    def _get(self, path: str) -> Any:
        end = time.time() + 30
        while True:
            with contextlib.suppress(httpx2.TransportError):
                answer = self._client.get(path)
                if answer.is_success:
                    return answer.json()
            if time.time() > end:
                raise AssertionError(f"{path} is not answered")
            self._pause(0.3)

    def _jobs(self) -> Iterator[dict[str, Any]]:
        for number in sorted(self._accepted):
            yield self._get(f"/jobs/{number}")

    def _rest(self) -> None:
        """Nothing is done any more: everything has to come to an end."""
        end = time.time() + REST_S
        while time.time() < end:
            newest = self._get("/jobs?limit=1000")
            if all(job["ended_us"] is not None for job in newest):
                return
            self._pause(0.5)

    # The judgement.

    def _judge(self) -> None:
        verdict, ended_us = self.verdict, dict[int, tuple[int, int]]()
        verdict.accepted = len(self._accepted)
        for job in self._jobs():
            number = job["id"]
            tasks = self._get(f"/jobs/{number}/tasks")
            verdict.tasks += len(tasks)
            if job["state"] != "done" or job["reason"]:
                verdict.wrong.append(f"job {number} is {job['state']}: {job['reason']}")
            for task in tasks:
                if task["state"] != "finished":
                    where = f"task {task['index']} of job {number}, attempt {task['attempt']} on {task['node']}"
                    verdict.wrong.append(f"{where} is {task['state']}: {task['reason']}")
            if job["ended_us"]:
                ended_us[number] = (job["submitted_us"], job["ended_us"])
        lines = [tuple(map(int, line.split())) for line in self._done.read_text().splitlines()]
        verdict.ran_again = len(lines) - len({task for task, _ in lines})
        if len({task for task, _ in lines}) < verdict.tasks:
            verdict.wrong.append(f"{verdict.tasks} tasks are told finished, {len(lines)} have run to their ends")
        for fault in verdict.faults:
            after = sorted(times for times in ended_us.values() if times[0] >= fault.at * 1e6)[:PROBES]
            if len(after) == PROBES:
                lasted = max(end for _, end in after) / 1e6 - fault.at
                verdict.recovered_s.setdefault(fault.what, []).append(lasted)


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def report(verdict: Verdict) -> str:
    """The verdict in words."""
    lines = [
        f"{verdict.accepted} jobs accepted, {verdict.tasks} tasks; {len(verdict.faults)} faults",
        f"{verdict.revived} times a process ended by itself and was started again",
        f"{verdict.ran_again} ends of tasks more than there are tasks: they ran again, and one end of each was told",
        "from the fault until 4 jobs that were submitted after it had ended (they take up to 2 s themselves):",
    ]
    for what, seconds in sorted(verdict.recovered_s.items()):
        lines.append(f"  {what:<45} {', '.join(f'{value:.1f} s' for value in seconds)}")
    lines += [f"WRONG: {problem}" for problem in verdict.wrong[:WRONG_SHOWN]]
    lines.append("nothing was lost" if not verdict.wrong else f"{len(verdict.wrong)} things are wrong")
    return "\n".join(lines)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    words = argparse.ArgumentParser(description="harm a federation of real processes, and see whether anything is lost")
    words.add_argument("--minutes", type=float, default=10.0)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--folder", type=Path, help="kept; by default a temporary one")
    given = words.parse_args()
    path = program()
    if path is None:
        sys.exit("nats-server is not installed (Debian package nats-server)")
    folder = given.folder or Path(tempfile.mkdtemp(prefix="volery-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    broker = Server(path)
    _say(f"seed {given.seed}, {given.minutes:g} minutes, in {folder}")
    try:
        verdict = Chaos(folder, broker, given.seed, _say).run(60 * given.minutes)
    finally:
        broker.kill()
    _say(report(verdict))
    sys.exit(1 if verdict.wrong else 0)


if __name__ == "__main__":
    main()
