"""What is told of the experiments comes from their records."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from volery.core.errors import InputError
from volery.report.rangeplot import Range, range_svg
from volery.study.experiments import FINDINGS
from volery.study.findings import findings_page

FOLDER = Path(__file__).parents[3] / "experiments"
RECORD = "eurosys2010_small_jobs"
TOLD = """
introduction = "What there is."

[[finding]]
title = "Waiting helps"
experiment = "eurosys2010_small_jobs"
text = "{naive} and {five}, which is {times} as much."
[finding.value]
naive = { workload = "maps_4", of = "naive", metric = "locality.node" }
five = { workload = "maps_4", of = "five_seconds", metric = "locality.node" }
times = { workload = "maps_4", of = "five_seconds", metric = "locality.node", over = "naive" }
[finding.picture]
name = "waiting"
title = "local tasks"
alt = "A picture"
metric = "locality.node"
row = [
  { label = "none", workload = "maps_4", of = "naive" },
  { label = "5 s", workload = "maps_4", of = "five_seconds", marked = true },
]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "results").mkdir()
    shutil.copy(FOLDER / "results" / f"{RECORD}.json", tmp_path / "results")
    (tmp_path / FINDINGS).write_text(TOLD, encoding="utf-8")
    return tmp_path


def test_the_page_and_its_pictures_are_those_that_the_records_give() -> None:
    docs = FOLDER.parent / "docs"
    for name, text in findings_page(FOLDER).items():
        assert (docs / name).read_text(encoding="utf-8") == text, f"{name}: run `volery reproduce --papers`"


def test_numbers_come_from_records(folder: Path) -> None:
    page = findings_page(folder)
    assert re.search(r"6\.8\d* % \(.*\) and 97\.6 %, which is 14\.\d\u00d7 as much\.", page["findings.md"])
    picture = page["figures/findings/waiting.svg"]
    assert ">97.6 %</text>" in picture
    assert picture.count("<circle") == 2


@pytest.mark.parametrize(
    ("wrong", "right", "problem"),
    [
        ('of = "naive", metric = "locality.node" }\nfive', 'of = "naiv", metric = "locality.node" }\nfive',
         r"finding\[0\].value.naive: the record of eurosys2010_small_jobs has no locality.node of 'naiv'"),
        ("{naive} and", "{nave} and", r"finding\[0\].text: the text names \['nave'\]"),
        ('over = "naive"', 'over = "none"', "'none' is no value of this finding"),
        ('experiment = "eurosys2010_small_jobs"', 'experiment = "iot"', "'iot' has no record; run it first"),
    ],
)  # fmt: skip
def test_what_no_record_has_is_named(folder: Path, wrong: str, right: str, problem: str) -> None:
    assert wrong in TOLD
    (folder / FINDINGS).write_text(TOLD.replace(wrong, right), encoding="utf-8")
    with pytest.raises(InputError, match=problem):
        findings_page(folder)


def test_rows_stand_by_size_on_either_axis() -> None:
    rows = [Range("small", 1, 0.5, 2, "1"), Range("large", 100, 100, 100, "100")]
    for log in (False, True):
        small, large = (float(x) for x in re.findall(r'<circle cx="([\d.]+)"', range_svg("t", rows, log=log)))
        assert small < large
    assert range_svg("t", rows).count('stroke-width="3"/>') == 1, "a range of nothing has no line"
