"""Trace files are read as people have them: with a byte order mark, compressed in any common way, from a pipe."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from volery.core.errors import InputError
from volery.workload import load_trace
from volery.workload.files import BYTE_ORDER_MARK, numbered_lines
from volery.workload.formats import format_of

TR = "".join(f"{at} 2 1.5 1 2\n" for at in range(400)).encode()
GWF = b"WorkflowID, JobID, SubmitTime, RunTime, NProcs, ReqNProcs, Dependencies\n0,1,5,11,1,1,\n0,2,5,12,1,1,1\n"


def zipped(text: bytes, files: int = 1) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(files):
            archive.writestr(f"t{number}.tr", text)
    return packed.getvalue()


def zstd(text: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(text, asbytes=True))


Pack = Callable[[bytes], bytes]
PACKS: dict[str, Pack] = {"gz": gzip.compress, "zst": zstd, "bz2": bz2.compress, "xz": lzma.compress, "zip": zipped}


@pytest.mark.parametrize("ending", PACKS)
def test_a_compressed_trace_is_the_plain_one(tmp_path: Path, ending: str) -> None:
    for name, text in (("a.tr", TR), ("b.gwf", GWF)):
        plain, packed = tmp_path / name, tmp_path / f"{name}.{ending}"
        plain.write_bytes(text)
        packed.write_bytes(PACKS[ending](text))
        assert load_trace(packed).digest() == load_trace(plain).digest()
        assert load_trace(packed).name == load_trace(plain).name
        assert format_of(packed).name == name[2:]


@pytest.mark.parametrize("ending", ["gz", "zst", "bz2", "xz"])
def test_several_compressed_parts_in_one_file_are_read_as_one(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"t.{ending}"
    path.write_bytes(PACKS[ending](TR[:3000]) + PACKS[ending](TR[3000:]))
    assert b"".join(line.rstrip(b"\n") + b"\n" for _, line in numbered_lines(path)) == TR


@pytest.mark.parametrize("first", range(0x50, 0x60))
def test_frames_of_zstandard_that_readers_skip_are_skipped(tmp_path: Path, first: int) -> None:
    skipped = bytes([first]) + b"\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"extra"
    path, plain = tmp_path / "t.tr.zst", tmp_path / "t.tr"
    path.write_bytes(skipped + zstd(TR[:3000]) + skipped + zstd(TR[3000:]) + skipped)
    plain.write_bytes(TR)
    assert load_trace(path).digest() == load_trace(plain).digest()


@pytest.mark.parametrize("ending", PACKS)
def test_a_truncated_or_damaged_copy_is_refused_by_name(tmp_path: Path, ending: str) -> None:
    whole = PACKS[ending](TR)
    path = tmp_path / f"t.tr.{ending}"
    for content in (whole[: len(whole) // 2], whole[:40] + b"\xff" * (len(whole) - 40)):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"t\.tr\.\w+:\d+: the \w+ stream (ends early|is damaged).*fetch"):
            list(numbered_lines(path))


def test_an_archive_of_several_files_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.zip"
    path.write_bytes(zipped(TR, files=2))
    with pytest.raises(InputError, match=r"zip: the archive holds 2 files where one is expected; unpack it$"):
        load_trace(path)


def test_an_archive_of_a_version_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    """One bit of it was flipped."""
    path, content = tmp_path / "t.zip", bytearray(zipped(TR))
    content[content.index(b"PK\1\2") + 6] ^= 1 << 7  # the version that is needed to extract
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"the zip stream is damaged \(zip file version 14\.8\); fetch the file again"):
        load_trace(path)


def test_what_a_mac_adds_to_an_archive_is_not_a_second_file(tmp_path: Path) -> None:
    path = tmp_path / "t.zip"
    path.write_bytes(zipped(TR))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("__MACOSX/._t0.tr", b"extra")
    assert load_trace(path).task_count == 800


def test_a_closed_standard_input_is_refused_by_name() -> None:
    words = [sys.executable, "-m", "volery.cli.main", "trace", "describe", "-"]
    ended = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "-: standard input is closed or a terminal" in ended.stderr


@pytest.mark.parametrize(("name", "text"), [("t.tr", TR), ("t.gwf", GWF)])
def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path, name: str, text: bytes) -> None:
    plain, marked = tmp_path / name, tmp_path / f"marked-{name}"
    plain.write_bytes(text)
    marked.write_bytes(BYTE_ORDER_MARK + text)
    assert load_trace(marked).digest() == load_trace(plain).digest()


def test_utf_16_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.gwf"
    path.write_bytes(GWF.decode().encode("utf-16"))
    with pytest.raises(InputError, match="is UTF-16 text; save it as UTF-8"):
        load_trace(path)


@pytest.mark.parametrize(
    "words",
    [("trace", "describe", "-"), ("trace", "doctor", "-"), ("compare", "oracle", "--trace", "-", "--workers", "9")],
)
def test_a_trace_comes_by_standard_input(words: tuple[str, ...]) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "volery.cli.main", *words, "--json"], input=zstd(TR), capture_output=True, check=False
    )
    assert ended.stderr == b""
    assert b'"digest"' in ended.stdout or b'"rows": 800' in ended.stdout
