"""Traces without names: keyed hashes, shifted times, and what stays."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from volery.core.errors import InputError
from volery.workload import load_trace
from volery.workload.convert import convert
from volery.workload.pseudonyms import anonymise, new_key, read_key
from volery.workload.table import TaskRow, batches, manifest_of, table_output

KEY = "00112233445566778899aabbccddeeff"
DAY_US = 86_400_000_000
SWF = """\
; Computer: a machine
1 0 5 100 4 -1 -1 4 200 -1 1 7 3 -1 1 -1 -1 -1
2 10 5 50 2 -1 -1 2 60 -1 1 8 3 -1 1 -1 1 -1
3 20 5 50 2 -1 -1 2 60 -1 1 7 3 -1 1 -1 -1 -1
"""


def digest(kind: str, name: str, key: str = KEY) -> str:
    """The first 16 digits of RFC 2104's construction, written out with SHA-256 alone."""
    padded = bytes.fromhex(key).ljust(64, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in padded) + f"{kind}\0{name}".encode()).digest()
    return hashlib.sha256(bytes(byte ^ 0x5C for byte in padded) + inner).hexdigest()[:16]


def swf(folder: Path, text: str = SWF) -> Path:
    path = folder / "secret-site.swf"
    path.write_text(text)
    return path


def rows(path: Path) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return content


def test_names_and_ids_are_keyed_hashes_and_nothing_else_moves(tmp_path: Path) -> None:
    source, output, plain = swf(tmp_path), tmp_path / "o.parquet", tmp_path / "plain.parquet"
    convert(source, plain)
    made = anonymise(source, output, KEY)
    before, after = rows(plain), rows(output)
    assert [row["user"] for row in after] == [digest("user", "7"), digest("user", "8"), digest("user", "7")]
    assert [row["job"] for row in after] == [digest("job", number) for number in "123"]
    assert [row["task"] for row in after] == ["0", "0", "0"]
    assert after[1]["parents"] == [digest("task", "job 1")]
    for row_before, row_after in zip(before, after, strict=True):
        moved = {name for name in row_before if row_before[name] != row_after[name]}
        assert moved <= {"job", "user", "group", "partition", "parents"}
    assert (made.rows, made.names["user"], made.shift_days) == (3, 2, 0)
    manifest = manifest_of(output)
    assert (manifest.source, manifest.sha256, manifest.format) == ("", "", "swf")
    assert "secret" not in str(output.read_bytes())
    assert "keyed hashes" in manifest.remarks[-1]


def test_no_word_of_a_map_of_ones_own_is_in_the_table(tmp_path: Path) -> None:
    words = "id,came,begun,ended,QUEUE\n" + "1,0,1,2,a\n1,0,3,4,a\n2,0,1,2,hidden\n" * 2
    (tmp_path / "t.csv").write_text(words)
    columns = "".join(f'{to} = {{ column = "{name}", unit = "s" }}\n'
                      for to, name in (("submit", "came"), ("start", "begun"), ("end", "ended")))  # fmt: skip
    (tmp_path / "m.toml").write_text(
        'name = "ACME"\ntitle = "log of ACME"\nremarks = ["as Bob of ACME told"]\n[source]\nattempts = true\n'
        f'[columns]\njob = "id"\n{columns}[[filter]]\ncolumn = "QUEUE"\ndrop = ["hidden"]\nreason = "of ACME"\n'
        '[[filter]]\ncolumn = "QUEUE"\ndrop = ["b"]\n'
    )
    output = tmp_path / "o.parquet"
    anonymise(tmp_path / "t.csv", output, KEY, columns=str(tmp_path / "m.toml"))
    manifest = manifest_of(output)
    assert manifest.format == "columns"
    assert manifest.noticed == {"notices of the map of columns, whose words are left out": 5}
    assert not [word for word in (b"ACME", b"Bob", b"QUEUE", b"hidden") if word in output.read_bytes()]


def test_the_construction_is_the_one_of_rfc_2104() -> None:
    assert digest("user", "ann") == hmac.new(bytes.fromhex(KEY), b"user\0ann", "sha256").hexdigest()[:16]


def test_the_same_key_gives_the_same_hashes_in_another_trace_and_another_key_none_of_them(tmp_path: Path) -> None:
    first, second, third = (tmp_path / f"{name}.parquet" for name in "abc")
    source = swf(tmp_path)
    anonymise(source, first, KEY)
    anonymise(swf(tmp_path, SWF.replace(" 100 ", " 300 ")), second, KEY)
    anonymise(source, third, new_key())
    users = [{row["user"] for row in rows(path)} for path in (first, second, third)]
    assert users[0] == users[1]
    assert not users[0] & users[2]


def test_names_of_tasks_parents_and_constraints_are_hashed_and_what_is_unknown_stays_so(tmp_path: Path) -> None:
    source, output = tmp_path / "t.parquet", tmp_path / "o.parquet"
    tasks = [
        TaskRow("j", "map", "ann", 0, runtime_us=1, parents=[], constraints=["host=n17"], replicas=[3]),
        TaskRow("j", "reduce", "ann", 0, runtime_us=1, parents=["map"], constraints=[]),
        TaskRow("map", "1", None, 0, runtime_us=1, group="physics", partition="long"),
    ]
    with table_output(source) as table:
        for batch in batches(tasks):
            table.add(batch)
    anonymise(source, output, KEY)
    first, second, third = rows(output)
    assert (first["task"], second["parents"]) == (digest("task", "map"), [digest("task", "map")])
    assert (first["constraints"], second["constraints"]) == ([digest("constraints", "host=n17")], [])
    assert (first["parents"], first["replicas"]) == ([], [3])
    assert (third["user"], third["task"], third["parents"], third["constraints"]) == (None, "1", None, None)
    assert (third["group"], third["partition"]) == (digest("group", "physics"), digest("partition", "long"))
    assert third["job"] == digest("job", "map") != first["task"], "a job and a task of one name have other hashes"


def test_the_lab_runs_the_same_work(tmp_path: Path) -> None:
    source, output = swf(tmp_path), tmp_path / "o.parquet"
    anonymise(source, output, KEY, shift_days=3)
    before, after = load_trace(source), load_trace(output)
    assert (before.arrival_us, before.duration_us, before.requests) == (
        after.arrival_us,
        after.duration_us,
        after.requests,
    )


def test_times_are_shifted_by_whole_days(tmp_path: Path) -> None:
    source, output, plain = swf(tmp_path), tmp_path / "o.parquet", tmp_path / "plain.parquet"
    convert(source, plain)
    assert anonymise(source, output, KEY, shift_days=7).shift_days == 7
    for name in ("submit_us", "start_us", "end_us"):
        assert [row[name] for row in rows(output)] == [row[name] + 7 * DAY_US for row in rows(plain)]
    for days in (-1, 20_001):
        with pytest.raises(InputError, match=rf"--shift-days: {days} days are no shift; give from 0 to 20000"):
            anonymise(source, output, KEY, shift_days=days, force=True)


def test_a_wrong_source_leaves_no_file(tmp_path: Path) -> None:
    output = tmp_path / "o.parquet"
    with pytest.raises(InputError, match=r"secret-site.swf:5: is no row of SWF"):
        anonymise(swf(tmp_path, SWF + "4 soon" + " -1" * 16 + "\n"), output, KEY, form="swf")
    assert not output.exists()
    anonymise(swf(tmp_path), output, KEY)
    with pytest.raises(InputError, match=r"o.parquet: exists already; give --force"):
        anonymise(swf(tmp_path), output, KEY)


@pytest.mark.parametrize("text", ["0123456789abcdef", "our secret", "g" * 32, KEY[:-1], "\n" + KEY])
def test_what_is_no_key_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key"
    path.write_text(text)
    with pytest.raises(InputError, match=r"key:1: holds no key: 32 hexadecimal digits or more; without --key one is"):
        read_key(path)


def test_a_key_is_read_as_it_is_printed(tmp_path: Path) -> None:
    path = tmp_path / "key"
    key = new_key()
    path.write_text(key.upper() + "\n")
    assert read_key(path) == key
    assert len(key) == 64
    with pytest.raises(InputError, match=r"absent: no such file"):
        read_key(tmp_path / "absent")
    path.write_text("")
    with pytest.raises(InputError, match=r"key: the file is empty"):
        read_key(path)
