"""A file of records is whole, torn at its end, or damaged at a byte; no bit of it changes without a word."""

from __future__ import annotations

import errno
import itertools
import os
import re
from pathlib import Path

import pytest
from tests.flips import PLACES, flips

from volery.architectures import lookup
from volery.core.errors import DamagedError
from volery.core.model import SUBMITTER, Cluster
from volery.live.config.limits import JournalSize
from volery.live.config.plan import FederationPlan
from volery.live.node.descendants import ProcessLedger, boot, read_ledger
from volery.live.runtime.incarnations import next_incarnation, persist_incarnation
from volery.live.runtime.journal import Header, JournalReader, JournalWriter, Started
from volery.live.runtime.recordfile import OtherVersionError, UnbegunError, first_line
from volery.live.runtime.snapshots import SegmentedJournal, pickle_of, read_snapshot, write_snapshot

TURNS = 30
MEGHA = lookup("megha")


def written(path: Path) -> Path:
    """A journal of some turns, of a host that has nothing to do."""
    cluster = Cluster((0,) * 30, (1,) * 30)
    plan = FederationPlan(MEGHA, MEGHA.defaults, cluster, 1)
    header = Header("f", "all", 1, 1, "megha", {}, cluster, ("gm/0",), plan.configuration, 1_000)
    journal = JournalWriter(path, header, "flush")
    for now in range(TURNS):
        journal.append(now, [("gm/0", SUBMITTER, Started(), now)] * (1 + now % 3))
    journal.close()
    return path


def turns_of(path: Path) -> int:
    return sum(1 for _ in JournalReader(path).turns(MEGHA.messages))


@pytest.mark.parametrize("places", PLACES)
def test_a_flipped_bit_anywhere_in_a_journal_is_told_with_its_byte(tmp_path: Path, places: int) -> None:
    path = written(tmp_path / "all-1.journal")
    assert turns_of(path) == TURNS
    for flip in flips(path, places):
        with pytest.raises(DamagedError, match=r"damaged .*at byte [0-9]+") as told:
            pytest.fail(f"{flip}: {turns_of(path)} turns are read")
        byte = int(re.findall("at byte ([0-9]+)", str(told.value))[-1])
        assert byte <= int(re.findall("of byte ([0-9]+)", flip)[0]), "the record that holds it begins there"


def test_a_journal_that_has_no_room_for_its_next_file_goes_on_and_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = JournalReader(written(tmp_path / "other-1.journal")).header
    journal = SegmentedJournal(tmp_path, header, "flush", JournalSize(), {})
    entry = [("gm/0", SUBMITTER, Started(), 7)]
    journal.append(0, entry)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    open_files = len(list(Path("/proc/self/fd").iterdir()))
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        journal.rotate({}, {})
    journal.append(1, entry)
    is_closed = len(list(Path("/proc/self/fd").iterdir())) == open_files
    journal.close()
    assert sorted(path.name for path in tmp_path.glob("all-*")) == ["all-1.journal"]
    assert turns_of(tmp_path / "all-1.journal") == 2
    assert is_closed, "the file that there was no room for"


def test_a_journal_that_was_cut_is_torn_and_loses_no_turn_before_the_cut(tmp_path: Path) -> None:
    path = written(tmp_path / "all-1.journal")
    content = path.read_bytes()
    read = set()
    for end in range(len(content) - 1, 0, -7):
        path.write_bytes(content[:end])
        try:
            reader = JournalReader(path)
        except UnbegunError:
            continue
        turns = sum(1 for _ in reader.turns(MEGHA.messages))
        read.add(turns)
        os.truncate(path, end - reader.torn_bytes)
        assert turns_of(path) == turns, "the rest is whole"
    assert read == set(range(TURNS)), "each cut leaves the turns before it"


@pytest.mark.parametrize("how", ["a turn lost", "a turn twice", "two turns in another order"])
def test_a_journal_in_which_whole_turns_are_not_at_their_place_is_damaged(tmp_path: Path, how: str) -> None:
    path = written(tmp_path / "all-1.journal")
    content, places = path.read_bytes(), [len(first_line("journal", 3))]
    while places[-1] < len(content):
        places.append(places[-1] + 12 + int.from_bytes(content[places[-1] : places[-1] + 4], "little"))
    records = [content[begin:end] for begin, end in itertools.pairwise(places)]
    assert len(records) == 1 + TURNS
    if how == "a turn lost":
        del records[9]
    else:
        records[9:11] = [records[9], records[9], records[10]] if how == "a turn twice" else [records[10], records[9]]
    path.write_bytes(content[: places[0]] + b"".join(records))
    with pytest.raises(DamagedError, match=rf"at byte {places[9] if how != 'a turn twice' else places[10]};"):
        turns_of(path)


@pytest.mark.parametrize("line", [b"volery journal 2\n", first_line("journal", 4), first_line("journal", 12)])
def test_a_journal_is_of_another_version_only_where_its_whole_first_line_says_so(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "all-1.journal"
    path.write_bytes(line + b"what this version does not know")
    with pytest.raises(OtherVersionError):
        JournalReader(path)
    for flip in flips(path, 60):
        if int(re.findall("of byte ([0-9]+)", flip)[0]) < len(line):
            with pytest.raises(DamagedError):
                JournalReader(path)


@pytest.mark.parametrize("places", PLACES)
def test_a_flipped_bit_anywhere_in_a_snapshot_is_told_and_nothing_of_it_is_loaded(tmp_path: Path, places: int) -> None:
    path = tmp_path / "all-1.000001.snapshot"
    plan = FederationPlan(MEGHA, MEGHA.defaults, Cluster((0,) * 30, (1,) * 30), 1)
    addresses = tuple(plan.build(1).components)
    with path.open("wb") as file:
        write_snapshot(file, plan.components(plan.build(1), addresses, 1), {})
    assert read_snapshot(path, MEGHA, [])[0].keys() == set(addresses)
    for flip in flips(path, places):
        with pytest.raises(DamagedError, match=r"at byte [0-9]+"):
            pytest.fail(f"{flip}: {len(pickle_of(path).read())} bytes are read")


def test_a_snapshot_that_was_cut_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "all-1.000001.snapshot"
    with path.open("wb") as file:
        write_snapshot(file, {}, {})
    while path.stat().st_size:
        os.truncate(path, path.stat().st_size - 1)
        with pytest.raises(DamagedError):
            pickle_of(path)


@pytest.mark.parametrize("places", PLACES)
def test_a_flipped_bit_in_the_record_of_attempts_is_told_with_its_line(tmp_path: Path, places: int) -> None:
    ledger = ProcessLedger(tmp_path)
    ledger.add(os.getpid())
    ledger.add(os.getppid())
    ledger.remove(os.getppid())
    ledger.close()
    path = tmp_path / "processes"
    running, damages = read_ledger(path)
    assert (list(running), damages) == ([os.getpid()], [])
    for flip in flips(path, places):
        damages = read_ledger(path)[1]
        assert damages, flip
        assert "in line " in damages[0], flip


def test_a_damaged_record_of_attempts_is_logged_and_hides_no_other_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "processes"
    ledger = ProcessLedger(tmp_path)
    ledger.add(os.getppid())
    ledger.add(os.getpid())
    ledger.close()
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], lines[1].replace(b" ", b"!", 1), *lines[2:]]))
    running, damages = read_ledger(path)
    assert (list(running), damages) == ([os.getpid()], ["is damaged in line 2"])
    path.write_bytes(path.read_bytes().replace(b"+%d" % os.getpid(), b"*%d" % os.getpid()))
    ProcessLedger(tmp_path).close()
    assert "processes is damaged in line 2" in caplog.text
    assert "processes is damaged in line 3" in caplog.text


def test_a_record_of_attempts_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "processes"
    path.write_text(f"boot {boot()}\n+7 70\n+8 80\n-7\n")
    assert read_ledger(path) == ({8: 80}, [])
    path.write_text(f"boot {boot()[::-1]}\n+7 70\n")
    assert read_ledger(path) == ({}, []), "of another boot"


def test_a_flipped_bit_in_the_number_of_an_incarnation_gives_no_number_twice(tmp_path: Path) -> None:
    persist_incarnation(tmp_path, "gm", 3)
    for flip in flips(tmp_path / "lives/gm", 100):
        try:
            number = next_incarnation(tmp_path, "gm")
        except ValueError as error:
            assert "write that of the host's last incarnation, or more" in str(error), flip  # noqa: PT017 - or a number
        else:
            assert number == 4, flip
