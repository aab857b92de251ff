"""Pieces of the live page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import Response

from volery.live.hosts.explaining import PairStatus
from volery.live.service.tokens import Gate, TokenFile
from volery.live.status import NodeStatus
from volery.live.window.cells import CELLS_MAX, Cell, cells_of
from volery.live.window.html import Markup, duration, escaped, moment, name_of, tag
from volery.live.window.overview import Pace, heat, waits
from volery.live.window.session import SESSION_S, Sessions


@pytest.mark.parametrize(
    ("us", "told"),
    [
        (0, "0 \N{MICRO SIGN}s"),
        (999_600, "1,000 ms"),
        (999, "999 \N{MICRO SIGN}s"),
        (1_500, "1.5 ms"),
        (2_594_000, "2.59 s"),
        (90_000_000, "1.5 min"),
        (9_000_000_000, "2.5 h"),
        (36_000_000_000_000, "10,000 h"),
        (None, "\N{EN DASH}"),
        (-1_500, "\N{MINUS SIGN}1.5 ms"),
    ],
)
def test_durations(us: int | None, told: str) -> None:
    assert duration(us) == told


def test_what_is_no_markup_is_escaped_also_between_quotes() -> None:
    assert tag("a", '<b>&"', Markup("<i></i>"), href='"><script>', hidden=True, title=None) == (
        '<a href="&quot;&gt;&lt;script&gt;" hidden>&lt;b&gt;&amp;&quot;<i></i></a>'
    )
    assert escaped("a\u202eb\x1bc\nd") == "a\ufffdb\ufffdc\nd"
    assert len(name_of("x" * 10_000)) < 500
    assert moment(1 << 80) == str(1 << 80), "a moment that no calendar has"


def test_the_pace_is_that_of_the_last_minute() -> None:
    now_s = [0.0]
    pace = Pace(lambda: now_s[0])
    assert pace.per_second(100) is None
    for at_s, ended, told in ((10.0, 200, 10.0), (60.0, 700, 10.0), (70.0, 700, 500 / 60), (200.0, 700, 0.0)):
        now_s[0] = at_s
        assert pace.per_second(ended) == pytest.approx(told)


def test_percentiles_and_the_heat_of_views() -> None:
    told = waits([1000 * value for value in range(1, 101)])
    assert told is not None
    assert "<dt>p50</dt><dd>51 ms</dd><dt>p95</dt><dd>96 ms</dd><dt>p99</dt><dd>100 ms</dd>" in told
    assert waits([]) is None
    drawn = heat([
        PairStatus(by="gm/0", asked="lm/0", decisions=10, refused=0, view_age_us=1000),
        PairStatus(by="gm/1", asked="lm/1", decisions=10, refused=5, view_age_us=2000),
    ])  # fmt: skip
    assert '<td class="heat0">1 ms; 0 of 10</td><td>\N{EN DASH}</td>' in drawn
    assert '<td class="heat4">2 ms; 5 of 10</td>' in drawn


def asked(cookie: str = "", scheme: str = "https") -> Request:
    headers = [(b"host", b"x"), (b"cookie", cookie.encode())]
    return Request({"type": "http", "scheme": scheme, "path": "/", "headers": headers, "query_string": b""})


def test_a_session_ends_after_half_a_day(tmp_path: Path) -> None:
    tokens, now_s = TokenFile(tmp_path), [0.0]
    token = tokens.add("ada", "user")[0]
    sessions, answer = Sessions(Gate(tokens), lambda: now_s[0]), Response()
    assert sessions.begin(asked(), token, answer)
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-volery=")
    assert "Secure" in cookie
    request = asked(cookie.partition(";")[0])
    assert (found := sessions.who(request)) is not None
    assert found.user == "ada"
    now_s[0] = SESSION_S
    assert sessions.who(request) is None


def test_a_field_has_a_cell_per_node_and_no_more_than_its_bound() -> None:
    machine: dict[str, Any] = {"arch": "x", "os": "x", "kernel": "x", "cores": 1, "memory_mb": 1, "labels": {}}
    nodes = [
        NodeStatus(address=f"node/{n}", slots=2, running=n % 3 % 2, drained=n == 5, **machine) for n in range(1_203)
    ]
    assert cells_of([]) == []
    assert cells_of(nodes[4:6]) == [Cell("node/4", 1, 2, 1, 0, 0), Cell("node/5", 1, 2, 0, 1, 0)]
    assert cells_of(nodes[4:6], {"node/4"})[0].lost == 1
    found = cells_of(nodes)
    assert len(found) == CELLS_MAX
    assert [sum(column) for column in list(zip(*map(msgspec.structs.astuple, found), strict=True))[1:]] == [
        1_203, 2_406, 401, 1, 0,
    ]  # fmt: skip
