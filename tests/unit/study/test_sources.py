"""Sources: what they mean, and what is kept of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from volery.study import sources
from volery.study.sources import SourceCache


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "sources.msgpack"


def meaning(path: Path, cache: Path) -> bytes:
    """What a source means to a process that begins now."""
    sources = SourceCache(cache)
    source = sources.parsed(path)
    sources.write()
    return source.meaning


def test_comments_docstrings_and_blank_lines_mean_nothing(tmp_path: Path, kept: Path) -> None:
    bare, dressed = tmp_path / "a.py", tmp_path / "b.py"
    bare.write_text("def f(x):\n    return x\n")
    dressed.write_text('"""Says."""\n\n# why\n\ndef f(x):  # what\n    """Says\n    more."""\n\n    return x\n')
    assert meaning(bare, kept) == meaning(dressed, kept)
    dressed.write_text("def f(x):\n    return x + 1\n")
    assert meaning(bare, kept) != meaning(dressed, kept)


def test_a_hash_sign_in_a_text_is_no_comment(tmp_path: Path, kept: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text('x = "# y"\n')
    assert meaning(path, kept) == b'x = "# y"'


def test_an_edit_that_keeps_size_and_time_is_seen(tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "SETTLED_NS", 0)
    path = tmp_path / "a.py"
    path.write_text("x = 1\n")
    state = path.stat()
    assert meaning(path, kept) == b"x = 1"

    while path.stat().st_ctime_ns == state.st_ctime_ns:  # a file system has a clock of its own
        path.write_text("x = 2\n")
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (state.st_size, state.st_mtime_ns)
    assert meaning(path, kept) == b"x = 2"


def test_a_source_that_was_just_written_is_not_kept(tmp_path: Path, kept: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("x = 1\n")
    assert meaning(path, kept) == b"x = 1"
    assert not kept.exists()


def test_a_source_is_parsed_once(tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "SETTLED_NS", 0)
    path = tmp_path / "a.py"
    path.write_text("x = 1\n")
    assert meaning(path, kept) == b"x = 1"

    monkeypatch.setattr(sources, "_parsed", None)
    assert meaning(path, kept) == b"x = 1"


@pytest.mark.parametrize("content", [b"", b"no msgpack", b"\x92\xc0\xc0", b"\x92\x94\x01\x01\x01\x01\x80"])
def test_a_file_of_another_version_is_ignored(
    tmp_path: Path, kept: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "SETTLED_NS", 0)
    path = tmp_path / "a.py"
    path.write_text("x = 1\n")
    kept.parent.mkdir()
    kept.write_bytes(content)
    assert meaning(path, kept) == b"x = 1"
    assert kept.read_bytes() != content


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "SETTLED_NS", 0)
    path = tmp_path / "a.py"
    path.write_text("x = 1\n")
    assert meaning(path, path / "sources.msgpack") == b"x = 1"
