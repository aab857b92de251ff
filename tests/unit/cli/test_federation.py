"""`volery serve`: every word but `results` is a host's name, and options of one use are refused in the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from volery.cli import federation as command
from volery.cli.federation import name_first
from volery.cli.main import main
from volery.core.errors import InputError
from volery.live.config.federation import split

RUNS_A_HOST = """
architecture = "megha"
broker = "nats://127.0.0.1:1"
[[machines]]
count = 30
"""


def said(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    with pytest.raises(SystemExit) as left:
        main(["serve", *map(str, words)])
    printed = capsys.readouterr()
    return int(left.value.code or 0), printed.out + printed.err


@pytest.mark.parametrize(
    ("option", "words"),
    [("--nodes", ("--nodes", "3")), ("--api", ("--api", "127.0.0.1:1")), ("--run-as", ("--run-as", "nobody"))],
)
def test_options_of_up_beside_a_file_are_refused_and_not_ignored(
    option: str, words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "F").write_text(RUNS_A_HOST)
    with pytest.raises(SystemExit) as left:
        main(["up", str(tmp_path / "F"), *words])
    assert left.value.code == 2
    assert f"error: {option}: is for a federation without a file" in capsys.readouterr().err


def test_a_host_without_a_name_is_refused() -> None:
    with pytest.raises(InputError, match="HOST: is empty"):
        name_first(["", "-c", "F"])


@pytest.mark.parametrize(
    "words",
    [("gm", "-c", "F"), ("-c", "F", "gm"), ("--json", "-c", "F", "gm"), ("--config=F", "gm"), ("-cF", "--json", "gm")],
)
def test_a_host_is_run_wherever_its_name_stands(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "F").write_text(RUNS_A_HOST)
    monkeypatch.chdir(tmp_path)
    ran: list[tuple[object, ...]] = []
    monkeypatch.setattr(command, "run_host", lambda federation, *given: ran.append((federation.file.broker, *given)))
    assert said(capsys, *words) == (0, "")
    assert ran == [("nats://127.0.0.1:1", "gm", "--json" in words, False, False)]


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (("results", "kept", "-c", "F"), "-c"),
        (("-c", "F", "results"), "-c"),
        (("results", "--config=F"), "--config"),
        (("results", "kept", "--log-json"), "--log-json"),
        (("gm", "-c", "F", "--port", "3"), "--port"),
        (("gm", "--host=::1"), "--host"),
        (("-c", "gm"), "HOST"),
        (("--json",), "HOST"),
        (("src",), "src"),
    ],
)
def test_mixtures_are_refused(
    words: tuple[str, ...], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "src").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as refused:
        name_first(words)
    assert refused.value.place == place


def test_what_is_missing_or_no_results_folder_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("results",), ("gm",), ("gm", "-c", tmp_path / "none.toml"), ("--json", "results", tmp_path)):
        status, text = said(capsys, *words)
        assert status == 2
        assert text.strip()
    assert "is not a results folder" in text
    assert '"place"' in text


def test_help_tells_both_uses(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ((), ("--help",)):
        _, text = said(capsys, *words)
        assert "HOST -c FEDERATION.toml | results DIR" in text
    assert "--config" in said(capsys, "gm", "--help")[1]
    assert "--port" in said(capsys, "results", "--help")[1]


def test_no_host_is_called_results() -> None:
    with pytest.raises(InputError, match="another name") as refused:
        split(["gm/0"], {"results": ["gm/*"]})
    assert refused.value.place == "hosts.results"
