"""The synthetic cell of Omega's public simulator."""

from __future__ import annotations

import pytest

from volery.core.errors import InputError
from volery.core.model import SECOND
from volery.core.trace import Trace
from volery.workload import synthesize

DAY = synthesize("cell:", seed=1)


def of(trace: Trace, user: str) -> list[int]:
    return [job for job, name in enumerate(trace.user) if name == user]


def sizes(trace: Trace, user: str) -> list[int]:
    return [trace.first[job + 1] - trace.first[job] for job in of(trace, user)]


def test_a_day_of_the_example_cell() -> None:
    assert (DAY.resources, DAY.requests) == (("cpu_milli", "memory_mb"), ((1000, 2048),))
    batch, service = sizes(DAY, "batch"), sizes(DAY, "service")
    assert len(batch) == pytest.approx(8640, rel=0.03)
    assert len(service) == pytest.approx(4320, rel=0.05)
    assert sum(batch) / len(batch) == pytest.approx(100.5, rel=0.03), "exponential sizes, rounded up"
    assert sum(service) / len(service) == pytest.approx(10.5, rel=0.04)
    means = {
        user: sum(sum(DAY.duration_us[DAY.first[job] : DAY.first[job + 1]]) for job in of(DAY, user))
        / sum(sizes(DAY, user))
        / SECOND
        for user in ("batch", "service")
    }
    assert means == {"batch": pytest.approx(100, rel=0.01), "service": pytest.approx(500, rel=0.02)}


def test_sixty_percent_of_the_cpus_are_taken_from_the_beginning_to_the_end() -> None:
    (fill,) = of(DAY, "fill")
    assert (fill, DAY.arrival_us[0], sizes(DAY, "fill")) == (0, 0, [24_000])
    assert set(DAY.duration_us[:24_000]) == {86_400 * SECOND}


def test_jobs_come_in_order_until_the_span_is_over_and_schedulers_are_told_means() -> None:
    arrivals = list(DAY.arrival_us)
    assert arrivals == sorted(arrivals)
    assert 86_300 * SECOND < arrivals[-1] < 86_400 * SECOND
    job = of(DAY, "batch")[5]
    durations = DAY.duration_us[DAY.first[job] : DAY.first[job + 1]]
    assert DAY.estimate_us[job] == round(sum(durations) / len(durations))


def test_a_higher_rate_moves_batch_arrivals_alone() -> None:
    once, twice = (synthesize(f"cell:span=7200,workers=100,rate={rate}") for rate in (1, 2))
    assert len(of(twice, "batch")) == pytest.approx(2 * len(of(once, "batch")), rel=0.1)
    first, second = of(once, "batch")[7], of(twice, "batch")[7]
    assert once.arrival_us[first] == pytest.approx(2 * twice.arrival_us[second], abs=2)
    assert [once.arrival_us[job] for job in of(once, "service")] == [
        twice.arrival_us[job] for job in of(twice, "service")
    ]


def test_the_same_seed_gives_the_same_cell_and_another_one_another() -> None:
    spec = "cell:span=600,workers=50"
    assert synthesize(spec, 3).digest() == synthesize(spec, 3).digest() != synthesize(spec, 4).digest()


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("cell:fill=1.5", "cell:fill: '1.5' is not a number above 0 and up to 1"),
        ("cell:fill=0.001,workers=10", "cell:fill: fills less than one CPU"),
        ("cell:batch=3", "cell:batch: no such key"),
        ("cell:batch_tasks=1e6", "would have more than 100000000 tasks"),
    ],
)
def test_a_wrong_spec_names_its_key(spec: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        synthesize(spec)
