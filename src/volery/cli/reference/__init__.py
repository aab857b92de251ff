"""Reference pages of what is declared in code. The documentation is built with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from volery.cli.reference.api import api
from volery.cli.reference.commands import commands
from volery.cli.reference.files import files, results
from volery.cli.reference.measures import measures
from volery.cli.reference.messages import messages

PAGES: Final[dict[str, Callable[[], Iterator[str]]]] = {
    "commands": commands,
    "files": files,
    "api": api,
    "measures": measures,
    "results": results,
    "messages": messages,
}


def write_pages(folder: Path) -> None:
    """Write them all; the folder is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in PAGES.items():
        (folder / f"{name}.md").write_text("\n".join(make()) + "\n", encoding="utf-8")
