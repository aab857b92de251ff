"""The pages of sources: one screen each in docs, and every claim in the tables that are not committed."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.experiments.test_reproduction import PAPERS, TEXT

from experiments.claims import OF_THE_PROGRAM, VERDICTS
from experiments.details import details
from experiments.experiment import Experiment, read_experiment
from experiments.first_forms import append_first_forms
from experiments.ledger import read_ledger
from experiments.papers import pages
from experiments.records import make_record, record_path, write_record
from experiments.reproduction import reproduce
from volery.core.errors import InputError

FOLDER = Path(__file__).parents[2] / "experiments"
SCREEN_WORDS = 900
"""Words of a page of a source until its first section, at most: the question, and the headlines in a table."""
PAGE_WORDS = 2_400
"""Words of a page of a source with its reasons, at most."""
HEADLINES_MAX = 10
DOCS_WORDS = 30_000
"""Words of all pages of the lab book in docs, at most."""


HEADLINES = """
[[headline]]
claim = "Three hops at least."
published = "1.5 ms"
variant = [
  { name = "the text", claims = ["small/three-hops"] },
  { name = "the program", claims = ["small/three-hops"], reading = "published-code" },
]

[[headline]]
claim = "More than all machines work."
published = "above 1"
variant = [{ name = "here", claims = ["small/impossible"], workload = "w" }]
why = "They cannot."
written_for = "does not"
tried = "Nothing could."
switch = [{ name = "load", claims = ["small/everywhere"], workload = "w" }]

[[headline]]
claim = "There is load."
published = "above 0"
variant = [{ name = "here", claims = ["small/everywhere", "small/impossible", "small/three-hops"] }]
why = "One of them cannot."
written_for = "does not"
tried = "More."
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "experiments"
    for name in ("explanations", "summaries", "headlines"):
        (made / name).mkdir(parents=True)
    (made / "small.toml").write_text(TEXT, encoding="utf-8")
    (made / "papers.toml").write_text(PAPERS, encoding="utf-8")
    (made / "headlines" / "test.toml").write_text(HEADLINES, encoding="utf-8")
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
    texts = pages(FOLDER)
    words = {name: len(text.split()) for name, text in texts.items()}
    screens = {name: len(text.partition("\n## ")[0].split()) for name, text in texts.items()}
    assert [name for name, count in screens.items() if count > SCREEN_WORDS] == []
    assert [name for name, count in words.items() if count > PAGE_WORDS and name != "papers.md"] == []
    findings = (FOLDER.parent / "docs" / "findings.md").read_text(encoding="utf-8")
    assert sum(words.values()) + len(findings.split()) <= DOCS_WORDS


def test_every_source_has_a_summary_and_headlines() -> None:
    ledger = read_ledger(FOLDER)
    for paper in ledger.papers.paper:
        assert 1 <= len(ledger.headlines.get(paper.key, ())) <= HEADLINES_MAX, paper.key
        assert ledger.text("summaries", paper.key), paper.key
        assert [chapter for chapter in paper.chapters if not ledger.text("explanations", chapter)] == []


def test_every_paper_has_an_experiment() -> None:
    ledger = read_ledger(FOLDER)
    assert [paper.key for paper in ledger.papers.paper if not ledger.experiments_of(paper)] == []


@pytest.mark.usefixtures("recorded")
def test_a_page_is_question_headlines_reasons_and_the_rest_of_the_summary(folder: Path) -> None:
    page = pages(folder)["papers/test.md"]
    parts = (
        "It asks.",
        "| 1 | Three hops at least. | 1.5 ms | the text: ",
        " (holds)<br>the program: ",
        "| **comes out** |",
        "| 2 | More than all machines work. | above 1 | ",
        " (fails) | **does not** |",
        "| 3 | There is load. | above 0 | 2/4 tests: load mean ",
        "## Why",
        "**2, does not.** They cannot. *Tried:* Nothing could.\n\n| setting | ours | verdict |",
        "| load | ",
        "**3, does not.** One of them cannot. *Tried:* More.",
        "It answers.",
        "- 1, 2, 3: `.venv/bin/python -m experiments check small --runs 6` (6 runs, 0 CPU seconds)",
        "All claims, of 1 experiments: 2 reproduced, 1 differs, 1 not decidable.",
    )
    assert [text for text in parts if text not in page] == []
    places = [page.index(text) for text in parts]
    assert places == sorted(places)


def test_a_headline_whose_claims_were_not_tried_is_not_decided(folder: Path) -> None:
    without_words = re.sub(r"^(why|written_for) = .*\n", "", HEADLINES, flags=re.MULTILINE)
    (folder / "headlines" / "test.toml").write_text(without_words, encoding="utf-8")
    page = pages(folder)["papers/test.md"]
    assert "| above 1 | \u2013 (not run) | **not decided** |" in page
    assert "3 not tried" in page


@pytest.mark.usefixtures("recorded")
def test_the_words_of_all_sources_stand_before_the_first_section_of_the_introduction(folder: Path) -> None:
    text = HEADLINES.replace('claims = ["small/everywhere", "small/impossible", "small/three-hops"]',
                             'claims = ["small/everywhere"], workload = "w"')  # fmt: skip
    text = text.replace('why = "One of them cannot."\nwritten_for = "does not"\n', "")
    (folder / "headlines" / "test.toml").write_text(text, encoding="utf-8")
    page = pages(folder)["papers.md"]
    row = "](papers/test.md) | 3 | 2 | 0 | 0 | 1 | 0 |"
    listed = (
        "](papers/test.md) | Three hops at least. | comes out |",
        "|  | More than all machines work. | does not |",
    )
    places = [page.index(part) for part in ("In short.", "## What came out", row, *listed, "## How\n\nSo.")]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("small/three-hops", "small/two-hops", r"headline\[0\].variant\[0\].claims: 'small/two-hops' is no claim; did"),
        (
            'reading = "published-code"',
            'reading = "read"',
            r"variant\[1\].reading: three-hops has no reading 'read'; it",
        ),
        ('tried = "Nothing could."\n', "", r"headline\[1\].tried: is missing where the word is 'does not'"),
        (
            'why = "They cannot."\nwritten_for = "does not"\n',
            "",
            r"headline\[1\].why: is missing where the word is 'does",
        ),
        ('written_for = "does not"\n', "", r"headline\[1\].written_for: goes with why: .*; it is 'does not'"),
        ('"does not"', '"comes out"', r"written_for: why was written for 'comes out', and the records say 'does not'"),
        ("They cannot.", "They cannot. So it is. Always.", r"headline\[1\].why: has more than 2 sentences"),
        ('workload = "w" }]\nwhy', 'workload = "v" }]\nwhy', r"variant\[0\]: impossible has no case on workload 'v'"),
    ],
)
@pytest.mark.usefixtures("recorded")
def test_a_headline_that_does_not_fit_the_records_is_refused(folder: Path, old: str, new: str, problem: str) -> None:
    assert old in HEADLINES
    text = HEADLINES.partition('\n[[headline]]\nclaim = "There is')[0].replace(old, new)
    (folder / "headlines" / "test.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=problem):
        pages(folder)


@pytest.mark.usefixtures("recorded")
def test_a_reason_may_be_written_for_several_words(folder: Path) -> None:
    for words, fits in (('["not decided", "does not"]', True), ('["not decided", "comes out"]', False)):
        text = HEADLINES.replace('written_for = "does not"', f"written_for = {words}", 1)
        (folder / "headlines" / "test.toml").write_text(text, encoding="utf-8")
        if fits:
            assert "They cannot." in pages(folder)["papers/test.md"]
        else:
            with pytest.raises(InputError, match="why was written for 'not decided', 'comes out', and the records say"):
                pages(folder)


def test_a_source_whose_text_was_not_at_hand_says_so_on_its_page_and_in_the_index(folder: Path) -> None:
    (folder / "headlines" / "test.toml").unlink()
    made = pages(folder)
    assert "not at hand" not in made["papers/test.md"] + made["papers.md"]
    text = PAPERS.replace('key = "test"', 'key = "test"\nin_place_of_text = "a blog"', 1)
    (folder / "papers.toml").write_text(text, encoding="utf-8")
    made = pages(folder)
    top = made["papers/test.md"].partition("It asks.")[0]
    assert "**Its text was not at hand**, but a blog." in top
    assert "](papers/test.md)\\* |" in made["papers.md"]
    assert "Its text was not at hand" in made["papers.md"]


def test_a_paper_that_papers_toml_does_not_know_is_refused(folder: Path) -> None:
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
        judged = sum(
            len(record.judgements) for one in ledger.experiments_of(paper) if (record := ledger.records[one.name])
        )
        shown = Counter(row[4].partition(":")[0] for row in written[f"{paper.key}.html"] if len(row) == 5)
        assert sum(shown[name] for name in VERDICTS) >= judged
        assert shown[OF_THE_PROGRAM] == ledger.verdicts(ledger.experiments_of(paper))[OF_THE_PROGRAM]
    undecided = {claim.claim for _, claim in ledger.undecided()}
    assert undecided <= {row[0] for row in written["index.html"] if row}
