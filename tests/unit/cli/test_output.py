"""What is printed is what was said: names and labels may hold brackets."""

from __future__ import annotations

import pytest
from rich.table import Table

from volery.cli.output import terminal


def test_brackets_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("a [head]")
    table.add_row("job [red]x[/red]")
    terminal().print("why = true under [parameters]")
    terminal(highlight=False).print(table)
    printed = capsys.readouterr().out
    assert "under [parameters]" in printed
    assert "a [head]" in printed
    assert "job [red]x[/red]" in printed
