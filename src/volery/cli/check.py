"""`volery check`: the files of a folder against their checksums."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from volery.cli.options import AsJson, argument
from volery.cli.output import print_json, print_table
from volery.core.errors import InputError
from volery.integrity import CheckedFile


def check(
    folder: Annotated[Path, argument("Folder of a federation's state, or of results.", "DIR")],
    as_json: AsJson = False,
) -> None:
    """Compare every file of a folder with its checksums, and print each damage; status 1 where there is one.

    Nothing is run or written; a federation may be at work in the folder.
    """
    files = list(_checked(folder))

    if as_json:
        print_json(files)
    else:
        _print_checks(folder, files)

    if any(file.damages for file in files):
        raise typer.Exit(1)


def _checked(folder: Path) -> list[CheckedFile]:
    from volery.report.schema import MANIFEST

    if not folder.is_dir():
        raise InputError(str(folder), "is no folder; give the state folder of a federation, or a results folder")
    if (folder / MANIFEST).exists():
        from volery.study.checks import check_results

        return list(check_results(folder))

    from volery.live.service.checks import check_state, is_state_folder

    if not is_state_folder(folder):
        problem = f"holds no state of a federation and no {MANIFEST}; give a state folder, or a results folder"
        raise InputError(str(folder), problem)
    return list(check_state(folder))


def _print_checks(folder: Path, files: list[CheckedFile]) -> None:
    from rich.text import Text

    rows = []
    for file in files:
        # A note says that a file cannot be proved, as those of earlier versions, which is neither sound nor damaged.
        sound = Text("see note", "yellow") if file.note else Text("sound", "green")
        verdict = Text("DAMAGED", "bold red") if file.damages else sound
        rows.append((_name(folder, file), verdict, file.note))

    print_table(("file", "verdict", "note"), rows, title="Checksums")

    for file in files:
        for damage in file.damages:
            typer.echo(f"{file.path}: {damage}")

    damaged = sum(bool(file.damages) for file in files)
    unproved = sum(bool(file.note) and not file.damages for file in files)
    typer.echo(f"Damaged files: {damaged} of {len(files)}; files with a note: {unproved}.")


def _name(folder: Path, file: CheckedFile) -> str:
    return str(Path(file.path).relative_to(folder))
