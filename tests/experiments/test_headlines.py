"""The word of a headline follows from its variants."""

from __future__ import annotations

import msgspec
import pytest

from experiments.claims import (
    BY_CONSTRUCTION,
    DIFFERS,
    OF_THE_PROGRAM,
    OUR_QUESTION,
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
    MISSES,
    NOT_DECIDED,
    ONLY_UNDER,
    OPEN,
    SHOWN,
    Evidence,
    Headline,
    Shown,
    check_headline,
    shown,
    word_in_full,
    word_of,
)
from experiments.papers import variant_text
from volery.core.errors import InputError

CLAIM = Claim("id", "6", "says", "10", Side("delay_s.p50", "a"), "<", 10.0)


def judged(verdict: Verdict, *cases: Verdict, agrees: bool | None = None, reading: str = "") -> Judgement:
    made = tuple(ClaimCase(f"w{place}", "p", case, agrees=agrees) for place, case in enumerate(cases or (verdict,)))
    return Judgement("id", reading, verdict, "", made)


def variant(*judgements: Judgement, name: str = "here", part: bool = False, **cut: str) -> Shown:
    evidence = Evidence(name=name, claims=("x/id",), part=part, **cut)
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
        (judged(STAND_IN_NUMBER, agrees=False), MISSES),
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
        ((HOLDS, AGREES), COMES_OUT),
        ((AGREES,), NOT_DECIDED),
        ((AGREES, AGREES), NOT_DECIDED),
        ((AGREES, MISSES), ONLY_UNDER),
        ((MISSES,), NOT_DECIDED),
        ((MISSES, FAILS), DOES_NOT),
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
        MISSES: judged(STAND_IN_NUMBER, agrees=False),
        SHOWN: judged(STAND_IN_NUMBER, agrees=None),
    }
    variants = [variant(judgements[outcome], name=f"{outcome} {n}") for n, outcome in enumerate(outcomes)]
    assert word_of(variants) == word
    held = [f"{outcome} {n}" for n, outcome in enumerate(outcomes) if outcome in (HOLDS, AGREES)]
    in_full = word_in_full(variants)
    assert in_full == f"only under: {'; '.join(held)}" if word == ONLY_UNDER else in_full.partition(":")[0] == word


HELD, FAILED = judged(REPRODUCED), judged(DIFFERS)


@pytest.mark.parametrize(
    ("parts", "settings", "word"),
    [
        ((HELD, HELD), (), "comes out"),
        ((HELD, FAILED), (), "in part: part 0"),
        ((HELD, judged(UNDECIDED)), (), "in part: part 0"),
        ((FAILED, FAILED), (), "does not"),
        ((HELD,), (HELD, FAILED), "only under: setting 0"),
        ((HELD,), (FAILED, FAILED), "in part: part 0"),
        ((FAILED,), (HELD, FAILED), "in part: setting 0"),
        ((FAILED,), (HELD,), "in part: setting 0"),
    ],
)
def test_a_claim_of_which_a_part_fails_comes_out_in_part(
    parts: tuple[Judgement, ...], settings: tuple[Judgement, ...], word: str
) -> None:
    variants = [variant(part, name=f"part {n}", part=True) for n, part in enumerate(parts)]
    variants += [variant(each, name=f"setting {n}") for n, each in enumerate(settings)]
    assert word_in_full(variants) == word
    assert word_of(variants) == word.partition(":")[0]


def test_an_agreeing_number_beside_what_was_not_run_is_not_decided() -> None:
    assert word_of([variant(judged(STAND_IN_NUMBER, agrees=True)), variant(name="not run")]) == NOT_DECIDED


def test_the_word_names_the_stand_in_where_all_that_was_run_was_on_one() -> None:
    on_one = msgspec.structs.replace(judged(STAND_IN_HOLDS), stand_in=True)
    failing = msgspec.structs.replace(judged(STAND_IN_FAILS), stand_in=True)
    assert word_in_full([variant(on_one)]) == "comes out (on a stand-in)"
    assert word_in_full([variant(on_one), variant(name="not run")]) == "only under: here (on a stand-in)"
    assert word_in_full([variant(failing)]) == "does not (on a stand-in)"
    assert word_in_full([variant(on_one), variant(HELD)]) == "comes out"
    assert word_in_full([variant()]) == "not decided"


def test_what_is_not_decided_says_which_way_it_points() -> None:
    agreeing, missing = (judged(STAND_IN_NUMBER, agrees=agrees) for agrees in (True, False))
    assert word_in_full([variant(agreeing), variant(name="not run")]) == "not decided: the number agrees"
    assert word_in_full([variant(missing)]) == "not decided: the number is missed"
    assert word_in_full([variant(FAILED), variant(judged(UNDECIDED))]) == "not decided: what is decided fails"
    assert word_in_full([variant(judged(UNDECIDED))]) == "not decided"


def test_a_question_of_ours_is_no_variant() -> None:
    asked = [variant(judged(OUR_QUESTION, agrees=True))]
    headline = Headline("a claim", "a number", (asked[0].evidence,))
    with pytest.raises(InputError, match=r"a.variant\[0\]: rests on a question of ours"):
        check_headline(headline, asked, "a")


def test_a_cell_marks_numbers_on_stand_ins_and_stand_ins_beside_others() -> None:
    def mark(judgement: Judgement, *, is_mixed: bool) -> str:
        text = variant_text(variant(judgement), is_alone=True, is_mixed=is_mixed, metrics=[])
        return text[text.index("(") :]

    number = msgspec.structs.replace(judged(STAND_IN_NUMBER, agrees=False), stand_in=True)
    assert mark(number, is_mixed=False) == mark(number, is_mixed=True) == "(misses, a stand-in)"
    assert mark(judged(STAND_IN_NUMBER, agrees=True), is_mixed=False) == "(agrees, a stand-in)"
    assert mark(judged(STAND_IN_NUMBER, agrees=None), is_mixed=False) == "(open, a stand-in)"
    on_one = msgspec.structs.replace(judged(STAND_IN_HOLDS), stand_in=True)
    assert mark(on_one, is_mixed=False) == "(holds)", "the word names the stand-in"
    assert mark(on_one, is_mixed=True) == "(holds, a stand-in)"
    assert mark(HELD, is_mixed=True) == "(holds)"
    assert mark(judged(BY_CONSTRUCTION, REPRODUCED), is_mixed=False) == "(by construction)"
