"""The frame and the text of pictures drawn as SVG; lines do not cross text, colours fit light and dark pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from volery.look.html import escaped
from volery.report.plots import GRID, INK, PAGE, PALETTE

DARK: Final[Mapping[str, str]] = {
    INK: "#e6edf3",
    GRID: "#3d444d",
    PAGE: "#0d1117",
    PALETTE[0]: "#58b0e6",
    PALETTE[1]: "#ff8a3d",
    PALETTE[2]: "#2bc79b",
    PALETTE[6]: "#a0a0a0",
}
"""The colours of a dark page, by those of a light page."""


def text(x: float, y: float, words: str, anchor: str, size: int, *, bold: bool = False) -> str:
    """Text with a rim in the colour of the page, so that a line behind it does not cross it out."""
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}"{weight} fill="{INK}" stroke="{PAGE}" '
        f'stroke-width="3" paint-order="stroke">{escaped(words)}</text>'
    )


def picture(width: float, height: float, parts: Iterable[str], *, alone: bool) -> str:
    """The whole of a picture.

    Args:
        width, height: size in pixels.
        alone: true for a file of its own, with a background, and colours for light and dark; otherwise it is for
            `volery.report.page.figure`, which gives it the colours of its page.
    """
    background = f'<rect width="{width}" height="{height}" fill="{PAGE}"/>' if alone else ""
    return (
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" '
        "font-family=\"system-ui, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif\">\n"
        + (_dark() if alone else "")
        + "\n".join(part for part in (background, *parts) if part)
        + "\n</svg>\n"
    )


def _dark() -> str:
    rules = "".join(
        f'[fill="{light}"]{{fill:{dark}}}[stroke="{light}"]{{stroke:{dark}}}' for light, dark in DARK.items()
    )
    return f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>\n"


def short(value: float) -> str:
    """A coordinate to a hundredth, as short as it is."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def plain_text(
    x: float, y: float, words: str, anchor: str = "start", size: float = 11.0, fill: str = INK, attributes: str = ""
) -> str:
    """Text without a rim, with further attributes."""
    placed = "" if anchor == "start" else f' text-anchor="{anchor}"'
    at = f'x="{short(x)}" y="{short(y)}" font-size="{short(size)}"'
    return f'<text {at} fill="{fill}"{placed}{attributes}>{escaped(words)}</text>'


def drawing(width: float, height: float, parts: Iterable[str]) -> str:
    """The whole of a picture in points, in the font of plots; a page scales it."""
    return (
        f'<svg width="{short(width)}pt" height="{short(height)}pt" viewBox="0 0 {short(width)} {short(height)}" '
        'version="1.1" xmlns="http://www.w3.org/2000/svg" font-family="DejaVu Sans, sans-serif">\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )
