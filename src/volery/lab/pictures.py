"""Pictures of results: drawn by matplotlib, shown by a notebook, and written as files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from volery.core.errors import InputError
from volery.report.plots import UNDATED, Size, figure_bytes, style, svg_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Picture:
    """A picture that a notebook shows.

    Attributes:
        figure: the `matplotlib.figure.Figure`, to change titles, axes and the like.
    """

    def __init__(self, draw: Callable[[], Figure], size: Size) -> None:
        self._size = size
        with style(size):
            self.figure = draw()

    def _repr_svg_(self) -> str:
        with style(self._size):
            return svg_text(self.figure, 0)

    def save(self, path: str | Path) -> Path:
        """Write the picture; the same results give the same bytes.

        Args:
            path: a name that ends in .svg, .pdf or .png.

        Raises:
            InputError: another ending, or the file cannot be written.
        """
        path = Path(path)
        if path.suffix not in UNDATED:
            raise InputError("path", f"a picture's name must end in .png, .svg or .pdf, not {path.name!r}")
        with style(self._size):
            content = figure_bytes(self.figure, path.suffix)
        try:
            path.write_bytes(content)
        except OSError as error:
            raise InputError("path", f"{path} cannot be written: {error.strerror}; choose another place") from None
        return path
