"""Measures over an axis, and what a paper takes of them: CSV, LaTeX and figures of a column's width."""

from __future__ import annotations

import csv
import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
from tests.comparison import compare
from tests.unit.report.samples import sample_differences, sample_run

from volery.core.errors import InputError
from volery.metrics import RunSummary
from volery.report.axes import MEASURES, axis_figure, axis_svg, numeric_axes, panels, slug
from volery.report.comparisons import interval_picture
from volery.report.export import WIDTHS, axis_latex, escaped, write_export
from volery.report.groups import group_runs
from volery.report.plots import Size
from volery.report.sections import ratios
from volery.statistics import EXACT, Interval, interval_of_mean
from volery.study import read_study, run_study

STUDY = """
[study]
baseline = "oracle"
[workload]
trace = "poisson:workers=20,fanout=3,mean=1,jobs=60"
workers = 20
[axes]
architectures = ["sparrow", "oracle"]
load = [0.5, 0.8]
"sparrow.probe_ratio" = [1, 2]
seeds = 2
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("paper")
    (place / "paper.toml").write_text(STUDY)
    run_study(read_study(place / "paper.toml"), folder=place / "results")
    return place / "results"


@pytest.fixture(scope="module")
def runs(folder: Path) -> list[RunSummary]:
    from volery.study import load_results

    return load_results(folder).runs


@pytest.mark.slow
def test_a_line_per_architecture_has_its_mean_and_interval_at_every_load(runs: list[RunSummary]) -> None:
    assert numeric_axes(runs) == ["load", "sparrow.probe_ratio"]
    (panel,) = panels(runs, "load", MEASURES[:1])
    assert [line.label for line in panel.lines] == ["sparrow:probe_ratio=1", "sparrow:probe_ratio=2", "oracle"]
    for line in panel.lines:
        assert [point.x for point in line.points] == [0.5, 0.8]
    values = [run.delay_s.mean for run in runs if run.label == "oracle [load=0.8]"]
    point = panel.lines[2].points[1]
    assert point.mean == pytest.approx(np.mean(values))
    assert point.interval == interval_of_mean(values)


@pytest.mark.slow
def test_a_design_without_the_parameter_is_level_over_it_at_each_load(runs: list[RunSummary]) -> None:
    found = list(panels(runs, "sparrow.probe_ratio", MEASURES[:1]))
    assert [panel.setting for panel in found] == ["load=0.5", "load=0.8"]
    sparrow, oracle = found[0].lines
    assert (sparrow.label, oracle.label) == ("sparrow", "oracle")
    assert [point.x for point in oracle.points] == [1, 2]
    assert oracle.points[0].mean == oracle.points[1].mean
    assert sparrow.points[0].mean != sparrow.points[1].mean


def test_one_seed_has_no_interval() -> None:
    assert interval_of_mean([3.0]) is None
    assert interval_of_mean([3.0, 3.0]) == Interval(3.0, 3.0, EXACT)
    assert group_runs([sample_run()])[0].half_width_s("all") is None


@pytest.mark.slow
def test_the_page_and_the_pictures_show_the_load_axis(folder: Path, runs: list[RunSummary]) -> None:
    page = (folder / "report.html").read_text()
    for heading in ("Over the axes", "Ratio to oracle"):
        assert f">{heading}</h2>" in page
    (panel,) = panels(runs, "load", MEASURES[:1])
    picture = axis_svg(panel)
    assert picture == axis_svg(panel)
    for text in ("oracle", "0.5", "0.8", "mean delay", "load"):
        assert f">{text}" in picture


@pytest.mark.slow
def test_ratios_are_taken_within_each_setting(runs: list[RunSummary]) -> None:
    rows = ratios(group_runs(runs), "oracle")
    assert [row[0] for row in rows] == [
        f"sparrow:probe_ratio={ratio} [load={load}]" for load in (0.5, 0.8) for ratio in (1, 2)
    ]
    means = {
        label: np.mean([run.delay_s.mean for run in runs if run.label == label])
        for label in ("sparrow:probe_ratio=2 [load=0.8]", "oracle [load=0.8]")
    }
    sparrow, oracle = means.values()
    assert float(rows[3][3]) == pytest.approx(sparrow / oracle, rel=0.005)


@pytest.mark.slow
def test_every_file_of_an_export_is_the_same_twice(folder: Path, tmp_path: Path) -> None:
    def digests(into: Path) -> dict[str, str]:
        written = write_export(folder, into, ("csv", "latex", "pdf", "png", "svg"), "single")
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in written}

    first = digests(tmp_path / "a")
    assert first == digests(tmp_path / "b")
    assert {
        "runs.csv",
        "delay.csv",
        "differences.csv",
        "axes.csv",
        "delay.tex",
        "differences.tex",
        "delay-all-load=0.5.pdf",
    } <= set(first)
    assert {f"mean-delay-all-over-load.{ending}" for ending in ("tex", "pdf", "png", "svg")} <= set(first)


@pytest.mark.slow
def test_figures_are_as_wide_as_a_column_with_fonts_that_publishers_take(folder: Path, tmp_path: Path) -> None:
    for width, inches in (("single", 3.33), ("double", 7.0)):
        write_export(folder, tmp_path / width, ("pdf",), width)
        pdf = (tmp_path / width / "mean-delay-all-over-load.pdf").read_bytes()
        box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", pdf)
        assert box is not None
        assert float(box[1]) == pytest.approx(72 * inches, abs=0.5)
        assert b"/Type3" not in pdf
        assert b"CreationDate" not in pdf


def test_the_tables_of_an_export_hold_the_axes_as_columns(folder: Path, tmp_path: Path, runs: list[RunSummary]) -> None:
    write_export(folder, tmp_path, ("csv",), "single")
    rows = list(csv.DictReader((tmp_path / "runs.csv").read_text().splitlines()))
    assert len(rows) == len(runs) == 12
    assert {(row["architecture"], row["load"], row["sparrow.probe_ratio"]) for row in rows} == {
        ("oracle", "0.5", ""),
        ("oracle", "0.8", ""),
        *((f"sparrow:probe_ratio={ratio}", load, ratio) for ratio in "12" for load in ("0.5", "0.8")),
    }
    assert [float(row["mean_delay_s"]) for row in rows] == [run.delay_s.mean for run in runs]


def test_differences_of_an_export_hold_the_axes_as_columns(folder: Path, tmp_path: Path) -> None:
    write_export(folder, tmp_path, ("csv",), "single")
    rows = list(csv.DictReader((tmp_path / "differences.csv").read_text().splitlines()))
    assert {(row["a"], row["b"], row["load"], row["sparrow.probe_ratio"]) for row in rows} == {
        ("oracle", f"sparrow:probe_ratio={ratio}", load, "") for ratio in "12" for load in ("0.5", "0.8")
    }


@pytest.mark.slow
def test_the_page_names_each_design_once_and_every_axis(folder: Path) -> None:
    from volery.report.html import write_report

    text = write_report(folder).read_text(encoding="utf-8")
    said = text[text.index("<h2>What was run</h2>") : text.index("<h2>Who is lowest at what</h2>")]
    assert "<dd>sparrow:probe_ratio=1; sparrow:probe_ratio=2; oracle</dd>" in said
    assert "load 0.5, 0.8" in said
    assert "sparrow.probe_ratio 1, 2" in said


def test_latex_has_a_row_per_architecture_and_hides_no_letter(runs: list[RunSummary]) -> None:
    (panel,) = panels(runs, "load", MEASURES[:1])
    text = axis_latex(panel)
    assert text.count(r"\\") == 4
    for part in (r"\toprule", r"\midrule", r"\bottomrule", r"sparrow:probe\_ratio=1 & $", r"\pm", "load & 0.5 & 0.8"):
        assert part in text
    assert escaped("50 % of a_b & c$") == r"50 \% of a\_b \& c\$"


def test_file_names_tell_the_setting_and_long_ones_stay_apart() -> None:
    assert slug("delay-all", "trace=/a/b.tr load=0.5") == "delay-all-trace=-a-b.tr-load=0.5"
    long = [slug("delay", f"trace={'x' * 300}{number}") for number in range(2)]
    assert len(set(long)) == 2
    assert max(map(len, long)) <= 120


def test_small_differences_have_a_scale_of_their_own_in_each_setting() -> None:
    found = sample_differences(
        [
            sample_run("megha [load=0.5]"),
            sample_run("pigeonc [load=0.5]"),
            *(sample_run(f"{name} [load=0.9]") for name in ("megha", "pigeonc")),
        ]
    )
    within = [one for one in found if one.b == "pigeonc [load=0.5]" and one.jobs == "all"]
    picture = interval_picture(within)
    assert "median delay, load=0.5" in picture
    assert "[load=" not in picture


def test_a_legend_of_five_designs_takes_less_than_a_third_of_a_column_figure(runs: list[RunSummary]) -> None:
    (panel,) = panels(runs, "load", MEASURES[:1])
    for size in (Size(), WIDTHS["single"]):
        assert axis_figure(panel, "", size).get_figheight() < 1.5 * size.height


def test_another_ending_or_a_place_that_cannot_be_written_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be written: .* choose another place with --into"):
        write_export(folder, tmp_path / "file", ("csv",), "single")


def test_a_study_without_an_axis_is_exported_too(tmp_path: Path) -> None:
    compare("oracle", trace="syn:2x5", workers=5, folder=tmp_path / "plain")
    names = {
        path.name for path in write_export(tmp_path / "plain", tmp_path / "out", ("csv", "latex", "png"), "double")
    }
    assert names == {"runs.csv", "delay.csv", "delay.tex", "delay-all.png"}
