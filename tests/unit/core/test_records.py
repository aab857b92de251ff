"""What a driver writes down."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from volery.conformance.cases import trace_of
from volery.core.events import Counted, Measured
from volery.core.model import NEVER
from volery.core.records import (
    HOUR,
    MOMENTS_MAX,
    PATH_SHIFT,
    PROCESSING_MAX,
    Billing,
    FactSummary,
    Records,
    TimeHistogram,
    with_processing,
)


def records() -> Records:
    return Records(trace_of("t", [0, 5], [[10, 20], [30]]))


def test_nothing_has_happened_at_first() -> None:
    fresh = records()
    assert list(fresh.start_us) == list(fresh.finish_us) == [NEVER] * 3
    assert list(fresh.worker) == [-1] * 3
    assert list(fresh.answered_us) == [NEVER] * 2


def test_counted_facts_add_up_and_measured_ones_keep_count_total_and_maximum() -> None:
    kept = records()
    for fact in (Counted("a"), Counted("a", 4), Measured("b", 3), Measured("b", 9), Measured("b", 0)):
        kept.observe(fact)
    assert kept.counters == {"a": 5}
    assert kept.tallies == {"b": FactSummary(3, 12, 9)}


CHANGES: list[Callable[[Records], None]] = [
    lambda r: r.start_us.__setitem__(1, 7),
    lambda r: r.finish_us.__setitem__(1, 7),
    lambda r: r.worker.__setitem__(1, 7),
    lambda r: r.attempt.__setitem__(1, 7),
    lambda r: r.answered_us.__setitem__(1, 7),
    lambda r: r.unsatisfiable.__setitem__(1, 7),
]


@pytest.mark.parametrize("change", CHANGES)
def test_the_digest_sees_the_whole_table(change: Callable[[Records], None]) -> None:
    changed = records()
    change(changed)
    assert changed.digest() != records().digest()


def test_counters_are_compared_apart() -> None:
    """DESIGN section 2: the digest is that of the table."""
    counted = records()
    counted.observe(Counted("messages", 3))
    assert counted.digest() == records().digest()


def test_a_path_holds_two_sums_and_no_more_processing_than_a_record_can() -> None:
    path = with_processing(7 | 5 << PATH_SHIFT, 10)
    assert (path >> PATH_SHIFT, path & 0xFFFFFFFF) == (15, 7)
    longest = with_processing(7, 10**12)
    assert (longest >> PATH_SHIFT, longest & 0xFFFFFFFF) == (PROCESSING_MAX, 7)
    kept = records()
    kept.path[0] = longest


def test_few_moments_are_kept_to_the_microsecond() -> None:
    kept = TimeHistogram()
    for now, amount in ((5, 2), (5, 1), (1_000_003, 4)):
        kept.note(now, amount)
    assert kept.width_us == 1
    assert kept.amounts == {5: 3, 1_000_003: 4}


def test_many_moments_are_put_together_and_none_is_lost() -> None:
    kept = TimeHistogram()
    for now in range(0, 3 * MOMENTS_MAX * 7, 7):
        kept.note(now, 2)
    assert len(kept.amounts) <= MOMENTS_MAX
    assert sum(kept.amounts.values()) == 2 * 3 * MOMENTS_MAX
    assert kept.width_us == 32
    assert max(kept.amounts) == (3 * MOMENTS_MAX - 1) * 7 // 32


@pytest.mark.parametrize(("span", "paid"), [(0, 0), (1, 60), (60, 60), (61, 120)])
def test_every_interval_that_has_begun_is_paid_for(span: int, paid: int) -> None:
    assert Billing(frozenset(), interval_us=60).paid_us(span) == paid


def test_without_intervals_the_span_is_paid_for() -> None:
    assert Billing(frozenset()).paid_us(61) == 61
    assert Billing(frozenset()).paid_until_us(10, 71) == 71


@pytest.mark.parametrize(("now", "until"), [(10, 70), (69, 70), (70, 130)])
def test_the_paid_interval_ends_after_the_present(now: int, until: int) -> None:
    assert Billing(frozenset(), interval_us=60).paid_until_us(10, now) == until


def test_the_price_counts_the_machine_and_its_units() -> None:
    assert Billing(frozenset(), machine_price=2.0, unit_price=0.5).price(8) == 6.0


def test_prices_change_from_hour_to_hour_and_begin_again() -> None:
    """From 0:30 to 2:30 with factors 1, 3: half an hour of 1, an hour of 3, half an hour of 1."""
    billing = Billing(frozenset(), factors=(1.0, 3.0))
    assert billing.weighed_h(HOUR // 2, 2 * HOUR) == 4.0
    assert [billing.factor(hour * HOUR) for hour in range(4)] == [1.0, 3.0, 1.0, 3.0]
