"""The word of a headline follows from its variants."""

from __future__ import annotations

import pytest

from experiments.claims import (
    BY_CONSTRUCTION,
    DIFFERS,
    OF_THE_PROGRAM,
    REPRODUCED,
    STAND_IN_FAILS,
    STAND_IN_HOLDS,
    STAND_IN_NUMBER,
    UNDECIDABLE,
    UNDECIDED,
    Claim,
    ClaimCase,
    Judgement,
    Side,
    Verdict,
)
from experiments.headlines import (
    AGREES,
    COMES_OUT,
    DOES_NOT,
    FAILS,
    HOLDS,
    NOT_DECIDED,
    ONLY_UNDER,
    OPEN,
    SHOWN,
    Evidence,
    Shown,
    shown,
    word_in_full,
    word_of,
)

CLAIM = Claim("id", "6", "says", "10", Side("delay_s.p50", "a"), "<", 10.0)


def judged(verdict: Verdict, *cases: Verdict, agrees: bool | None = None, reading: str = "") -> Judgement:
    made = tuple(ClaimCase(f"w{place}", "p", case, agrees=agrees) for place, case in enumerate(cases or (verdict,)))
    return Judgement("id", reading, verdict, "", made)


def variant(*judgements: Judgement, name: str = "here", workload: str = "", reading: str = "") -> Shown:
    evidence = Evidence(name=name, claims=("x/id",), workload=workload, reading=reading)
    return shown(evidence, [(CLAIM, judgements)], "here")


@pytest.mark.parametrize(
    ("judgement", "outcome"),
    [
        (judged(REPRODUCED), HOLDS),
        (judged(STAND_IN_HOLDS), HOLDS),
        (judged(DIFFERS), FAILS),
        (judged(STAND_IN_FAILS), FAILS),
        (judged(OF_THE_PROGRAM), FAILS),
        (judged(UNDECIDED), OPEN),
        (judged(UNDECIDABLE), OPEN),
        (judged(STAND_IN_NUMBER, agrees=True), AGREES),
        (judged(STAND_IN_NUMBER, agrees=False), SHOWN),
        (judged(STAND_IN_NUMBER, agrees=None), SHOWN),
        (judged(BY_CONSTRUCTION, REPRODUCED), SHOWN),
    ],
)
def test_a_variant_comes_to_what_its_judgement_says(judgement: Judgement, outcome: str) -> None:
    assert variant(judgement).outcome == outcome


def test_a_variant_of_several_judgements_comes_to_the_worst_of_them() -> None:
    assert variant(judged(REPRODUCED), judged(STAND_IN_FAILS)).outcome == FAILS
    assert variant(judged(REPRODUCED), judged(UNDECIDED)).outcome == OPEN
    assert variant(judged(REPRODUCED), judged(STAND_IN_NUMBER, agrees=True)).outcome == AGREES
    assert variant().outcome == OPEN, "nothing was tried"


def test_a_variant_may_speak_of_one_workload_or_reading_alone() -> None:
    mixed = judged(DIFFERS, REPRODUCED, DIFFERS, UNDECIDED)
    assert [variant(mixed, workload=name).outcome for name in ("w0", "w1", "w2")] == [HOLDS, FAILS, OPEN]
    readings = (judged(DIFFERS, reading="exact"), judged(REPRODUCED, reading="published-code"))
    assert variant(*readings).outcome == FAILS, "the first reading is that of the text"
    assert variant(*readings, reading="published-code").outcome == HOLDS


@pytest.mark.parametrize(
    ("outcomes", "word"),
    [
        ((HOLDS, HOLDS), COMES_OUT),
        ((FAILS, FAILS), DOES_NOT),
        ((HOLDS, FAILS), ONLY_UNDER),
        ((HOLDS, OPEN), ONLY_UNDER),
        ((HOLDS, SHOWN), ONLY_UNDER),
        ((AGREES,), ONLY_UNDER),
        ((AGREES, FAILS), ONLY_UNDER),
        ((FAILS, SHOWN), DOES_NOT),
        ((FAILS, OPEN), NOT_DECIDED),
        ((SHOWN, SHOWN), NOT_DECIDED),
        ((OPEN,), NOT_DECIDED),
    ],
)
def test_the_word_follows_from_the_variants(outcomes: tuple[str, ...], word: str) -> None:
    judgements: dict[str, Judgement] = {
        HOLDS: judged(REPRODUCED),
        FAILS: judged(DIFFERS),
        OPEN: judged(UNDECIDED),
        AGREES: judged(STAND_IN_NUMBER, agrees=True),
        SHOWN: judged(STAND_IN_NUMBER, agrees=False),
    }
    variants = [variant(judgements[outcome], name=f"{outcome} {n}") for n, outcome in enumerate(outcomes)]
    assert word_of(variants) == word
    held = [f"{outcome} {n}" for n, outcome in enumerate(outcomes) if outcome in (HOLDS, AGREES)]
    assert word_in_full(variants) == (f"only under {'; '.join(held)}" if word == ONLY_UNDER else word)
