"""The pages of sources: one screen each in docs, and every claim in the tables that are not committed."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.experiments.test_reproduction import PAPERS, TEXT

from experiments.details import details
from experiments.experiment import Experiment, read_experiment
from experiments.first_forms import append_first_forms
from experiments.ledger import read_ledger
from experiments.papers import pages
from experiments.records import make_record, record_path, write_record
from experiments.reproduction import reproduce
from volery.core.errors import InputError

FOLDER = Path(__file__).parents[2] / "experiments"
SCREEN_WORDS = 1_200
"""Words of a page of a source, at most."""
DOCS_WORDS = 30_000
"""Words of all pages of the lab book in docs, at most."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "experiments"
    for name in ("explanations", "summaries"):
        (made / name).mkdir(parents=True)
    (made / "small.toml").write_text(TEXT, encoding="utf-8")
    (made / "papers.toml").write_text(
        PAPERS.replace('key = "test"', 'key = "test"\nheadlines = ["small/three-hops", "small/everywhere"]'),
        encoding="utf-8",
    )
    (made / "explanations" / "introduction.md").write_text("# Top\n\nIn short.\n\n## How\n\nSo.\n", encoding="utf-8")
    (made / "summaries" / "test.md").write_text("It asks.\n\n## Otherwise\n\nIt answers.\n", encoding="utf-8")
    return made


@pytest.fixture
def recorded(folder: Path, tmp_path: Path) -> Experiment:
    """The experiment of the folder, with a record and first forms."""
    experiment = read_experiment(folder, "small")
    record = make_record(reproduce(experiment, folder=tmp_path / "runs", traces=tmp_path), quick=False)
    write_record(record, record_path(folder, "small"))
    append_first_forms(folder, experiment, record)
    return experiment


def test_the_pages_in_docs_are_those_that_the_records_give() -> None:
    docs = FOLDER.parent / "docs"
    given = pages(FOLDER)
    committed = {f"papers/{page.name}" for page in (docs / "papers").iterdir()} | {"papers.md"}
    assert committed == given.keys(), "run `make papers`, and delete pages of sources that are gone"
    stale = [name for name, text in given.items() if (docs / name).read_text(encoding="utf-8") != text]
    assert not stale, "run `make papers`"


def test_a_source_fits_a_screen_and_all_of_them_their_share_of_the_documentation() -> None:
    words = {name: len(text.split()) for name, text in pages(FOLDER).items()}
    assert [name for name, count in words.items() if count > SCREEN_WORDS and name != "papers.md"] == []
    findings = (FOLDER.parent / "docs" / "findings.md").read_text(encoding="utf-8")
    assert sum(words.values()) + len(findings.split()) <= DOCS_WORDS


def test_every_source_has_a_summary_and_headlines() -> None:
    ledger = read_ledger(FOLDER)
    for paper in ledger.papers.paper:
        assert paper.headlines, paper.key
        assert ledger.text("summaries", paper.key), paper.key
        assert [chapter for chapter in paper.chapters if not ledger.text("explanations", chapter)] == []


def test_every_paper_has_an_experiment() -> None:
    ledger = read_ledger(FOLDER)
    assert [paper.key for paper in ledger.papers.paper if not ledger.experiments_of(paper)] == []


@pytest.mark.usefixtures("recorded")
def test_a_page_shows_question_counts_headlines_and_the_rest_of_the_summary(folder: Path) -> None:
    page = pages(folder)["papers/test.md"]
    parts = ("It asks.", "| 1 | 3 | 1 | 1 |", "three hops. [exact] | 1.5 ms | ", "trace tr/gone.tr.gz", "It answers.")
    places = [page.index(text) for text in parts]
    assert places == sorted(places)
    assert "Utilisation is above one" not in page, "it is no headline"


def test_a_claim_that_was_not_tried_is_shown_so(folder: Path) -> None:
    page = pages(folder)["papers/test.md"]
    assert "| experiments | not tried |" in page
    assert "| Load is positive. | above 0 | \u2013 | not tried |" in page


@pytest.mark.usefixtures("recorded")
def test_the_counts_stand_before_the_first_section_of_the_introduction(folder: Path) -> None:
    page = pages(folder)["papers.md"]
    places = [page.index(text) for text in ("In short.", "## Counts", "](papers/test.md)", "## How\n\nSo.")]
    assert places == sorted(places)


def test_what_papers_toml_does_not_know_is_refused(folder: Path) -> None:
    text = (folder / "papers.toml").read_text(encoding="utf-8")
    (folder / "papers.toml").write_text(text.replace("small/three-hops", "small/two-hops"), encoding="utf-8")
    with pytest.raises(InputError, match=r"test.headlines\[0\]: 'small/two-hops' is no claim; did you mean"):
        pages(folder)
    (folder / "small.toml").write_text(TEXT.replace('paper = "test"', 'paper = "tset"'), encoding="utf-8")
    with pytest.raises(InputError, match=r"small.paper: 'tset' is not in papers.toml"):
        pages(folder)


class Cells(HTMLParser):
    """The rows of a page's tables as texts of their cells; unbalanced elements fail."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("br", "input", "meta", "link"):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, text: str) -> None:
        if {"td", "th"} & {*self.open}:
            self.rows[-1][-1] += text


def test_the_details_hold_every_claim_its_first_form_and_the_measured_values(
    folder: Path, recorded: Experiment
) -> None:
    changed = TEXT.replace("right = 1\n", 'right = 0.5\nchanged = "the figure was misread"\n')
    (folder / "small.toml").write_text(changed, encoding="utf-8")
    (folder / "explanations" / "small.md").write_text("Why it is so.\n", encoding="utf-8")
    page = details(folder)["test.html"]
    rows = Cells(page).rows
    assert [row[4] for row in rows if len(row) == 5 and row[0] != "claim"] == [
        "reproduced",
        "reproduced",
        "differs",
        "reproduced",
        "not decidable: trace tr/gone.tr.gz is not here",
    ]
    (impossible,) = (row[0] for row in rows if "impossible" in row[0])
    assert "Changed: the figure was misread" in impossible
    assert '"right":1' in impossible
    assert "gave: differs" in impossible
    assert any(row[:2] == ["w", "m"] for row in rows), "the values of Megha"
    assert "Why it is so." in page
    assert "before the experiment changed; no run was run again since." in page


@pytest.mark.slow
def test_the_details_of_this_repository_hold_every_verdict_and_every_thing() -> None:
    ledger = read_ledger(FOLDER)
    written = {name: Cells(text).rows for name, text in details(FOLDER).items()}
    things = {row[0] for row in written["index.html"] if row}
    assert {thing.id for source in ledger.sources.values() for thing in source.thing} <= things
    for paper in ledger.papers.paper:
        verdicts = ledger.verdicts(ledger.experiments_of(paper))
        shown = Counter(row[4].partition(":")[0] for row in written[f"{paper.key}.html"] if len(row) == 5)
        assert {name: shown[name] for name in verdicts} == verdicts
