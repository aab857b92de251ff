"""The picture of a message flow: every role and message is in it, inside its frame, the same bytes each time."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from volery.architectures import REGISTRY, lookup
from volery.core.flow import Flow
from volery.report.flowplot import LINKED_NOTE, flow_svg
from volery.report.page import figure
from volery.study.designs import example_flow

TEXT = "{http://www.w3.org/2000/svg}text"


def flow(name: str) -> Flow:
    return example_flow(lookup(name), lookup(name).defaults)


@pytest.mark.parametrize("name", REGISTRY)
def test_every_role_and_message_is_there_and_no_text_leaves_the_frame(name: str) -> None:
    found = flow(name)
    root = ElementTree.fromstring(flow_svg(found))
    width, height = int(root.attrib["width"]), int(root.attrib["height"])
    texts = [each.text or "" for each in root.iter(TEXT)]
    assert {role.name for role in found.roles} | {"submitter", "task"} <= set(texts)
    assert all(texts.count(hop.message) >= 1 for hop in found.hops)
    assert sum(texts.count(name) for name in {hop.message for hop in found.hops}) == len(found.hops)
    for each in root.iter(TEXT):
        reach = 3.2 * len(each.text or "") * (2 if each.attrib["text-anchor"] == "start" else 1)
        x = float(each.attrib["x"])
        assert x + reach <= width
        assert x - (reach if each.attrib["text-anchor"] == "middle" else 0) >= 0
        assert 0 < float(each.attrib["y"]) < height


def test_labels_of_one_row_do_not_meet() -> None:
    root = ElementTree.fromstring(flow_svg(flow("phoenix")))
    rows = [each.attrib["y"] for each in root.iter(TEXT) if each.attrib["font-size"] == "12"]
    assert len(rows) == len(set(rows)), "each message has a row of its own"


def test_the_same_flow_gives_the_same_bytes() -> None:
    assert flow_svg(flow("megha")) == flow_svg(flow("megha"))


def test_a_picture_alone_is_readable_on_a_dark_page_and_one_in_a_page_takes_its_colours() -> None:
    alone, inside = flow_svg(flow("pigeon")), figure(flow_svg(flow("pigeon"), alone=False), "flow", "Messages")
    assert "prefers-color-scheme: dark" in alone
    for colour in set(re.findall(r'(?:fill|stroke)="(#[0-9a-f]{6})"', alone)):
        assert f'"{colour}"]{{' in alone, f"{colour} has no counterpart on a dark page"
    assert not re.search(r'(?:fill|stroke)="#', inside)
    assert "<style" not in inside


def test_links_are_told_in_words() -> None:
    from volery.architectures import configure

    sparrow = lookup("sparrow")
    assert LINKED_NOTE in flow_svg(example_flow(sparrow, configure(sparrow, {"reliable": "true"})))
    assert LINKED_NOTE not in flow_svg(flow("sparrow"))
