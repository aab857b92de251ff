"""What DRF and H-DRF promise (NSDI 2011, section 4.3; SoCC 2013), held against drawn users, trees and histories."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.unit.policies.fairness.fluid import Demands, Tasks, fluid_drf
from tests.unit.policies.fairness.reference import Reference

from volery.policies.fairness.drf import FairOrder, WeightedDrf, filling
from volery.policies.fairness.hdrf import HierarchicalDrf
from volery.policies.fairness.shares import Resources, Sharer, dominant_share

CAPACITIES = st.tuples(*[st.integers(1, 60)] * 3)
POSITIVE = st.tuples(*[st.integers(1, 9)] * 3)
SOME = st.tuples(*[st.integers(0, 4)] * 3).filter(any)
WEIGHTS = st.lists(st.integers(1, 5), min_size=5, max_size=5)


def named(demands: list[Resources]) -> dict[str, Resources]:
    return {f"u{i}": demand for i, demand in enumerate(demands)}


def users(demands: st.SearchStrategy[Resources]) -> st.SearchStrategy[dict[str, Resources]]:
    return st.lists(demands, min_size=1, max_size=5).map(named)


def weighed(demands: Demands, weights: list[int]) -> dict[str, int]:
    return dict(zip(demands, weights, strict=False))


def runnable(bundle: list[Fraction], demand: Resources) -> Fraction:
    """How many tasks a bundle of resources runs."""
    return min(have / wanted for have, wanted in zip(bundle, demand, strict=True) if wanted)


def bundle_of(tasks: Tasks, demands: Demands, user: str) -> list[Fraction]:
    return [tasks[user] * units for units in demands[user]]


def shares_of(tasks: Tasks, demands: Demands, capacity: Resources) -> dict[str, Fraction]:
    return {user: tasks[user] * dominant_share(demand, capacity) for user, demand in demands.items()}


@given(CAPACITIES, users(SOME), WEIGHTS)
def test_sharing_incentive_nobody_does_better_with_a_part_of_its_own(
    capacity: Resources, demands: Demands, drawn: list[int]
) -> None:
    weights = weighed(demands, drawn)
    tasks = fluid_drf(capacity, demands, weights)
    for user, share in shares_of(tasks, demands, capacity).items():
        assert share >= Fraction(weights[user], sum(weights.values()))


@given(CAPACITIES, users(SOME), WEIGHTS)
def test_nobody_envies_another_whose_bundle_is_scaled_to_equal_weight(
    capacity: Resources, demands: Demands, drawn: list[int]
) -> None:
    weights = weighed(demands, drawn)
    tasks = fluid_drf(capacity, demands, weights)
    for user in demands:
        for other in demands:
            scaled = [units * weights[user] / weights[other] for units in bundle_of(tasks, demands, other)]
            assert tasks[user] >= runnable(scaled, demands[user])


@given(CAPACITIES, users(SOME), SOME, WEIGHTS)
def test_no_lie_about_the_demand_runs_more_tasks(
    capacity: Resources, demands: dict[str, Resources], lie: Resources, drawn: list[int]
) -> None:
    weights = weighed(demands, drawn)
    honest = fluid_drf(capacity, demands, weights)["u0"]
    lied = fluid_drf(capacity, {**demands, "u0": lie}, weights)
    assert runnable([lied["u0"] * units for units in lie], demands["u0"]) <= honest


@given(CAPACITIES, users(SOME), WEIGHTS)
def test_pareto_efficient_everybody_needs_something_that_is_used_up(
    capacity: Resources, demands: Demands, drawn: list[int]
) -> None:
    tasks = fluid_drf(capacity, demands, weighed(demands, drawn))
    used = [sum(tasks[user] * demand[j] for user, demand in demands.items()) for j in range(len(capacity))]
    assert all(units <= whole for units, whole in zip(used, capacity, strict=True))
    for demand in demands.values():
        assert any(wanted and used[j] == capacity[j] for j, wanted in enumerate(demand))


@given(st.integers(1, 60), st.lists(st.integers(1, 9), min_size=1, max_size=5), WEIGHTS)
def test_with_one_resource_drf_is_weighted_fair_sharing(whole: int, sizes: list[int], drawn: list[int]) -> None:
    demands: dict[str, Resources] = named([(size,) for size in sizes])
    weights = weighed(demands, drawn)
    shares = shares_of(fluid_drf((whole,), demands, weights), demands, (whole,))
    assert shares == {user: Fraction(weight, sum(weights.values())) for user, weight in weights.items()}


@given(CAPACITIES, users(POSITIVE))
def test_with_one_bottleneck_drf_is_fair_sharing_of_it(capacity: Resources, demands: Demands) -> None:
    whole = capacity[0]
    biased = {
        user: (max(d), *[min(units, max(d) * other // whole) for units, other in zip(d[1:], capacity[1:], strict=True)])
        for user, d in demands.items()
    }
    shares = shares_of(fluid_drf(capacity, biased), biased, capacity)
    assert set(shares.values()) == {Fraction(1, len(demands))}


@given(CAPACITIES, users(POSITIVE), WEIGHTS)
def test_population_monotonicity_nobody_loses_when_a_user_leaves(
    capacity: Resources, demands: Demands, drawn: list[int]
) -> None:
    """As in the paper, for users that need some of everything."""
    assume(len(demands) > 1)
    weights = weighed(demands, drawn)
    before = fluid_drf(capacity, demands, weights)
    after = fluid_drf(capacity, {user: demand for user, demand in demands.items() if user != "u0"}, weights)
    assert all(after[user] >= before[user] for user in after)


def test_more_of_a_resource_can_cost_a_user_tasks() -> None:
    """DRF is not resource monotone (NSDI 2011, section 4.3): more of one can move the dominant resource of a user."""
    demands: dict[str, Resources] = {"A": (2, 1), "B": (1, 2)}
    before, after = fluid_drf((10, 10), demands), fluid_drf((20, 10), demands)
    assert before == {"A": Fraction(10, 3), "B": Fraction(10, 3)}
    assert after["A"] > before["A"]
    assert after["B"] < before["B"]


@given(CAPACITIES, users(SOME), WEIGHTS)
def test_indivisible_tasks_follow_the_fluid_shares_within_a_task(
    capacity: Resources, demands: dict[str, Resources], drawn: list[int]
) -> None:
    """Before anyone is refused, weighted shares differ by at most one task."""
    weights = weighed(demands, drawn)
    order = WeightedDrf(capacity, weights, stops_at_poorest=True)
    for _ in filling(order, demands):
        levels = {user: order.share(user) / weights[user] for user in demands}
        steps = {user: dominant_share(demands[user], capacity) / weights[user] for user in demands}
        assert all(levels[user] - steps[user] <= min(levels.values()) for user in demands)
    order.check()


def trees() -> st.SearchStrategy[Sharer]:
    """Weights from 1 to 3, up to three levels; users are u0, u1 ..."""
    shapes = st.recursive(st.just(()), lambda inner: st.lists(inner, min_size=1, max_size=3).map(tuple), max_leaves=7)

    def labelled(shape: object, weights: list[int]) -> Sharer:
        numbers = iter(range(100))

        def grown(part: tuple[object, ...]) -> Sharer:
            members = tuple(grown(inner) for inner in part if isinstance(inner, tuple))
            number = next(numbers)
            return Sharer(f"n{number}" if members else f"u{number}", weights[number % len(weights)], members)

        root = grown(shape if isinstance(shape, tuple) else ())
        return root if root.members else Sharer("", 1, (root,))

    return st.builds(labelled, shapes, st.lists(st.integers(1, 3), min_size=3, max_size=9))


@settings(max_examples=100)
@given(trees(), st.sampled_from([(7,), (12, 12), (9, 18), (8, 5, 13)]), st.data())
def test_hdrf_decides_as_its_description_in_rational_numbers(
    tree: Sharer, capacity: Resources, draw: st.DataObject
) -> None:
    order, reference = HierarchicalDrf(capacity, tree), Reference(capacity, tree)
    names = list(reference.used)
    demand = st.tuples(*[st.integers(0, 3)] * len(capacity)).filter(any)
    running: list[tuple[str, Resources]] = []
    for _ in range(draw.draw(st.integers(1, 30))):
        action = draw.draw(st.sampled_from("wwllle"))
        if action == "w":
            user, wanted = draw.draw(st.sampled_from(names)), draw.draw(st.none() | demand)
            order.wants(user, wanted)
            reference.demand[user] = wanted
        elif action == "e" and running:
            user, given_back = running.pop(draw.draw(st.integers(0, len(running) - 1)))
            order.ended(user, given_back)
            reference.used[user] = [a - b for a, b in zip(reference.used[user], given_back, strict=True)]
        chosen = order.choose()
        assert chosen == reference.choose()
        if action == "l" and chosen is not None:
            taken = reference.demand[chosen]
            assert taken is not None
            order.launched(chosen, taken)
            reference.used[chosen] = [a + b for a, b in zip(reference.used[chosen], taken, strict=True)]
            running.append((chosen, taken))
    order.check()


SIZE = 360


def guaranteed(tree: Sharer) -> dict[str, Fraction]:
    """Per user, the product of the weight fractions on its path: all of them want more than that."""
    found: dict[str, Fraction] = {}

    def walk(node: Sharer, part: Fraction) -> None:
        if not node.members:
            found[node.name] = part
        for member in node.members:
            walk(member, part * member.weight / sum(m.weight for m in node.members))

    walk(tree, Fraction(1))
    return found


EITHER: list[Resources] = [(1, 0), (0, 1)]
BOTH: Resources = (1, 1)


@settings(max_examples=60)
@given(trees(), st.data())
def test_hierarchical_share_guarantee(tree: Sharer, draw: st.DataObject) -> None:
    """Each user has its parent's share by weight, down the tree (SoCC 2013), up to one task per node on its path."""
    part = guaranteed(tree)
    demands = {user: draw.draw(st.sampled_from([*EITHER, BOTH])) for user in part}
    running = Counter(filling(HierarchicalDrf((SIZE, SIZE), tree), demands))
    for user, share in part.items():
        assert running[user] >= share * SIZE - 4, (user, running)


def hoarded(order: FairOrder, demands: dict[str, Resources], hoarder: str, turns: int, ends: list[int]) -> Counter[str]:
    """What runs after one user had all to itself, and then one task after another, often the oldest, has ended."""
    running = list(filling(order, {hoarder: demands[hoarder]}))
    for turn in range(turns):
        user = running.pop(ends[turn % len(ends)] % len(running) if turn & 3 else 0)
        order.ended(user, demands[user])
        running += filling(order, demands)
    order.check()
    return Counter(running)


@settings(max_examples=60)
@given(trees(), st.data())
def test_hdrf_never_starves_whatever_ends(tree: Sharer, draw: st.DataObject) -> None:
    """Whoever had everything at first and whichever tasks end: where a task's end makes room for any other that needs
    the same resource, every user has at least half of its guarantee, but a few tasks, once the old ones have gone;
    also where each task takes a little of the other resource."""
    part, little = guaranteed(tree), draw.draw(st.sampled_from([0, 1, 20]))
    kinds: list[Resources] = [(1000, little), (little, 1000)]
    demands = {user: draw.draw(st.sampled_from(kinds)) for user in part}
    size = 24 * len(part)
    hoarder = draw.draw(st.sampled_from(sorted(part)))
    ends = draw.draw(st.lists(st.integers(0, 1 << 30), min_size=1, max_size=20))
    running = hoarded(HierarchicalDrf((1000 * size, 1000 * size), tree), demands, hoarder, 6 * size, ends)
    for user, share in part.items():
        assert running[user] >= share * size / 2 - 4, (user, running)


def test_who_needs_two_resources_at_once_can_starve_while_they_come_free_one_by_one() -> None:
    """No policy that lets nothing idle can help here: what has come free is taken before its counterpart does."""
    demands: dict[str, Resources] = {"cpu": (1, 0), "gpu": (0, 1), "both": BOTH}
    for order in (HierarchicalDrf((30, 30)), WeightedDrf((30, 30))):
        assert hoarded(order, demands, "cpu", 300, [0])["both"] <= 1
