"""The reference pages name what there is."""

from __future__ import annotations

import re

import msgspec
import pytest

from volery.cli.main import app
from volery.cli.reference import keys, write_pages
from volery.live.cluster.federation import FederationFile
from volery.live.jobs import JobDescription
from volery.study.spec import Setting


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("reference")
    write_pages(folder)
    return {page.stem: page.read_text(encoding="utf-8") for page in folder.glob("*.md")}


def test_every_command_has_its_part(pages: dict[str, str]) -> None:
    known = {one.name for one in app.registered_commands} | {one.name for one in app.registered_groups}
    assert known == set(re.findall(r"^## volery (\S+)$", pages["commands"], flags=re.MULTILINE))
    assert "### volery trace doctor" in pages["commands"], "commands of groups"
    assert "| `--slots` | `K` | `1` | Tasks that a machine runs at once. |" in pages["commands"]


@pytest.mark.parametrize("struct", [FederationFile, JobDescription, Setting])
def test_every_key_of_every_file_is_told(struct: type[msgspec.Struct], pages: dict[str, str]) -> None:
    assert [name for name in struct.__struct_fields__ if f"| `{name}` |" not in pages["files"]] == []


def test_every_key_of_a_study_says_what_it_means() -> None:
    """From the docstring of its struct, over more than one line."""
    meanings = {row[0]: row[3] for row in keys(Setting)}
    assert [name for name, meaning in meanings.items() if not meaning] == []
    assert meanings["`hosts`"].endswith("as files and manifests hold it.")


def test_the_api_is_told_with_what_it_sends(pages: dict[str, str]) -> None:
    assert "| `GET /jobs/{id}` | One job, with its tasks counted by state. | `id` |" in pages["api"]
    assert "### JobStatus" in pages["api"]


def test_tables_stay_tables(pages: dict[str, str]) -> None:
    """Nothing in a cell ends its row or column early."""
    for text in pages.values():
        for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
            widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
            assert len(widths) == 1, block
