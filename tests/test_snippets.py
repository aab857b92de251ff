"""What the documents show works: commands parse, comparisons make studies, TOML is read, Python finds its imports."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from typer.testing import CliRunner

import volery.cli.compare
from volery.architectures import choose
from volery.cli.main import app
from volery.live.config.client_file import ClientFile
from volery.live.config.federation import FederationFile, read_federation
from volery.live.jobs import read_job
from volery.sim.faults import FaultPlan
from volery.study import StudySpec
from volery.study.file import read_costs, read_study
from volery.workload.formats.columns.maps import parsed_map
from volery.workload.models import load_model

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:(?<=\n\n)|\A)((?: {4}.*\n|\n(?= {4}))+)")
UsageError: type[Exception] = typer.BadParameter.__mro__[1]
EXPORTS = ROOT / "examples" / "cluster"
"""Files that a tutorial begins with."""
PROGRAMS = typer.main.get_command(app)
GRAMMAR = re.compile(r"[|\[]|\bIN\b|\bSPEC\b|\.\.\.")
"""Lines that show what may stand somewhere rather than a command."""


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Language (or nothing) and text of each block, fenced or indented."""
    whole = page.read_text(encoding="utf-8")
    for indent, language, text in FENCE.findall(whole):
        yield language, re.sub(f"^{indent}", "", text, flags=re.MULTILINE)
    for text in INDENTED.findall(FENCE.sub("", whole)):
        yield "", textwrap.dedent(text)


def commands(page: Path) -> Iterator[list[str]]:
    """Words of every `volery ...` line in the page's blocks, lines that go on taken together."""
    for language, text in blocks(page):
        for line in text.replace("\\\n", " ").splitlines():
            found = re.match(r"(?:\$ )?(?:\.venv/bin/)?volery (.*?)(?:\s&\s*.*|\s+#.*|)$", line.strip())
            if found and language in ("", "sh", "console") and not GRAMMAR.search(found[1]):
                yield shlex.split(found[1])


def parse(words: list[str]) -> None:
    """Let each command on the way take its options, without converting or doing anything."""
    command: Any = PROGRAMS
    while True:
        context = command.context_class(command, info_name=command.name)
        _, rest, _ = command.make_parser(context).parse_args(list(words))
        if not hasattr(command, "commands") or (not rest and command.invoke_without_command):
            return
        found = command.get_command(context, rest[0])
        if found is None:
            raise typer.BadParameter(f"there is no command {rest[0]!r}")
        command, words = found, rest[1:]


ALL = [(page, words) for page in PAGES for words in commands(page)]


def test_every_command_shown_is_one() -> None:
    assert len(ALL) > 60
    for page, words in ALL:
        try:
            parse(words)
        except UsageError as error:
            pytest.fail(f"{page.relative_to(ROOT)}: volery {shlex.join(words)}: {error}")


def sessions(page: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Words and output of every `$ volery ...` that is shown with what it prints."""
    for _, text in blocks(page):
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, *printed = part.replace("\\\n", " ").rstrip().splitlines()
            words = shlex.split(command)
            if words[0] == "volery" and printed:
                yield words[1:], printed


SESSIONS = [(page, words, printed) for page in PAGES for words, printed in sessions(page)]
SLOW = {"compare", "run", "fidelity"}


def mismatch(printed: list[str], output: str) -> str:
    """The first shown line that did not come, in order; lines of three dots stand for any."""
    lines = iter(line.strip() for line in output.splitlines())
    for line in printed:
        if line.strip() not in ("...", "") and line.strip() not in lines:
            return line
    return ""


@pytest.mark.parametrize(
    ("page", "words", "printed"),
    [
        pytest.param(
            page, words, printed, marks=[pytest.mark.slow] if words[0] in SLOW else [], id=f"{page.stem} {words[0]}"
        )
        for page, words, printed in SESSIONS
    ],
)
def test_what_is_shown_to_be_printed_is(
    page: Path, words: list[str], printed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in EXPORTS.iterdir():
        (tmp_path / file.name).symlink_to(file)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == any(line.startswith("not worth making") for line in printed), answer.output
    assert mismatch(printed, answer.output) == "", f"{page.relative_to(ROOT)}: {answer.output}"


def test_outputs_are_shown_and_a_wrong_one_is_found() -> None:
    assert {words[0] for _, words, _ in SESSIONS} >= {"trace", "compare", "strl"}
    assert mismatch(["a", "...", "c"], "a\nb\nc\n") == ""
    assert mismatch(["c", "a"], "a\nb\nc\n") == "a"
    assert mismatch(["jobs 300"], "jobs 301\n") == "jobs 300"


@pytest.mark.slow
def test_every_comparison_shown_makes_a_study(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[StudySpec] = []
    monkeypatch.setattr(volery.cli.compare, "run_and_print", lambda study, *_args, **_options: made.append(study))
    elsewhere = re.compile(r"lottery|\.(gwf|csv|gz|toml|parquet)")  # of a package, or of files, that are not here
    shown = [(page, words) for page, words in ALL if words[0] == "compare" and not elsewhere.search(" ".join(words))]
    assert len(shown) > 12
    for page, words in shown:
        answer = CliRunner().invoke(app, words)
        assert answer.exit_code == 0, f"{page.relative_to(ROOT)}: volery {shlex.join(words)}: {answer.output}"
    assert len(made) == len(shown)


def tables(page: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for language, text in blocks(page):
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            assert language != "toml", f"{page.relative_to(ROOT)}: not TOML: {text}"
            continue
        if table:
            yield text, table


def test_every_toml_shown_is_read_by_what_it_is_for(tmp_path: Path) -> None:
    read: dict[str, int] = {}
    for page in PAGES:
        for text, table in tables(page):
            file = tmp_path / "shown.toml"
            file.write_text(text, encoding="utf-8")
            kind = _read(file, table)
            assert kind, f"{page.relative_to(ROOT)}: what reads this? {text}"
            read[kind] = read.get(kind, 0) + 1
    assert {"study", "federation", "costs", "requests", "faults", "columns"} <= set(read), read


def _read(file: Path, table: dict[str, Any]) -> str:
    if "columns" in table or "states" in table:
        # Further tables of a map are shown without the columns that they are for.
        columns = "" if "columns" in table else '[columns]\njob = "a"\nstart = "b"\nend = "c"\nstate = "d"\n'
        parsed_map(file.read_text(encoding="utf-8") + columns, file.name)
        return "columns"
    if "project" in table:
        return "entry points"
    if "study" in table:
        read_study(file)
        return "study"
    if set(table) == {"network"}:
        return "part of a study"
    if {"delay_us", "costs"} <= set(table) or {"frames", "hosts"} <= set(table):
        read_costs(file)
        return "costs"
    if "classes" in table:
        load_model(str(file))
        return "requests"
    if {"crashes", "partitions"} & set(table):
        msgspec.convert(table, FaultPlan, strict=False)
        return "faults"
    if {"command", "commands", "tasks"} & set(table):
        read_job(file)
        return "job"
    if set(table) <= {*ClientFile.__struct_fields__}:
        msgspec.convert(table, ClientFile)
        return "client"
    if set(table) <= {*FederationFile.__struct_fields__}:
        lacks = {"machines": "[{ count = 40 }]", "architecture": '"megha"'}
        head = "".join(f"{key} = {value}\n" for key, value in lacks.items() if key not in table)
        file.write_text(head + file.read_text(encoding="utf-8"), encoding="utf-8")
        read_federation(file, choose)
        return "federation"
    return ""


def test_every_piece_of_python_shown_parses_and_imports_what_there_is() -> None:
    imported = 0
    for page in PAGES:
        for language, text in blocks(page):
            if language != "python":
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("volery"):
                    module = importlib.import_module(node.module or "")
                    assert not [name.name for name in node.names if not hasattr(module, name.name)], (page, node.module)
                    imported += 1
    assert imported


def test_a_wrong_command_is_found() -> None:
    """A check that cannot fail is a defect."""
    with pytest.raises(UsageError, match="no-such-option"):
        parse(["compare", "megha", "--no-such-option", "3"])
    with pytest.raises(UsageError, match="there is no command"):
        parse(["no-such-command"])
