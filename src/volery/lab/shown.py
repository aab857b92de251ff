"""Objects that a notebook shows as HTML, and `print` as the text of a terminal."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final

from rich.console import Console, RenderableType
from rich.table import Table

from volery.lab.progress import NOTEBOOK_WIDTH, html_of

TEXT_WIDTH: Final = 132


class Shown(ABC):
    """Base of the lab's objects: `_rendered` gives what is shown."""

    @abstractmethod
    def _rendered(self, width: int) -> RenderableType:
        """The tables, fitted to a width in columns."""

    def _repr_html_(self) -> str:
        return html_of(self._rendered(NOTEBOOK_WIDTH), NOTEBOOK_WIDTH)

    def __str__(self) -> str:
        console = Console(file=io.StringIO(), width=TEXT_WIDTH, color_system=None, markup=False, force_jupyter=False)
        with console.capture() as capture:
            console.print(self._rendered(TEXT_WIDTH), highlight=False)
        return "\n".join(line.rstrip() for line in capture.get().splitlines())


def facts(rows: Mapping[str, object]) -> Table:
    """A table of names and values."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, value in rows.items():
        table.add_row(name, str(value))
    return table
