"""Start of processes: as the account of a user, and behind a gate where a process has to be confined first.

Tasks never run as root: without an account to run them as, an agent that is root refuses to start.

On Linux credentials belong to a thread: the C library keeps those of all threads equal, the system calls do not. So one
thread of this process becomes the account, for good, and whatever it starts runs as that account from the first moment
on. The `user` of `subprocess.Popen` would do as well, but copies this process's page tables at every start (fork
instead of vfork), which takes three times the CPU.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import pwd
import resource
import stat
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from volery.core.errors import InputError
from volery.live.node.descendants import MARK_LIMIT

_CALLS: Final = {"x86_64": (116, 119, 117), "aarch64": (159, 149, 147)}
"""Numbers of the system calls setgroups, setresgid and setresuid."""


class AccountSpawner:
    """Starts processes of one account."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._calls = _CALLS.get(platform.machine())
        self._thread = ThreadPoolExecutor(1, f"as {account.name}", self._become)

    def start(self, words: Sequence[str], cpus: Collection[int], mark: int, **options: Any) -> subprocess.Popen[bytes]:
        """As `started`.

        Raises:
            OSError: it cannot be started, or this process cannot become the account.
        """
        if self._calls is None:
            return started(words, cpus, mark, **options, **self._account.becoming())
        try:
            return self._thread.submit(started, words, cpus, mark, **options).result()
        except BrokenExecutor:
            raise PermissionError(f"this host cannot run anything as {self._account.name}") from None
        except RuntimeError as error:  # the process may have no further thread
            raise OSError(errno.EAGAIN, str(error)) from None

    def close(self) -> None:
        """End the thread; what waits for it is never started."""
        self._thread.shutdown(cancel_futures=True)

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

        # Checked, since a process that kept another identity would run what users submit with it.
        if os.getresuid() != (uid, uid, uid) or os.getresgid() != (gid, gid, gid):
            raise PermissionError(f"did not become {self._account.name}")


class Spawners:
    """Starts processes of any account: the only way in which executors start them."""

    def __init__(self) -> None:
        self._by_account: dict[Account, AccountSpawner] = {}

    def start(
        self, account: Account | None, words: Sequence[str], cpus: Collection[int] = (), mark: int = 0, **options: Any
    ) -> subprocess.Popen[bytes]:
        """As `started`, as an account; None: as this process.

        Raises:
            OSError: it cannot be started, or this process cannot become the account.
        """
        if account is None:
            return started(words, cpus, mark, **options)

        if account not in self._by_account:
            self._by_account[account] = AccountSpawner(account)

        spawner = self._by_account[account]
        try:
            return spawner.start(words, cpus, mark, **options)
        except (BlockingIOError, PermissionError):  # it may have no thread; the next start makes another
            del self._by_account[account]
            spawner.close()
            raise

    def close(self) -> None:
        for starter in self._by_account.values():
            starter.close()


def started(words: Sequence[str], cpus: Collection[int] = (), mark: int = 0, **options: Any) -> subprocess.Popen[bytes]:
    """Start a process as `subprocess.Popen` does, on these processors only; none given: where this process may run.

    Processors and mark are inherited from this thread and this process: those of another account's process can be
    changed by few.

    Args:
        words, options: arguments of `subprocess.Popen`.
        cpus: numbers of processors.
        mark: mark of the process and of all that it starts, see `descendants`; 0: none.
    """
    all_cpus = os.sched_getaffinity(0) if cpus else ()
    mark_before, hard = resource.getrlimit(MARK_LIMIT)
    is_marked = mark > 0 and (hard == resource.RLIM_INFINITY or hard >= mark)
    try:
        if cpus:
            os.sched_setaffinity(0, cpus)
        if is_marked:
            resource.setrlimit(MARK_LIMIT, (mark, hard))
        return subprocess.Popen(words, **options)  # noqa: S603 - running what users submit is the purpose
    finally:
        if is_marked:
            resource.setrlimit(MARK_LIMIT, (mark_before, hard))
        if cpus:
            os.sched_setaffinity(0, all_cpus)


_WAIT: Final = 'read -r go && {limit}exec "$@" <"$0"'
_KB_PER_MB: Final = 1024


class StartGate:
    """The gate of one process: it waits to be confined before it becomes the program of a task.

    A process can be put into a control group, or be given limits, only once it exists, and by then it may have started
    others, which are not in it. So what is started is a shell that reads one line and then becomes the program: the
    line is written when it is held. (A new process can also begin in a group, by clone3, which nothing in Python
    offers.)

    Args:
        stdin: path of the input of the program; by default it has none.
        memory_mb: limit of the data segments of the process, and of each that it starts; 0: no limit.

    Attributes:
        outside: a descriptor, the standard input of the process that waits.
    """

    __slots__ = ("_inside", "_script", "_stdin", "outside")

    def __init__(self, stdin: Path | None = None, memory_mb: int = 0) -> None:
        # The process sets its own limit: another account's processes can be limited by few.
        self._script = _WAIT.format(limit=f"ulimit -d {memory_mb * _KB_PER_MB} && " if memory_mb else "")
        self.outside, self._inside = os.pipe()
        self._stdin = os.devnull if stdin is None else str(stdin)

    def words(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Program and arguments of the process that waits, and becomes this program."""
        return (SHELL, "-c", self._script, self._stdin, *argv)

    def open(self) -> None:
        """Let the process become its program."""
        with suppress(BrokenPipeError):  # it has ended already
            os.write(self._inside, b"\n")

    def close(self) -> None:
        """End the process that still waits."""
        os.close(self.outside)
        os.close(self._inside)


def demand_program(name: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Refuse a program with the error of the kernel, instead of the shell's.

    Args:
        name: as it was given; it is not on any absolute path.

    Raises:
        OSError: it is not there, or nobody may execute it.
    """
    if not folder.is_dir():
        return  # that error is of the folder

    places = [folder / part for part in environment.get("PATH", os.defpath).split(":") if not part.startswith("/")]
    candidates = [folder / name] if "/" in name else [place / name for place in places]
    modes = [path.stat().st_mode for path in candidates if path.exists()]
    if not any(stat.S_ISREG(mode) and mode & 0o111 for mode in modes):
        number = errno.EACCES if modes else errno.ENOENT
        raise OSError(number, os.strerror(number), name)


ANY_USER: Final = "*"
SHELL: Final = "/bin/sh"


class Account(msgspec.Struct, frozen=True):
    """An account that tasks run as."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str

    def becoming(self) -> dict[str, Any]:
        """Arguments of `subprocess.Popen` for a process of this account."""
        return {"user": self.uid, "group": self.gid, "extra_groups": list(self.groups)}

    def environment(self) -> dict[str, str]:
        """Environment variables that name the account of a process."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}

    def own(self, folder: str, within: Iterable[int | str] = ()) -> None:
        """Give the folder of an attempt and what is in it to the account, and to nobody else.

        Args:
            within: descriptors of files, or paths of folders.

        Raises:
            OSError: it cannot be given.
        """
        for item in within:
            os.chown(item, self.uid, self.gid)
        os.chmod(folder, 0o700)  # noqa: PTH101 - as in `AttemptFolders`
        os.chown(folder, self.uid, self.gid)


class Accounts:
    """The account of each user's tasks.

    Args:
        run_as: user of the federation -> account, `*` for all others; or one account for all. Empty: this process's
            own, which must not be root then.

    Raises:
        InputError: this process is root and no account is named, an account does not exist or is root, or this process
            is not root and so cannot become anybody else.
    """

    def __init__(self, run_as: str | Mapping[str, str]) -> None:
        named = {ANY_USER: run_as} if isinstance(run_as, str) and run_as else dict(run_as or {})

        root = os.geteuid() == 0
        if root and not named:
            problem = 'this host runs as root, and tasks never do; name an account, as run_as = "nobody" (--run-as)'
            raise InputError("run_as", problem + ", or start it as another user")

        self._by_user: dict[str, Account] = {}
        for user, name in named.items():
            account = _account(name)
            if not root and account.uid != os.geteuid():
                problem = f"only root can run tasks as {name}, and this host runs as uid {os.geteuid()}; leave it out"
                raise InputError(f"run_as.{user}", problem)
            if root:
                self._by_user[user] = account

    def of(self, user: str) -> Account | None:
        """The account that a user's tasks run as; None: this process's own.

        Raises:
            ValueError: there is none for this user.
        """
        if not self._by_user:
            return None
        account = self._by_user.get(user) or self._by_user.get(ANY_USER)
        if account is None:
            raise ValueError(f"no account is named to run the tasks of user {user!r} as; see run_as")
        return account

    def named(self) -> list[Account]:
        """The accounts that tasks run as; none: this process's own."""
        return list(dict.fromkeys(self._by_user.values()))

    def users(self) -> tuple[int, ...]:
        """The users of the operating system whom tasks run as."""
        return tuple(account.uid for account in self.named()) or (os.geteuid(),)

    def check_folder(self, folder: Path) -> None:
        """Make the folder of the attempts, and demand that every account can get there.

        Raises:
            InputError: one cannot, or it cannot be made.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if self._by_user:
                folder.chmod(0o711)
        except OSError as error:
            raise InputError(str(folder), f"cannot be made for the tasks: {error.strerror}") from None
        for account in self.named():
            words = [SHELL, "-c", 'cd "$0"', str(folder.resolve())]
            attempt = subprocess.run(words, capture_output=True, check=False, cwd="/", **account.becoming())  # noqa: S603 - ours
            if attempt.returncode:
                problem = f"{account.name}, whom tasks run as, cannot get there; chmod o+x what is above, or move it"
                raise InputError(str(folder), problem)


def _account(name: str) -> Account:
    try:
        entry = pwd.getpwnam(name)
    except (KeyError, ValueError):
        problem = f"there is no account {name[:80]!r} on this machine; useradd --system makes one"
        raise InputError("run_as", problem) from None

    if entry.pw_uid == 0:
        raise InputError("run_as", f"{name!r} is root, and tasks never run as root; name another account")

    groups = tuple(group for group in os.getgrouplist(name, entry.pw_gid) if group != 0)
    if entry.pw_gid == 0:
        raise InputError("run_as", f"{name!r} is in root's group, and tasks never are; name another account")

    return Account(name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir)
