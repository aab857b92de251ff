"""What every page that we write has: one HTML file that needs nothing else and says what matters without scripts."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from importlib import resources
from pathlib import Path

from volery.core.errors import InputError
from volery.look import base_style
from volery.report.elements import escaped


def page(title: str, below: str, sections: Iterable[str], *styles: str, head: str = "", tail: str = "") -> str:
    """The page as text.

    Args:
        title: also the heading.
        below: a line of plain text under it.
        sections: HTML; empty ones are left out.
        styles: names of style sheets beside this module, after the common one.
        head: HTML for the end of the page's head.
        tail: HTML for the end of its body.
    """
    files = resources.files("volery.report")
    css = base_style() + "".join(files.joinpath(name).read_text(encoding="utf-8") for name in styles)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escaped(title)} · Volery</title>\n<style>\n{css}</style>\n{head}</head>\n<body>\n"
        f"<header><h1>{escaped(title)}</h1>"
        f'<p class="soft">{escaped(below)}</p></header>\n'
        + "\n".join(part for part in sections if part)
        + f"\n{tail}</body></html>\n"
    )


def write_page(path: Path, text: str) -> None:
    """Write a page; an earlier one is replaced at once or not at all.

    Raises:
        InputError: the path names no file, or it cannot be written.
    """
    if not path.name:
        raise InputError("page", f"{str(path)!r} names no file; give the name of one")
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        raise InputError(str(path), f"cannot be written ({error.strerror}); make the folder writable") from None
    finally:
        with suppress(OSError):  # a file system that became read-only refuses this, too
            unfinished.unlink(missing_ok=True)
