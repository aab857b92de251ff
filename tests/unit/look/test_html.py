"""Elements of pages."""

from __future__ import annotations

from volery.look.html import EMPTY, Markup, address, document, escaped, moment, name_of, section, tag


def test_what_is_no_markup_is_escaped_also_between_quotes() -> None:
    assert tag("a", '<b>&"', Markup("<i></i>"), href='"><script>', hidden=True, title=None) == (
        '<a href="&quot;&gt;&lt;script&gt;" hidden>&lt;b&gt;&amp;&quot;<i></i></a>'
    )
    assert escaped("a\u202eb\x1bc\nd\udcff\u061c") == "a\ufffdb\ufffdc\nd\ufffd\ufffd"
    assert len(name_of("x" * 10_000)) < 500
    assert moment(1 << 80) == str(1 << 80), "a moment that no calendar has"


def test_a_section_without_content_is_left_out() -> None:
    assert section("Nothing", None, EMPTY, "") == ""
    assert section("A & B", "<", tag("br")) == "<section><h2>A &amp; B</h2>&lt;<br></section>"


def test_moments_are_times_of_day_or_times_since_the_beginning_of_a_run() -> None:
    assert moment(None) == "\N{EN DASH}"
    assert moment(1_500_000) == "<time>1.500 s</time>"
    assert moment(1_700_000_000_123_456, fine=True) == (
        '<time datetime="2023-11-14T22:13:20.123Z">2023-11-14 22:13:20.123Z</time>'
    )


def test_addresses_leave_out_what_is_empty() -> None:
    assert address("/a", {"b": "c d", "e": None, "f": "", "g": 0}) == "/a?b=c+d&g=0"
    assert address("/a", {"e": None}) == "/a"


def test_a_document_escapes_its_title() -> None:
    text = document("<a>", tag("style", Markup("a > b {}")), tag("body", hidden=True))
    assert "<title>&lt;a&gt; \N{MIDDLE DOT} Volery</title><style>a > b {}</style></head><body hidden></body>" in text
