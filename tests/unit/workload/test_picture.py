"""Pictures of load curves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from volery.core.errors import InputError
from volery.workload import load_curve, synthesize
from volery.workload.description import BLOCKS, LoadCurve, draw_load_curve, sparkline


def curve_of(*running: float) -> LoadCurve:
    values = np.array(running)
    return LoadCurve(np.arange(len(running) + 1.0), values, values)


@pytest.mark.parametrize(("ending", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_same_curve_gives_the_same_bytes(tmp_path: Path, ending: str, magic: bytes) -> None:
    curve = load_curve(synthesize("mix:google,jobs=50", 1), 10_000)
    for name in ("a", "b"):
        draw_load_curve(curve, "google", tmp_path / f"{name}.{ending}")
    drawn = (tmp_path / f"a.{ending}").read_bytes()
    assert drawn.startswith(magic)
    assert drawn == (tmp_path / f"b.{ending}").read_bytes()


def test_the_axes_have_units_and_the_title_its_name(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    draw_load_curve(load_curve(synthesize("syn:2x100"), 2), "two by a hundred", path)
    text = path.read_text()
    for words in ("time since the first arrival (s)", "load (% of the slots)", "two by a hundred", "all slots busy"):
        assert words in text


def test_long_spans_are_in_hours_and_bursts_are_said_to_be_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    burst = LoadCurve(np.array([0.0, 20_000, 40_000]), np.array([9.0, 0.1]), np.array([0.5, 0.5]))
    draw_load_curve(burst, "t", path)
    assert "arrival (h)" in path.read_text()
    assert "cut off at the top" in path.read_text()


def test_other_endings_and_unwritable_places_are_refused(tmp_path: Path) -> None:
    curve = curve_of(1.0)
    with pytest.raises(InputError, match="must end in"):
        draw_load_curve(curve, "t", tmp_path / "a.gif")
    with pytest.raises(InputError, match="cannot be written"):
        draw_load_curve(curve, "t", tmp_path / "absent" / "a.png")


def test_a_sparkline_fills_its_highest_interval_and_blanks_an_empty_one() -> None:
    assert sparkline(curve_of(0, 0.5, 1)) == f" {BLOCKS[4]}{BLOCKS[8]}"
    assert sparkline(curve_of(0, 0)) == "  "
