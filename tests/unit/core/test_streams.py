"""Random streams by name."""

from __future__ import annotations

import os
import subprocess
import sys

from volery.core.streams import Streams


def test_the_same_name_gives_the_same_stream_and_a_fresh_one_each_time() -> None:
    streams = Streams(7)
    first, again = streams.of("gm/0"), streams.of("gm/0")
    assert [first.random() for _ in range(5)] == [again.random() for _ in range(5)]


def test_streams_differ_by_seed_name_and_incarnation() -> None:
    numbers = {
        Streams(seed).number(name, incarnation)
        for seed in (0, 1)
        for name in ("gm/0", "gm/1", "gm/01")
        for incarnation in (0, 1)
    }
    assert len(numbers) == 12


def test_no_draw_depends_on_who_drew_before() -> None:
    quiet, busy = Streams(3), Streams(3)
    busy.of("gm/0").random()
    assert quiet.of("gm/1").random() == busy.of("gm/1").random()


def test_streams_are_the_same_under_any_hash_seed() -> None:
    program = "from volery.core.streams import Streams; print(Streams(5).number('lm/3', 2))"
    for hash_seed in ("0", "99"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        printed = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
        assert int(printed.stdout) == Streams(5).number("lm/3", 2)


def test_the_stream_of_a_name_is_pinned() -> None:
    """Every published digest rests on it."""
    assert Streams(0).number("gm/0") % 10**12 == 190_015_541_263
