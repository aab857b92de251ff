"""The scripts of a page, inline, and the policy under which a browser runs these and nothing else."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from typing import Any, Final

from volery.report.explore.content import as_json
from volery.report.page import escaped

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


def head(text: str, *, serves: bool = False) -> str:
    """The element that states the policy."""
    return f'<meta http-equiv="Content-Security-Policy" content="{escaped(policy(text, serves=serves))}">\n'


def scripted(content: Any, text: str) -> str:
    """The content and the script that reads it, for the end of a page."""
    return (
        f'<script type="application/json" id="{CONTENT_ID}">{as_json(content).decode()}</script>\n'
        f"<script>{text}</script>"
    )


def mount(view: str) -> str:
    """The element in which a script draws a view; empty without scripts."""
    return f'<div data-view="{escaped(view)}"></div>'


def still(view: str, *pictures: str) -> str:
    """Pictures that stand for a view where no script draws it."""
    found = "".join(pictures)
    return f'<div data-still="{escaped(view)}">{found}</div>' if found else ""
