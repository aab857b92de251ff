"""When something counted has happened: exact while moments are few, bounded when they are many."""

from __future__ import annotations

from volery.core.moments import MOMENTS_MAX, Moments


def test_few_moments_are_kept_to_the_microsecond() -> None:
    kept = Moments()
    for now, amount in ((5, 2), (5, 1), (1_000_003, 4)):
        kept.note(now, amount)
    assert kept.width_us == 1
    assert kept.amounts == {5: 3, 1_000_003: 4}


def test_many_moments_are_put_together_and_none_is_lost() -> None:
    kept = Moments()
    for now in range(0, 3 * MOMENTS_MAX * 7, 7):
        kept.note(now, 2)
    assert len(kept.amounts) <= MOMENTS_MAX
    assert sum(kept.amounts.values()) == 2 * 3 * MOMENTS_MAX
    assert kept.width_us == 32
    assert max(kept.amounts) == (3 * MOMENTS_MAX - 1) * 7 // 32
