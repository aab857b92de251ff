"""TOML files, with every failure named by file and line."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from volery.core.errors import InputError


def read_table(path: Path) -> dict[str, Any]:
    """The content of a TOML file.

    Raises:
        InputError: it cannot be read, or is no TOML; where a line is known, the place is FILE:LINE:COLUMN.
    """
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text)
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(str(path), f"is not UTF-8 text: {error.reason}") from None
    except tomllib.TOMLDecodeError as error:
        problem, _, at = str(error).partition(" (at ")
        numbers = re.findall(r"\d+", at) or [str(text.count("\n") + 1)]
        raise InputError(":".join((str(path), *numbers)), f"is not TOML: {problem}") from None
