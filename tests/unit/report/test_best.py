"""Who is best at what: the lowest mean, whom nothing tells apart from it, and the next."""

from __future__ import annotations

import msgspec
import numpy as np
from tests.unit.report.samples import sample_run, spread

from volery.metrics import RunSummary
from volery.report.best import Best, _lowest, _ranked, best, sentences, told
from volery.report.groups import group_runs
from volery.statistics import LOWER, paired_ratio


def with_medians(label: str, medians_s: list[float]) -> list[RunSummary]:
    """A run per seed with that median delay of all jobs."""
    runs = [sample_run("megha", seed, classes=False) for seed in range(len(medians_s))]
    return [
        msgspec.structs.replace(run, label=label, delay_s=msgspec.structs.replace(run.delay_s, p50=median))
        for run, median in zip(runs, medians_s, strict=True)
    ]


def median_ranking(*groups: list[RunSummary]) -> list[Best]:
    found = best(group_runs([run for runs in groups for run in runs]))
    return [one for one in found if one.quantity == "median delay"]


def test_the_lowest_is_told_from_the_next_by_the_paired_difference() -> None:
    (found,) = median_ranking(
        with_medians("a", [2.0, 4.0, 6.0]), with_medians("b", [1.5, 3.0, 4.5]), with_medians("c", [9.0, 18.1, 27.0])
    )
    assert (found.label, found.mean, found.level, found.next, found.next_mean) == ("b", 3.0, (), ("a",), 4.0)
    assert list(sentences([found])) == ["The lowest median delay is that of b, 3.00 s; next is a, 4.00 s."]


def test_whom_chance_may_have_put_behind_is_not_called_next() -> None:
    (found,) = median_ranking(
        with_medians("a", [1.0, 1.0, 4.0]),
        with_medians("b", [2.0, 3.0, 2.0]),
        with_medians("c", [9.0, 9.0, 36.0]),
        with_medians("d", [1.0, 1.0, 4.0]),
        with_medians("e", [9.0, 9.0, 36.0]),
    )
    assert (found.label, found.level, found.next) == ("a", ("d", "b"), ("c", "e"))
    (sentence,) = sentences([found])
    assert sentence.endswith("that of a, 2.00 s, not told apart from d and b; next is c and e, 18.0 s.")


def test_a_higher_confidence_tells_fewer_apart() -> None:
    groups = group_runs(
        with_medians("a", [2.0, 4.0, 6.0]) + with_medians("b", [1.5, 3.0, 4.6]) + with_medians("c", [9.0, 18.1, 27.0])
    )
    (usual,) = (one for one in best(groups) if one.quantity == "median delay")
    (strict,) = (one for one in best(groups, 0.9999) if one.quantity == "median delay")
    assert (usual.label, usual.level, usual.next) == ("b", (), ("a",))
    assert (strict.label, strict.level) == ("b", ("a",))


def test_settings_are_ranked_apart_and_their_names_left_out_of_the_labels() -> None:
    names = ("a", "b", "c")
    runs = [
        with_medians(f"{name} [workers={workers}]", [place * sign + 5.0] * 2)
        for workers, sign in ((100, 1), (200, -1))
        for place, name in enumerate(names)
    ]
    assert [(one.setting, one.label, one.next) for one in median_ranking(*runs)] == [
        ("workers=100", "a", ("b",)),
        ("workers=200", "c", ("b",)),
    ]


def test_an_architecture_that_lacks_a_seed_is_compared_on_the_seeds_of_all() -> None:
    (found,) = median_ranking(
        with_medians("a", [2.0, 2.0, 0.0]), with_medians("b", [1.0, 1.0]), with_medians("c", [3.0, 3.0, 0.0])
    )
    assert (found.label, found.mean) == ("b", 1.0)


def test_every_class_and_the_messages_are_ranked() -> None:
    found = best(group_runs(spread(3)))
    assert [(one.jobs, one.quantity) for one in found] == [
        (jobs, f"{name} delay") for jobs in ("all", "short", "long") for name in ("median", "mean", "p99")
    ] + [("all", "messages per task")]
    assert found[-1].level == tuple(run.label for run in spread(3, seeds=1))[1:]
    assert best(group_runs(spread(2))) == []


def test_where_nothing_is_random_the_caption_speaks_of_no_interval() -> None:
    def same(label: str) -> list[RunSummary]:
        return [msgspec.structs.replace(run, digest=label) for run in with_medians(label, [1.0, 1.0])]

    alike, drawn = group_runs([*same("a"), *same("b")]), group_runs(with_medians("c", [1.0, 2.0]))
    assert told(alike).startswith("Nothing is random here")
    assert "interval" not in told(alike)
    assert (
        told(drawn)
        == "By the mean over seeds. Not told apart: the paired comparison with the lowest (ratios of delays) shows no "
        "difference after the correction for all pairs of designs (Holm)."
    )
    assert told([*alike, *drawn]) == f"{told(drawn)} Where neither of the two is random, they are equal."


def test_a_design_that_is_lower_by_its_ratios_is_not_called_higher() -> None:
    one_bad_day = [1.0 + 0.001 * seed for seed in range(29)]
    a, b = [*one_bad_day, 100.0], [*(1.5 * value for value in one_bad_day), 50.0]
    assert sum(b) < sum(a)
    assert paired_ratio(a, b).verdict == LOWER
    found = _lowest("", "all", "median delay", "s", _ranked({"a": a, "b": b, "c": [9.0 * value for value in a]}))
    assert (found.label, found.level, found.next) == ("b", ("a",), ("c",))


def test_a_board_of_equal_designs_names_a_false_next_in_at_most_seven_percent() -> None:
    random = np.random.default_rng(7)
    boards, wrong = 300, 0
    for _ in range(boards):
        common = random.lognormal(0.0, 1.0, 3)
        values = {f"d{place}": list(common * random.lognormal(0.0, 0.2, 3)) for place in range(20)}
        wrong += bool(_lowest("", "all", "median delay", "s", _ranked(values)).next)
    assert wrong <= 0.07 * boards
