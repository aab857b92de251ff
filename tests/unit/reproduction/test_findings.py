"""What is told of the experiments comes from their records."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from volery.core.errors import InputError
from volery.reproduction.experiments import FINDINGS
from volery.reproduction.findings import Range, findings_page, range_svg
from volery.reproduction.ledger import read_record

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


def test_a_finding_shows_the_verdicts_that_it_rests_on(folder: Path) -> None:
    assert "It rests on" not in findings_page(folder)["findings.md"]
    judged = read_record(folder / "results" / f"{RECORD}.json")
    assert judged is not None
    first = judged.judgements[0]
    verdicts = ", ".join(dict.fromkeys(one.verdict for one in judged.judgements if one.claim == first.claim))
    rests_on = f'[finding.rests_on]\n"{RECORD}/{first.claim}" = "{verdicts}"\n'
    path = folder / FINDINGS
    path.write_text(TOLD.replace("[finding.picture]", f"{rests_on}[finding.picture]"), encoding="utf-8")
    assert f"It rests on: `{RECORD}/{first.claim}` ({verdicts})." in findings_page(folder)["findings.md"]


@pytest.mark.parametrize(
    ("claim", "written", "problem"),
    [
        (f"{RECORD}/no-such-claim", "reproduced", "judges no claim 'no-such-claim'"),
        ("no_such_experiment/claim", "reproduced", "'no_such_experiment' has no record"),
        (
            f"{RECORD}/FIRST",
            "by construction",
            r"was written for 'by construction', and the verdict is '\w.*'; rewrite it",
        ),
    ],
)
def test_a_finding_whose_claim_came_out_otherwise_is_refused(
    folder: Path, claim: str, written: str, problem: str
) -> None:
    judged = read_record(folder / "results" / f"{RECORD}.json")
    assert judged is not None
    claim = claim.replace("FIRST", judged.judgements[0].claim)
    path = folder / FINDINGS
    path.write_text(
        TOLD.replace("[finding.picture]", f'[finding.rests_on]\n"{claim}" = "{written}"\n[finding.picture]'),
        encoding="utf-8",
    )
    with pytest.raises(InputError, match=rf"findings.toml: finding\[0\].rests_on.*{problem}"):
        findings_page(folder)


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
