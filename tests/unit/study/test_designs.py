"""The pages of architectures are what the registry says, and a finished study keeps the flow of what it compared."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from tests.comparison import compare

from volery.architectures import REGISTRY
from volery.report.designpage import COMMAND, explanation
from volery.study.designs import INDEX, LEADERSHIP, all_pages, pages, write_pages

PAGES = Path(__file__).parents[3] / "docs" / "architectures"


def test_the_pages_are_up_to_date() -> None:
    texts = all_pages()
    stale = [name for name, text in texts.items() if not (PAGES / name).exists() or (PAGES / name).read_text() != text]
    assert not stale, f"run {COMMAND}"
    assert {path.name for path in PAGES.iterdir()} == set(texts), "a page of what is no architecture any more"


def test_a_page_tells_source_roles_messages_parameters_stages_and_faults() -> None:
    page = all_pages()["pigeon.md"]
    for fact in (
        "Z. Wang, H. Li, Z. Li, X. Sun, J. Rao, H. Che, H. Jiang",
        "**Roles.** Distributor",
        "**Deviations.** Idle lists",
        "![Message flow of pigeon]",
        "| distributor | `GroupTasks` | master |",
        "| `reserved` | 9 |",
        "| T4 | `Master",
        "`crash:master`",
        "It decides by constraints",
        "pigeon-bearing.svg",
    ):
        assert fact in page


def test_the_page_of_leadership_has_its_idea_and_a_meaning_of_all_that_is_drawn() -> None:
    page = all_pages()["leadership.md"]
    assert "**Voters.** They decide who leads" in page
    assert "It is *open* when" in page, "emphasis is emphasis"
    for table, text in zip(LEADERSHIP.values(), page.split("\n## ")[1:], strict=True):
        rows = re.findall(r"^\| ([A-Z/a-z ]+) \| (\S.*) \|$", text, flags=re.MULTILINE)
        events = {event for _, event in table}
        actions = {action for _, action in table.values()}
        assert len(rows) == len({state for state, _ in table}) + len(events) + len(actions)


EXPLAINED = (
    "Problem and idea",
    "Decisions and their view",
    "Cost",
    "Results",
    "When to choose it",
)


@pytest.mark.parametrize("name", REGISTRY)
def test_every_design_is_explained(name: str) -> None:
    """In prose beside its module, which the page shows with the picture of its flow after the first part."""
    text = explanation(REGISTRY[name])
    assert re.findall(r"^## (.+)$", text, flags=re.MULTILINE) == list(EXPLAINED)
    assert 200 <= len(text.split()) <= 800, "a page of reading"
    assert "](" in text, "it leads on: to findings, claims, other designs"
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert page.index("![Message flow of") < page.index("## Decisions") < page.index("## Implementation")


def test_a_preset_has_what_differs_from_its_base() -> None:
    entries = [REGISTRY["pipeline"], REGISTRY["kubernetes"]]
    texts = pages(entries)
    page = texts["kubernetes.md"]
    assert re.findall(r"^\| `(\w+)` ", page, flags=re.MULTILINE) == ["T2", "R5"], "its parameters"
    assert "## Messages" not in page
    assert "## Stages" not in page
    assert "](pipeline.md)" in page
    assert "](pipeline.svg)" in page
    assert "kubernetes.svg" not in texts
    assert len(re.findall(r"^\| [JTMRB]\d* ", texts["pipeline.md"], flags=re.MULTILINE)) == 33


def test_a_design_without_prose_has_a_page_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("volery.report.designpage.explanation", lambda _entry: "")
    page = pages([REGISTRY["oracle"]])["oracle.md"]
    assert page.index("](oracle.svg)") < page.index("## Implementation")
    assert "## Decisions" not in page


def test_one_page_can_be_written_alone(tmp_path: Path) -> None:
    written = write_pages(tmp_path / "new", pages([REGISTRY["oracle"]]))
    assert sorted(path.name for path in written) == ["oracle.md", "oracle.svg"]
    assert INDEX not in pages([REGISTRY["oracle"]])


@pytest.mark.slow
def test_a_finished_study_keeps_the_flow_of_what_it_compared(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    compare("oracle", "sparrow:late_binding=false", "pipeline:lrms=45", trace="syn:2x3", workers=50, folder=folder)
    kept = msgspec.json.decode((folder / "flows.json").read_bytes())
    assert [one["label"] for one in kept["flows"]] == ["oracle", "sparrow:late_binding=false"], "45 managers want more"
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert "Message flow" in text
    assert "QueueLength" in text
