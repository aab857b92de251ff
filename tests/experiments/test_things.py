"""The things of the five sources: each is there once, in order, and its claims exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.claims import (
    BY_CONSTRUCTION,
    DIFFERS,
    NOT_TRIED,
    OF_THE_PROGRAM,
    OUR_QUESTION,
    REPRODUCED,
    STAND_IN_FAILS,
    STAND_IN_HOLDS,
    STAND_IN_NUMBER,
    UNDECIDABLE,
    UNDECIDED,
)
from experiments.experiment import claim_id, names, read_experiment
from experiments.ledger import read_ledger
from experiments.things import ABSENT, BUILT, COMES_OUT, DOES_NOT, Thing, read_sources, status_of
from volery.core.errors import InputError

FOLDER = Path(__file__).parents[2] / "experiments"
THING = 'title = "a source"\npapers = ["a"]\n[[thing]]\nid = "001-01"\nsays = "a thing"\nwhere = "here"\n'


def test_the_five_sources_describe_301_things() -> None:
    sources = read_sources(FOLDER)
    assert {number: len(source.thing) for number, source in sources.items()} == {
        "000": 70,
        "001": 55,
        "002": 55,
        "003": 69,
        "004": 52,
    }
    for number, source in sources.items():
        ids = [thing.id for thing in source.thing]
        assert len(set(ids)) == len(ids)
        assert all(name.startswith(f"{number}-") for name in ids)
        numbered = [name for name in ids if name.rpartition("-")[2].isdigit()]
        assert numbered == sorted(numbered), "stages have letters and stand before what has numbers"


def test_the_claims_of_things_exist() -> None:
    claims = {claim_id(name, claim.id) for name in names(FOLDER) for claim in read_experiment(FOLDER, name).claim}
    named = {claim for source in read_sources(FOLDER).values() for thing in source.thing for claim in thing.claims}
    assert named
    assert named <= claims


def test_the_papers_of_sources_exist() -> None:
    ledger = read_ledger(FOLDER)
    keys = {paper.key for paper in ledger.papers.paper}
    assert {key for source in ledger.sources.values() for key in source.papers} <= keys


def test_what_does_not_come_out_has_a_note_that_tells_why() -> None:
    ledger = read_ledger(FOLDER)
    things = [thing for source in ledger.sources.values() for thing in source.thing]
    assert [thing.id for thing in things if ledger.status_of(thing) == DOES_NOT and not thing.note] == []


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        ((), BUILT),
        ((REPRODUCED,), COMES_OUT),
        ((REPRODUCED, STAND_IN_HOLDS), COMES_OUT),
        ((REPRODUCED, STAND_IN_HOLDS, UNDECIDED), BUILT),
        ((OUR_QUESTION,), BUILT),
        ((REPRODUCED, OUR_QUESTION), COMES_OUT),
        ((REPRODUCED, UNDECIDED), BUILT),
        ((UNDECIDED, UNDECIDABLE, NOT_TRIED), BUILT),
        ((REPRODUCED, REPRODUCED, DIFFERS), DOES_NOT),
        ((REPRODUCED, OF_THE_PROGRAM), DOES_NOT),
        ((STAND_IN_FAILS,), DOES_NOT),
        ((STAND_IN_NUMBER, BY_CONSTRUCTION), BUILT),
        ((REPRODUCED, BY_CONSTRUCTION), COMES_OUT),
        ((REPRODUCED, STAND_IN_HOLDS, STAND_IN_NUMBER), BUILT),
        ((STAND_IN_NUMBER, STAND_IN_FAILS), DOES_NOT),
    ],
)
def test_what_came_of_a_thing_follows_from_the_verdicts_on_its_claims(verdicts: tuple[str, ...], status: str) -> None:
    assert status_of(Thing(id="001-01", says="a thing", where="here"), verdicts) == status
    assert status_of(Thing(id="001-01", says="a thing", absent="out of scope"), verdicts) == ABSENT


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('where = "here"', 'status = "done"', r"001.thing\[0\]: object contains unknown field status"),
        ('where = "here"', "", r"001.thing\[0\]: 001-01 has either where .* or absent .*: neither is given"),
        ('where = "here"', 'where = "here"\nabsent = "no"', r"001.thing\[0\]: .*: both are given"),
        ('where = "here"', 'absent = "no"\nlacks = "a part"', r"001.thing\[0\].lacks: 001-01 is absent; leave it out"),
        ('says = "a thing"\n', "", r"001.thing\[0\]: .*missing required field says"),
    ],
)
def test_a_wrong_thing_is_named_by_its_place(tmp_path: Path, old: str, new: str, problem: str) -> None:
    (tmp_path / "things").mkdir()
    (tmp_path / "things" / "001.toml").write_text(THING, encoding="utf-8")
    assert [thing.where for thing in read_sources(tmp_path)["001"].thing] == ["here"]
    (tmp_path / "things" / "001.toml").write_text(THING.replace(old, new), encoding="utf-8")
    with pytest.raises(InputError, match=problem):
        read_sources(tmp_path)
