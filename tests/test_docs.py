"""Links between pages lead somewhere, every page can be found, and ARCHITECTURE.md is true."""

from __future__ import annotations

import functools
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from pathlib import Path

from docs.pages import PAGES as MADE
from volery.architectures import REGISTRY
from volery.cli.main import app

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(page for page in [*DOCS.rglob("*.md"), *ROOT.glob("*.md")] if page.parent.name != "generated")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
PACKAGE = ROOT / "src" / "volery"
ROOMS = {path.stem for path in PACKAGE.iterdir() if path.name[0] not in "_." and path.suffix in ("", ".py")}


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and the site make it."""
    plain = re.sub(r"[^\w\- ]", "", LINK.sub("]", heading).lower())
    return plain.strip().replace(" ", "-")


@functools.cache
def anchors(page: Path) -> frozenset[str]:
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    return frozenset(slug(found) for found in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE))


def links(page: Path) -> Iterator[tuple[str, str]]:
    """Targets inside the repository, each with its anchor."""
    text = CODE.sub("", FENCED.sub("", page.read_text(encoding="utf-8")))
    for target in LINK.findall(text):
        if "://" not in target and not target.startswith("mailto:"):
            path, _, anchor = target.partition("#")
            yield path, anchor


def broken(page: Path) -> Iterator[str]:
    for path, anchor in links(page):
        target = (page.parent / path).resolve() if path else page
        if target.parent == DOCS / "reference" / "generated":
            if target.stem not in MADE:
                yield f"{page.relative_to(ROOT)}: no page {path} is made from the code"
        elif not target.exists():
            yield f"{page.relative_to(ROOT)}: there is no {path}"
        elif anchor and anchor not in anchors(target):
            yield f"{page.relative_to(ROOT)}: {path} has no heading for #{anchor}"


def test_every_link_leads_somewhere() -> None:
    assert len(PAGES) > 40
    assert not [problem for page in PAGES for problem in broken(page)]


def test_every_page_is_listed() -> None:
    """In docs/README.md, which the site begins with; architectures and decisions have lists of their own."""
    listed = {(DOCS / path).resolve() for path, _ in links(DOCS / "README.md")}
    rooms = ("tutorial", "how-to", "reference", "explanation")
    unlisted = [path.name for room in rooms for path in (DOCS / room).glob("*.md") if path.resolve() not in listed]
    assert not unlisted


def test_every_decision_is_listed_by_its_statement() -> None:
    index = (DOCS / "decisions" / "index.md").read_text(encoding="utf-8")
    for page in (DOCS / "decisions").glob("0*.md"):
        number, title = page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ").split(". ", 1)
        assert int(number) == int(page.name[:4]), page.name
        assert f"| {number} | [{title}]({page.name}) |" in index, page.name


def test_the_documentation_names_every_architecture_and_every_command() -> None:
    text = (DOCS / "README.md").read_text(encoding="utf-8")
    designs, commands = text.split("\n## Architectures\n")[1].split("\n## Commands\n")
    assert [name for name in REGISTRY if f"`{name}`" not in designs] == []
    words = set(re.findall(r"[a-z-]+", " ".join(CODE.findall(commands))))
    named = {one.name for one in app.registered_commands} | {one.name for one in app.registered_groups}
    assert named - words == {"demo"}, "docs/README.md does not name these commands"


def test_the_readme_is_short_and_begins_with_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.count("\n") <= 120
    first = FENCED.search(readme)
    assert first is not None
    assert re.findall(r"^make (\w+)", first[0], flags=re.MULTILINE) == ["demo", "test"]


def table(heading: str) -> list[list[str]]:
    """Rows of the table below a heading of ARCHITECTURE.md, without its head."""
    below = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in below.splitlines() if line.startswith("|")]
    return rows[2:]


def code(text: str) -> list[str]:
    return [found.strip("`") for found in CODE.findall(text)]


def imports_on_the_page() -> dict[str, Set[str]]:
    """Room -> rooms that it may import, by ARCHITECTURE.md."""
    allowed: dict[str, Set[str]] = {}
    for rooms, imported in table("Import rules"):
        for room in code(rooms):
            allowed[room] = ROOMS if imported == "all" else frozenset(code(imported))
    return allowed


def imports_of_the_code() -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        imported = re.findall(r"^ *from volery\.(\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        found[path.relative_to(PACKAGE).parts[0].removesuffix(".py")].update(imported)
    return {room: rooms - {room} for room, rooms in found.items() if room in ROOMS}


def room_of(module: str) -> str:
    """The room, where a module of a contract is a whole room."""
    return module.removeprefix("volery.") if module.count(".") == 1 else ""


def contradictions(allowed: Mapping[str, Set[str]], contracts: list[dict[str, list[str]]]) -> Iterator[str]:
    for contract in contracts:
        sources = contract.get("source_modules") or contract.get("modules", [])
        forbidden = contract.get("forbidden_modules") or contract.get("modules", [])
        lines = [line.split(" -> ") for line in contract.get("ignore_imports", [])]
        exempt = {(f"{importer}.".split(".")[1], f"{imported}.".split(".")[1]) for importer, imported in lines}
        for room in {room_of(name) for name in sources} & set(allowed):
            for other in allowed[room] & {room_of(name) for name in forbidden} - {room, ""}:
                if (room, other) not in exempt:
                    yield f"{room} may not import {other}: {contract['name']}"


def test_the_architecture_is_one_page_whose_files_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert text.count("\n") <= 100
    assert len(table("Changes that cross rooms")) <= 15
    named = {
        name
        for row in [*table("Ten files to read first"), *table("Changes that cross rooms")]
        for cell in row
        for name in code(cell)
        if "/" in name or name.endswith(".py")
    }
    assert not [name for name in sorted(named) if not (PACKAGE / name).exists()]


def test_ten_files_of_two_thousand_lines_are_read_first() -> None:
    files = [name for first, _ in table("Ten files to read first") for name in code(first)]
    assert len(files) == 10
    lines = [line.strip() for name in files for line in (PACKAGE / name).read_text(encoding="utf-8").splitlines()]
    written = [line for line in lines if line and not line.startswith("#")]
    assert 1_500 <= len(written) <= 2_250, "blank lines and comments make the reading shorter, not longer"
    story = (DOCS / "explanation" / "core-idea.md").read_text(encoding="utf-8")
    places = [story.find(f"`{name}`") for name in files]
    assert min(places) > 0, "docs/explanation/core-idea.md follows a task through these files"
    assert places == sorted(places), "and in this order"


def test_the_import_rules_of_the_page_are_those_of_contracts_and_code() -> None:
    allowed = imports_on_the_page()
    assert set(allowed) == ROOMS
    assert not [
        f"{room} imports {sorted(more)}" for room, has in imports_of_the_code().items() if (more := has - allowed[room])
    ]
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    assert not list(contradictions(allowed, tool["importlinter"]["contracts"]))


def test_a_rule_that_contradicts_a_contract_is_found() -> None:
    contract = {"name": ["pure"], "source_modules": ["volery.core"], "forbidden_modules": ["volery.sim"]}
    assert list(contradictions({"core": frozenset({"sim"})}, [contract]))
    assert not list(contradictions({"core": frozenset()}, [contract]))


def test_the_changelog_of_the_first_release_lists_what_there_is() -> None:
    """Nobody had the defects that were mended before it."""
    release = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## 0.1.0")[1].split("\n## ")[0]
    assert release.count("\n") <= 150
    assert "Fixed" not in release


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    """A check that cannot fail is a defect."""
    assert slug("What *papers* say, & `why`: 3.2") == "what-papers-say--why-32"
    text = "[a](missing.md) [b](README.md#no-such-heading) [c](https://example.org) `[d](code.md)`"
    copy = tmp_path / "page.md"
    copy.write_text(text, encoding="utf-8")
    assert list(links(copy)) == [("missing.md", ""), ("README.md", "no-such-heading")]
    assert "no-such-heading" not in anchors(DOCS / "README.md")
    assert "volery-documentation" in anchors(DOCS / "README.md")
