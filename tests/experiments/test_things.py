"""The things of the five sources: each is there once, in order, and its claims exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.experiment import claim_id, names, read_experiment
from experiments.things import read_sources
from volery.core.errors import InputError

FOLDER = Path(__file__).parents[2] / "experiments"
THING = 'title = "a source"\n[[thing]]\nid = "001-01"\nsays = "a thing"\nstatus = "done"\nwhere = "here"\n'


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


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('status = "done"', 'status = "nearly"', r"001.thing\[0\].status: invalid enum value 'nearly'"),
        ('where = "here"', 'where = ""', r"001.thing\[0\].where: expected .*str.* of length >= 1"),
        ('says = "a thing"\n', "", r"001.thing\[0\]: .*missing required field says"),
    ],
)
def test_a_wrong_thing_is_named_by_its_place(tmp_path: Path, old: str, new: str, problem: str) -> None:
    (tmp_path / "things").mkdir()
    (tmp_path / "things" / "001.toml").write_text(THING, encoding="utf-8")
    assert read_sources(tmp_path)["001"].statuses == {"done": 1}
    (tmp_path / "things" / "001.toml").write_text(THING.replace(old, new), encoding="utf-8")
    with pytest.raises(InputError, match=problem):
        read_sources(tmp_path)
