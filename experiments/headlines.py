"""The headlines of a source: what it is known for, what came out here, and one of five words.

headlines/KEY.toml    per headline the sentence, its variants as claims of the lab book, why, and what was tried

The word is never typed. It follows from the variants, each of which rests on the verdicts of its claims:

    comes out        every variant holds, but that numbers on stand-ins may agree
    in part: X       a part of the claim holds and another does not; X are the names of all that hold
    only under: X    the claim holds in some settings and not in others; X are the names of those where it holds
    does not         none holds, and all that are decided fail
    not decided      nothing holds or fails, or none holds and some are open

A variant is a setting in which the whole claim was measured, or says that it is a part of the claim (`part = true`).
All settings together are one part: where none of them holds, a part that holds makes "in part".

The border between the two: "in part" names what the claim says, "only under" names where it is so.

A number that a source prints of its own workload is shown on a stand-in, where it agrees or misses. By itself it makes
neither "comes out" nor "does not"; one that agrees makes "only under" or "in part" where another variant, which was
run, does not. Where all agree the word stays "not decided", and the page adds that they do; so it adds where all that
is decided fails, and something is open.

A question of ours is no variant: it shows a cause, as a row of the switch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal, get_args

import msgspec

from experiments.claims import (
    BY_CONSTRUCTION,
    FAILING,
    HOLDING,
    NOT_TRIED,
    OUR_QUESTION,
    SHOWN_ALONE,
    Claim,
    ClaimCase,
    Judgement,
    Name,
)
from experiments.experiment import read_toml
from volery.core.errors import InputError

HEADLINES: Final = "headlines"
Word = Literal["comes out", "in part", "only under", "does not", "not decided"]
COMES_OUT: Final[Word] = "comes out"
IN_PART: Final[Word] = "in part"
ONLY_UNDER: Final[Word] = "only under"
DOES_NOT: Final[Word] = "does not"
NOT_DECIDED: Final[Word] = "not decided"
WORDS: Final[tuple[Word, ...]] = get_args(Word)

Outcome = Literal["holds", "agrees", "misses", "fails", "open", "shown"]
"""What a variant comes to: "agrees" and "misses" are of numbers on stand-ins; "shown" is one that may yet do either, or
what is so by construction."""
HOLDS: Final[Outcome] = "holds"
AGREES: Final[Outcome] = "agrees"
MISSES: Final[Outcome] = "misses"
FAILS: Final[Outcome] = "fails"
OPEN: Final[Outcome] = "open"
SHOWN: Final[Outcome] = "shown"
GOOD: Final = frozenset({HOLDS, AGREES})
ON_STAND_IN: Final = "on a stand-in"
NUMBER_AGREES: Final = "the number agrees"
NUMBER_MISSES: Final = "the number is missed"
SO_FAR_FAILS: Final = "what is decided fails"

_SENTENCE_END: Final = re.compile(r"[\w)%`]{2}[.?!](?=\s+[A-Z`]|\s*\Z)")
SENTENCES: Final = 2
"""Sentences of a `why`, at most."""


class Evidence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Claims of the lab book, and where on them to look.

    Args:
        name: what tables call it: the setting, input or reading that makes the difference.
        claims: Ids of claims; they hold together, or fail where one of them does.
        reading: Reading of the architectures; empty for the first one, which is that of the text.
        workload: its cases on this workload alone; empty for all.
        population: its cases on this population of machines alone; empty for all.
        part: whether it is a part of the headline's claim, in place of a setting for the whole of it.
    """

    name: Name
    claims: Annotated[tuple[Name, ...], msgspec.Meta(min_length=1)]
    reading: str = ""
    workload: str = ""
    population: str = ""
    part: bool = False


class Headline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A thing that a source is known for, and what came out.

    Args:
        claim: The sentence, in our words.
        published: The published value, or the word where no value is printed.
        variant: what its word follows from; a single one needs no telling name.
        why: Reasons in two sentences at most.
        written_for: The word, or the words, that `why` was written for; another one refuses the page.
        switch: Claims that show the cause, as a small table.
        tried: Which printed mechanism and which unprinted input could make it, and what was tried of them; needed where
            it does not come out.
        run: Experiment to run again for it; empty for that of its first claim.
    """

    claim: Name
    published: Name
    variant: Annotated[tuple[Evidence, ...], msgspec.Meta(min_length=1)]
    why: str = ""
    written_for: Word | tuple[Word, ...] = ()
    switch: tuple[Evidence, ...] = ()
    tried: str = ""
    run: str = ""

    @property
    def written_words(self) -> tuple[Word, ...]:
        """The words that `why` was written for."""
        return (self.written_for,) if isinstance(self.written_for, str) else self.written_for

    @property
    def experiment(self) -> str:
        """The name of the experiment to run again for it."""
        return self.run or self.variant[0].claims[0].partition("/")[0]


class Headlines(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of headlines, in the order of the page."""

    headline: Annotated[tuple[Headline, ...], msgspec.Meta(min_length=1)]


def read_headlines(folder: Path) -> dict[str, tuple[Headline, ...]]:
    """The headlines by the keys of their sources; empty where the folder has none."""
    paths = sorted((folder / HEADLINES).glob("*.toml"))
    return {path.stem: read_toml(path, Headlines).headline for path in paths}


class Shown(msgspec.Struct, frozen=True):
    """Evidence with what was recorded of it.

    Args:
        judged: The claims with their judgements, cut to the cases that count; none for a claim that was not tried.
    """

    evidence: Evidence
    judged: tuple[tuple[Claim, Judgement | None], ...]

    @property
    def outcome(self) -> Outcome:
        """What all of it comes to: the worst that one of its judgements says."""
        outcomes = {_outcome(judgement, self.is_cut) for _, judgement in self.judged}
        return next(outcome for outcome in (FAILS, OPEN, MISSES, SHOWN, AGREES, HOLDS) if outcome in outcomes)

    @property
    def is_cut(self) -> bool:
        """True if only some cases of the claims count."""
        return bool(self.evidence.workload or self.evidence.population)

    @property
    def verdicts(self) -> list[str]:
        """The verdicts behind the outcome, each once."""
        return list(dict.fromkeys(judgement.verdict if judgement else NOT_TRIED for _, judgement in self.judged))

    @property
    def is_run(self) -> bool:
        """True if some of it was run."""
        return any(judgement is not None for _, judgement in self.judged)

    @property
    def is_on_stand_ins(self) -> bool:
        """True if all of it was measured on workloads that stand for those of the source."""
        return self.is_run and all(judgement.stand_in for _, judgement in self.judged if judgement is not None)


def _outcome(judgement: Judgement | None, is_cut: bool) -> Outcome:
    """What a judgement says; of one whose cases were cut, what the rest of them says."""
    if judgement is None:
        return OPEN
    if judgement.verdict == BY_CONSTRUCTION:
        return SHOWN
    if judgement.verdict in SHOWN_ALONE:
        if any(case.agrees is False for case in judgement.cases):
            return MISSES
        return AGREES if all(case.agrees for case in judgement.cases) else SHOWN
    verdicts = {case.verdict for case in judgement.cases} if is_cut else {judgement.verdict}
    if verdicts & FAILING:
        return FAILS
    return HOLDS if verdicts <= HOLDING else OPEN


def shown(evidence: Evidence, claims: Sequence[tuple[Claim, Sequence[Judgement]]], place: str) -> Shown:
    """The evidence with the judgements of its claims that count.

    Raises:
        InputError: at `place`, when a claim has no such reading, or no case on that workload or population.
    """
    return Shown(evidence, tuple(_counting(evidence, claims, place)))


def _counting(
    evidence: Evidence, claims: Sequence[tuple[Claim, Sequence[Judgement]]], place: str
) -> Iterator[tuple[Claim, Judgement | None]]:
    for claim, judgements in claims:
        if not judgements:
            yield claim, None
            continue
        reading = evidence.reading or judgements[0].reading
        of_reading = [judgement for judgement in judgements if judgement.reading == reading]
        if not of_reading:
            readings = sorted({judgement.reading for judgement in judgements} - {""}) or "one alone"
            raise InputError(f"{place}.reading", f"{claim.id} has no reading {reading!r}; it has {readings}")
        cut = [_cut(judgement, evidence) for judgement in of_reading]
        if not any(judgement.cases for judgement in cut):
            problem = f"{claim.id} has no case on workload {evidence.workload!r}, population {evidence.population!r}"
            raise InputError(place, f"{problem}; name one that it has, or leave it out")
        yield from ((claim, judgement) for judgement in cut if judgement.cases)


def _cut(judgement: Judgement, evidence: Evidence) -> Judgement:
    """A judgement with the cases that count alone; its own verdict stays."""

    def counts(case: ClaimCase) -> bool:
        return evidence.workload in ("", case.workload) and evidence.population in ("", case.population)

    return msgspec.structs.replace(judgement, cases=tuple(filter(counts, judgement.cases)))


def word_of(variants: Sequence[Shown]) -> Word:
    """The word of a headline, by its variants."""
    outcomes = {variant.outcome for variant in variants}
    if HOLDS in outcomes and outcomes <= GOOD:
        return COMES_OUT
    contrary = {variant.outcome for variant in variants if variant.is_run} - GOOD
    if HOLDS in outcomes or (AGREES in outcomes and contrary):
        return IN_PART if _lacks_a_part(variants) else ONLY_UNDER
    return DOES_NOT if FAILS in outcomes and OPEN not in outcomes else NOT_DECIDED


def _lacks_a_part(variants: Sequence[Shown]) -> bool:
    """True if a part of the claim does not hold, where all settings together are one part."""
    parts = [variant.outcome in GOOD for variant in variants if variant.evidence.part]
    settings = [variant.outcome in GOOD for variant in variants if not variant.evidence.part]
    return not all(parts) or (bool(settings) and not any(settings))


def word_in_full(variants: Sequence[Shown]) -> str:
    """The word with what holds where others do not, with how undecided it is, and whether all was on stand-ins."""
    word, outcomes = word_of(variants), {variant.outcome for variant in variants if variant.is_run}
    text: str = word
    if word in (IN_PART, ONLY_UNDER):
        holding = [variant.evidence for variant in variants if variant.outcome in GOOD]
        names = [evidence.name for evidence in holding if word == IN_PART or not evidence.part]
        text = f"{word}: {'; '.join(names)}"
    elif word == NOT_DECIDED and outcomes == {AGREES}:
        text = f"{word}: {NUMBER_AGREES}"
    elif word == NOT_DECIDED and outcomes == {MISSES}:
        text = f"{word}: {NUMBER_MISSES}"
    elif word == NOT_DECIDED and FAILS in outcomes:
        text = f"{word}: {SO_FAR_FAILS}"
    return f"{text} ({ON_STAND_IN})" if is_on_stand_ins(variants) else text


def is_on_stand_ins(variants: Sequence[Shown]) -> bool:
    """True if all that was run of them was measured on stand-ins."""
    ran = [variant for variant in variants if variant.is_run]
    return bool(ran) and all(variant.is_on_stand_ins for variant in ran)


def check_headline(headline: Headline, variants: Sequence[Shown], place: str) -> None:
    """Refuse a headline whose words by hand do not fit the word that follows from the records.

    Raises:
        InputError: at `place`, when it does not come out and nothing says what was tried, when it does not, in part
            or only under something and nothing says why, or when `why` was written for another word, or is too long.
    """
    for number, variant in enumerate(variants):
        if OUR_QUESTION in variant.verdicts:
            problem = "rests on a question of ours, of which the source says nothing"
            raise InputError(f"{place}.variant[{number}]", f"{problem}; make it a row of switch")
    word = word_of(variants)
    if word == DOES_NOT and not headline.tried:
        raise InputError(
            f"{place}.tried",
            "is missing where the word is 'does not': tell which printed mechanism and which unprinted input could "
            "make it, and what was tried",
        )
    if word in (DOES_NOT, IN_PART, ONLY_UNDER) and not headline.why:
        raise InputError(
            f"{place}.why", f"is missing where the word is {word!r}: tell the cause, or that none was found"
        )
    if bool(headline.why) != bool(headline.written_for):
        raise InputError(f"{place}.written_for", f"goes with why: the word that why was written for; it is {word!r}")
    if headline.written_words and word not in headline.written_words:
        written = ", ".join(map(repr, headline.written_words))
        problem = f"why was written for {written}, and the records say {word!r}"
        raise InputError(f"{place}.written_for", f"{problem}; rewrite why")
    if _sentences(headline.why) > SENTENCES:
        raise InputError(f"{place}.why", f"has more than {SENTENCES} sentences; the rest goes to an explanation")


def _sentences(text: str) -> int:
    """The number of sentences: of full stops that end a word of more than one letter before a capital or the end."""
    return len(_SENTENCE_END.findall(text))
