"""What all pages of Volery look like: colours, letters, tables. Reports embed it, the API serves it."""

from __future__ import annotations

from importlib import resources


def base_style() -> str:
    """The style sheet that every page begins with."""
    return resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")
