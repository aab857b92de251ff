"""Pools: fair parts by hand and by bisection, and whose turn it is."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from volery.architectures.hfs.pools import Pools, fair_parts
from volery.policies.fairness.shares import parse_shares_text

MEMBERS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 40), st.integers(1, 9)), min_size=1, max_size=6)


@given(MEMBERS, st.integers(0, 120))
def test_parts_are_those_of_the_design_document(members: list[tuple[int, int, int]], total: int) -> None:
    """r by bisection, as Hadoop finds it, gives the same; nobody has more than it wants, and nothing is left over."""
    demand, least, weight = ([member[k] for member in members] for k in range(3))
    parts = fair_parts(Fraction(total), demand, least, weight)
    assert sum(parts) == min(total, sum(demand))
    assert all(0 <= part <= d for part, d in zip(parts, demand, strict=True))
    if sum(min(d, m) for d, m in zip(demand, least, strict=True)) > total:
        return
    low, high = 0.0, 1.0
    while sum(min(d, max(high * w, m)) for d, m, w in members) < min(total, sum(demand)):
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        enough = sum(min(d, max(middle * w, m)) for d, m, w in members) >= min(total, sum(demand))
        low, high = (low, middle) if enough else (middle, high)
    expected = [min(d, max(high * w, m)) for d, m, w in members]
    assert all(abs(float(part) - other) < 1e-6 for part, other in zip(parts, expected, strict=True))


def test_minimum_shares_beyond_the_whole_are_cut_in_proportion() -> None:
    assert fair_parts(Fraction(70), [100, 100], [80, 60], [1, 1]) == [40, 30]


def turns(pools: Pools, count: int) -> str:
    """Jobs in the order in which they get slots."""
    served = []
    for _ in range(count):
        job = next(pools.order())
        pools.change(job, -1, 1)
        pools.check()
        served.append(job)
    return "".join(map(str, served))


def test_pools_take_turns_by_weight_and_jobs_in_them_by_what_they_hold() -> None:
    pools = Pools(parse_shares_text("web:1+dev:2(ann:1+bob:1)"))
    for job, user in enumerate(("web", "ann", "bob", "ann")):
        pools.join(job, user)
        pools.change(job, 9, 0)
    assert turns(pools, 9) == "012032012", "a third for web, the rest to ann's two jobs and bob's one in turn"
    shares = {pool.name: share for pool, share in pools.fair_shares(30).items()}
    assert shares == {"web": 9, "ann": 12, "bob": 9}


def test_below_its_minimum_share_a_pool_comes_first_and_urgent_jobs_weigh_double() -> None:
    pools = Pools(None, {"web": 2}, frozenset({"dev"}))
    for job, (user, priority) in enumerate((("dev", 0), ("dev", 1), ("web", 0), ("web", 1))):
        pools.join(job, user, priority)
        pools.change(job, 9, 0)
    assert turns(pools, 2) == "23", "the minimum share of web, its jobs in turn"
    assert turns(pools, 3) == "113", "dev serves its urgent job first, until it has as much as web"
    assert turns(pools, 2) == "12", "twice the weight: two of the urgent job count as one of the other"


def test_users_whom_no_tree_names_join_beside_the_topmost_pools() -> None:
    pools = Pools(parse_shares_text("web:3"))
    pools.join(0, "ann")
    pools.join(1, "web")
    pools.change(0, 50, 0)
    pools.change(1, 50, 0)
    assert {pool.name: share for pool, share in pools.fair_shares(40).items()} == {"web": 30, "ann": 10}
    pools.change(0, -50, 0)
    pools.leave(0)
    assert list(pools.order()) == [1]
    assert [pool.name for pool in pools.leaves()] == ["web", "ann"]
