"""What is told of the experiments comes from their records."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from experiments.experiment import FINDINGS
from experiments.findings import findings_page
from experiments.records import read_record
from volery.core.errors import InputError

FOLDER = Path(__file__).parents[2] / "experiments"
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
[finding.table]
title = "local tasks"
metric = "locality.node"
row = [
  { label = "none", workload = "maps_4", of = "naive" },
  { label = "5 s", workload = "maps_4", of = "five_seconds" },
]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "results").mkdir()
    shutil.copy(FOLDER / "results" / f"{RECORD}.json", tmp_path / "results")
    (tmp_path / FINDINGS).write_text(TOLD, encoding="utf-8")
    return tmp_path


def test_the_page_is_the_one_that_the_records_give() -> None:
    page = (FOLDER.parent / "docs" / "findings.md").read_text(encoding="utf-8")
    assert page == findings_page(FOLDER), "run `make papers`"


def test_a_finding_shows_the_verdicts_that_it_rests_on(folder: Path) -> None:
    assert "It rests on" not in findings_page(folder)
    judged = read_record(folder / "results" / f"{RECORD}.json")
    assert judged is not None
    first = judged.judgements[0]
    verdicts = ", ".join(dict.fromkeys(one.verdict for one in judged.judgements if one.claim == first.claim))
    rests_on = f'[finding.rests_on]\n"{RECORD}/{first.claim}" = "{verdicts}"\n'
    path = folder / FINDINGS
    path.write_text(TOLD.replace("[finding.table]", f"{rests_on}[finding.table]"), encoding="utf-8")
    assert f"It rests on: `{RECORD}/{first.claim}` ({verdicts})." in findings_page(folder)


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
        TOLD.replace("[finding.table]", f'[finding.rests_on]\n"{claim}" = "{written}"\n[finding.table]'),
        encoding="utf-8",
    )
    with pytest.raises(InputError, match=rf"findings.toml: finding\[0\].rests_on.*{problem}"):
        findings_page(folder)


def test_a_finding_ends_with_the_command_that_runs_it_again(folder: Path) -> None:
    command = f".venv/bin/python -m experiments check {RECORD} --runs 12"
    assert re.search(
        rf"^Run it again: `{command}` \(12 runs, \d+ CPU seconds\)\.$", findings_page(folder), re.MULTILINE
    )
    other = TOLD.replace(f'experiment = "{RECORD}"', f'experiment = "{RECORD}"\nrun = "none"', 1)
    (folder / FINDINGS).write_text(other, encoding="utf-8")
    with pytest.raises(InputError, match=r"'none' has no record; run it first"):
        findings_page(folder)


def test_a_value_may_be_of_one_population_of_machines(folder: Path) -> None:
    path = folder / FINDINGS
    path.write_text(
        TOLD.replace('metric = "locality.node" }\nfive', 'metric = "locality.node", population = "0" }\nfive')
    )
    assert "6.81 %" in findings_page(folder)
    path.write_text(
        TOLD.replace('metric = "locality.node" }\nfive', 'metric = "locality.node", population = "1" }\nfive')
    )
    with pytest.raises(InputError, match=r"value.naive: .* has no locality.node of 'naive' on 'maps_4'"):
        findings_page(folder)


def test_numbers_come_from_records(folder: Path) -> None:
    page = findings_page(folder)
    assert re.search(r"6\.8\d* % \(.*\) and 97\.6 %, which is 14\.\d\u00d7 as much\.", page)
    assert "|  | local tasks |\n|---|---|\n| none | 6.81 % |\n| 5 s | 97.6 % |\n" in page


@pytest.mark.parametrize(
    ("wrong", "right", "problem"),
    [
        (
            'of = "naive", metric = "locality.node" }\nfive',
            'of = "naiv", metric = "locality.node" }\nfive',
            r"finding\[0\].value.naive: the record of eurosys2010_small_jobs has no locality.node of 'naiv'",
        ),
        ("{naive} and", "{nave} and", r"finding\[0\].text: the text names \['nave'\]"),
        ('over = "naive"', 'over = "none"', "'none' is no value of this finding"),
        ('experiment = "eurosys2010_small_jobs"', 'experiment = "iot"', "'iot' has no record; run it first"),
    ],
)
def test_what_no_record_has_is_named(folder: Path, wrong: str, right: str, problem: str) -> None:
    assert wrong in TOLD
    (folder / FINDINGS).write_text(TOLD.replace(wrong, right), encoding="utf-8")
    with pytest.raises(InputError, match=problem):
        findings_page(folder)
