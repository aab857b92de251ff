"""No thing of the five sources can be left out, and none can name a claim that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from volery.core.errors import InputError
from volery.reproduction.claims import Judgement
from volery.reproduction.experiments import names, read_experiment
from volery.reproduction.firstforms import claim_id
from volery.reproduction.things import IDS, STATUSES, Thing, counts_rows, read_things, things_tables

FOLDER = Path(__file__).parents[3] / "experiments"
CLAIM = "small/waits"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """All five files, each with every id."""
    (tmp_path / "things").mkdir()
    for source, ids in IDS.items():
        lines = [f'[[thing]]\nid = "{one}"\nsays = "a thing"\nstatus = "done"\nwhere = "here"\n' for one in ids]
        (tmp_path / "things" / f"{source}.toml").write_text(f'seed = "{source}"\n' + "".join(lines), encoding="utf-8")
    return tmp_path


def test_there_are_301_things() -> None:
    assert [len(ids) for ids in IDS.values()] == [70, 55, 55, 69, 52]
    assert len({one for ids in IDS.values() for one in ids}) == 301
    assert IDS["003"][:8] == (*(f"003-J{k}" for k in range(1, 8)), "003-T1")
    assert IDS["003"][25:27] == ("003-B", "003-R1")
    assert (IDS["003"][-1], IDS["000"][0], IDS["004"][-1]) == ("003-75", "000-01", "004-52")


def test_every_thing_of_the_five_sources_is_told() -> None:
    claims = [claim_id(name, claim.id) for name in names(FOLDER) for claim in read_experiment(FOLDER, name).claim]
    things = read_things(FOLDER, claims)
    assert {source: tuple(thing.id for thing in told) for source, told in things.items()} == IDS


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('id = "001-07"', 'id = "001-08"', r"001.toml: thing\[6\].id: '001-08' is not in its place; '001-07' is next"),
        ('id = "001-07"', 'id = "001-06"', r"thing\[6\].id: '001-06' is told a second time; '001-07' is next"),
        ('seed = "001"', 'seed = "002"', r"001.toml: seed: '002' is not the file's own; write '001'"),
        ('status = "done"', 'status = "nearly"', r"001.thing\[0\].status: invalid enum value 'nearly'"),
        ('where = "here"', 'where = ""', r"001.thing\[0\].where: expected .*str.* of length >= 1"),
        (
            'where = "here"',
            'where = "here"\nclaims = ["small/wait"]',
            r"thing\[0\].claims: 'small/wait' is no claim.*waits",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(folder: Path, old: str, new: str, problem: str) -> None:
    path = folder / "things" / "001.toml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(InputError, match=problem):
        read_things(folder, [CLAIM])


def test_a_thing_that_is_left_out_is_named(folder: Path) -> None:
    path = folder / "things" / "004.toml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text[: text.index('[[thing]]\nid = "004-52"')], encoding="utf-8")
    with pytest.raises(InputError, match=r"004.toml: thing: '004-52' is missing; every id has a line"):
        read_things(folder, [])
    path.write_text(text + text[text.index('[[thing]]\nid = "004-52"') :].replace("52", "53"), encoding="utf-8")
    with pytest.raises(InputError, match=r"'004-53' is no thing of this source; the last is '004-52'"):
        read_things(folder, [])
    path.unlink()
    with pytest.raises(InputError, match=r"004.toml: cannot be read"):
        read_things(folder, [])


def test_counts_and_verdicts_are_those_of_the_things(folder: Path) -> None:
    things = dict(read_things(folder, []))
    assert counts_rows(things, "t.md")[-1] == ("all", "301", "301", "0", "0", "0")
    things["001"] = (Thing("001-01", "waits", "contradicted", "seen", (CLAIM, "small/other")), *things["001"][1:])
    row = counts_rows(things, "t.md")[1]
    assert row[0].endswith("](t.md#source-001)")
    assert dict(zip(STATUSES, row[2:], strict=True)) == {
        "done": "54",
        "partial": "0",
        "absent": "0",
        "contradicted": "1",
    }
    judged = [Judgement("waits", "a", "differs", "", ()), Judgement("waits", "b", "reproduced", "", ())]
    verdicts = {CLAIM: judged, "small/other": []}
    tables = {source: rows for source, _, rows in things_tables(things, verdicts, {"small": "p.md#s"})}
    assert tables["001"][0] == (
        "001-01", "waits", "**contradicted**", "seen",
        "[waits](p.md#s): differs, reproduced<br>[other](p.md#s): not tried",
    )  # fmt: skip
    assert re.fullmatch("\\W", tables["001"][1][-1])
