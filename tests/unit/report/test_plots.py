"""Pictures: deterministic, whole, and safe for zero and for odd labels."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from xml.etree import ElementTree

import numpy as np
import pytest

from volery.metrics import ConstraintLoad
from volery.report import plots

X = np.linspace(0.0, 100.0, 50)


def cdf() -> str:
    random = np.random.default_rng(0)
    return plots.delay_cdf(
        [
            plots.Series("megha", (random.lognormal(size=900), random.lognormal(size=80))),
            plots.Series("oracle", (np.zeros(9),)),
        ]
    )


def curves() -> str:
    return plots.utilisation_curves(
        [plots.SeedCurves("megha", (X, X / 2), (X / 200, X / 300)), plots.SeedCurves("none", (), ())]
    )


def loads() -> str:
    return plots.constraint_load_bars([ConstraintLoad(i, 0.1, 0.09, 0.2, 0.3) for i in (0, 3, 20)])


def parts() -> str:
    return plots.allocation_bars({"communication": [0.001, 0.0], "processing": [0.0, 0.0]}, ["megha", "oracle"])


def strips() -> str:
    return plots.utilisation_curves([plots.SeedCurves(f"a{i}", (X, X / 2), (X / 200, X / 300)) for i in range(6)])


LONG = "megha-2021:gms=3,lms=2,shares=q1:10+q2:25+q3:15,queues=0+1+2,preempted=restart"
PICTURES = [cdf, curves, loads, parts, strips]


@pytest.mark.parametrize("picture", PICTURES)
def test_two_renders_have_the_same_bytes(picture: Callable[[], str]) -> None:
    assert picture() == picture()


@pytest.mark.parametrize("picture", PICTURES)
def test_a_picture_is_well_formed_and_carries_no_date(picture: Callable[[], str]) -> None:
    text = picture()
    root = ElementTree.fromstring(text)
    assert root.tag.endswith("svg")
    assert not re.search(r"<dc:date|matplotlib\.org|20\d\d-", text)


def test_axes_carry_units_and_lines_their_names() -> None:
    assert all(word in cdf() for word in ("share of jobs", "delay of a job", "megha", "oracle", "100 %"))
    assert all(word in curves() for word in ("busy slots / slots", "time since the first job was submitted (s)"))
    assert all(word in loads() for word in ("placement constraint", "95th percentile", ">20<"))
    assert all(word in parts() for word in ("communication", "megha: 1.00 ms", "oracle: 0 s"))


def test_ten_lines_are_told_apart_without_colour_and_their_legend_keeps_out_of_the_picture() -> None:
    names = [f"design {i}" for i in range(10)]
    text = plots.delay_cdf([plots.Series(name, (np.array([1.0, 2.0 + i]),)) for i, name in enumerate(names)])
    assert all(name in text for name in names)
    assert len(set(plots.PALETTE)) == len(set(plots.MARKERS)) == 10
    looks = {(plots.colour(i), str(plots.dash(i)), plots.MARKERS[i]) for i in range(10)}
    assert len({look[1:] for look in looks}) == 10
    assert text.count('id="legend_1"') == 1
    few = plots.delay_cdf([plots.Series(name, (np.array([1.0, 2.0]),)) for name in names[:4]])
    assert text.count("<use ") > few.count("<use "), "markers"


def test_a_legend_has_as_many_columns_as_its_labels_leave_room_for() -> None:
    assert plots.legend_size(["megha"] * 10) == (4, 3)
    assert plots.legend_size(["megha"] * 2) == (2, 1)
    assert plots.legend_size(["megha", "pigeon:weight=100000,weight_counting=published-code"]) == (1, 2)
    assert plots.legend_size([LONG]) == (1, 2)


def test_a_long_label_takes_several_lines_and_leaves_the_picture_its_room() -> None:
    series = [plots.Series(LONG, (np.array([1.0, 2.0]),))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = plots.delay_cdf(series)
    assert "queues=0+1+2," in text
    assert LONG not in text


def test_many_utilisation_curves_get_a_strip_each() -> None:
    many = [plots.SeedCurves(f"design {i}", (X,), (X / 200 + i / 100,)) for i in range(7)]
    text = plots.utilisation_curves(many, title="all")
    assert sum(f'id="axes_{i}"' in text for i in range(1, 9)) == 7
    assert "design 1 (grey: design 0)" in text
    assert all(word in text for word in ("busy slots / slots", "time since the first job was submitted (s)", ">all<"))
    assert 'id="axes_2"' not in plots.utilisation_curves(many[:4])
    assert "design 6" in plots.utilisation_curves([*many[:6], plots.SeedCurves("design 6", (), ())])


def test_delays_of_zero_have_a_place_on_the_axis() -> None:
    only_zero = plots.delay_cdf([plots.Series("oracle", (np.zeros(5),))])
    assert ">0<" in only_zero
    mixed = plots.delay_cdf([plots.Series("a", (np.array([0.0, 0.0015, 100.0]),))])
    assert ">0<" in mixed
    assert ">1 ms<" in mixed


def test_equal_delays_and_no_delays_are_drawn() -> None:
    assert ">1 ms<" in plots.delay_cdf([plots.Series("megha", (np.full(20, 0.0015),))])
    assert "share of jobs" in plots.delay_cdf([plots.Series("nothing", ())])


def test_delays_of_fifteen_decades_keep_the_axis_readable() -> None:
    text = plots.delay_cdf([plots.Series("a", (np.array([1e-9, 1e6]),))])
    assert text.count(" s<") + text.count("s<") < 30


@pytest.mark.parametrize("label", ["_hidden", "a$b$c", "<b>&amp;", "汉字", "[x]"])
def test_labels_are_shown_as_they_are(label: str) -> None:
    series = [plots.Series(label, (np.array([1.0, 2.0]),)), plots.Series("other", (np.array([1.0, 2.0]),))]
    texts = "".join(ElementTree.fromstring(plots.delay_cdf(series)).itertext())
    assert label in texts


def test_a_large_sample_is_thinned_without_losing_its_ends() -> None:
    sample = np.random.default_rng(3).lognormal(size=200_000)
    x, y = plots._cdf(np.sort(sample))
    assert x.size < 2 * plots.CURVE_POINTS
    assert (x[0], x[-1], y[0], y[-1]) == (sample.min(), sample.max(), 0.0, 1.0)
    assert float(np.interp(1.0, x, y)) == pytest.approx(0.5, abs=0.01)


def test_a_run_that_has_ended_counts_as_idle_in_the_mean_over_seeds() -> None:
    curve = plots.SeedCurves("a", (np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, 1.0])), (np.ones(4), np.ones(2)))
    times, low, mean, high = plots.over_seeds(curve)
    assert times.tolist() == [0, 1, 2, 3]
    assert (low.tolist(), mean.tolist(), high.tolist()) == ([1, 1, 0, 0], [1, 1, 0.5, 0.5], [1, 1, 1, 1])


@pytest.mark.slow
def test_many_strips_share_their_points() -> None:
    draw, times = np.random.default_rng(0), np.arange(1000.0)

    def picture(count: int) -> str:
        curves = [plots.SeedCurves(str(k), (times, times), tuple(draw.random((2, 1000)))) for k in range(count)]
        return plots.utilisation_curves(curves)

    assert len(picture(40)) < 1.5 * len(picture(10))
