"""The `.tr` reader and writer."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volery.core.errors import InputError
from volery.core.trace import Trace
from volery.workload.tr import read_tr, scan_tr, seconds_text, write_tr

TIMES = st.one_of(st.integers(0, 5_000_000), st.integers(0, 2_000_000_000_000_000))
JOBS = st.lists(st.tuples(TIMES, TIMES, st.lists(TIMES, min_size=1, max_size=6)), min_size=1, max_size=20)


def written(folder: Path, text: str, name: str = "t.tr") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_tr(path)
    return str(caught.value)


def test_a_row_gives_a_job_in_microseconds(tmp_path: Path) -> None:
    trace = read_tr(written(tmp_path, "0 2 1.25 0.5 2.0000004\n3.5 1 7 7\n"))
    assert trace.name == "t"
    assert trace.arrival_us.tolist() == [0, 3_500_000]
    assert trace.first.tolist() == [0, 2, 3]
    assert trace.duration_us.tolist() == [500_000, 2_000_000, 7_000_000]
    assert trace.estimate_us.tolist() == [1_250_000, 7_000_000]
    assert len(trace.constraints) == 0


def test_half_a_microsecond_rounds_to_even(tmp_path: Path) -> None:
    trace = read_tr(written(tmp_path, "0 3 0.0000005 0.0000005 0.0000015 0.0000025\n"))
    assert trace.duration_us.tolist() == [0, 2, 2]


def test_doubled_and_trailing_blanks_blank_lines_and_crlf_are_read(tmp_path: Path) -> None:
    trace, reading = scan_tr(written(tmp_path, "0  2   1.5  1  2  \r\n\n   \n1\t1 4 4"))
    assert trace.duration_us.tolist() == [1_000_000, 2_000_000, 4_000_000]
    assert reading.blank_lines == 2


def test_compression_is_told_by_content_not_by_name(tmp_path: Path) -> None:
    row = b"0 1 1 1\n"
    plain, packed = tmp_path / "a.tr.gz", tmp_path / "b.tr"
    plain.write_bytes(row)
    packed.write_bytes(gzip.compress(row))
    assert read_tr(plain).digest() == read_tr(packed).digest()


def test_equal_arrivals_keep_the_order_of_the_file(tmp_path: Path) -> None:
    trace = read_tr(written(tmp_path, "5 1 1 1\n5 1 2 2\n5 1 3 3\n"))
    assert trace.arrival_us.tolist() == [0, 0, 0]
    assert trace.estimate_us.tolist() == [1_000_000, 2_000_000, 3_000_000]


def test_rows_out_of_order_are_sorted_stably_and_counted(tmp_path: Path) -> None:
    trace, reading = scan_tr(written(tmp_path, "9 2 1 1 1\n4 1 2 2\n9 1 3 3\n4 1 5 5\n"))
    assert trace.arrival_us.tolist() == [0, 0, 5_000_000, 5_000_000]
    assert trace.estimate_us.tolist() == [2_000_000, 5_000_000, 1_000_000, 3_000_000]
    assert trace.first.tolist() == [0, 1, 2, 4, 5]
    assert trace.duration_us.tolist() == [2_000_000, 5_000_000, 1_000_000, 1_000_000, 3_000_000]
    assert reading.unsorted_rows == 2


def test_the_first_job_arrives_at_zero_and_the_files_own_time_is_told(tmp_path: Path) -> None:
    trace, reading = scan_tr(written(tmp_path, "1406471.0 1 1 1\n1406480.25 1 1 1\n"))
    assert trace.arrival_us.tolist() == [0, 9_250_000]
    assert reading.first_arrival_s == 1_406_471.0


def test_a_job_limit_stops_before_rows_that_it_does_not_need(tmp_path: Path) -> None:
    path = written(tmp_path, "0 1 1 1\n1 1 1 1\nnot a row\n")
    assert scan_tr(path, job_count=2)[0].job_count == 2
    with pytest.raises(InputError):
        scan_tr(path, job_count=3)


def test_a_task_of_zero_duration_is_legal(tmp_path: Path) -> None:
    assert read_tr(written(tmp_path, "0 2 0 0 -0\n")).duration_us.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("0 2 1 1", "says 2 tasks but holds 1 durations"),
        ("0 1 1 1 1", "says 1 tasks but holds 2 durations"),
        ("0 0 1", "the task count is '0'"),
        ("0 -1 1 1", "the task count is '-1'"),
        ("0 1.5 1 1", "the task count is '1.5'"),
        ("0 1e0 1 1", "the task count is '1e0'"),
        ("0 1", "the row has 2 of its fields"),
        ("0 1 1", "says 1 tasks but holds 0 durations"),
        ("zero 1 1 1", "the arrival is 'zero', not a number"),
        ("0 one 1 1", "the task count is 'one', not a number"),
        ("0 2 1 1 two", "duration 2 is 'two', not a number"),
        ("0 1 1 1_0", "without underscores"),
        ("-1 1 1 1", "the arrival is -1"),
        ("0 1 -1 1", "the mean duration is -1"),
        ("0 2 1 1 -0.5", "duration 2 is -0.5"),
        ("nan 1 1 1", "the arrival is nan"),
        ("0 1 inf 1", "the mean duration is inf"),
        ("0 1 1 nan", "duration 1 is nan"),
        ("0 1 1 inf", "duration 1 is inf"),
        ("0 1 1 3e9", "duration 1 is 3e+09"),
        ("PAR1\x15\x04", "not a number"),
    ],
)
def test_a_wrong_row_is_refused_by_file_and_line(tmp_path: Path, row: str, complaint: str) -> None:
    path = written(tmp_path, f"0 1 1 1\n\n{row}\n0 1 1 1\n")
    message = refusal(path)
    assert message.startswith(f"{path}:3: ")
    assert complaint in message


def test_the_first_of_several_wrong_rows_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, "0 1 1 1\n0 2 1 1 -1\n0 1 x 1\n")
    assert refusal(path).startswith(f"{path}:2: duration 2 is -1")


def test_a_wrong_duration_far_down_is_found_in_its_own_row(tmp_path: Path) -> None:
    rows = ["0 50 1" + " 1" * 50] * 3_000
    rows[2_500] = "0 50 1" + " 1" * 36 + " -4" + " 1" * 13
    path = written(tmp_path, "\n".join(rows))
    assert refusal(path).startswith(f"{path}:2501: duration 37 is -4")


def test_a_truncated_gzip_file_is_refused_by_line(tmp_path: Path) -> None:
    whole = gzip.compress(
        b"".join(b"%d 1 1.%d 1.%d\n" % (i, i * 7919 % 10007, i * 104729 % 10007) for i in range(5_000))
    )
    path = tmp_path / "cut.tr.gz"
    cut = len(whole) // 2
    path.write_bytes(whole[:cut])
    lines_left = zlib.decompressobj(wbits=31).decompress(whole[:cut]).count(b"\n")
    assert lines_left > 1_000
    assert refusal(path).startswith(f"{path}:{lines_left + 1}: the gzip stream ends early")


def test_gzip_members_and_padding_are_read_as_one_file(tmp_path: Path) -> None:
    path = tmp_path / "two.tr"
    path.write_bytes(gzip.compress(b"0 1 1 1\n1 1 ") + gzip.compress(b"2 2\n") + bytes(3_000))
    assert read_tr(path).duration_us.tolist() == [1_000_000, 2_000_000]


def test_a_damaged_gzip_file_is_refused(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(b"0 1 1 1\n" * 1_000))
    whole[-6] ^= 0xFF
    path = tmp_path / "bad.tr.gz"
    path.write_bytes(whole)
    assert "damaged" in refusal(path)


def test_missing_and_empty_files_and_folders_are_refused(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "absent.tr")
    assert "the file is empty" in refusal(written(tmp_path, ""))
    packed = tmp_path / "empty.tr.gz"
    packed.write_bytes(gzip.compress(b""))
    assert "the file is empty" in refusal(packed)
    assert "holds no job" in refusal(written(tmp_path, "\n \n"))
    assert "is a directory" in refusal(tmp_path)


def test_reading_holds_no_more_than_the_columns_and_a_batch(tmp_path: Path) -> None:
    """300,000 durations are 1.4 MB of text and 2.4 MB of column; the whole text is never in memory."""
    path = tmp_path / "long.tr.gz"
    with gzip.open(path, "wb", compresslevel=1) as out:
        for job in range(3_000):
            out.write(b"%d 100 1.25" % job + b" 1.25" * 100 + b"\n")
    read_tr(path)
    tracemalloc.start()
    try:
        trace = read_tr(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert trace.task_count == 300_000
    # growing an array may hold two copies of it; the bound leaves no room for the decompressed text besides
    assert peak < 2 * 8 * 300_000 + 2_000_000


@given(JOBS)
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, jobs: list[tuple[int, int, list[int]]]
) -> None:
    jobs.sort(key=lambda job: job[0])
    first = array("q", [0])
    for _, _, durations in jobs:
        first.append(first[-1] + len(durations))
    trace = Trace(
        "t",
        array("q", [at - jobs[0][0] for at, _, _ in jobs]),
        first,
        array("q", [d for _, _, durations in jobs for d in durations]),
        array("q", [mean for _, mean, _ in jobs]),
    )
    folder = tmp_path_factory.mktemp("round")
    for name in ("t.tr", "t.tr.gz"):
        write_tr(trace, folder / name)
        back = read_tr(folder / name)
        assert back == trace
        assert back.digest() == trace.digest()


@given(st.integers(0, 10**15))
def test_seconds_as_text_are_exact_and_short(time_us: int) -> None:
    text = seconds_text(time_us)
    whole, _, fraction = text.partition(".")
    assert int(whole) * 1_000_000 + int(fraction.ljust(6, "0")) == time_us
    assert not (fraction or "1").endswith("0")


def test_the_same_trace_gives_the_same_bytes_and_they_name_no_time(tmp_path: Path) -> None:
    trace = read_tr(written(tmp_path, "0 2 1 1 1\n1 1 2 2\n"))
    write_tr(trace, tmp_path / "a.tr.gz")
    write_tr(trace, tmp_path / "b.tr.gz")
    packed = (tmp_path / "a.tr.gz").read_bytes()
    assert packed == (tmp_path / "b.tr.gz").read_bytes()
    assert packed[3:8] == bytes(5), "neither a file name nor a time of writing in the gzip header"


def test_an_existing_file_stays_unless_forced(tmp_path: Path) -> None:
    path = written(tmp_path, "0 1 1 1\n")
    trace = read_tr(path)
    with pytest.raises(InputError, match="--force"):
        write_tr(trace, path)
    write_tr(trace, path, force=True)
    assert read_tr(path) == trace


def test_a_failed_write_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = read_tr(written(tmp_path, "0 1 1 1\n", "in.tr"))

    def full(time_us: int) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("volery.workload.tr.seconds_text", full)
    with pytest.raises(InputError, match="No space left"):
        write_tr(trace, tmp_path / "out.tr.gz")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.tr"]


def test_an_unwritable_place_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "0 1 1 1\n")
    with pytest.raises(InputError, match="cannot be written"):
        write_tr(read_tr(path), tmp_path / "absent" / "t.tr")
    with pytest.raises(InputError, match="cannot be written"):
        write_tr(read_tr(path), path / "t.tr")


def test_what_the_format_cannot_hold_is_refused(tmp_path: Path) -> None:
    constrained = Trace("t", array("q", [0]), array("q", [0, 1]), array("q", [1]), array("q", [1]), array("q", [3]))
    without_tasks = Trace("t", array("q", [0]), array("q", [0, 0]), array("q"), array("q", [1]))
    with pytest.raises(InputError, match="no constraints"):
        write_tr(constrained, tmp_path / "t.tr")
    with pytest.raises(InputError, match="at least one task"):
        write_tr(without_tasks, tmp_path / "t.tr")
