"""Processes of other accounts, started as fast as one's own.

On Linux credentials belong to a thread: the C library keeps those of all threads equal, the system calls do not. So one
thread of this process becomes the account, for good, and whatever it starts runs as that account from the first moment
on. The `user` of `subprocess.Popen` would do as well, but copies this process's page tables at every start (fork
instead of vfork), which takes three times the CPU.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import subprocess
from collections.abc import Collection, Sequence
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from typing import Any, Final

from volery.live.cluster.accounts import Account

_CALLS: Final = {"x86_64": (116, 119, 117), "aarch64": (159, 149, 147)}
"""Numbers of setgroups, setresgid and setresuid."""


class Starter:
    """Starts processes of one account.

    Args:
        account: whose.
    """

    def __init__(self, account: Account) -> None:
        self._account = account
        self._calls = _CALLS.get(platform.machine())
        self._thread = ThreadPoolExecutor(1, f"as {account.name}", self._become)

    def start(
        self, words: Sequence[str], cpus: Collection[int] = (), **options: Any
    ) -> subprocess.Popen[bytes]:  # fmt: skip
        """As `started`.

        Raises:
            OSError: it cannot be started, or this process cannot become the account.
        """
        if self._calls is None:
            return started(words, cpus, **options, **self._account.becoming())
        try:
            return self._thread.submit(started, words, cpus, **options).result()
        except BrokenExecutor:
            raise PermissionError(f"this host cannot run anything as {self._account.name}") from None

    def prlimit(self, pid: int, which: int, limits: tuple[int, int]) -> None:
        """As `resource.prlimit`, of a process of the account: root in a container may often not do that as itself.

        Raises:
            OSError: there is no such process, or it is not the account's.
        """
        if self._calls is None:
            resource.prlimit(pid, which, limits)
        else:
            self._thread.submit(resource.prlimit, pid, which, limits).result()

    def close(self) -> None:
        """Let the thread end."""
        self._thread.shutdown()

    def _become(self) -> None:
        """Take the account's identity in this thread alone, with no way back."""
        assert self._calls is not None
        call = ctypes.CDLL(None, use_errno=True).syscall
        uid, gid, groups = self._account.uid, self._account.gid, self._account.groups
        listed = (ctypes.c_uint32 * len(groups))(*groups)
        for number, arguments in zip(
            self._calls, ((len(groups), listed), (gid, gid, gid), (uid, uid, uid)), strict=True
        ):
            if call(ctypes.c_long(number), *arguments):
                raise OSError(ctypes.get_errno(), f"cannot become {self._account.name}")
        if os.getresuid() != (uid, uid, uid) or os.getresgid() != (gid, gid, gid):
            raise PermissionError(f"did not become {self._account.name}")


def started(words: Sequence[str], cpus: Collection[int] = (), **options: Any) -> subprocess.Popen[bytes]:
    """As `subprocess.Popen`, of a process that runs on these processors only; nothing: where this one may.

    They are inherited from this thread: those of another account's process can be changed by few.
    """
    if not cpus:
        return subprocess.Popen(words, **options)  # noqa: S603 - running what users submit is the purpose
    all_cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        return subprocess.Popen(words, **options)  # noqa: S603 - likewise
    finally:
        os.sched_setaffinity(0, all_cpus)
