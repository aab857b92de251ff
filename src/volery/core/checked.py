"""Files compared with their checksums, as `volery check` lists them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from volery.core.errors import InputError


class CheckedFile(msgspec.Struct, frozen=True):
    """A file that was compared with its checksums.

    Args:
        damages: Damages, each with its place; empty where there is none.
        note: Remark about a file that is whole as far as is known, for example that a crash has left its last record
            torn.
    """

    path: str
    damages: tuple[str, ...] = ()
    note: str = ""


def checked(path: Path, check: Callable[[Path], str | Iterable[str]]) -> CheckedFile:
    """Compare a file with its checksums.

    Args:
        check: Returns a note, or the damages; an `InputError` or `OSError` of it is a damage.
    """
    try:
        outcome = check(path)
        if isinstance(outcome, str):
            return CheckedFile(str(path), (), outcome)
        return CheckedFile(str(path), tuple(outcome))
    except OSError as error:
        return CheckedFile(str(path), (f"cannot be read: {error.strerror}",))
    except InputError as error:
        # The line of a damage names the file already.
        return CheckedFile(str(path), (error.problem if error.place == str(path) else str(error),))
