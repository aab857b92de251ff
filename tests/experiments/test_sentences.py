"""Sentences of claims stand word by word in the texts of the sources, where these are beside the source tree."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from pathlib import Path

import pytest

from experiments.claims import Claim
from experiments.experiment import claim_id, names, read_experiment

FOLDER = Path(__file__).parents[2] / "experiments"
TEXTS = Path(__file__).parents[3] / "shared" / "seeds"
WHOLE = {"iot2023": "000", "megha2021": "001", "socc2019": "002", "sc18": "003"}
"""Sources whose own text is at hand. Of the others a sentence stands in whichever of these texts tells of them."""
GAP = re.compile(r"\s*\.\.\.\s*")
UNLIKE_IN_COPIES = re.compile(r"[\s*_\u2010-\u2015\u2212-]")
"""White space, emphasis and hyphens, which a copy of a text may have otherwise than the print."""


def letters(text: str) -> str:
    """The text without what copies of it differ in."""
    text = unicodedata.normalize("NFKC", text).translate(str.maketrans("\u2018\u2019\u201c\u201d", "''\"\""))
    return UNLIKE_IN_COPIES.sub("", text)


@cache
def texts() -> dict[str, str]:
    return {path.name[:3]: letters(path.read_text(encoding="utf-8")) for path in sorted(TEXTS.glob("[0-9]*.txt"))}


def stands_in(sentence: str, text: str) -> bool:
    """True if the pieces between gaps ("...") follow each other in the text; each may begin with a capital or not."""
    place = 0
    for piece in GAP.split(sentence):
        wanted = letters(piece)
        found = re.compile(f"[{wanted[0].upper()}{wanted[0].lower()}]{re.escape(wanted[1:])}").search(text, place)
        if found is None:
            return False
        place = found.end()
    return True


@pytest.mark.parametrize(
    ("sentence", "stands"),
    [
        ("The median is low ... and the tail is long.", True),
        ("the median is low", True),
        ("The tail is long ... the median is low", False),
        ("The median is lower", False),
        ("THE MEDIAN is low", False),
    ],
)
def test_pieces_of_a_sentence_follow_each_other(sentence: str, stands: bool) -> None:
    text = letters("We find: the *median* is\nlow, as ex-\npected, and the tail is long.")
    assert stands_in(sentence, text) == stands


@pytest.mark.parametrize("name", names(FOLDER))
def test_what_a_source_at_hand_does_not_say_is_a_question_of_ours(name: str) -> None:
    experiment = read_experiment(FOLDER, name)
    of_source = [claim for claim in experiment.claim if not (claim.quoted or claim.program_of or claim.ours)]
    unsaid = [claim_id(name, claim.id) for claim in of_source if experiment.paper in WHOLE]
    unsaid += [claim_id(name, claim.id) for claim in of_source if claim.published.startswith(("our", "ours:"))]
    assert not unsaid, f"give the sentence, or ours = true: {unsaid}"


@pytest.mark.skipif(not TEXTS.is_dir(), reason="the texts of the sources (../shared/seeds) are not here")
@pytest.mark.parametrize("name", names(FOLDER))
def test_sentences_are_as_the_source_prints_them(name: str) -> None:
    experiment = read_experiment(FOLDER, name)
    own = WHOLE.get(experiment.paper)
    candidates = [texts()[own]] if own else list(texts().values())

    def is_printed(claim: Claim) -> bool:
        return not claim.sentence or any(stands_in(claim.sentence, text) for text in candidates)

    misquoted = [claim_id(name, claim.id) for claim in experiment.claim if not is_printed(claim)]
    assert not misquoted, f"sentences that the source does not print so: {misquoted}"
