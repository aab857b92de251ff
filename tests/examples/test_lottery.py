"""The tutorial's scheduler is found by its entry point, keeps the contract, and can be compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.examples.installed import EXAMPLES, install

from volery.architectures import lookup, names
from volery.cli.main import main
from volery.conformance import CHECKS

EXAMPLE = EXAMPLES / "lottery"


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install("lottery", tmp_path, monkeypatch)


def test_it_is_found_by_its_entry_point() -> None:
    assert "lottery" in names()


@pytest.mark.parametrize("check", CHECKS)
def test_it_keeps_the_contract(check: str) -> None:
    CHECKS[check](lookup("lottery"))


@pytest.mark.slow
def test_it_can_be_compared_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "lottery:tickets=2", "oracle", "--trace", "syn:20x10", "--workers", "60"]
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 0
    assert "lottery" in capsys.readouterr().out


def test_it_is_as_short_as_the_tutorial_says() -> None:
    lines = (EXAMPLE / "lottery.py").read_text(encoding="utf-8").splitlines()
    code = [line for line in lines if line.strip() and not line.strip().startswith(("#", '"""'))]
    assert len(code) <= 110
