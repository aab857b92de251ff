"""Divisible allocations, exact: DRF, and the two that its paper compares it with.

Each user's tasks come in any fraction, so that what discrete filling approaches can be written down: what every user
gets, as a number of tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import combinations

from volery.policies.fairness.shares import Resources, dominant_share

Demands = Mapping[str, Resources]
Tasks = dict[str, Fraction]


def fluid_drf(
    capacity: Resources,
    demands: Demands,
    weights: Mapping[str, int] | None = None,
    tasks_max: Mapping[str, Fraction | int] | None = None,
) -> Tasks:
    """Weighted DRF by water filling (Ghodsi et al., NSDI 2011, section 4).

    All dominant shares rise together, in proportion to the weights, until a resource is used up; who needs it stays
    there, as does who has all that it wants; the others go on.

    Args:
        capacity: Units of each resource.
        demands: Amounts that one task of each user takes; each takes something.
        weights: Weight of each user; 1 where none is given.
        tasks_max: Count of each user's tasks; without end where none is given.
    """
    pace = {user: (weights or {}).get(user, 1) / dominant_share(demand, capacity) for user, demand in demands.items()}
    return _rising(capacity, demands, pace, tasks_max or {})


def fluid_asset_fairness(capacity: Resources, demands: Demands) -> Tasks:
    """Asset fairness: equal sums of shares over all resources (Ghodsi et al., NSDI 2011, section 5.1)."""
    pace = {
        user: 1 / sum((Fraction(units, total) for units, total in zip(demand, capacity, strict=True)), Fraction())
        for user, demand in demands.items()
    }
    return _rising(capacity, demands, pace, {})


def _rising(
    capacity: Resources, demands: Demands, pace: Mapping[str, Fraction], tasks_max: Mapping[str, Fraction | int]
) -> Tasks:
    """Tasks when all users grow at their pace until a resource that they need is used up, or their tasks are."""
    tasks = dict.fromkeys(demands, Fraction())
    free = [Fraction(units) for units in capacity]
    growing = {user: None for user in demands if tasks_max.get(user, 1) > 0}

    while growing:
        drain = [sum((pace[user] * demands[user][j] for user in growing), Fraction()) for j in range(len(free))]
        # The first event ends the step: a resource is used up, or the tasks of a user are.
        step = min(
            [units / rate for units, rate in zip(free, drain, strict=True) if rate]
            + [(tasks_max[user] - tasks[user]) / pace[user] for user in growing if user in tasks_max]
        )

        for user in growing:
            tasks[user] += step * pace[user]

        free = [units - step * rate for units, rate in zip(free, drain, strict=True)]
        growing = {
            user: None
            for user in growing
            if (user not in tasks_max or tasks[user] < tasks_max[user])
            and all(units or not units_wanted for units, units_wanted in zip(free, demands[user], strict=True))
        }
    return tasks


def fluid_ceei_of_two(capacity: Resources, demands: Demands) -> Tasks:
    """Competitive equilibrium from equal incomes: the largest product of utilities (NSDI 2011, section 5.2).

    For two users it is exact: the best point of a polygon lies on a corner or in the middle of an edge's line. With
    more users the optimum need not be rational.

    Raises:
        ValueError: unless there are two users.
    """
    if len(demands) != 2:
        raise ValueError(f"the exact equilibrium is for two users, not {len(demands)}")

    first_user, second_user = demands
    edges = [
        (a, b, total) for a, b, total in zip(demands[first_user], demands[second_user], capacity, strict=True) if a or b
    ]
    points = [(Fraction(total, 2 * a), Fraction(total, 2 * b)) for a, b, total in edges if a and b]

    for (a, b, total), (c, d, other_total) in combinations(edges, 2):
        determinant = a * d - b * c
        if determinant:
            points.append(
                (Fraction(total * d - b * other_total, determinant), Fraction(a * other_total - total * c, determinant))
            )

    feasible = [(x, y) for x, y in points if min(x, y) >= 0 and all(a * x + b * y <= total for a, b, total in edges)]
    x, y = max(feasible, key=lambda point: point[0] * point[1])
    return {first_user: x, second_user: y}
