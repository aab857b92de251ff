"""The worked examples of the DRF and H-DRF papers: the numbers D1-D4 and H1-H7 of docs/reference/fairness.md."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import accumulate

import pytest
from tests.unit.policies.fairness import fluid
from tests.unit.policies.fairness.reference import churned

from volery.policies.fairness.drf import WeightedDrf, filling
from volery.policies.fairness.hdrf import BlindRescaling, HierarchicalDrf, NaiveHierarchy, collapsed
from volery.policies.fairness.ledger import entitlements
from volery.policies.fairness.shares import Resources, parse_shares_text

D = (9, 18)
"""CPUs and GB."""
A, B = (1, 4), (3, 1)
H1: dict[str, Resources] = {"n1": (0, 1), "n21": (1, 0), "n22": (0, 1)}
H2: dict[str, Resources] = {"n1": (1, 0), "n2": (1, 0), "n31": (1, 0), "n32": (0, 1), "n4": (0, 1)}
H3: dict[str, Resources] = {"n1": (1, 1), "n21": (1, 0), "n22": (0, 1)}
TREE_1 = parse_shares_text("n1+n2(n21+n22)")
TREE_2 = parse_shares_text("n1+n2+n3(n31+n32)+n4")
CHURN = 3000


def test_d1_drf_serves_the_poorest_and_ties_go_to_who_came_first() -> None:
    order = WeightedDrf(D, stops_at_poorest=True)
    shares = [(order.share("A"), order.share("B")) for _ in filling(order, {"B": B, "A": A})]
    thirds = [Fraction(n, 9) for n in range(10)]
    assert shares == [
        (0, thirds[3]),
        (thirds[2], thirds[3]),
        (thirds[4], thirds[3]),
        (thirds[4], thirds[6]),
        (thirds[6], thirds[6]),
    ]
    assert order.choose() is None


def test_d1_users_named_the_other_way_round_get_the_same_in_another_order() -> None:
    assert list(filling(WeightedDrf(D), {"A": A, "B": B})) == list("ABABA")


def test_d1_the_papers_rule_stops_where_the_poorest_does_not_fit() -> None:
    demands: dict[str, Resources] = {"big": (5, 1), "small": (1, 1)}
    assert Counter(filling(WeightedDrf((8, 8), stops_at_poorest=True), demands)) == {"big": 1, "small": 3}
    assert Counter(filling(WeightedDrf((8, 8)), demands)) == {"big": 1, "small": 3}
    assert (
        Counter(filling(WeightedDrf((10, 100), {"huge": 5}, stops_at_poorest=True), {"huge": (11, 1), "small": (1, 1)}))
        == {}
    )
    assert Counter(filling(WeightedDrf((10, 100), {"huge": 5}), {"huge": (11, 1), "small": (1, 1)})) == {"small": 10}


def test_d2_asset_fairness() -> None:
    tasks = fluid.fluid_asset_fairness(D, {"A": A, "B": B})
    assert tasks == {"A": Fraction(252, 100), "B": Fraction(216, 100)}
    assert [tasks["A"] * units for units in A] == [Fraction("2.52"), Fraction("10.08")]
    assert [tasks["B"] * units for units in B] == [Fraction("6.48"), Fraction("2.16")]


def test_d3_competitive_equilibrium_from_equal_incomes() -> None:
    assert fluid.fluid_ceei_of_two(D, {"A": A, "B": B}) == {"A": Fraction(45, 11), "B": Fraction(18, 11)}
    assert fluid.fluid_ceei_of_two((10,), {"A": (1,), "B": (4,)}) == {"A": 5, "B": Fraction(5, 4)}, "equal money"
    with pytest.raises(ValueError, match="two users, not 1"):
        fluid.fluid_ceei_of_two(D, {"A": A})


def test_d4_weighted_drf() -> None:
    tasks = fluid.fluid_drf(D, {"A": A, "B": B}, {"A": 2})
    assert tasks == {"A": Fraction(54, 13), "B": Fraction(18, 13)}
    shares = {
        user: tasks[user] * max(Fraction(1, 9) * d[0], Fraction(1, 18) * d[1]) for user, d in (("A", A), ("B", B))
    }
    assert shares == {"A": Fraction(12, 13), "B": Fraction(6, 13)}
    assert tasks["A"] * 4 + tasks["B"] == 18, "memory is the bottleneck"


def test_h1_stays_fair_under_churn_where_the_naive_hierarchy_starves() -> None:
    fair = Counter(n1=5, n21=10, n22=5)
    assert churned(HierarchicalDrf((10, 10), TREE_1), H1, CHURN) == (fair, fair)
    _, drifted = churned(NaiveHierarchy((10, 10), TREE_1), H1, CHURN)
    assert drifted == Counter(n1=10, n21=10), "n22 starves"


@pytest.mark.parametrize("k", [12, 30])
def test_h2_stays_fair_under_churn(k: int) -> None:
    fair = Counter(n1=k // 3, n2=k // 3, n31=k // 3, n32=k // 2, n4=k // 2)
    assert churned(HierarchicalDrf((k, k), TREE_2), H2, CHURN) == (fair, fair)


def test_h2_the_naive_hierarchy_starves_and_blind_rescaling_favours() -> None:
    _, drifted = churned(NaiveHierarchy((12, 12), TREE_2), H2, CHURN)
    assert drifted == Counter(n1=6, n2=6, n32=6, n4=6), "n31 starves"
    favoured = Counter(n1=4, n2=4, n31=4, n32=8, n4=4)
    assert churned(BlindRescaling((12, 12), TREE_2), H2, CHURN) == (favoured, favoured), "n32 has twice n4's GPUs"


def test_h3_the_collapsed_hierarchy_breaks_the_share_guarantee() -> None:
    assert Counter(filling(HierarchicalDrf((30, 30), TREE_1), H3)) == Counter(n1=15, n21=15, n22=15)
    weights = collapsed(TREE_1)
    assert weights == {"n1": 2, "n21": 1, "n22": 1}
    assert Counter(filling(WeightedDrf((30, 30), weights), H3)) == Counter(n1=20, n21=10, n22=10), "n2 has only a third"


def test_h4_weights_of_organisations() -> None:
    tree = parse_shares_text("n1:1+n2:3(n21+n22)")
    assert Counter(filling(HierarchicalDrf((40, 40), tree), H3)) == Counter(n1=10, n21=30, n22=30)


def test_h5_one_resource_and_an_idle_user_whose_part_goes_to_its_siblings() -> None:
    tree = parse_shares_text("n1(a:2+b:3+c:1)+n2(d:1+e:2)")
    demands: dict[str, Resources] = dict.fromkeys("acde", (1,))
    expected = {"a": 160, "c": 80, "d": 80, "e": 160}
    assert Counter(filling(HierarchicalDrf((480,), tree), demands)) == expected
    due = entitlements(tree, dict.fromkeys("acde", Fraction(1)))
    assert {user: share * 480 for user, share in due.items()} == {**expected, "b": 0}


def test_h6_a_tree_of_one_level_is_drf() -> None:
    order = HierarchicalDrf(D, parse_shares_text("B+A"))
    assert list(filling(order, {"A": A, "B": B})) == list("BAABA")


def test_h7_weights_inside_an_organisation() -> None:
    tree = parse_shares_text("alt+dev(little:1+big:9)")
    demands: dict[str, Resources] = dict.fromkeys(("alt", "little", "big"), (1, 0))
    order = HierarchicalDrf((40, 40), tree)
    launched = list(filling(order, demands))
    assert Counter(launched) == Counter(alt=20, little=2, big=18)
    assert all(abs(alt - (n - alt)) <= 1 for n, alt in enumerate(accumulate(user == "alt" for user in launched), 1))


BLOG = "fe:30(fe_d:50+fe_p:50)+ads:20(ads_d:20+ads_p:80)+spam:25(spam_d:30+spam_p:70)+mail:25(mail_d:40+mail_p:60)"


def test_a_flat_hierarchy_of_four_weights() -> None:
    demands: dict[str, Resources] = dict.fromkeys(("dev", "test", "staging", "prod"), (1,))
    order = WeightedDrf((100,), {"dev": 10, "test": 10, "staging": 30, "prod": 50})
    assert Counter(filling(order, demands)) == {"dev": 10, "test": 10, "staging": 30, "prod": 50}


def test_a_tree_of_four_organisations_with_dev_and_prod_below_each() -> None:
    due = {"fe_d": 30, "fe_p": 30, "ads_d": 8, "ads_p": 32, "spam_d": 15, "spam_p": 35, "mail_d": 20, "mail_p": 30}
    demands: dict[str, Resources] = dict.fromkeys(due, (1,))
    assert Counter(filling(HierarchicalDrf((200,), parse_shares_text(BLOG)), demands)) == due
    del demands["fe_d"], due["fe_d"]
    without = Counter(filling(HierarchicalDrf((200,), parse_shares_text(BLOG)), demands))
    assert without == {**due, "fe_p": 60}, "the sibling has all of it"


def test_the_tree_root_to_leaf_starves_the_dev_whose_sibling_wants_the_other_resource() -> None:
    one, other = ("fe_d", "fe_p", "ads_d", "ads_p", "spam_d"), ("spam_p", "mail_d", "mail_p")
    demands: dict[str, Resources] = {user: (1, 0) if user in one else (0, 1) for user in (*one, *other)}
    _, fair = churned(HierarchicalDrf((60, 60), parse_shares_text(BLOG)), demands, CHURN)
    _, drifted = churned(NaiveHierarchy((60, 60), parse_shares_text(BLOG)), demands, CHURN)
    assert fair["spam_d"] >= 60 * 0.25 * 0.3
    assert drifted["spam_d"] <= 1


@pytest.mark.parametrize("little", [1, 10, 99])
@pytest.mark.parametrize("weight", [1, 3])
def test_who_asks_for_a_little_of_the_other_resource_does_not_starve(little: int, weight: int) -> None:
    """H1, and each task takes a little of the other resource, too: what is left over in crumbs is saturated."""
    tree = parse_shares_text(f"n1:{weight}+n2:{weight}(n21+n22)")
    gpu, cpu = (little, 1000), (1000, little)
    demands: dict[str, Resources] = {"n1": gpu, "n21": cpu, "n22": gpu}
    first, churn = churned(HierarchicalDrf((10_000, 10_000), tree), demands, CHURN)
    assert first == churn == Counter(n1=5, n21=9, n22=4), "a task less each, for the little of the others"
    _, drifted = churned(NaiveHierarchy((10_000, 10_000), tree), demands, CHURN)
    assert drifted["n22"] == 0


def test_h1_and_h2_stay_fair_where_whole_tasks_leave_crumbs() -> None:
    """Of half a task: nobody who waits can use it."""
    fair = Counter(n1=5, n21=10, n22=5)
    tasks = {user: (cpu * 2, gpu * 2) for user, (cpu, gpu) in H1.items()}
    assert churned(HierarchicalDrf((21, 21), TREE_1), tasks, CHURN) == (fair, fair)
    fair = Counter(n1=4, n2=4, n31=4, n32=6, n4=6)
    tasks = {user: (cpu * 2, gpu * 2) for user, (cpu, gpu) in H2.items()}
    assert churned(HierarchicalDrf((25, 25), TREE_2), tasks, CHURN) == (fair, fair)


def test_of_a_resource_that_is_nowhere_nobody_has_a_share() -> None:
    """H1 with a third resource of which there is none: a count of one would be a resource that is never saturated."""
    demands: dict[str, Resources] = {user: (*demand, 0) for user, demand in H1.items()}
    fair = Counter(n1=5, n21=10, n22=5)
    assert churned(HierarchicalDrf((10, 10, 0), TREE_1), demands, CHURN) == (fair, fair)
    assert Counter(filling(WeightedDrf((9, 0, 18)), {"A": (1, 0, 4), "B": (3, 0, 1)})) == {"A": 3, "B": 2}
    order = WeightedDrf((9, 0))
    order.wants("A", (1, 1))
    assert order.choose() is None, "what it asks for is not there"
