"""The design page of a recording: registry entry, documentation of the module, message flow."""

from __future__ import annotations

import base64
import inspect
import re
import sys
from collections.abc import Callable
from typing import Final

from volery.core.component import Architecture, Deployment
from volery.core.flow import Hop, flow_of
from volery.live.dashboard.frame import PageView
from volery.live.dashboard.tables import Column, table
from volery.look.html import Markup, Piece, facts, joined, name_of, section, tag
from volery.playback.bar import DESIGN

_LINK: Final = re.compile(r"\[([^]]*)\]\([^)]*\)")
_HOPS: Final = (
    Column("from", text=True), Column("message", text=True), Column("to", text=True), Column("meaning", text=True),
)  # fmt: skip


def design_view(entry: Architecture, deployment: Deployment, explanation: str, picture: Callable[[], str]) -> PageView:
    """The page of a design.

    Args:
        entry: of the registry.
        deployment: that ran.
        explanation: of the design, in Markdown: headings, paragraphs, code, links.
        picture: draws its flow of messages as SVG.
    """
    text = inspect.getdoc(sys.modules[entry.build.__module__]) or ""
    image = base64.b64encode(picture().encode()).decode()
    title = f"Message flow of {entry.name}, as in the table"
    drawn = tag("img", src=f"data:image/svg+xml;base64,{image}", class_="flow", alt=title)
    known = facts(
        ("summary", entry.summary), ("source", entry.source),
        ("its page in the documentation", tag("code", f"docs/architectures/{entry.name}.md")),
    )  # fmt: skip
    hops = [_hop(hop) for hop in flow_of(deployment).hops]
    parts = (
        known, *_prose(explanation), section("Message flow", drawn), section("Messages", table(_HOPS, hops)),
        section("Documentation of the module", tag("pre", text)),
    )  # fmt: skip
    return PageView(f"Design {entry.name}", joined(parts), place=DESIGN, every_s=0)


def _prose(explanation: str) -> list[Markup]:
    """Sections of paragraphs; links become plain text."""
    found = []
    for part in re.split(r"^## ", explanation, flags=re.MULTILINE):
        title, _, text = part.partition("\n")
        paragraphs = [tag("p", *_words(one)) for one in re.split(r"\n\s*\n", text.strip()) if one.strip()]
        if title.strip():
            found.append(section(title.strip(), *paragraphs))
    return found


def _words(text: str) -> list[Piece]:
    plain = _LINK.sub(r"\1", " ".join(text.split())).replace("*", "")
    return [tag("code", piece) if at % 2 else piece for at, piece in enumerate(plain.split("`"))]


def _hop(hop: Hop) -> tuple[Piece, ...]:
    return hop.source, hop.message, hop.to, name_of(hop.meaning)
