"""What all pages look like."""

from __future__ import annotations

import re

from volery.look import base_style


def test_every_colour_of_the_light_page_has_one_in_the_dark() -> None:
    light, dark = base_style().split("prefers-color-scheme: dark")
    named = re.compile(r"(--\w+): #")
    assert len(named.findall(light)) > 10
    assert set(named.findall(light)) == set(named.findall(dark))
