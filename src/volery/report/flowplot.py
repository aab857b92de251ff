"""The message flow of a design as a picture: a box and a line per role, a labelled arrow per message.

Drawn by hand: the same flow gives the same bytes. From top to bottom stand the messages that lead away from the
submitter down to the task on its machine, then those from a role to itself, then those that lead back. That is no
order of time. Tables of states are drawn in the same way: a box per state, an arrow per transition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from volery.core.flow import TASK, Flow, Hop, Role
from volery.core.model import SUBMITTER
from volery.look.html import escaped
from volery.report.plots import GRID, INK, PAGE, PALETTE

LETTER, SMALL_LETTER = 7.0, 6.2
"""Widths of a letter in pixels, on the safe side: a picture may be shown in any sans-serif font."""
LINE, ROW, GAP = 16, 24, 10
"""Heights in pixels: of a line in a box, of a message, between groups of messages."""
MARGIN, PADDING, HEAD = 14, 10, 9
LOOP = 26
"""The reach of an arrow from a role to itself, pixels."""
AWAY, BACK, ITSELF, DRIVER = PALETTE[0], PALETTE[1], PALETTE[2], PALETTE[6]
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
HEARD: Final[Mapping[str, str]] = {
    "TimerFired": "timers",
    "Computed": "computed answers",
    "PeerLost": "lost peers",
    "PeerBack": "lost peers",
    "Adopted": "adopted tasks",
}
LINKED_NOTE: Final = "All of this travels in numbered frames that are acknowledged and repeated."
CAPTION: Final = (
    "Boxes are roles, arrows are messages: blue away from the submitter, orange back, green from a role to itself; "
    "dashed is what the machine does. What a role says under other parameters alone is shown, too. "
    "The arrows stand in no order of time."
)


def flow_svg(flow: Flow, *, alone: bool = True) -> str:
    """The picture.

    Args:
        alone: true for a file of its own, with a background, and colours for light and dark; otherwise it is for
            `volery.report.page.figure`, which gives it the colours of its page.
    """
    boxes = {SUBMITTER: [SUBMITTER], **{role.name: _said(role) for role in flow.roles}, TASK: [TASK]}
    return arrows_svg(boxes, flow.hops, LINKED_NOTE if flow.linked else "", alone=alone)


def arrows_svg(boxes: Mapping[str, list[str]], hops: Sequence[Hop], note: str = "", *, alone: bool = True) -> str:
    """The picture of boxes, each with lines of text that begin with its name, and of arrows between them."""
    centre, width = _columns(hops, boxes)

    top = MARGIN + LINE * max(len(lines) for lines in boxes.values()) + PADDING
    rows, bottom = _rows(hops, top)
    parts = [*_lifelines(centre, top, bottom), *_boxes(boxes, centre, top)]
    parts += [part for hop, y in rows for part in _arrow(hop, y, centre)]

    if note:
        bottom += LINE
        parts.append(_text(MARGIN, bottom, note, "start", 11))
    return _picture(width, bottom + MARGIN, parts, alone=alone)


def _said(role: Role) -> list[str]:
    """The lines of a box: its name, who plays it, how many there are, what the driver tells it."""
    count = "one per machine" if role.on_machines else "one" if role.count == 1 else f"{role.count} of them"
    events = list(dict.fromkeys(HEARD[event] for event in role.driver))
    return [role.name, *role.kinds, count, *events]


def _columns(hops: Sequence[Hop], boxes: Mapping[str, list[str]]) -> tuple[dict[str, int], int]:
    """The place of each role's line, and the whole width: labels fit between neighbours."""
    half = {name: _box_width(lines) / 2 for name, lines in boxes.items()}
    order = list(boxes)
    need = {pair: half[pair[0]] + half[pair[1]] + 2 * PADDING for pair in pairwise(order)}

    for hop in hops:
        label = LETTER * len(hop.message)
        for left_role, right_role in need:
            # Labels between neighbours need the room; longer arrows have it.
            if {hop.source, hop.to} == {left_role, right_role}:
                need[left_role, right_role] = max(need[left_role, right_role], label + 2 * PADDING + 2 * HEAD)
            elif hop.source == hop.to == left_role:
                need[left_role, right_role] = max(need[left_role, right_role], label + LOOP + 2 * PADDING)
    at = MARGIN + half[order[0]]
    centre = {order[0]: round(at)}
    for left_role, right_role in pairwise(order):
        at += need[left_role, right_role]
        centre[right_role] = round(at)

    loops = [LETTER * len(hop.message) + LOOP + PADDING for hop in hops if hop.source == hop.to == order[-1]]
    return centre, round(at + max(half[order[-1]], *loops, 0) + MARGIN)


def _box_width(lines: list[str]) -> float:
    return max(LETTER * len(lines[0]) * 1.15, SMALL_LETTER * max(map(len, lines))) + 2 * PADDING


def _rows(hops: Sequence[Hop], top: int) -> tuple[list[tuple[Hop, int]], int]:
    """Each message with its height; between two roles none stands nearer than it has to."""
    rows: list[tuple[Hop, int]] = []
    y = top + PADDING
    pair_before: tuple[str, str] | None = None

    for hop in hops:
        pair = (hop.source, hop.to)
        y += ROW + GAP * (pair_before is not None and pair != pair_before)
        pair_before = pair
        rows.append((hop, y))
    return rows, y + PADDING


def _lifelines(centre: Mapping[str, int], top: int, bottom: int) -> Iterator[str]:
    for name, x in centre.items():
        dashes = ' stroke-dasharray="3 4"' if name == TASK else ""
        yield f'<path d="M{x} {top}V{bottom}" stroke="{GRID}" stroke-width="2"{dashes}/>'


def _boxes(boxes: Mapping[str, list[str]], centre: Mapping[str, int], top: int) -> Iterator[str]:
    for name, lines in boxes.items():
        width, x = round(_box_width(lines)), centre[name]
        is_end = name in (SUBMITTER, TASK)
        dashes = ' stroke-dasharray="4 3"' if is_end else ""

        yield (
            f'<rect x="{x - width // 2}" y="{MARGIN}" width="{width}" height="{top - MARGIN}" rx="6" fill="{PAGE}" '
            f'stroke="{INK}" stroke-width="1.2"{dashes}/>'
        )
        for place, line in enumerate(lines):
            y = MARGIN + LINE * (place + 1)
            yield _text(x, y, line, "middle", 11 if place else 13, bold=not place and not is_end)


def _arrow(hop: Hop, y: int, centre: Mapping[str, int]) -> Iterator[str]:
    start, end = centre[hop.source], centre[hop.to]
    colour = _colour(hop, start, end)
    dashes = ' stroke-dasharray="5 3"' if TASK in (hop.source, hop.to) else ""

    if start == end:
        path = f"M{start} {y - 8}h{LOOP}v8H{start + HEAD}"
        tip = start
        direction = -1
        label = _text(start + LOOP + 5, y, hop.message, "start", 12)
    else:
        direction = 1 if end > start else -1
        path = f"M{start} {y}H{end - direction * HEAD}"
        tip = end
        label = _text(round((start + end - direction * HEAD) / 2), y - 5, hop.message, "middle", 12)

    yield label
    yield f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dashes}/>'
    yield f'<path d="M{tip} {y}l{-direction * HEAD} -4v8z" fill="{colour}"/>'


def _colour(hop: Hop, start: int, end: int) -> str:
    if TASK in (hop.source, hop.to):
        return DRIVER
    return ITSELF if start == end else AWAY if start < end else BACK


def _text(x: float, y: float, words: str, anchor: str, size: int, *, bold: bool = False) -> str:
    """Text with a rim in the colour of the page, so that a line behind it does not cross it out."""
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}"{weight} fill="{INK}" stroke="{PAGE}" '
        f'stroke-width="3" paint-order="stroke">{escaped(words)}</text>'
    )


def _picture(width: float, height: float, parts: Iterable[str], *, alone: bool) -> str:
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
