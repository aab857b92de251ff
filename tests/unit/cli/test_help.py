"""Help texts: each is shown word for word; what stands in brackets is no markup."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from rich.text import Text
from typer.testing import CliRunner

from volery.cli.main import app


def texts(command: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every help text of a command and those below it, with where it stands."""
    yield path, command.help or ""
    yield f"{path}, epilog", command.epilog or ""
    for parameter in command.params:
        yield f"{path} {parameter.name}", getattr(parameter, "help", None) or ""
    for name, below in getattr(command, "commands", {}).items():
        yield from texts(below, f"{path} {name}")


FOUND = [(place, text) for place, text in texts(typer.main.get_command(app), "volery") if text]


def test_there_are_help_texts() -> None:
    assert len(FOUND) > 200


@pytest.mark.parametrize(("place", "text"), FOUND, ids=[place for place, _ in FOUND])
def test_a_help_text_is_shown_word_for_word(place: str, text: str) -> None:
    assert Text.from_markup(text).plain == text, f"{place}: a part in brackets is lost"


def test_the_table_of_discover_is_named() -> None:
    assert '"machines"' in CliRunner().invoke(app, ["discover", "--help"]).output
