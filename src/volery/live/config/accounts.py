"""The accounts of the operating system that tasks run as, where the node agent is root.

Tasks never run as root: without an account to run them as, an agent that is root refuses to start.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from volery.core.errors import InputError

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

    def own(self, folder: Path, files: Iterable[int] = ()) -> None:
        """Give a folder and files that are open there to the account, and to nobody else.

        Raises:
            OSError: it cannot be given.
        """
        for descriptor in files:
            os.fchown(descriptor, self.uid, self.gid)
        folder.chmod(0o700)
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
        for account in set(self._by_user.values()):
            words = [SHELL, "-c", 'cd "$0"', str(folder.resolve())]
            tried = subprocess.run(words, capture_output=True, check=False, cwd="/", **account.becoming())  # noqa: S603 - ours
            if tried.returncode:
                problem = f"{account.name}, whom tasks run as, cannot get there; chmod o+x what is above, or move it"
                raise InputError(str(folder), problem)


def _account(name: str) -> Account:
    try:
        found = pwd.getpwnam(name)
    except (KeyError, ValueError):
        problem = f"there is no account {name[:80]!r} on this machine; useradd --system makes one"
        raise InputError("run_as", problem) from None
    if found.pw_uid == 0:
        raise InputError("run_as", f"{name!r} is root, and tasks never run as root; name another account")
    groups = tuple(group for group in os.getgrouplist(name, found.pw_gid) if group != 0)
    if found.pw_gid == 0:
        raise InputError("run_as", f"{name!r} is in root's group, and tasks never are; name another account")
    return Account(name, found.pw_uid, found.pw_gid, groups, found.pw_dir)
