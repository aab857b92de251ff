"""Rows of texts with separators, quotes and line ends, of pairs and of JSON, each with its line."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from volery.core.errors import InputError
from volery.workload.formats.columns.maps import FORMS, ColumnMap, parsed_map
from volery.workload.formats.columns.records import (
    READERS,
    UNDECODED,
    WAYS_MAX,
    _spilled,
    _ways,
    ad_chunks,
    ad_value,
    json_chunks,
    json_line_chunks,
    parquet_chunks,
    value_at,
)
from volery.workload.formats.source import Noticed

COLUMNS = '[columns]\njob = "id"\nsubmit = "came"\nruntime = "ran"\nuser = "name"\n[source]\n'


def test_each_form_has_a_reader() -> None:
    assert tuple(READERS) == FORMS


def map_of(source: str) -> ColumnMap:
    return parsed_map(COLUMNS + source, "m.toml")


def read(
    folder: Path, source: str, text: str | bytes, noticed: Noticed | None = None
) -> list[tuple[int, dict[str, str | None]]]:
    """Line and texts of each row."""
    path = folder / "t.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    column_map = map_of(source)
    rows: list[tuple[int, dict[str, str | None]]] = []
    for chunk in READERS[column_map.source.form](path, column_map, Noticed() if noticed is None else noticed):
        columns = {name: texts.to_pylist() for name, texts in chunk.columns.items()}
        rows += [(line, {name: texts[k] for name, texts in columns.items()}) for k, line in enumerate(chunk.lines)]
    return rows


def names_of(rows: list[tuple[int, dict[str, str | None]]]) -> list[tuple[int, str | None]]:
    return [(line, row["name"]) for line, row in rows]


def test_quotes_hold_separators_quotes_and_line_ends(tmp_path: Path) -> None:
    text = 'id,came,ran,name\n1,0,5,"a, b"\n2,0,5,"two\nlines ""in"" it"\r\n\n3,0,5,plain\n'
    assert names_of(read(tmp_path, "", text)) == [(2, "a, b"), (3, 'two\nlines "in" it'), (6, "plain")]


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        (
            'id,came,ran,name\n1,0,5,"open\n2,0,5,x\n',
            "t.txt:2",
            "is no row of a table: unexpected end of data; mend the",
        ),
        ('id,came,ran,name\n1,0,5,"a"b\n', "t.txt:2", "is no row of a table: .* expected after"),
        ("id,came,ran,name\n1,0,5,x\n2,0,5\n", "t.txt:3", "has 3 fields where 4 are expected; mend the row"),
        ("id,came,ran,name\n1,0,5,x,y\n", "t.txt:2", "has 5 fields where 4 are expected"),
        ("", "t.txt", "the file is empty"),
    ],
)
def test_a_wrong_row_is_named_by_its_line(tmp_path: Path, text: str, place: str, problem: str) -> None:
    with pytest.raises(InputError, match=f"{place}: {problem}"):
        read(tmp_path, "", text)


SPILL = 'separator = "|"\nquotes = false\nspill = ["comment", "name"]\n'


def test_a_name_takes_separators_and_line_ends_that_nothing_escapes(tmp_path: Path) -> None:
    text = 'id|name|came|ran\n1|a|b|c|0|5\n2|two\nlines|0|5\n3|"x|0|5\n4|p|q\n\nr|0|5\n'
    noticed = Noticed()
    assert names_of(read(tmp_path, SPILL, text, noticed)) == [
        (2, "a|b|c"), (3, "two\nlines"), (5, '"x'), (6, "p|q\n\nr"),
    ]  # fmt: skip
    assert dict(noticed) == {
        "rows of which a name holds separators": 2,
        "rows of which a name holds line ends": 2,
    }


def test_a_short_row_does_not_swallow_the_whole_one_below_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"t\.txt:2: has 2 fields where 4 are expected"):
        read(tmp_path, SPILL, "id|name|came|ran\n1|cut\n2|whole|0|5\n")
    with pytest.raises(InputError, match=r"t\.txt:3: has 2 fields where 4 are expected"):
        read(tmp_path, SPILL, "id|name|came|ran\n1|whole|0|5\n2|cut\n")


def test_pairs_have_values_with_blanks(tmp_path: Path) -> None:
    source = 'form = "pairs"\nnames = ["id", "name", "came", "ran"]\n'
    noticed = Noticed()
    text = "id=1 name=a b=c came=0 ran=5 \nid=2 name= came=0 ran=5\nid=3 name=x came=9 came=0 ran=5\n"
    text += "id=4 name=two\n\nlines came=0 ran=5\n"
    rows = read(tmp_path, source, text, noticed)
    assert [(line, row["name"], row["came"]) for line, row in rows] == [
        (1, "a b=c", "0"), (2, "", "0"), (3, "x", "0"), (4, "two\n\nlines", "0"),
    ]  # fmt: skip
    assert dict(+noticed) == {
        "lines that have a key twice, of which the last counts": 1, "rows of which a value holds line ends": 1,
    }  # fmt: skip
    with pytest.raises(InputError, match=r"t\.txt:1: does not begin with id=, as a row does; mend the row"):
        read(tmp_path, source, "nothing here\n")


@pytest.mark.parametrize(
    ("form", "text", "place", "problem"),
    [
        ("json-lines", '{"id":1}\n[1]\n', "t.txt:2", "is no object of JSON: Expected `object`"),
        ("json-lines", '{"id":1}\n', "t.txt", "has no column 'came', which gives submit"),
        ("json", '{"jobs":3}', "t.txt", "has no list of rows; mend source.rows of the map"),
        ("json", "[1,", "t.txt", "is no JSON document"),
        ("parquet", "id,came\n", "t.txt:1", "cannot be read: .*; fetch it again"),
    ],
)
def test_a_document_of_another_form_is_refused(tmp_path: Path, form: str, text: str, place: str, problem: str) -> None:
    with pytest.raises(InputError, match=f"{place}: {problem}"):
        read(tmp_path, f'form = "{form}"\n', text)


def test_bytes_that_are_no_text_are_counted(tmp_path: Path) -> None:
    noticed = Noticed()
    rows = read(tmp_path, "", b"id,came,ran,name\n1,0,5,M\xfcller\n", noticed)
    assert (names_of(rows), dict(noticed)) == ([(2, "M\ufffdller")], {UNDECODED: 1})


def test_keys_of_json_may_hold_dots_and_numbers_of_lists() -> None:
    row = {"a": {"b.c/d": 1, "e": [{"f": 2}]}, "g.h": 3}
    assert [value_at(row, keys) for keys in ("a.b.c/d", "a.e.0.f", "g.h", "a.e.1.f", "a.x", "z")] == [1, 2, 3] + [
        None
    ] * 3


def test_a_row_with_many_separators_takes_no_long_time_and_goes_to_one_column_first() -> None:
    """With four columns, 60 bars have 13.8 million products of shares, of which 39,711 are ways."""
    ways = list(itertools.islice(_ways(60, 4), 5))
    assert ways[:4] == [(60, 0, 0, 0), (0, 60, 0, 0), (0, 0, 60, 0), (0, 0, 0, 60)]
    assert len(set(_ways(6, 3))) == 28
    assert all(sum(way) == 6 for way in _ways(6, 3))
    assert list(_ways(3, 1)) == [(3,)]

    source = map_of('separator = "|"\nquotes = false\n').source
    tried = 0

    class Clocks(list[int]):
        def __iter__(self) -> Iterator[int]:
            nonlocal tried
            tried += 1
            return super().__iter__()

    words = [*"abcd", *["x"] * 61]
    row = _spilled(words, ("a", "b", "c", "d", "at"), ("a", "b", "c", "d"), Clocks([4]), source)
    assert (len(row), tried) == (5, WAYS_MAX)


def test_a_parquet_column_of_lists_is_named(tmp_path: Path) -> None:
    path = tmp_path / "f"
    columns = map_of('form = "parquet"\n')
    name = columns.given("job")[0].column
    pq.write_table(pa.table({used: [[1], [2]] if used == name else ["1", "2"] for used in columns.source_names}), path)
    with pytest.raises(InputError, match=rf"f:1: the column '{name}' is list<.*no text, number or time; map another"):
        list(parquet_chunks(path, columns, Noticed()))


def test_json_that_is_too_deep_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text('{"id": ' + "[" * 100_000 + "]" * 100_000 + "}\n")
    for form, reader in (("json", json_chunks), ("json-lines", json_line_chunks)):
        with pytest.raises(InputError, match="recursion"):
            list(reader(path, map_of(f'form = "{form}"\n'), Noticed()))


def test_ads_end_with_a_blank_line_or_with_the_line_of_a_history_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text('\nid = 1\ncame = 5\n*** Offset = 0 ClusterId = 1\nid = 2\nid = 3\ncame = a + b\n\n\nname = "x"\n')
    noticed = Noticed()
    columns = map_of('form = "ads"\nlacks = true\n')
    (chunk,) = ad_chunks(path, columns, noticed)
    assert list(chunk.lines) == [2, 5, 10]
    assert chunk.columns["id"].to_pylist() == ["1", "3", None]
    assert chunk.columns["came"].to_pylist() == ["5", "/Expr(a + b)/", None]
    assert noticed == {"attributes that an ad has twice, of which the last counts": 1}
    path.write_text("id = 1\nnot an attribute\n")
    with pytest.raises(InputError, match="f:2: 'not an attribute' is no attribute as Name = value; mend the line"):
        list(ad_chunks(path, columns, Noticed()))


@pytest.mark.parametrize(
    ("text", "right"),
    [('"a \\"b\\" \\\\c"', 'a "b" \\c'), ("-1.5E+3", "-1.5E+3"), ("undefined", "undefined"), ("TRUE", "TRUE"),
     (".5", ".5"),     ("2 * 3", "/Expr(2 * 3)/"), ('"', '/Expr(")/'), ("MemoryUsage", "/Expr(MemoryUsage)/")],
)  # fmt: skip
def test_values_of_ads_are_literals_or_expressions(text: str, right: str) -> None:
    assert ad_value(text) == right
