"""The ledger: what a claim with several readings comes to, and what a program does in place of the text."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.experiments.test_reproduction import PAPERS, TEXT

from experiments.claims import (
    DIFFERS,
    NOT_TRIED,
    OF_THE_PROGRAM,
    REPRODUCED,
    STAND_IN_FAILS,
    STAND_IN_HOLDS,
    UNDECIDED,
    Judgement,
    Verdict,
)
from experiments.ledger import Ledger, read_ledger
from experiments.records import Record, read_record, record_path
from volery.core.errors import InputError

FOLDER = Path(__file__).parents[2] / "experiments"
PROGRAM_CLAIM = """
[[claim]]
id = "by-the-program"
section = "6"
sentence = ""
quoted = false
says = "Its program does."
published = "above 1"
left = { metric = "utilisation_mean", of = "m" }
relation = ">"
right = 0
on = ["w"]
program_of = "impossible"
"""


def ledger_with(tmp_path: Path, judgements: dict[tuple[str, str, bool], Verdict], text: str = TEXT) -> Ledger:
    """The small experiment, with these verdicts on its claims by claim, reading and kind of workload."""
    (tmp_path / "small.toml").write_text(text, encoding="utf-8")
    (tmp_path / "papers.toml").write_text(PAPERS, encoding="utf-8")
    ledger = read_ledger(tmp_path)
    made = tuple(
        Judgement(claim, reading, verdict, "", (), stand_in)
        for (claim, reading, stand_in), verdict in judgements.items()
    )
    return msgspec.structs.replace(ledger, records={"small": msgspec.structs.replace(any_record(), judgements=made)})


def any_record() -> Record:
    record = read_record(record_path(FOLDER, "osdi2016_solver"))
    assert record is not None
    return record


def verdicts_of(ledger: Ledger, claim: str) -> list[str]:
    return [verdict.verdict for verdict in ledger.verdicts_of(*ledger.claim(f"small/{claim}", "here"))]


@pytest.mark.parametrize(
    ("text", "program", "verdict"),
    [
        (REPRODUCED, REPRODUCED, REPRODUCED),
        (REPRODUCED, DIFFERS, REPRODUCED),
        (DIFFERS, DIFFERS, DIFFERS),
        (DIFFERS, UNDECIDED, DIFFERS),
        (DIFFERS, REPRODUCED, OF_THE_PROGRAM),
        (STAND_IN_FAILS, STAND_IN_HOLDS, OF_THE_PROGRAM),
        (UNDECIDED, REPRODUCED, UNDECIDED),
    ],
)
def test_the_verdict_on_a_claim_is_that_of_its_text_unless_the_program_alone_holds(
    tmp_path: Path, text: Verdict, program: Verdict, verdict: Verdict
) -> None:
    judged: dict[tuple[str, str, bool], Verdict] = {
        ("three-hops", "exact", False): text,
        ("three-hops", "published-code", False): program,
    }
    assert verdicts_of(ledger_with(tmp_path, judged), "three-hops") == [verdict]


def test_readings_that_are_no_program_make_no_claim_of_the_program(tmp_path: Path) -> None:
    judged: dict[tuple[str, str, bool], Verdict] = {
        ("three-hops", "exact", False): DIFFERS,
        ("three-hops", "kept", False): REPRODUCED,
    }
    assert verdicts_of(ledger_with(tmp_path, judged), "three-hops") == [DIFFERS]


def test_both_kinds_of_workloads_count_apart_and_what_was_not_judged_is_not_tried(tmp_path: Path) -> None:
    judged: dict[tuple[str, str, bool], Verdict] = {
        ("everywhere", "", False): DIFFERS,
        ("everywhere", "", True): STAND_IN_HOLDS,
    }
    ledger = ledger_with(tmp_path, judged)
    assert verdicts_of(ledger, "everywhere") == [DIFFERS, STAND_IN_HOLDS]
    assert verdicts_of(ledger, "impossible") == [NOT_TRIED]
    counts = ledger.verdicts(ledger.experiments.values())
    assert counts == {DIFFERS: 1, STAND_IN_HOLDS: 1, NOT_TRIED: 2}


@pytest.mark.parametrize(
    ("program", "verdict"), [(REPRODUCED, OF_THE_PROGRAM), (STAND_IN_HOLDS, OF_THE_PROGRAM), (DIFFERS, DIFFERS)]
)
def test_a_claim_about_the_program_belongs_to_that_of_the_text_and_is_not_counted(
    tmp_path: Path, program: Verdict, verdict: Verdict
) -> None:
    judged: dict[tuple[str, str, bool], Verdict] = {
        ("impossible", "", False): DIFFERS,
        ("by-the-program", "", False): program,
    }
    ledger = ledger_with(tmp_path, judged, TEXT + PROGRAM_CLAIM)
    assert verdicts_of(ledger, "impossible") == [verdict]
    assert verdicts_of(ledger, "by-the-program") == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('program_of = "impossible"', 'program_of = "imposible"', "'small/imposible' is no claim; did you mean"),
        ('program_of = "impossible"', 'program_of = "by-the-program"', "tests a program itself; name the claim of the"),
    ],
)
def test_a_program_of_nothing_is_refused(tmp_path: Path, old: str, new: str, problem: str) -> None:
    with pytest.raises(InputError, match=rf"small.claim\[3\].program_of: .*{problem}"):
        ledger_with(tmp_path, {}, TEXT + PROGRAM_CLAIM.replace(old, new))


def test_headlines_of_an_unknown_paper_are_refused(tmp_path: Path) -> None:
    ledger_with(tmp_path, {})
    (tmp_path / "headlines").mkdir()
    headline = (
        '[[headline]]\nclaim = "a"\npublished = "b"\nvariant = [{ name = "here", claims = ["small/impossible"] }]\n'
    )
    (tmp_path / "headlines" / "tset.toml").write_text(headline, encoding="utf-8")
    with pytest.raises(InputError, match=r"headlines/tset.toml: 'tset' is not in papers.toml"):
        read_ledger(tmp_path)
