"""The report page: self-contained, whole, escaped, and clear about what is wrong with a folder."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.unit.report.samples import LABELS, TEN, sample_run, sample_runs, spread, write_sample

from volery.core.errors import InputError
from volery.report.html import write_report

VOID = {"meta", "br", "wbr", "img", "input", "link", "hr"}


class Page(HTMLParser):
    """Collects a page's text, tags, ids and references, and notices tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == [], f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(write_sample(tmp_path_factory.mktemp("whole")))


def test_the_page_is_well_formed_and_has_every_section(whole: Path) -> None:
    page = Page(whole.read_text(encoding="utf-8"))
    text = "".join(page.text)
    for heading in (
        "What was run",
        "Delay",
        "Paired differences",
        "Slowdown",
        "Utilisation and cost",
        "Where the allocation time went",
        "Counters",
        "Load per placement constraint",
        "How to verify",
    ):
        assert heading in text
    for fact in (
        "volery compare megha pigeonc",
        "syn_250 (2,000 jobs, 500,000 tasks)",
        "10,000 workers",
        "0, 1, 2",
        "9 finished",
        "The median delay is lower under megha than under pigeonc",
        "volery verify",
        "inconsistencies",
        LABELS[2],
    ):
        assert fact in text
    of_delays, of_differences, others = 3, 2, 4  # utilisation, allocation, load, conflicts
    assert page.tags.count("svg") == of_delays + of_differences + others


@pytest.mark.slow
def test_many_architectures_are_ranked_and_their_pairs_folded(tmp_path: Path) -> None:
    page = Page(write_report(write_sample(tmp_path, spread(10))).read_text(encoding="utf-8"))
    text = "".join(page.text)
    verdict = text.partition("What was run")[0]
    assert "The lowest median delay is that of megha, 1.56 ms; next is megha:gms=10,lms=10, 6.26 ms." in verdict
    assert verdict.count("lowest") == 2, "a sentence per pair would fill the screen"
    assert "Who is lowest at what" in text
    assert "central against megha" in text
    assert "The 90 comparisons of 9 pairs" in text
    assert page.tags.count("details") == 5
    for fact in ("msg/task", "blocked", "6.00 ms", "stolen probes", "queued reservations max", *TEN):
        assert fact in text


def test_the_page_needs_nothing_from_elsewhere(whole: Path) -> None:
    page = Page(whole.read_text(encoding="utf-8"))
    assert not {"link", "img", "iframe", "object"} & set(page.tags)
    assert page.tags.count("script") == 2, "the content, and what reads it"
    assert not [name for name, _ in page.attributes if name == "src" or name.startswith("on")]
    policy = next(value for name, value in page.attributes if name == "content" and "default-src" in value)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    for name, value in page.attributes:
        assert "//" not in value or value == policy, f"{name}={value}"
        if name in ("href", "xlink:href"):
            assert value.startswith("#")
    style = whole.read_text(encoding="utf-8").partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style
    assert "prefers-color-scheme: dark" in style


def test_references_inside_pictures_find_their_one_target(whole: Path) -> None:
    text = whole.read_text(encoding="utf-8")
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    assert set(re.findall(r'(?:url\(#|xlink:href="#)([^")]+)', text)) <= set(page.ids)


def test_pictures_take_the_colours_of_the_page(whole: Path) -> None:
    pictures = re.findall(r"<svg.*?</svg>", whole.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert all("var(--ink)" in picture for picture in pictures)
    assert not re.search(r'style="[^"]*(#1f2328|#0072b2)', "".join(pictures))


@pytest.mark.slow
def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    pages = [write_report(write_sample(tmp_path / name / "results")).read_bytes() for name in "ab"]
    assert pages[0] == pages[1]


def test_whatever_a_study_is_called_is_text(tmp_path: Path) -> None:
    evil = "<script>alert('x')</script> & \"quotes\" $a$ [b]"
    runs = [msgspec.structs.replace(run, label=evil, trace=evil) for run in sample_runs(1, ("megha",))]
    folder = write_sample(tmp_path / "odd", runs)
    manifest = msgspec.json.decode((folder / "manifest.json").read_bytes())
    manifest |= {"command": evil, "config": {"name": evil}, "cluster": {"constraints": evil, "machines": evil}}
    (folder / "manifest.json").write_bytes(msgspec.json.encode(manifest))
    text = write_report(folder).read_text(encoding="utf-8")
    page = Page(text)
    assert page.tags.count("script") == 2, "those of the page itself"
    assert "".join(page.text).count(evil) >= 5


def test_one_architecture_without_classes_or_constraints_has_a_report(tmp_path: Path) -> None:
    folder = write_sample(tmp_path / "one", [sample_run(classes=False)], constraints=False)
    text = "".join(Page(write_report(folder).read_text(encoding="utf-8")).text)
    assert "Nothing was compared" in text
    assert "Load per placement constraint" not in text
    assert "Paired differences" not in text


def test_settings_of_a_study_have_pictures_of_their_own(tmp_path: Path) -> None:
    folder = write_sample(tmp_path / "axes", sample_runs(1, ("megha", "pigeonc")))
    names = {"megha": "megha [workers=100]", "pigeonc": "megha [workers=200]"}
    summary = msgspec.json.decode((folder / "summary.json").read_bytes())
    for run in summary["runs"]:
        run["label"] = names[run["label"]]
    (folder / "summary.json").write_bytes(msgspec.json.encode(summary | {"differences": []}))
    for name in ("jobs.parquet", "utilisation.parquet"):
        old = parquet.read_table(folder / name)
        labels = pa.array([names[label] for label in old.column("label").to_pylist()])
        parquet.write_table(old.set_column(old.schema.get_field_index("label"), "label", labels), folder / name)
    text = write_report(folder).read_text(encoding="utf-8")
    assert "Utilisation over time, workers=100" in text
    assert "Utilisation over time, workers=200" in text


def test_an_unfinished_study_says_what_is_missing(tmp_path: Path) -> None:
    folder = write_sample(tmp_path / "part")
    manifest = msgspec.json.decode((folder / "manifest.json").read_bytes())
    (folder / "manifest.json").write_bytes(msgspec.json.encode(manifest | {"planned": 12}))
    assert "9 finished, 3 of 12 missing" in write_report(folder).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["manifest.json", "summary.json", "jobs.parquet", "utilisation.parquet"])
@pytest.mark.parametrize("damage", ["gone", "empty", "letters", "half"])
def test_a_missing_or_damaged_file_is_named_with_what_to_do(tmp_path: Path, name: str, damage: str) -> None:
    folder = write_sample(tmp_path / "results")
    path = folder / name
    if damage == "gone":
        path.unlink()
    else:
        whole = path.read_bytes()
        path.write_bytes({"empty": b"", "letters": b"no results" * 9, "half": whole[: len(whole) // 2]}[damage])
    stranger = (name, damage) == ("manifest.json", "gone")
    with pytest.raises(InputError, match="not a results folder" if stranger else "study again") as caught:
        write_report(folder)
    assert caught.value.place == str(folder if stranger else path)
    assert not (folder / "report.html").exists()


def test_a_damaged_load_table_is_named(tmp_path: Path) -> None:
    folder = write_sample(tmp_path / "results")
    (folder / "constraint_load.parquet").write_bytes(b"")
    with pytest.raises(InputError, match="constraint_load"):
        write_report(folder)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    folder = write_sample(tmp_path / "results")
    parquet.write_table(parquet.read_table(folder / "jobs.parquet").drop_columns(["delay_s"]), folder / "jobs.parquet")
    with pytest.raises(InputError, match="no column 'delay_s'"):
        write_report(folder)


def test_a_folder_without_finished_runs_or_no_folder_at_all_is_refused(tmp_path: Path) -> None:
    folder = write_sample(tmp_path / "results")
    (folder / "summary.json").write_bytes(b'{"runs": [], "differences": []}')
    with pytest.raises(InputError, match="no finished run"):
        write_report(folder)
    with pytest.raises(InputError, match="is no folder"):
        write_report(tmp_path / "nowhere")


def test_a_report_that_cannot_be_written_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    folder = write_sample(tmp_path / "results")
    (folder / "report.html").mkdir()
    before = sorted(folder.iterdir())
    with pytest.raises(InputError, match="cannot be written"):
        write_report(folder)
    assert sorted(folder.iterdir()) == before
