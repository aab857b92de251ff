"""Pieces of the live page."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import Response

from volery.core.reasons import Chosen, Decision
from volery.live.dashboard.overview import CELLS_MAX, Cell, ages, cells_of, inconsistencies, waits
from volery.live.dashboard.tasks import TAIL_BYTES, Tail, dumped, is_text, legible, tail_of
from volery.live.messages import DecisionReport
from volery.live.service.authentication import SESSION_S, Authenticator, Sessions, TokenFile
from volery.live.service.figures import AllocationPercentiles, allocation
from volery.live.service.outputs import OutputRequests, Outputs
from volery.live.service.reports import DecisionBook, ThroughputMeter
from volery.live.status import NodeStatus, PairStatus, TaskStatus


def test_the_pace_is_that_of_the_last_minute() -> None:
    now_s = [0.0]
    pace = ThroughputMeter(lambda: now_s[0])
    assert pace.per_second(0) is None
    for at_s, ended, told in ((10.0, 200, 20.0), (60.0, 700, 700 / 60), (70.0, 700, 500 / 60), (200.0, 700, 0.0)):
        now_s[0] = at_s
        pace.note(ended)
        assert pace.per_second(ended) == pytest.approx(told)
    now_s[0] = 1000.0
    assert pace.per_second(700) == 0.0, "although nobody has noted anything for a long time"


def test_allocation_times_are_told_by_the_smallest_that_so_many_do_not_exceed() -> None:
    assert allocation([1000 * value for value in range(100, 0, -1)]) == AllocationPercentiles(
        tasks=100, p50=50_000, p95=95_000, p99=99_000
    )
    assert allocation([7]) == AllocationPercentiles(tasks=1, p50=7, p95=7, p99=7)
    assert allocation([]) is None
    drawn = waits(AllocationPercentiles(tasks=3, p50=1000, p95=2000, p99=4000))
    assert drawn is not None
    assert re.findall(r'class="count">(.*?)</span>.*?width="(.*?)"', drawn) == [
        ("1.00 ms", "25.00"),
        ("2.00 ms", "50.00"),
        ("4.00 ms", "100.00"),
    ]


def test_views_are_as_dark_as_they_are_wrong_and_an_old_or_idle_one_alarms_nobody() -> None:
    pairs = [
        PairStatus(
            by="gm/0",
            asked="lm/10",
            decisions=1000,
            refused=500,
            view_age_us=9,
            recent=200,
            recent_refused=100,
            recent_view_age_us=2000,
        ),
        PairStatus(by="gm/0", asked="lm/2", decisions=9, refused=0, view_age_us=4000),
        PairStatus(
            by="gm/1",
            asked="lm/2",
            decisions=8,
            refused=0,
            view_age_us=9,
            recent=8,
            recent_refused=7,
            recent_view_age_us=1000,
        ),
    ]
    old, wrong = ages(pairs)[0], inconsistencies(pairs)[0]
    assert re.findall(r'scope="col">(.*?)<', old) == ["lm/2", "lm/10"]
    cells = r'<td class="(heat.)">(.*?)<small>(.*?)</small>'
    assert re.findall(cells, old) == [
        ("heat0", "\N{EN DASH}", "4.00 ms before"),
        ("heat0", "2.00 ms", "200 decisions"),
        ("heat0", "1.00 ms", "8 decisions"),
    ]
    assert re.findall(cells, wrong) == [
        ("heat0", "\N{EN DASH}", "since the start 0 of 9"),
        ("heat4", "100 of 200", "since the start 500 of 1,000"),
        ("heat0", "7 of 8", "since the start 0 of 8"),
    ]


def test_what_is_decided_counts_as_recent_for_five_minutes() -> None:
    now_s = [0.0]
    book = DecisionBook(lambda: now_s[0])

    def decide(chosen: Chosen, age_us: int) -> None:
        decision = Decision(task=1, job=0, chosen=chosen, asked="lm/0", view_age_us=age_us)
        book.note(DecisionReport("gm/0", 0, decision))

    decide("placed", 1000)
    now_s[0] = 200.0
    decide("placed", 3000)
    decide("refused", 0)
    decide("preempted", 0)
    (pair,) = book.pairs()
    assert (pair.decisions, pair.refused, pair.view_age_us) == (2, 1, 2000)
    assert (pair.recent, pair.recent_refused, pair.recent_view_age_us) == (2, 1, 2000)
    now_s[0] = 310.0
    (pair,) = book.pairs()
    assert (pair.recent, pair.recent_view_age_us) == (1, 3000)
    now_s[0] = 600.0
    (pair,) = book.pairs()
    assert (pair.decisions, pair.recent, pair.recent_refused, pair.recent_view_age_us) == (2, 0, 0, None)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\x1b[31mred\x1b[0m\x1b]0;title\x07", "red"),
        (b"a\r\nb\rc\r\r\n", "a\nb\nc\n"),
        ("\u202eturned\u200f".encode(), "\ufffdturned\ufffd"),
        (b"\0\x08", "\ufffd\ufffd"),
    ],
)
def test_output_is_made_legible(content: bytes, told: str) -> None:
    assert legible(content) == told


def test_a_character_that_is_not_whole_yet_is_left_for_later(tmp_path: Path) -> None:
    folder, bird = tmp_path / "0" / "0.0", "\U0001f426".encode()
    folder.mkdir(parents=True)
    (folder / "stdout").write_bytes(b"hi " + bird[:2])
    outputs = Outputs(tmp_path, OutputRequests(lambda to, message: None, {}))
    task = TaskStatus(job=0, index=0, state="running", folder="0/0.0")

    def tail_from(stream: str, since: int) -> Tail | None:
        return asyncio.run(tail_of(outputs, task, stream, since))

    first = tail_from("stdout", 0)
    assert first is not None
    assert (first.text, first.end, first.size) == ("hi ", 3, 5)
    (folder / "stdout").write_bytes(b"hi " + bird)
    more = tail_from("stdout", first.end)
    assert more is not None
    assert (more.text, more.end, more.skipped) == ("\U0001f426", 7, 0)
    (folder / "stdout").write_bytes(b"x" * 100_000)
    last = tail_from("stdout", more.end)
    assert last is not None
    assert (len(last.text), last.end, last.skipped) == (TAIL_BYTES, 100_000, 100_000 - TAIL_BYTES - 7)
    empty = tail_from("stderr", 0)
    assert empty is not None
    assert (empty.text, empty.size) == ("", 0)


def test_what_is_no_text_is_shown_in_hexadecimal() -> None:
    assert not is_text(b"ELF\0\1\2")
    assert not is_text(bytes(range(128, 256)) * 4)
    assert is_text("\u05e9 gr\u00fc\u00df \U0001f426\n".encode())
    assert dumped(b"Volery\0\xff" + b"a" * 10, 32) == (
        "0000000020  56 6f 6c 65 72 79 00 ff 61 61 61 61 61 61 61 61  Volery..aaaaaaaa\n"
        "0000000030  61 61                                            aa"
    )


def asked(cookie: str = "", scheme: str = "https") -> Request:
    headers = [(b"host", b"x"), (b"cookie", cookie.encode())]
    return Request({"type": "http", "scheme": scheme, "path": "/", "headers": headers, "query_string": b""})


def test_a_session_ends_after_half_a_day(tmp_path: Path) -> None:
    tokens, now_s = TokenFile(tmp_path), [0.0]
    token = tokens.add("ada", "user")[0]
    sessions, answer = Sessions(Authenticator(tokens), lambda: now_s[0]), Response()
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
    wrong = {"node/4": (3, 2), "node/5": (1, 1)}
    found = cells_of(nodes[4:6], wrong=wrong)
    assert [(cell.believed_free, cell.believed_taken) for cell in found] == [(1, 1), (0, 1)], "of 2 slots 1 and 0 run"
    found = cells_of(nodes)
    assert len(found) == CELLS_MAX
    assert [sum(column) for column in list(zip(*map(msgspec.structs.astuple, found), strict=True))[1:]] == [
        1_203,
        2_406,
        401,
        1,
        0,
        0,
        0,
    ]
