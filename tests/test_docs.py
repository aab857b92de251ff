"""Every link from page to page leads somewhere, to the heading if it names one, and every page can be found."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

from volery.architectures import REGISTRY
from volery.cli.main import app
from volery.cli.reference import PAGES as MADE

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(page for page in [*DOCS.rglob("*.md"), *ROOT.glob("*.md")] if page.parent.name != "generated")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")


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


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    """A check that cannot fail is a defect."""
    assert slug("What *papers* say, & `why`: 3.2") == "what-papers-say--why-32"
    text = "[a](missing.md) [b](README.md#no-such-heading) [c](https://example.org) `[d](code.md)`"
    copy = tmp_path / "page.md"
    copy.write_text(text, encoding="utf-8")
    assert list(links(copy)) == [("missing.md", ""), ("README.md", "no-such-heading")]
    assert "no-such-heading" not in anchors(DOCS / "README.md")
    assert "volery-documentation" in anchors(DOCS / "README.md")
