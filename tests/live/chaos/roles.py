"""The processes of the federation under harm, and whoever starts them again when they have ended by themselves."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

RESTART_S = 1.0
"""After which a supervisor starts what has ended; as RestartSec in the units of the how-to."""
LOOK_S = 0.1
END_S = 20
FULL_BYTES = 4096
"""No file may grow beyond this while a disk is full; journals and the store of jobs have long reached it."""
SUPERVISOR_MODULE = "volery.live.node.supervisor"


class Role:
    """A process of the federation.

    Args:
        name: of the host.
        config: the federation's file.
        before: what stands before the command.
    """

    def __init__(self, name: str, config: Path, before: Sequence[str]) -> None:
        self.name = name
        self._words = [*before, sys.executable, "-m", "volery.cli.main", "serve", name, "-c", str(config)]
        self._log = (config.parent / f"{name}.log").open("ab")
        self._held = False
        self._ended_at = 0.0
        self.start()

    def start(self) -> None:
        """Start it."""
        self._held, self._ended_at = False, 0.0
        self.running = subprocess.Popen(self._words, stdout=self._log, stderr=self._log, start_new_session=True)

    def kill(self) -> None:
        """It stays dead until `start`."""
        self._held = True
        self.running.kill()
        self.running.wait()

    @property
    def is_away(self) -> bool:
        """True while somebody else has to start it."""
        return self._held

    def signal(self, number: int) -> None:
        """Send a signal, if it lives."""
        if self.running.poll() is None:
            self.running.send_signal(number)

    def fill(self) -> int:
        """Nothing that it writes fits on its disk any more; the process of which that is so."""
        pid = self.running.pid
        with suppress(ProcessLookupError):
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (FULL_BYTES, hard))
        return pid

    def empty(self, pid: int) -> None:
        """There is room again for a process, if it has not ended over that."""
        if self.running.pid == pid:
            with suppress(ProcessLookupError):
                _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))

    def revive(self, now: float) -> bool:
        """Start it again if it has ended by itself some time ago; whether it was started."""
        if self._held or self.running.poll() is None:
            return False
        self._ended_at = self._ended_at or now
        if now < self._ended_at + RESTART_S:
            return False
        self.start()
        return True

    def end_soon(self) -> None:
        """Ask it to end in order; it stays away until `start`."""
        self._held = True
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)

    def end(self) -> None:
        """Have it end in order."""
        self.end_soon()
        try:
            self.running.wait(END_S)
        except subprocess.TimeoutExpired:
            self.running.kill()
            self.running.wait()
        self._log.close()


def supervisor_of(folder: Path, host: str) -> int:
    """The process number of the supervisor of a host's tasks; 0: there is none.

    Args:
        folder: of the federation.
        host: with nodes.
    """
    return supervisor_process(folder.resolve() / "agents" / host)


def supervisor_process(folder: Path) -> int:
    """The process number of the supervisor of a state folder; 0: there is none."""
    state = str(folder)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if SUPERVISOR_MODULE in words and state in words:
                    return int(entry.name)
    return 0


class Supervisor:
    """Starts again what has ended by itself.

    Args:
        roles: by name.
        revived: told of each process that was started again.
    """

    def __init__(self, roles: Mapping[str, Role], revived: Callable[[str], None]) -> None:
        self._roles = roles
        self._revived = revived

    def until(self, moment: float) -> None:
        """Look after all of them until a moment, by the monotonic clock."""
        while True:
            now = time.monotonic()
            for role in self._roles.values():
                if role.revive(now):
                    self._revived(role.name)
            if now >= moment:
                return
            time.sleep(min(LOOK_S, moment - now))


@contextmanager
def roles_at_work(words: Mapping[str, tuple[Path, Sequence[str]]]) -> Iterator[dict[str, Role]]:
    """The processes of all hosts.

    Args:
        words: host -> its file, and what stands before its command.
    """
    roles: dict[str, Role] = {}
    try:
        for name, (config, before) in words.items():
            roles[name] = Role(name, config, before)
        yield roles
    finally:
        for role in roles.values():
            role.end()
