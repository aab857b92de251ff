"""Real Slurm on this machine: configuration, start and end of slurmctld and its slurmds, each a process of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import SystemRandom

from parity.scenarios import CPUS, NODES
from volery.core.errors import InputError

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "scontrol", "sinfo", "squeue", "sdiag")
ACCOUNTING_PROGRAMS = ("slurmdbd", "sacctmgr", "sacct", "mariadbd", "mariadb-install-db")
START_S = 30.0
"""Time for a daemon to come up on a busy machine."""
END_S = 10.0
CONF = """\
ClusterName=parity
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
SlurmUser=root
SlurmdUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/filetxt
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
KillWait=1
MinJobAge=3600
LogTimeFormat=iso8601_ms
SlurmctldDebug=debug
DebugFlags=Backfill,Priority,TraceJobs
"""
"""The part of slurm.conf that every scenario has and that concerns no scheduling but cores, and the wait of a requeued
job (cred_expire)."""


Daemon = subprocess.Popen[bytes]


def program(name: str, package: str = "slurmctld slurmd slurm-client") -> str:
    """The path of a program of Slurm.

    Raises:
        InputError: if it is not installed, with the command that installs it.
    """
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if path is None:
        raise InputError(name, f"this program is not installed: apt-get install {package}")
    return path


def check_installed(accounting: bool) -> None:
    """Refuse a machine on which no Slurm can be started.

    Raises:
        InputError: with the first thing that is missing, and what to do.
    """
    for name in PROGRAMS:
        program(name)
    for name in ACCOUNTING_PROGRAMS if accounting else ():
        program(name, "slurmdbd mariadb-server slurm-wlm-mysql-plugin")
    if os.geteuid() != 0:
        raise InputError("slurmctld", "it starts jobs for their users and so must be started by root: use sudo")


def free_ports(count: int, first: int | None = None) -> int:
    """The first of successive ports that nothing listens on.

    Args:
        count: Count of ports.
        first: First port that the caller wants; None: any.

    Raises:
        InputError: if one of the wanted ports is in use.
    """
    bases = [first] if first is not None else [SystemRandom().randrange(20_000, 32_000, 20) for _ in range(50)]
    for base in bases:
        busy = next((port for port in range(base, base + count) if not _is_free(port)), None)
        if busy is None:
            return base
    raise InputError("--port", f"port {busy} is in use; {count} successive free ones are needed: give another, or none")


def _is_free(port: int) -> bool:
    with contextlib.closing(socket.socket()) as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind(("", port))
        except OSError:
            return False
    return True


def wait_for(condition: Callable[[], bool], subject: str, log: Path, daemons: Sequence[Daemon]) -> None:
    """Wait until a condition holds.

    Raises:
        InputError: with the last error of the log, once a daemon has ended or START_S has passed.
    """
    deadline = time.monotonic() + START_S
    while not condition():
        has_ended = any(daemon.poll() is not None for daemon in daemons)
        if has_ended or time.monotonic() > deadline:
            texts = [path.read_text(errors="replace") for path in (log.with_suffix(".out"), log) if path.exists()]
            lines = "\n".join(texts).splitlines()
            reasons = [line.split("]", 1)[-1].strip() for line in lines if "error" in line or "fatal" in line]
            when = "it ended" if has_ended else f"not within {START_S:.0f} s"
            reason = reasons[-1] if reasons else f"{log.name} has no error"
            raise InputError(subject, f"it does not come up ({when}): {reason}")
        time.sleep(0.1)


class Slurm:
    """One Slurm cluster in a folder of its own.

    Args:
        folder: Folder for all its files, empty.
        lines: Lines of slurm.conf beside CONF.
        port: First of its ports.
        accounting_port: Port of a slurmdbd; None: it has none.
    """

    def __init__(self, folder: Path, lines: Sequence[str], port: int, accounting_port: int | None = None) -> None:
        self.folder = folder
        self.conf = folder / "slurm.conf"
        self.log = folder / "slurmctld.log"
        self.completed = folder / "jobcomp.log"
        self.environment = {"PATH": os.defpath + ":/usr/sbin:/sbin", "SLURM_CONF": str(self.conf), "TZ": "UTC"}
        self._daemons: list[Daemon] = []
        self.conf.write_text(CONF + "\n".join([*lines, *self._places(port, accounting_port)]) + "\n")

    def _places(self, port: int, accounting_port: int | None) -> list[str]:
        """Lines that name this machine, ports and folders."""
        host, folder = socket.gethostname(), self.folder
        accounting = ["AccountingStorageType=accounting_storage/none"]
        if accounting_port is not None:
            accounting = [
                "AccountingStorageType=accounting_storage/slurmdbd",
                "AccountingStorageHost=127.0.0.1",
                f"AccountingStoragePort={accounting_port}",
                "AccountingStorageEnforce=associations",
            ]
        return [
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={port}",
            f"SlurmctldPidFile={folder}/slurmctld.pid",
            f"SlurmctldLogFile={self.log}",
            f"StateSaveLocation={folder}/state",
            f"SlurmdPidFile={folder}/slurmd-%n.pid",
            f"SlurmdLogFile={folder}/slurmd-%n.log",
            f"SlurmdSpoolDir={folder}/spool-%n",
            f"JobCompLoc={self.completed}",
            *accounting,
            f"NodeName=DEFAULT CPUs={CPUS} CoresPerSocket={CPUS} State=UNKNOWN",
            f"NodeName=n[0-{NODES - 1}] NodeHostName={host} NodeAddr=127.0.0.1 Port={port + 1}-{port + NODES}",
        ]

    def start(self) -> None:
        """Start all daemons and wait until every node is idle.

        Raises:
            InputError: if a daemon does not come up.
        """
        (self.folder / "state").mkdir()
        controller = self.daemon("slurmctld", "-D", "-c")
        wait_for(lambda: self.answers("scontrol", "ping"), "slurmctld", self.log, [controller])
        for node in range(NODES):
            (self.folder / f"spool-n{node}").mkdir()
            log = self.folder / f"slurmd-n{node}.log"
            slurmd = self.daemon("slurmd", "-D", "-N", f"n{node}", words=log.stem)
            wait_for(log.exists, f"slurmd of node n{node}", log, [slurmd])
        wait_for(
            lambda: self.output("sinfo", "-h", "-N", "-o", "%t").split().count("idle") >= NODES,
            "the set of slurmds", self.log, self._daemons,
        )  # fmt: skip
        # The intervals of the main loop hold from its first pass on, for which slurmctld needs a reason and 3 s.
        self.output("scontrol", "update", "PartitionName=main", "State=UP")
        wait_for(lambda: "SchedulerParameters=" in self.log.read_text(), "slurmctld", self.log, [controller])

    def daemon(self, name: str, *arguments: str, words: str = "") -> Daemon:
        """Start a program that `stop` will end, and whose output goes to WORDS.out, or else to NAME.out."""
        with (self.folder / f"{words or name}.out").open("ab") as output:
            started = subprocess.Popen(
                [program(name), *arguments],
                env=self.environment, cwd=self.folder, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        self._daemons.append(started)
        return started

    def output(self, name: str, *arguments: str) -> str:
        """The output of a command of Slurm.

        Raises:
            InputError: with its own error, if it fails.
        """
        command = [program(name), *arguments]
        ended = subprocess.run(
            command, env=self.environment, cwd=self.folder, capture_output=True, text=True, check=False
        )
        if ended.returncode:
            raise InputError(name, f"{' '.join(arguments)} fails: {ended.stderr.strip() or ended.stdout.strip()}")
        return ended.stdout

    def answers(self, name: str, *arguments: str) -> bool:
        """Whether a command of Slurm succeeds."""
        try:
            self.output(name, *arguments)
        except InputError:
            return False
        return True

    def stop(self) -> None:
        """End all daemons, jobs and job steps: whatever has this SLURM_CONF in its environment."""
        for daemon in reversed(self._daemons):
            daemon.terminate()
        deadline = time.monotonic() + END_S
        for daemon in self._daemons:
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(max(0.1, deadline - time.monotonic()))
        for number in self._processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        for daemon in self._daemons:
            daemon.wait()

    def _processes(self) -> Iterator[int]:
        mark = f"SLURM_CONF={self.conf}".encode()
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and int(folder.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if mark in (folder / "environ").read_bytes().split(b"\0"):
                        yield int(folder.name)
