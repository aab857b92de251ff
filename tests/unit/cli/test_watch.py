"""`volery watch`: plays the run that is asked for, or writes it as a trace, or says which there are."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.comparison import compare
from uvicorn import Server

from volery.cli.main import main


def said(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(["watch", *map(str, words)])
    printed = capsys.readouterr()
    return int(left.value.code or 0), printed.out, printed.err


def events_of(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = msgspec.json.decode(path.read_bytes())["traceEvents"]
    return found


@pytest.mark.slow
def test_it_writes_a_kept_run_as_a_chrome_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, trace = tmp_path / "kept", tmp_path / "one.json"
    compare("oracle", "sparrow", trace="syn:4x5", workers=10, seeds=2, folder=folder)
    assert said(capsys, folder, "--run", "sparrow", "--seed", 1, "-o", trace)[:2] == (0, f"{trace}\n")
    first = trace.read_bytes()
    assert msgspec.json.decode(first)["otherData"] == {"title": "sparrow, seed 1"}
    assert sum("outcome" in one.get("args", {}) for one in events_of(trace)) == 20
    said(capsys, folder, "--run", "sparrow", "--seed", 1, "-o", trace)
    assert trace.read_bytes() == first
    status, _, error = said(capsys, folder, "--seed", 7)
    assert status == 2
    assert "its seeds are 0, 1" in error
    assert "give one that ends in .json" in said(capsys, folder, "-o", tmp_path / "one.svg")[2]


def test_a_trace_holds_the_part_that_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, trace = tmp_path / "kept", tmp_path / "part.json"
    compare("sparrow", trace="syn:4x5", workers=10, folder=folder)
    assert said(capsys, folder, "-o", trace, "--from", 1.5, "--to", 3)[0] == 0
    counters = [one["ts"] for one in events_of(trace) if one["ph"] == "C"]
    assert min(counters) == 1_500_000
    assert max(counters) == 3_000_000 - 3750
    for words, problem in (
        (("--from", 3, "--to", 3), "--to: 3 s is not after 3 s"),
        (("--from", 99), "--from: 99 s is after its end"),
        (("--to", -1), "--to: -1 s is before its beginning"),
        (("--demo",), "PLACE: give a results folder or journals"),
    ):
        status, _, error = said(capsys, folder, *words)
        assert (status, problem in error) == (2, True), error
    assert said(capsys)[0] == said(capsys, "--demo", "--seed", 1)[0] == 2


def test_the_demonstration_can_be_kept_as_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "megha.json"
    assert said(capsys, "--demo", "-o", trace)[0] == 0
    assert "An inconsistency: gm/0's view was old" in trace.read_text(encoding="utf-8")


def test_a_chrome_trace_needs_no_extra(tmp_path: Path) -> None:
    trace = tmp_path / "megha.json"
    code = "import sys; sys.modules.update(dict.fromkeys(['starlette', 'uvicorn', 'httpx2'])); "
    code += "from volery.cli.main import main; main(sys.argv[1:])"
    subprocess.run([sys.executable, "-c", code, "watch", "--demo", "-o", str(trace)], check=True, capture_output=True)
    assert events_of(trace)


def test_it_serves_a_run_on_the_live_page_until_it_is_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kept"
    compare("sparrow", trace="syn:4x5", workers=10, folder=folder)

    async def ended(server: Server, sockets: list[socket.socket]) -> None:
        assert [one.getsockname()[0] for one in sockets] == ["127.0.0.1"]

    monkeypatch.setattr(Server, "serve", ended)
    status, printed, _ = said(capsys, folder, "--json")
    told = msgspec.json.decode(printed)
    assert (status, told["label"], told["seed"]) == (0, "sparrow", 0)
    assert told["url"].startswith("http://127.0.0.1:")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        status, _, error = said(capsys, "--demo", "--port", taken.getsockname()[1])
        assert (status, "give another --port" in error) == (2, True)
