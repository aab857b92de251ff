"""Output to a full disk, a closed descriptor, a reader that is gone, or a terminal without UTF-8."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from volery.cli.main import PIPE_CLOSED, main

_VOLERY = f"{sys.executable} -m volery.cli.main"
EVERY_KIND = ("architectures", "architectures --json", "--version", "--help")
"""A table of rich, JSON, a line, and a text of the command line's own library."""


def run(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {_VOLERY} {line}"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("words", EVERY_KIND)
def test_an_output_that_cannot_be_written_is_one_line_and_no_traceback(words: str) -> None:
    full, closed = run(f"{words} > /dev/full"), run(f"{words} >&-")
    assert (full.returncode, full.stderr) == (
        2,
        "error: standard output: cannot be written: No space left on device; make room, or send it elsewhere\n",
    )
    assert (closed.returncode, closed.stderr) == (
        2,
        "error: standard output: is closed; send it to a file, or to /dev/null\n",
    )


@pytest.mark.parametrize("words", EVERY_KIND[:2])
def test_a_reader_that_is_gone_ends_a_command_in_silence(words: str) -> None:
    gone = run(f"{words} | true")
    assert (gone.returncode, gone.stderr) == (PIPE_CLOSED, "")


def test_messages_that_nobody_can_be_shown_hide_neither_answer_nor_status(tmp_path: Path) -> None:
    assert run("--version 2>&-").stdout == run("--version 2>/dev/full").stdout == run("--version").stdout != ""
    assert run(f"show {tmp_path} 2>/dev/full").returncode == 2
    assert run("architectures <&- >&- 2>&-").returncode == 2


def test_a_file_that_a_command_opens_does_not_take_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    """What is printed would be in the file, and what a library prints as well."""
    code = (
        "import os; from volery.cli.output import guarded_streams\n"
        f"with guarded_streams(): print(os.open({str(tmp_path / 'x')!r}, os.O_CREAT | os.O_RDWR))"
    )
    found = subprocess.run(
        ["bash", "-c", f'{sys.executable} -c "$CODE" <&- 2>&-'],
        env={**os.environ, "CODE": code},
        capture_output=True,
        check=True,
    )
    assert int(found.stdout) > 2


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437"])
def test_a_terminal_without_utf8_is_shown_a_table_with_replaced_characters(encoding: str) -> None:
    shown = run("architectures", PYTHONIOENCODING=encoding)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.isascii()
    assert "megha" in shown.stdout


def test_characters_in_json_are_escaped_where_there_is_no_utf8() -> None:
    code = "from volery.cli.main import guarded_streams, print_json; name = 'r\\u00e9seau \\U0001f680'\n"
    code += "with guarded_streams(): print_json({'name': name}); print(name)"
    found = subprocess.run(
        [sys.executable, "-c", code.replace("print_json;", "print_error; from volery.cli.output import print_json;")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
    )
    *document, line = found.stdout.splitlines()
    assert json.loads("".join(document)) == {"name": "r\u00e9seau \U0001f680"}
    assert line == "r?seau ?"


def test_the_output_of_a_test_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    stdout = sys.stdout
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert (ended.value.code, sys.stdout) == (0, stdout)
    assert capsys.readouterr().out.startswith("volery ")
