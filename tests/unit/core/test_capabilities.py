"""Capabilities of a deployment: the prices of machines that are provisioned and released."""

from __future__ import annotations

import pytest

from volery.core.capabilities import HOUR, Billing


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
