"""Terminal tables and the sentences that verdicts become."""

from __future__ import annotations

import re

import msgspec
import pytest
from tests.unit.report.samples import (
    LABELS,
    TEN,
    sample_differences,
    sample_run,
    sample_runs,
    spread,
)

from volery.look.text import NOTHING, TIMES, duration
from volery.metrics import Distribution
from volery.report.groups import group_runs, label_of
from volery.report.notes import notes
from volery.report.tables import plain
from volery.report.verdict import (
    DRAWN_ANEW,
    against,
    caution,
    effect,
    headline,
    interval,
    over_seeds,
    reading,
    rule,
    sentence,
)
from volery.statistics import CORRECTED, ComparedJobs, ComparedMeans, Difference, paired_difference, paired_ratio


def compared(a: list[float], b: list[float], unit: str = "s", jobs: str = "all") -> ComparedMeans:
    return ComparedMeans(
        "megha",
        "pigeonc",
        jobs,
        "median delay",
        unit,
        sum(a) / len(a),
        sum(b) / len(b),
        paired_ratio(a, b) if unit == "s" else paired_difference(a, b),
    )


def by_job(ratio: float, low: float, high: float, verdict: str, b: str = "pigeonc") -> ComparedJobs:
    """One run of megha and of another design: the ratio of their mean delays, with its interval."""
    found = Difference(ratio - 1, None, None, 1, verdict, "block bootstrap", ratio, low, high)
    return ComparedJobs("megha", b, "all", "mean delay", "s", ratio, 1.0, found, 4, seed=0, job_count=400, block=23)


class TestComparison:
    @pytest.mark.parametrize("width", [80, 100, 140, 200])
    def test_no_line_is_wider_than_the_terminal_and_nothing_is_cut(self, width: int) -> None:
        runs = sample_runs()
        text = plain(runs, sample_differences(runs), width=width)
        assert max(map(len, text.splitlines())) <= width
        assert "…" not in text.replace(" … ", "")
        for word in ("median", "p99", "max", "util.", "msg/task", "wall", "tasks/s", "short", "long", "95 % interval"):
            assert word in text

    @pytest.mark.parametrize("width", [80, 140])
    def test_every_delay_stands_in_the_table_with_its_unit(self, width: int) -> None:
        delay = Distribution(400, 1.5, 0.00262, 15.0, 0.5, 300.0, 90_000.0)
        text = plain([msgspec.structs.replace(sample_run("pigeonc", classes=False), delay_s=delay)], width=width)
        row = next(line for line in text.splitlines() if line.startswith("pigeonc")).split()
        spread = "\u2013 " if width == 140 else ""
        assert " ".join(row[1:14]).startswith(f"2.62 ms 1.50 s {spread}15.0 s 500 ms 5.00 min 25.0 h"), (
            "one seed: a dash"
        )

    def test_labels_are_whole_at_any_width(self) -> None:
        runs = sample_runs()
        assert LABELS[2] in plain(runs, width=140)
        narrow = plain(runs, width=80)
        assert "constraint_counting=" in narrow
        assert "published-code" in narrow

    def test_hostile_labels_command_no_terminal_and_stay_short(self) -> None:
        evil = "\x1b]0;owned\x07\u202e\U0001f426" + "x" * 10_000
        runs = [msgspec.structs.replace(sample_run(), label=label) for label in (evil, "other")]
        text = plain(runs, sample_differences(runs), width=200)
        assert "\ufffd]0;owned" in text
        assert "\U0001f426" in text
        assert not set("\x1b\x07\u202e") & set(text)
        assert len(text) < 10_000

    def test_square_brackets_in_a_label_are_no_markup(self) -> None:
        run = msgspec.structs.replace(sample_run(), label="megha [workers=100]")
        for width in (80, 140):
            assert "[workers=100]" in plain([run], width=width)
        difference = msgspec.structs.replace(compared([1.0, 2.0], [3.0, 4.0]), a="x [bold]y")
        assert "x [bold]y" in plain([run], [difference])

    def test_numbers_are_means_over_seeds(self) -> None:
        runs = sample_runs(2, ("megha",))
        (group,) = group_runs(runs)
        delay = group.delay_s("all")
        assert delay is not None
        assert delay.p99 == pytest.approx((runs[0].delay_s.p99 + runs[1].delay_s.p99) / 2)
        assert delay.count == 800
        assert "mean over 2 seeds" in plain(runs)

    def test_classes_have_rows_only_where_both_occur(self) -> None:
        assert "short" not in plain(sample_runs(1, classes=False))
        one_class = msgspec.structs.replace(sample_run(), long=None)
        assert "short" not in plain([one_class])

    def test_what_was_left_out_is_said(self) -> None:
        run = msgspec.structs.replace(sample_run(unsatisfiable=7), jobs=403)
        text = plain([run], width=140)
        assert "no machine can run, left out: 7" in text
        assert "without a measured delay" in text
        assert "left out" not in plain([sample_run()])

    def test_a_run_without_a_label_is_called_by_architecture_and_parameters(self) -> None:
        run = msgspec.structs.replace(sample_run(LABELS[2]), label="")
        assert label_of(run) == LABELS[2]


class TestManyArchitectures:
    @pytest.mark.parametrize("count", [7, 9, 10])
    @pytest.mark.parametrize("width", [80, 120, 200])
    def test_tables_fit_the_terminal_and_lose_nothing(self, count: int, width: int) -> None:
        runs = spread(count)
        text = plain(runs, sample_differences(runs), width=width)
        assert max(map(len, text.splitlines())) <= width
        assert "…" not in text.replace(" … ", "")
        letters = re.sub(r"\s", "", text)
        for group in group_runs(runs):
            pieces = re.findall(r"[^:,=]+", group.label)
            assert all(piece in text for piece in pieces), "a label is cut inside a word"
            for jobs in group.classes():
                delay = group.delay_s(jobs)
                assert delay is not None
                for name in ("p50", "mean", "p90", "p95", "p99", "max"):
                    assert re.sub(r"\s", "", duration(getattr(delay, name))) in letters
        if width >= 118:
            assert all(label in text for label in TEN[:count])

    def test_a_line_per_architecture_and_class_tells_how_it_stands_to_the_first(self) -> None:
        runs = spread(7)
        text = plain(runs, sample_differences(runs), width=80)
        assert text.count("a = megha") == 0
        rows = text.partition("Against megha")[2].splitlines()
        (eagle,) = (
            row.split()
            for row in plain(spread(8), sample_differences(spread(8))).partition("Against")[2].splitlines()
            if row.startswith("eagle")
        )
        assert eagle[1:] == ["all", *[f"16,384{TIMES}"] * 3, "identical"]
        assert sum(" short " in row for row in rows) == 6
        wide = plain(runs, sample_differences(runs), width=140).partition("Against megha")[2].splitlines()
        assert wide.index("", 1) == 1 + 2 + 6 * 3, "three lines for each of six"

    def test_few_pairs_keep_a_table_each(self) -> None:
        runs = spread(4)
        text = plain(runs, sample_differences(runs), width=120)
        assert text.count("a = megha, b = ") == 3
        assert "Against" not in text

    def test_the_lowest_and_the_next_are_named_with_whom_nothing_tells_apart(self) -> None:
        text = plain(spread(3), width=120)
        rows = text.partition("Who is lowest at what")[2].splitlines()
        assert rows[3].split()[:5] == ["all", "median", "delay", "megha", "1.56"]
        assert "megha:gms=10,lms=10" in rows[3]
        assert [row.split()[0] for row in rows if row.lstrip().startswith("= ")] == ["="] * 2
        for width in (80, 120, 140, 200):
            ranking = plain(spread(10), width=width).partition("Who is lowest at what")[2]
            assert all(piece in ranking for label in TEN for piece in re.findall(r"[^:,=]+", label))
        assert "Who is lowest" not in plain(spread(2)), "two need no ranking"
        assert "Who is lowest" not in plain(spread(3, seeds=1)), "one seed tells nothing apart"

    def test_work_is_told_where_it_is_counted(self) -> None:
        rows = {row.split()[0]: row.split()[1:] for row in plain(spread(5)).partition("Work of")[2].splitlines() if row}
        assert rows["sparrow"] == ["4.00", "2.00", "0.200", "3.50", "17.0", "6.00", "ms"]
        assert rows["pigeonc"] == ["4.00", NOTHING, NOTHING, "3.50", "17.0", NOTHING]
        assert "Work of" not in plain(sample_runs())


class TestVerdict:
    def test_a_shown_difference_names_both_numbers_and_the_interval(self) -> None:
        text = sentence(compared([0.010, 0.011, 0.012], [1.0, 1.1, 1.3]))
        assert text.startswith("The median delay is lower under megha than under pigeonc: 11.0 ms against 1.13 s")
        assert text.endswith("(pigeonc / megha 103\u00d7, 95 % interval 91.6 \u2026 115\u00d7, paired t over 3 seeds).")

    @pytest.mark.parametrize(("a", "b"), [([1.0, 3.0], [2.0, 2.0]), ([1.0], [2.0])])
    def test_nothing_is_called_lower_or_higher_that_was_not_shown(self, a: list[float], b: list[float]) -> None:
        difference = compared(a, b)
        for text in (sentence(difference), reading(difference), *headline([difference])):
            assert "o difference shown" in text or len(a) == 1
            assert not {"lower", "higher", "better"} & set(text.replace(",", " ").split())

    def test_identical_results_are_called_identical(self) -> None:
        assert "identical" in sentence(compared([1.0, 1.0], [1.0, 1.0]))
        assert reading(compared([1.0, 1.0], [1.0, 1.0])) == "identical"

    def test_few_seeds_are_cautioned_about(self) -> None:
        assert "--seeds" in caution([compared([1.0], [2.0])])
        assert caution([compared([1.0] * 3, [2.0] * 3)]) == ""
        assert caution([]) == ""

    def test_one_seed_is_cautioned_about_choices_alone_where_jobs_are_compared(self) -> None:
        told = caution([compared([1.0], [2.0])], [by_job(0.5, 0.4, 0.6, "lower")])
        assert told.startswith("One seed does not tell how much random choices of the schedulers matter")
        assert "workload alone" in told

    def test_seeds_that_draw_the_workload_cover_both_kinds_of_chance(self) -> None:
        found = [compared([1.0, 1.1], [2.0, 2.1])]
        assert caution(found, []) == DRAWN_ANEW
        assert caution(found, [by_job(0.5, 0.4, 0.6, "lower")]) == caution(found, None) == ""

    def test_a_comparison_by_job_says_how_b_stands_to_a_on_such_days(self) -> None:
        assert sentence(by_job(0.5, 0.4, 0.625, "lower")) == (
            "On days like this one, the mean delay of pigeonc is 2.00 times (1.60 to 2.50) that of megha; "
            "block bootstrap, blocks of 23 jobs."
        )
        spans = sentence(by_job(0.9, 0.8, 1.25, "no difference shown: the interval of the ratio spans one"))
        assert "no difference shown in the mean delay between megha and pigeonc" in spans
        assert "(0.800 to 1.25; block bootstrap" in spans

    def test_without_a_statement_the_values_of_the_day_are_named_alone(self) -> None:
        why = "no statement: fewer than 30 jobs"
        day = ComparedJobs(
            "megha",
            "pigeonc",
            "all",
            "mean delay",
            "s",
            2.0,
            1.0,
            Difference(1.0, None, None, 1, why, "", 2.0),
            seed=0,
            job_count=20,
            block=0,
        )
        assert sentence(day) == f"The mean delay of this day is 2.00 s under megha and 1.00 s under pigeonc; {why}."
        assert rule([day]) == f"Delays are compared as ratios b / a. A dash: {why}."

    def test_a_verdict_that_the_correction_takes_away_is_marked(self) -> None:
        taken = by_job(0.5, 0.4, 0.625, CORRECTED)
        assert against(taken) == "no diff.* (1.60\u20132.50)"
        assert reading(taken) == "no difference shown*"
        assert rule([taken]).endswith("(Holm); *: the interval alone would show a difference.")
        assert "blocks of 23 jobs" in rule([taken])
        assert "*" not in rule([compared([1.0, 1.1], [2.0, 2.1])]), "a single pair is not corrected"

    def test_fractions_differ_in_percentage_points(self) -> None:
        difference = compared([0.5, 0.52], [0.4, 0.41], unit="")
        assert "51.0 % against 40.5 %" in sentence(difference)
        assert interval(difference.difference, "") == "\u221216.9 \u2026 \u22124.15 pp"
        assert "(pigeonc \u2212 megha \u221210.5 pp," in sentence(difference)

    def test_a_small_ratio_has_three_digits(self) -> None:
        assert effect(compared([1.0, 1.0], [0.00165, 0.00165])) == "0.00165\u00d7"

    def test_seeds_are_said_to_be_about_the_workload_only_where_it_is_drawn(self) -> None:
        assert over_seeds([]) == "over seeds (chance: choices and workload)"
        assert over_seeds([by_job(0.5, 0.4, 0.6, "lower")]) == "over seeds (chance: choices)"
        assert over_seeds(None) == "over seeds"

    def test_classes_are_named_in_the_sentence_and_stay_out_of_the_headline(self) -> None:
        difference = compared([1.0, 1.0], [2.0, 2.0], jobs="short")
        assert "median delay of short jobs" in sentence(difference)
        assert headline([difference]) == []


def test_a_cutoff_of_the_trace_is_told_once_per_design_however_many_settings_there_are() -> None:
    runs = [
        msgspec.structs.replace(
            sample_run("pigeon"), label=f"pigeon [load={load}]", axes={"load": load}, cutoff_from_trace_s=1.5
        )
        for load in (0.5, 0.7, 0.9)
    ]
    (told,) = [note for note in notes(group_runs(runs)) if note.startswith("Cutoff")]
    assert told.startswith("Cutoff of pigeon: 1.50 s, which")
