"""Programs that exist and cannot be executed: their interpreter or their loader is not there.

The kernel and the shell call the program itself missing, or bad.
"""

from __future__ import annotations

import os
import shlex
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

NOT_EXECUTED: Final = (126, 127)
"""The exit codes with which a shell says that it could not execute a program."""
LINE_MAX: Final = 256
"""Bytes of a first line that the kernel reads."""
HEAD_BYTES: Final = 4_096
"""Bytes of a program that are read: they hold the first line of a script, or what a binary is linked for."""
ELF: Final = b"\x7fELF"
ELF_64_LITTLE: Final = b"\x02\x01"
HEADER_BYTES: Final = 64
SEGMENT_BYTES: Final = 56
PT_INTERP: Final = 3


def missing_interpreter(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    """The reason why a program that exists was not executed; empty where that was not it.

    Args:
        words: program and arguments; of a line for the shell, its first word counts.
        folder: folder in which it runs.
    """
    name = words[0]
    if words[:2] == ("sh", "-c") and len(words) > 2:
        try:
            name = shlex.split(words[2])[0]
        except (ValueError, IndexError):
            return ""

    program = _found(name, folder, environment)
    if program is None:
        return ""

    try:
        with program.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return ""

    if head.startswith(b"#!"):
        return _of_script(name, head.partition(b"\n")[0][2:LINE_MAX].decode(errors="replace"), folder, environment)

    loader = _loader(head)
    if not loader or Path(loader).exists():
        return ""

    return f"{name} is there, but not its loader {loader!r}: it was built for another system or C library"


def _loader(binary: bytes) -> str:
    """The loader that the beginning of an ELF file of 64 bits names; empty where it names none."""
    if not binary.startswith(ELF) or binary[4:6] != ELF_64_LITTLE or len(binary) < HEADER_BYTES:
        return ""
    (table,) = struct.unpack_from("<Q", binary, 32)
    size, count = struct.unpack_from("<HH", binary, 54)
    for at in range(table, min(table + size * count, len(binary) - SEGMENT_BYTES + 1), size or len(binary)):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", binary, at)
        if kind == PT_INTERP:
            return binary[offset : offset + length].rstrip(b"\0").decode(errors="replace")
    return ""


def _of_script(name: str, line: str, folder: Path, environment: Mapping[str, str]) -> str:
    """The reason of a script with this line after its `#!`."""
    words = [word for word in line.replace("\t", " ").split(" ") if word]
    if not words:
        return f"{name} names no interpreter after the #! of its first line"

    missing = words[0]
    if (folder / missing).exists():
        missing = _missing_for_env(words, folder, environment)

    if not missing:
        return ""

    reason = f"{name} is there, but not its interpreter {missing!r}"
    return f"{reason}; its lines end with \\r, as on Windows: dos2unix mends it" if line.endswith("\r") else reason


def _missing_for_env(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    """The program that `env` of a first line as `/usr/bin/env python3` does not find; empty where it does."""
    if Path(words[0]).name != "env":
        return ""
    program = next((word for word in words[1:] if word[0] != "-" and "=" not in word), "")
    return "" if not program or _found(program, folder, environment) else program


def _found(name: str, folder: Path, environment: Mapping[str, str]) -> Path | None:
    """The file that a program's name means to the kernel, if there is one."""
    parts = [""] if "/" in name else environment.get("PATH", os.defpath).split(":")
    return next((path for part in parts if (path := folder / part / name).is_file()), None)
