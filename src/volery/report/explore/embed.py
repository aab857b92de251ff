"""The scripts of a page, inline, and the policy under which a browser runs these and nothing else."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from typing import Any, Final

from volery.look.html import EMPTY, Markup, joined, tag
from volery.report.explore.content import as_json

SCRIPTS: Final = ("core.js", "tables.js", "delays.js", "course.js", "conflicts.js", "pairs.js", "why.js")
STYLE: Final = "explore/explore.css"
CONTENT_ID: Final = "volery-content"


def script() -> str:
    """The scripts as one, which nothing outside it can reach."""
    files = resources.files("volery.report.explore")
    text = "\n".join(files.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{text}\nstart();\n}})();'


def policy(text: str, *, serves: bool = False) -> str:
    """The content security policy of a page with this script: no network but, where there is one, its own server."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    connect = "connect-src 'self'; " if serves else ""
    return (
        f"default-src 'none'; {connect}script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )


def head(text: str, *, serves: bool = False) -> Markup:
    """The element that states the policy."""
    return tag("meta", http_equiv="Content-Security-Policy", content=policy(text, serves=serves))


def scripted(content: Any, text: str) -> Markup:
    """The content and the script that reads it, for the end of a page."""
    content_element = tag("script", Markup(as_json(content).decode()), type="application/json", id=CONTENT_ID)
    return joined((content_element, tag("script", Markup(text))))


def mount(view: str) -> Markup:
    """The element in which a script draws a view; empty without scripts."""
    return tag("div", data_view=view)


def still(view: str, *pictures: Markup) -> Markup:
    """Pictures that stand for a view where no script draws it."""
    return tag("div", *pictures, data_still=view) if pictures else EMPTY
