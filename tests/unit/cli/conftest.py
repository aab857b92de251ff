"""Commands as a shell calls them, in this process: status and output."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from volery.cli.main import main


class Ended(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Ended]


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words: str | Path) -> Ended:
        with pytest.raises(SystemExit) as leaving:
            main([str(word) for word in words])
        out, err = capfd.readouterr()
        code = leaving.value.code
        return Ended(code if isinstance(code, int) else 0 if code is None else 1, out, err)

    return call
