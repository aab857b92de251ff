"""Confinement of attempts to the amounts that they ask for: a control group each, else process by process.

Without control groups memory is a limit of each process of a task (RLIMIT_DATA: heap and other private memory, not
files that are mapped), not of all together, and processors are those that it may run on: as many as it asks for,
rounded up, of those that have been given to others the least. Whoever wants to know which of the two it is reads
`words`.
"""

from __future__ import annotations

import hashlib
import logging
import os
import resource
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from volery.core.errors import InputError
from volery.core.model import SECOND
from volery.live.command import Payload
from volery.live.config.limits import Isolation
from volery.live.config.machine import gpus_of_host
from volery.live.messages import AttemptUsage
from volery.live.node.cgroups import CONTROLLERS, ControlGroup, NotPermittedError, Tree, delegated_base, end_group, read
from volery.live.status import UNCONFINED

MILLI: Final = 1000
PER_PROCESS: Final = "memory is limited per process, not per task"

log = logging.getLogger(__name__)


class Processors:
    """The processors of this machine, and the amount of each that has been given away."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._given_milli = dict.fromkeys(sorted(numbers), 0)

    def take(self, cpu_milli: int) -> tuple[int, ...]:
        """As many as that needs, those with most left; nothing where it needs all of them."""
        count = -(-cpu_milli // MILLI)
        if not 0 < count < len(self._given_milli):
            return ()
        processors = tuple(sorted(self._given_milli, key=self._given_milli.__getitem__)[:count])
        self._add(processors, cpu_milli)
        return processors

    def give_back(self, processors: tuple[int, ...], cpu_milli: int) -> None:
        """Release what `take` has given."""
        self._add(processors, -cpu_milli)

    def _add(self, processors: tuple[int, ...], cpu_milli: int) -> None:
        for number in processors:
            self._given_milli[number] += cpu_milli // len(processors)


class Hold:
    """The confinement of one attempt to what it asks for.

    Attributes:
        group: control group of the attempt; None without control groups.
        environment: variables that tell its processes which GPUs they have.
        memory_mb: limit of each of its processes, where there is none of the group; 0: none.
        cpus: processors that they may run on, where no group limits them; nothing: any.
    """

    __slots__ = ("_devices", "_of", "_payload", "cpus", "environment", "group", "memory_mb")

    def __init__(self, of: Confinement, payload: Payload, group: ControlGroup | None, devices: tuple[str, ...]) -> None:
        self._of = of
        self._payload = payload
        self.group = group
        self._devices = devices
        self.environment = {} if payload.gpus is None else gpu_environment(devices)
        self.memory_mb = 0 if group is not None and "memory" in of.controllers else payload.memory_mb
        by_group = group is not None and "cpu" in of.controllers
        self.cpus: tuple[int, ...] = () if by_group or not of.pins else of.processors.take(payload.cpu_milli)

    def take_in(self, pid: int) -> None:
        """Hold a process that waits at its gate, and all that it will start.

        Raises:
            OSError: it cannot be held.
        """
        if self.group is not None:
            with suppress(ProcessLookupError):  # it has ended already
                self.group.take_in(pid)

    def move_out(self, pid: int) -> None:
        """Move a worker process, which does something else from now on, out of the group.

        Raises:
            OSError: it cannot be moved.
        """
        if self.group is not None and self._of.home is not None:
            self._of.home.take_in(pid)

    @property
    def words(self) -> str:
        """The confinement of an attempt, in words."""
        return self._of.brief if self.group is not None else self._of.brief_alone

    def end(self) -> None:
        """End whatever of the attempt still runs, and release it once that is gone."""
        if self.group is not None:
            with suppress(OSError):  # what does not end is told below
                end_group(self.group)
        self.release()

    def release(self) -> None:
        """Release processors and devices; no process of the attempt is left."""
        self._of.processors.give_back(self.cpus, self._payload.cpu_milli)
        self._of.devices.give_back(self._devices)
        self.cpus = self._devices = ()
        if self.group is not None and not self.group.remove():
            log.warning("the control group %s cannot be removed", self.group.folder)


class Confinement:
    """The confinement of the attempts of one node agent.

    Args:
        isolation: the isolation that the federation's file asks for.
        tree: tree of control groups; None without.
        obstacle: reason why there is none.
        cpus: processors that tasks may use.

    Attributes:
        controllers: controllers of the control groups here.
        pins: true if attempts are tied to processors where groups cannot limit them.
        words: the means that hold tasks here, in words.
        brief: the same in a few words, for attempts with a group.
        brief_alone: the same in a few words, for attempts without one.
        home: group in which worker processes wait between calls.
    """

    def __init__(
        self, isolation: Isolation, tree: Tree | None, obstacle: str, cpus: Iterable[int], gpus: Sequence[str] = ()
    ) -> None:
        self._isolation = isolation
        self._tree = tree
        self.cpus = frozenset(cpus)
        self.devices = Devices(gpus)
        self.controllers = tree.controllers if tree is not None else frozenset()
        self.pins = isolation.cpu == "limit"
        self.processors = Processors(self.cpus)
        self.home = tree.make("workers") if tree is not None else None
        self.words, self.brief = _in_words(self.controllers, obstacle, tree is not None, self.pins)
        self.brief_alone = _in_words(frozenset(), obstacle, False, self.pins)[1]

    def hold(self, name: str, payload: Payload) -> Hold | None:
        """Prepare to hold an attempt; None where nobody counts what it asks for.

        Raises:
            ValueError: there are not as many GPUs as it asks for.
        """
        if not (payload.cpu_milli or payload.memory_mb) and payload.gpus is None:
            return None

        devices = self.devices.take(payload.gpus or 0)
        group = None

        if self._tree is not None:
            try:
                group = self._tree.limited(
                    name, payload.cpu_milli, payload.memory_mb, self._isolation.pids_max, self._isolation.cpu == "limit"
                )
            # A group that cannot be made fails no attempt: limits of its processes hold it then.
            except OSError as error:
                log.warning("no control group for attempt %s, it is held process by process: %s", name, error)

        return Hold(self, payload, group, devices)

    def close(self) -> None:
        """Remove the groups; nothing runs any more."""
        if self._tree is not None:
            self._tree.close()


def confinement_of(isolation: Isolation, state: Path, amounts: bool) -> Confinement:
    """The best that this machine permits; groups of an earlier incarnation of this agent are ended.

    Args:
        isolation: the isolation that the federation's file asks for.
        amounts: true if tasks ask for any; otherwise there is nothing to hold them to.

    Raises:
        InputError: control groups are required, and not permitted.
    """
    if not amounts:
        unheld = Confinement(isolation, None, "tasks have slots", os.sched_getaffinity(0))
        unheld.words = f"{UNCONFINED}; tasks have slots here"
        log.info("%s", unheld.words)
        return unheld

    tree, obstacle = None, "they are switched off"
    if isolation.cgroups != "off":
        try:
            tree = Tree(delegated_base(), mark_of(state))
        except NotPermittedError as error:
            obstacle = str(error)

        missing = {"cpu", "memory"} - (tree.controllers if tree is not None else frozenset())
        if isolation.cgroups == "require" and missing:
            problem = (
                obstacle if tree is None else f"groups here have no controller for {' and '.join(sorted(missing))}"
            )
            raise InputError("isolation.cgroups", f'{problem}; write "auto" to go without')

    gpus = isolation.gpus if isolation.gpus is not None else gpus_of_host()
    confinement = Confinement(isolation, tree, obstacle, os.sched_getaffinity(0), gpus)

    log.info("%s", confinement.words)
    return confinement


def limit_processes(process_max: int) -> None:
    """Limit the processes and threads of each account that runs something below this process (RLIMIT_NPROC); 0: none.

    The kernel counts all that an account has on the machine, not those of a task, and does not count root's.
    """
    if process_max:
        limits = resource.getrlimit(resource.RLIMIT_NPROC)
        soft, hard = (process_max if limit == resource.RLIM_INFINITY else min(limit, process_max) for limit in limits)
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))


def usage_of(hold: Hold | None, spent: resource.struct_rusage | None) -> AttemptUsage:
    """The usage of an attempt.

    Args:
        hold: its confinement; None where it is held to nothing.
        spent: usage of a process that has been reaped, with those that it has reaped itself, by the kernel; counts
            where there is no control group to ask.
    """
    words = hold.words if hold is not None else ""
    if hold is not None and hold.group is not None:
        group_usage = hold.group.usage()
        peak, cpu_us = group_usage.memory_peak_bytes, group_usage.cpu_us
        return AttemptUsage(cpu_us, peak if peak is not None else _peak(spent), group_usage.out_of_memory, words)
    if spent is None:
        return AttemptUsage(held=words)
    return AttemptUsage(round((spent.ru_utime + spent.ru_stime) * SECOND), _peak(spent), False, words)


def _peak(spent: resource.struct_rusage | None) -> int | None:
    """The most memory of one process, bytes; None where the kernel says no more than for this program, its parent."""
    if spent is None or spent.ru_maxrss <= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss:
        return None
    return spent.ru_maxrss << 10


def out_of_memory(memory_mb: int) -> str:
    """The reason of an attempt that was ended for want of memory."""
    return f"out of memory: {memory_mb} MiB asked"


def permitted() -> str:
    """The confinement that this machine permits, in words; nothing is changed."""
    try:
        base = delegated_base()
    except NotPermittedError as error:
        return f"no control groups: {error}"
    controllers = sorted({*read(f"{base}/cgroup.controllers").split()} & {*CONTROLLERS})
    return f"control groups below {base}, with controllers for {', '.join(controllers) or 'nothing'}"


def mark_of(state: Path) -> str:
    """The mark of an agent's control groups; its next incarnation has the same."""
    return hashlib.sha256(bytes(state.resolve())).hexdigest()[:16]


def _in_words(controllers: frozenset[str], obstacle: str, groups: bool, pins: bool) -> tuple[str, str]:
    limited_controllers = [name for name in ("cpu", "memory") if name in controllers]
    long_words, short_words = [], []
    if limited_controllers:
        long_words.append(f"control groups hold each task to the {' and '.join(limited_controllers)} that it asks for")
        short_words.append(f"{' and '.join(limited_controllers)} per task")

    if not groups:
        long_words.append(f"no control groups: {obstacle}")
    elif len(limited_controllers) < 2:
        long_words.append("the control groups here end a task as one, and have no controller for the rest")

    if "memory" not in controllers:
        long_words.append(PER_PROCESS)
        short_words.append(PER_PROCESS)

    if "cpu" not in controllers and pins:
        long_words.append("a task may run on as many processors as it asks for, rounded up, and shares them")
        short_words.append("processors are rounded up and shared")

    return "; ".join(long_words), "; ".join(short_words)


NONE_VISIBLE: Final = "-1"
"""A number under which CUDA and HIP find no device, and after which they read no further."""


class Devices:
    """The GPUs of a host; each is given to one attempt at a time.

    Args:
        names: names as CUDA_VISIBLE_DEVICES takes them: numbers in order of the bus, or UUIDs.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._free = set(names)

    def take(self, count: int) -> tuple[str, ...]:
        """Take so many GPUs, the first ones that are free.

        Raises:
            ValueError: there are fewer.
        """
        free_devices = tuple([name for name in self._names if name in self._free][:count])
        if len(free_devices) < count:
            problem = (
                f"it asks for {count} GPUs, and {len(free_devices)} of the {len(self._names)} of this host are free"
            )
            raise ValueError(problem + "; does the federation's file promise more than there are?")
        self._free.difference_update(free_devices)
        return free_devices

    def give_back(self, devices: tuple[str, ...]) -> None:
        """Release what `take` has given."""
        self._free.update(devices)


def gpu_environment(devices: tuple[str, ...]) -> dict[str, str]:
    """Variables that show a task these devices alone."""
    visible = ",".join(devices) or NONE_VISIBLE
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": visible,
        "HIP_VISIBLE_DEVICES": visible,
        "VOLERY_GPUS": ",".join(devices),
    }
