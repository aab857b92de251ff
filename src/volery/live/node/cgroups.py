"""Control groups (cgroup v2): one per attempt, under a part of the hierarchy that was delegated to this program.

Which part: the group that this process is in, or the one above it, where it is delegated: systemd says so by an
extended attribute (`Delegate=yes`), and to others than root by the owner. The root of what we see is ours where we are
root and in it: containers, and machines without systemd.
Controllers can be handed down only from a group without processes of its own, so those that are there first move into
a group beside ours, AGENTS. https://systemd.io/CGROUP_DELEGATION, https://docs.kernel.org/admin-guide/cgroup-v2.html
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

CONTROLLERS: Final = ("cpu", "memory", "pids")
AGENTS: Final = "volery-agents"
TREE: Final = "volery-tasks-"
PERIOD_US: Final = 100_000
"""Period of the processor's limit, the kernel's default."""
WEIGHT_OF_CORE: Final = 100
"""The kernel's default weight, for a task that asks for one processor."""
WEIGHT_MAX: Final = 10_000
END_S: Final = 5.0
"""Longest time for groups of an earlier incarnation to end."""
_DELEGATED: Final = ("user.delegate", "trusted.delegate")
_READ_BYTES: Final = 1 << 16


class NotPermittedError(Exception):
    """Control groups cannot be used here; the message gives the reason."""


class GroupUsage(NamedTuple):
    """Usage of a control group.

    Args:
        cpu_us: processor time, microseconds.
        memory_peak_bytes: most memory at once; None where the kernel does not count it.
        out_of_memory: true if the kernel has ended it for want of memory.
    """

    cpu_us: int
    memory_peak_bytes: int | None
    out_of_memory: bool


class ControlGroup:
    """The control group of one attempt."""

    __slots__ = ("folder",)

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def take_in(self, pid: int) -> None:
        """Move a process that has just been started, and whatever it may have started by now.

        Raises:
            OSError: it cannot be moved.
        """
        write(f"{self.folder}/cgroup.procs", str(pid))
        with suppress(OSError):  # a kernel without this list, or a process that is gone
            for child in read(f"/proc/{pid}/task/{pid}/children").split():
                self.take_in(int(child))

    def kill(self) -> None:
        try:
            write(f"{self.folder}/cgroup.kill", "1")
        except FileNotFoundError:  # Linux before 5.14
            self.signal(signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        handles: dict[int, int] = {}
        try:
            for pid in self.pids():
                with suppress(ProcessLookupError):
                    handles[pid] = os.pidfd_open(pid)
            # What is still there is what the handle was opened for: numbers go to others.
            for pid in handles.keys() & self.pids():
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handles[pid], number)
        finally:
            for handle in handles.values():
                os.close(handle)

    def pids(self) -> list[int]:
        """The processes of the group, without zombies."""
        with suppress(OSError):
            return [int(line) for line in read(f"{self.folder}/cgroup.procs").split()]
        return []

    @property
    def lives(self) -> bool:
        """True if any process of the group is alive."""
        try:
            return "populated 1" in read(f"{self.folder}/cgroup.events")
        except OSError:
            return False

    def usage(self) -> GroupUsage:
        cpu_us = _number_in(f"{self.folder}/cpu.stat", "usage_usec")
        kills = _number_in(f"{self.folder}/memory.events", "oom_kill")
        peak = None
        with suppress(OSError, ValueError):
            peak = int(read(f"{self.folder}/memory.peak"))
        return GroupUsage(cpu_us, peak, kills > 0)

    def remove(self) -> bool:
        """Remove the group; true if it is gone. One with a process in it stays."""
        try:
            os.rmdir(self.folder)  # noqa: PTH106 - every end of a task waits for it
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True


class Tree:
    """The groups of one node agent; made anew, it first ends what an earlier one has left.

    Args:
        base: a group that is delegated to us.
        mark: mark that tells this agent's groups from those of others; the same in its next incarnation.

    Attributes:
        controllers: those of `CONTROLLERS` that its groups have.

    Raises:
        NotPermittedError: no group can be made there.
    """

    def __init__(self, base: Path, mark: str) -> None:
        try:
            _hand_down(base)
            self._folder = base / f"{TREE}{mark}"
            self._folder.mkdir(exist_ok=True)
            _end_groups(self._folder)
            self.controllers = _handed_down(self._folder)
        except OSError as error:
            raise NotPermittedError(f"no control group can be made in {base}: {error.strerror}") from None

    def make(self, name: str) -> ControlGroup:
        """A group without limits.

        Raises:
            OSError: the kernel does not make it.
        """
        folder = f"{self._folder}/{name}"
        try:
            os.mkdir(folder)  # noqa: PTH102 - every start of a task waits for it
        except FileExistsError:
            end_group(ControlGroup(folder))
            os.mkdir(folder)  # noqa: PTH102 - likewise
        return ControlGroup(folder)

    def limited(self, name: str, cpu_milli: int, memory_mb: int, pids_max: int, cpu_limit: bool) -> ControlGroup:
        """A group that may have so much, as far as there are controllers; 0: no limit.

        Args:
            cpu_milli: thousandths of a processor.
            memory_mb: memory in units of 2^20 bytes; no part of it can be in swap.
            pids_max: processes and threads.
            cpu_limit: true: the processor time is a limit; false: it is a share where others want more.

        Raises:
            OSError: the kernel does not make it.
        """
        group = self.make(name)
        try:
            for file, content in self._limits(cpu_milli, memory_mb, pids_max, cpu_limit):
                write(f"{group.folder}/{file}", content)
            if memory_mb and "memory" in self.controllers:
                with suppress(FileNotFoundError):  # a kernel that counts no swap
                    write(f"{group.folder}/memory.swap.max", "0")
        except OSError:
            group.remove()
            raise

        return group

    def _limits(self, cpu_milli: int, memory_mb: int, pids_max: int, cpu_limit: bool) -> Iterator[tuple[str, str]]:
        if cpu_milli and "cpu" in self.controllers:
            yield "cpu.weight", str(min(max(cpu_milli * WEIGHT_OF_CORE // 1000, 1), WEIGHT_MAX))
            if cpu_limit:
                # The kernel takes no less than a millisecond per period.
                yield "cpu.max", f"{max(cpu_milli * PERIOD_US // 1000, 1000)} {PERIOD_US}"

        if memory_mb and "memory" in self.controllers:
            yield "memory.max", str(memory_mb << 20)
            yield "memory.oom.group", "1"

        if pids_max and "pids" in self.controllers:
            yield "pids.max", str(pids_max)

    def close(self) -> None:
        """End what is left, and remove all groups."""
        with suppress(OSError):
            _end_groups(self._folder)
            self._folder.rmdir()


def delegated_base(proc: Path = Path("/proc")) -> Path:
    """A group in which this process may make others.

    Raises:
        NotPermittedError: there is none; the message says what to change.
    """
    mount_and_root = _mounted((proc / "self/mountinfo").read_text())
    if mount_and_root is None:
        raise NotPermittedError("cgroup v2 is not mounted")

    mount, root = mount_and_root
    own = _own((proc / "self/cgroup").read_text())
    if own is None or not (own == root or own.startswith(root.rstrip("/") + "/")):
        raise NotPermittedError("this process is in no group of the cgroup v2 that is mounted")

    place = mount / own.removeprefix(root).lstrip("/")
    if not os.access(mount, os.R_OK) or os.statvfs(mount).f_flag & os.ST_RDONLY:
        raise NotPermittedError(f"{mount} is mounted read-only")

    if is_delegated(place) or (os.geteuid() == 0 and place == mount):
        return place
    if place != mount and (is_delegated(place.parent) or (place.name == AGENTS and place.parent == mount)):
        return place.parent

    problem = f"its control group {own} is not delegated to it; start it by systemd with Delegate=yes"
    raise NotPermittedError(problem + ", or as systemd-run --scope -p Delegate=yes ..")


def is_delegated(group: Path) -> bool:
    """True if a group is delegated to us: by its attribute, or by an owner who kept the group above."""
    for name in _DELEGATED:
        with suppress(OSError):
            if os.getxattr(group, name) == b"1":
                return True
    user = os.geteuid()
    if user == 0 or not all(os.access(group / name, os.W_OK) for name in ("", "cgroup.subtree_control")):
        return False
    return group.stat().st_uid == user != group.parent.stat().st_uid


def _mounted(mountinfo: str) -> tuple[Path, str] | None:
    """The mount point of cgroup v2, and the group that is its root there."""
    for line in mountinfo.splitlines():
        mount_fields, _, type_fields = line.partition(" - ")
        if type_fields.split(" ")[0] == "cgroup2":
            words = mount_fields.split(" ")
            return Path(words[4].replace("\\040", " ")), words[3]
    return None


def _own(cgroup: str) -> str | None:
    """The group of a process in the hierarchy of version 2, from /proc/PID/cgroup."""
    return next((line[3:] for line in cgroup.splitlines() if line.startswith("0::")), None)


def _hand_down(base: Path) -> None:
    """Let groups below have controllers; where that cannot be, they have none, and can still be killed as one."""
    if not (base / "cgroup.events").exists():  # the root of all groups may have processes of its own
        _handed_down(base)
        return

    controllers = {*(base / "cgroup.controllers").read_text().split()} & {*CONTROLLERS}
    if controllers <= {*(base / "cgroup.subtree_control").read_text().split()}:
        return

    agents = base / AGENTS
    agents.mkdir(exist_ok=True)
    for pid in (base / "cgroup.procs").read_text().split():
        with suppress(ProcessLookupError):
            write(f"{agents}/cgroup.procs", pid)

    _handed_down(base)


def _handed_down(group: Path) -> frozenset[str]:
    """Hand the controllers that a group has to those below it."""
    controllers = {*(group / "cgroup.controllers").read_text().split()}
    for name in CONTROLLERS:
        if name in controllers:
            with suppress(OSError):
                write(f"{group}/cgroup.subtree_control", f"+{name}")
    return frozenset((group / "cgroup.subtree_control").read_text().split()) & frozenset(CONTROLLERS)


def _end_groups(folder: Path) -> None:
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            end_group(ControlGroup(entry.path))


def end_group(group: ControlGroup) -> None:
    """Kill all that is in it, and wait until it is gone.

    Raises:
        OSError: something in it does not end.
    """
    deadline = time.monotonic() + END_S
    group.kill()
    while not group.remove():
        if time.monotonic() > deadline:
            raise OSError(errno.EBUSY, f"processes in {group.folder} do not end")
        time.sleep(0.005)


def _number_in(path: str, name: str) -> int:
    """One of the numbers in a file of lines NAME NUMBER; 0 where there is none."""
    with suppress(OSError):
        for line in read(path).splitlines():
            key, _, number = line.partition(" ")
            if key == name:
                return int(number)
    return 0


def write(path: str, content: str) -> None:
    """Write a file of the kernel's in one go.

    Raises:
        OSError: the kernel refuses.
    """
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, content.encode())
    finally:
        os.close(file)


def read(path: str) -> str:
    """Read a short file of the kernel's.

    Raises:
        OSError: it cannot be read.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, _READ_BYTES).decode()
    finally:
        os.close(file)
