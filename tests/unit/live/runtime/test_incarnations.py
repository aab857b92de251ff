"""An incarnation is counted on disk before its host sends anything; one process at a time holds a host's lock."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from volery.core.errors import InputError
from volery.live.runtime.incarnations import host_lock, next_incarnation, persist_incarnation


def test_incarnations_are_counted_from_one(tmp_path: Path) -> None:
    assert next_incarnation(tmp_path, "gm") == 1
    persist_incarnation(tmp_path, "gm", 1)
    persist_incarnation(tmp_path, "gm", 7)
    assert next_incarnation(tmp_path, "gm") == 8
    assert next_incarnation(tmp_path, "lm") == 1, "each host has its own count"


def test_a_journal_counts_where_the_number_is_lost(tmp_path: Path) -> None:
    persist_incarnation(tmp_path, "gm", 2)
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal/gm-5.journal").touch()
    assert next_incarnation(tmp_path, "gm") == 6


def test_a_number_that_cannot_be_read_is_an_error_with_a_fix(tmp_path: Path) -> None:
    persist_incarnation(tmp_path, "gm", 2)
    (tmp_path / "lives/gm").write_text("two\n")
    with pytest.raises(InputError, match="write that of the host's last incarnation"):
        next_incarnation(tmp_path, "gm")


def test_a_host_is_locked_by_one_process(tmp_path: Path) -> None:
    with host_lock(tmp_path, "gm"):
        with host_lock(tmp_path, "lm"):
            pass
        with (
            pytest.raises(InputError, match=f"process {os.getpid()} runs this host already"),
            host_lock(tmp_path, "gm"),
        ):
            pass
    with host_lock(tmp_path, "gm"):
        pass


def test_a_folder_that_cannot_be_used_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "lives").write_text("in the way")
    with pytest.raises(InputError, match="cannot be written"), host_lock(tmp_path, "gm"):
        pass
    with pytest.raises(InputError, match="cannot be written"):
        persist_incarnation(tmp_path, "gm", 1)


def test_a_number_that_is_no_file_is_an_error_and_no_first_incarnation(tmp_path: Path) -> None:
    (tmp_path / "lives/gm").mkdir(parents=True)
    with pytest.raises(InputError, match="cannot be read"):
        next_incarnation(tmp_path, "gm")


def test_an_incarnation_whose_number_could_not_be_written_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    persist_incarnation(tmp_path, "gm", 4)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="cannot be written: No space left"):
        persist_incarnation(tmp_path, "gm", 5)
    assert next_incarnation(tmp_path, "gm") == 5, "the fifth is still to come"
