"""A program that exists and cannot be executed has a reason that names what is missing."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from volery.live.node.interpreters import HEAD_BYTES, missing_interpreter


def program(folder: Path, content: bytes) -> str:
    path = folder / "run me"
    path.write_bytes(content)
    path.chmod(0o755)
    return "./run me"


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"#!/bin/sh\r", r"not its interpreter '/bin/sh\r'; its lines end with \r, as on Windows: dos2unix mends it"),
        (b"#! /opt/none/python -u", "not its interpreter '/opt/none/python'"),
        (b"#!/usr/bin/env python9.9", "not its interpreter 'python9.9'"),
        (b"#!/usr/bin/env -S python9.9 -u", "not its interpreter 'python9.9'"),
        (b"#!/usr/bin/env sh\r", r"not its interpreter 'sh\r'; its lines end with \r"),
        (b"#!./none", "not its interpreter './none'"),
        (b"#!", "names no interpreter after the #! of its first line"),
        (b"#!/bin/sh", ""),
        (b"#!/bin/sh -e", ""),
        (b"#!/usr/bin/env -i A=1 sh", ""),
        (b"echo no first line of a script", ""),
    ],
)
def test_a_script_without_its_interpreter_names_it(first: bytes, reason: str, tmp_path: Path) -> None:
    name = program(tmp_path, first + b"\necho hello\n")
    path = {"PATH": "/usr/bin:/bin"}
    for words in ((name, "1"), ("sh", "-c", f"'{name}' --with=1"), (str(tmp_path / "run me"),)):
        found = missing_interpreter(words, tmp_path, path)
        assert found.endswith(reason) if not reason or reason[-1] != "r" else reason in found, words
        assert bool(found) == bool(reason)


def test_a_binary_without_its_loader_names_it(tmp_path: Path) -> None:
    binary = Path(shutil.which("ls") or sys.executable).read_bytes()
    loader = b"/lib64/ld-linux-x86-64.so.2"
    if loader not in binary[:HEAD_BYTES]:
        pytest.skip("no binary of x86-64 with a loader")
    assert missing_interpreter((program(tmp_path, binary),), tmp_path, {}) == ""
    other = program(tmp_path, binary.replace(loader, b"/none".ljust(len(loader), b"\0")))
    assert "but not its loader '/none'" in missing_interpreter((other,), tmp_path, {})
    for length in (1, 5, 63, 64, 100):
        assert missing_interpreter((program(tmp_path, binary[:length]),), tmp_path, {}) == ""


def test_what_is_not_there_or_cannot_be_read_has_no_such_reason(tmp_path: Path) -> None:
    for words in (("none",), ("./none",), ("sh", "-c", "'"), ("sh", "-c", ""), (str(tmp_path),)):
        assert missing_interpreter(words, tmp_path, {"PATH": "/usr/bin"}) == ""
