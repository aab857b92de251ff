"""Appearance of all pages, reports and live: style sheet, scripts, elements, and numbers as text."""

from __future__ import annotations

from importlib import resources


def base_style() -> str:
    """The style sheet that every page begins with."""
    return resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")


def field_script() -> str:
    """The script of the field of cells: `cellField`, `fillCell`, `frameCell` and so on."""
    return resources.files(__package__).joinpath("field.js").read_text(encoding="utf-8")
