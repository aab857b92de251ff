"""Does what a schedule says to a federation of processes."""

from __future__ import annotations

import io
import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.live.chaos.links import Relay
from tests.live.chaos.roles import Role, Supervisor, supervisor_of
from tests.live.conftest import Server

from volery.core.model import SECOND
from volery.faults.schedule import API, KEEPER, HostFault
from volery.live.runtime.recordfile import write_record


class Fault(NamedTuple):
    """What was done, as Unix seconds from and until when."""

    harm: HostFault
    at: float
    until: float


class Harming:
    """Begins and ends harm.

    Args:
        folder: of the federation.
        roles: its processes.
        broker: of theirs.
        links: to it.
        seed: of the garbage.
    """

    def __init__(self, folder: Path, roles: Mapping[str, Role], broker: Server, links: Relay, seed: int) -> None:
        self._folder = folder
        self._roles = roles
        self._broker = broker
        self._links = links
        self._random = random.Random(seed)

    def run(self, harms: tuple[HostFault, ...], supervisor: Supervisor, tell: Callable[[str], None]) -> list[Fault]:
        """Do it all, in time; ends before beginnings."""
        began, wall = time.monotonic(), time.time()
        faults: list[Fault] = []
        pending: list[tuple[float, int, Callable[[], None]]] = []

        def begin(harm: HostFault) -> None:
            at = time.time()
            undo = self._begin(harm)

            def end() -> None:
                undo()
                faults.append(Fault(harm, at, time.time()))
                tell(f"{at - wall:7.1f} s  {told(harm)}, for {time.time() - at:.1f} s")

            pending.append((at - wall + harm.lasts_us / SECOND, -1, end))

        for number, harm in enumerate(harms):
            pending.append((harm.at_us / SECOND, number, partial(begin, harm)))
        while pending:
            next_up = min(pending, key=lambda entry: entry[:2])
            pending.remove(next_up)
            supervisor.until(began + next_up[0])
            next_up[2]()
        return sorted(faults, key=lambda fault: fault.at)

    def _begin(self, harm: HostFault) -> Callable[[], None]:
        """Begin; what ends it is returned."""
        match harm.kind:
            case "broker":
                self._broker.kill()
                return self._broker.start
            case "restart":
                self._restart_all()
                return lambda: None
            case "kill" | "stop" if harm.host.endswith(KEEPER):
                return self._harm_supervisor(harm)
            case "slow":
                self._links.slow(harm.host, harm.extra_us)
                return lambda: self._links.mend(harm.host, harm.lasts_us)
            case "cut":
                self._links.cut(harm.host)
                return lambda: self._links.mend(harm.host, harm.lasts_us)
        role = self._roles[harm.host]
        match harm.kind:
            case "stop":
                role.signal(signal.SIGSTOP)
                return lambda: role.signal(signal.SIGCONT)
            case "fill":
                pid = role.fill()
                return lambda: role.empty(pid)
            case "tear":
                role.kill()
                self._tear(harm)
            case "lose":
                role.kill()
                return lambda: None
            case _:
                role.kill()
        return role.start

    def _restart_all(self) -> None:
        """Kill all hosts that are there, none of which learns that another has ended, and start them."""
        there = [role for role in self._roles.values() if not role.is_away]
        for role in there:
            role.running.kill()
        for role in there:
            role.kill()
            role.start()

    def _harm_supervisor(self, harm: HostFault) -> Callable[[], None]:
        """Its host begins anew when it is gone, and starts another."""
        pid = supervisor_of(self._folder, harm.base)
        with suppress(ProcessLookupError):
            if pid:
                os.kill(pid, signal.SIGKILL if harm.kind == "kill" else signal.SIGSTOP)

        def go_on() -> None:
            with suppress(ProcessLookupError):
                if pid and harm.kind == "stop":
                    os.kill(pid, signal.SIGCONT)

        return go_on

    def _tear(self, harm: HostFault) -> None:
        """What a write that was under way when everything ended leaves behind the last commit."""
        torn = self._random.randbytes(harm.garbage_bytes)
        if harm.host == API:
            path = self._folder / "jobs.sqlite-wal"
        else:
            journals = (self._folder / "journal").glob(f"{harm.host}-*.journal")
            path = max(journals, key=lambda one: int(one.stem.rpartition("-")[2]), default=Path(os.devnull))
            record = io.BytesIO()
            write_record(record, torn)
            torn = record.getvalue()[: len(torn)]  # its last bytes are missing
        with path.open("ab") as file:
            file.write(torn)


def told(harm: HostFault) -> str:
    """HostFault in words."""
    match harm.kind:
        case "broker":
            return "killed the broker"
        case "restart":
            return "killed all other hosts at once, and started them"
        case "kill":
            return f"killed {harm.host}"
        case "lose":
            return f"killed {harm.host} for good"
        case "stop":
            return f"stopped {harm.host}"
        case "tear":
            return f"killed {harm.host}, with {harm.garbage_bytes} bytes of a write that was cut off"
        case "fill":
            return f"filled the disk of {harm.host}"
        case "slow":
            return f"slowed the link of {harm.host} by {harm.extra_us // 1000} ms"
        case "cut":
            return f"cut the link of {harm.host}"
