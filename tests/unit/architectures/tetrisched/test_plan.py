"""Plans: the vectors of the specification, and small random expressions against all that could be done."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.architectures.tetrisched.drawn import either, expressions, lncks, ncks, together, whole_values
from tests.unit.architectures.tetrisched.exhaustive import best_worth

from volery.architectures.tetrisched.expressions import Expression, Sum, parse
from volery.architectures.tetrisched.machines import MachineSupply, Parts, partition
from volery.architectures.tetrisched.milp import Limits
from volery.architectures.tetrisched.plan import CyclePlan, Greedy, PlanProblem, earned, solve

EXACT = Limits(gap=0.0, nodes=1_000_000)
SETS = {"all": 0b1111, "a": 0b0011, "b": 0b0110}


def plan(*requests: Expression, sets: dict[str, int], supply: MachineSupply, solver: str = "optimal") -> CyclePlan:
    return solve(
        PlanProblem(requests, sets, supply, solver="optimal" if solver == "optimal" else "greedy", limits=EXACT)
    )


def started(found: CyclePlan) -> list[tuple[int, int]]:
    """(request, machines) of what starts now."""
    return [(one.request, one.machines) for one in found.now]


def by_deadline(k: int, duration: int, deadline: int, ahead: int) -> Expression:
    return either(*(ncks("all", k, 1.0, s, duration) for s in range(ahead + 1) if s + duration <= deadline))


@pytest.mark.parametrize(("ahead", "worth"), [(0, 2.0), (2, 3.0), (3, 3.0)])
def test_plan_ahead_meets_a_deadline_more(ahead: int, worth: float) -> None:
    """Vector S1: three machines, three jobs; only who looks two quanta ahead meets all deadlines."""
    jobs = (by_deadline(2, 1, 1, ahead), by_deadline(1, 2, 4, ahead), by_deadline(3, 1, 2, ahead))
    found = plan(*jobs, sets={"all": 0b111}, supply=MachineSupply(0b111))
    assert found.worth == worth
    if ahead:
        assert started(found) == [(0, 0b011)], "the first job alone starts now"
        assert found.later == ((1, 2), (2, 1)), "j3 in quantum 1, then j2"
    else:
        assert started(found) == [(0, 0b011), (1, 0b100)]


@pytest.mark.parametrize(("busy", "worth", "machines"), [(0, 4.0, 0b0011), (1, 3.0, 0b1100), (2, 3.0, 0b1100)])
def test_a_job_falls_back_where_waiting_for_better_machines_costs_more(busy: int, worth: float, machines: int) -> None:
    """Vector S2: two GPU machines, busy for so many quanta, and two others on which the job is slower."""
    job = either(*(ncks("g", 2, 4.0 - s, s, 2) for s in range(3)), *(ncks("g+n", 2, 3.0 - s, s, 3) for s in range(3)))
    supply = MachineSupply(0b1111) if not busy else MachineSupply(0b1100, ((busy, 0b0011),))
    found = plan(job, sets={"g": 0b0011, "n": 0b1100}, supply=supply)
    assert found.worth == worth
    assert started(found) == [(0, machines)]


def test_tasks_that_must_run_apart_get_one_machine_of_each_rack_or_none() -> None:
    """Vector S3."""
    job = together(ncks("r1", 1, 5.0, 0, 3), ncks("r2", 1, 5.0, 0, 3))
    racks = {"r1": 0b01, "r2": 0b10}
    assert plan(job, sets=racks, supply=MachineSupply(0b11)).worth == 5.0
    full = plan(job, sets=racks, supply=MachineSupply(0b01))
    assert (full.worth, full.now) == (0.0, ())


@pytest.mark.parametrize("solver", ["optimal", "greedy"])
@pytest.mark.parametrize(
    ("text", "worth"),
    [
        ("LnCk(all, 4, 8)", 6.0),
        ("barrier(LnCk(all, 4, 8), 7)", 0.0),
        ("barrier(LnCk(all, 4, 8), 6)", 6.0),
        ("scale(nCk(all, 3, 2), 25)", 50.0),
    ],
)
def test_primitives_on_three_machines(text: str, worth: float, solver: str) -> None:
    """Vector S4."""
    assert plan(parse(text), sets={"all": 0b111}, supply=MachineSupply(0b111), solver=solver).worth == worth


@settings(max_examples=250)
@given(
    st.lists(expressions(whole_values, k_max=3, time_max=2, most=3), min_size=1, max_size=3),
    st.integers(0, 15),
    st.integers(0, 2),
)
def test_the_solver_finds_what_no_other_way_of_giving_machines_exceeds(
    requests: list[Expression], idle: int, since: int
) -> None:
    """The program's optimum is that of trying all allocations, and what is launched is idle and given once."""
    supply = MachineSupply(idle, ((since + 1, 0b1111 & ~idle),))
    found = plan(*requests, sets=SETS, supply=supply)
    assert found.worth == pytest.approx(best_worth(requests, SETS, supply, 4), abs=1e-5)
    given_out = [one.machines for one in found.now]
    assert sum(given_out) & ~idle == 0
    assert sum(mask.bit_count() for mask in given_out) == sum(given_out).bit_count()
    greedy = plan(*requests, sets=SETS, supply=supply, solver="greedy")
    assert greedy.worth <= found.worth + 1e-6


@settings(max_examples=50)
@given(st.lists(expressions(whole_values, k_max=3, time_max=2, most=4), min_size=1, max_size=4), st.integers(0, 15))
def test_the_same_cycle_has_the_same_plan_here_and_in_another_process(requests: list[Expression], idle: int) -> None:
    planning = PlanProblem(tuple(requests), SETS, MachineSupply(idle), limits=Limits(nodes=3))
    there: PlanProblem = pickle.loads(pickle.dumps(planning))
    assert solve(there) == solve(planning)


def test_a_gap_does_not_leave_machines_idle_that_somebody_waits_for() -> None:
    """Values of 1000 next to values of 1: within a gap of 10 % the small ones are worth nothing to the solver."""
    jobs = (ncks("all", 2, 1000.0), ncks("all", 1, 1.0), ncks("all", 1, 1.0))
    found = solve(PlanProblem(jobs, SETS, MachineSupply(0b1111), limits=Limits(gap=0.1, nodes=0)))
    assert found.worth == 1002.0
    assert sum(one.machines for one in found.now) == 0b1111


def test_what_was_planned_before_is_where_the_solver_begins() -> None:
    """With no work allowed at all, the plan is the better of the greedy and of the renewed one."""
    first = either(ncks("all", 4, 3.0, 0, 1), ncks("all", 4, 2.5, 1, 1))
    second = ncks("all", 4, 2.0, 0, 1)
    both = PlanProblem((first, second), SETS, MachineSupply(0b1111), before=(1, -1), limits=Limits(gap=10.0, nodes=0))
    found = solve(both)
    assert found.worth == 4.5
    assert started(found) == [(1, 0b1111)]
    assert found.later == ((0, 1),)


def test_greedy_takes_the_machines_that_fewest_ask_for() -> None:
    """A job that may run anywhere leaves the GPUs to others."""
    jobs = (ncks("all", 2, 1.0), ncks("a", 2, 1.0))
    found = plan(*jobs, sets=SETS, supply=MachineSupply(0b1111), solver="greedy")
    assert started(found) == [(0, 0b1100), (1, 0b0011)]


def test_one_job_after_the_other_can_miss_what_all_together_find() -> None:
    """The ablation NG: the first takes what only the second could not do without."""
    jobs = (either(ncks("a", 2, 3.0), ncks("b", 2, 2.9)), ncks("a", 2, 3.0))
    sets = {"a": 0b0011, "b": 0b1100}
    assert plan(*jobs, sets=sets, supply=MachineSupply(0b1111), solver="greedy").worth == 3.0
    assert plan(*jobs, sets=sets, supply=MachineSupply(0b1111)).worth == 5.9


@given(st.lists(st.integers(0, 255), max_size=6))
def test_groups_are_the_coarsest_of_which_all_sets_are_unions(wanted: list[int]) -> None:
    groups = partition(wanted)
    union = 0
    for group in groups:
        assert group
        assert not group & union, "a machine is in one group"
        union |= group
        for each in wanted:
            assert group & each in (0, group), "a group is inside of a set or outside"
    signatures = {tuple(each >> machine & 1 for each in wanted) for machine in range(8)}
    assert len(groups) == len({signature for signature in signatures if any(signature)})


def test_available_machines_grow_as_held_ones_come_back() -> None:
    parts = Parts(
        (ncks("a", 1, 1.0, 0, 5), ncks("b", 1, 1.0, 2, 1)), SETS, MachineSupply(0b0001, ((1, 0b0010), (2, 0b0100)))
    )
    assert parts.groups == [0b0001, 0b0010, 0b0100]
    assert parts.times == [0, 2]
    assert parts.available.tolist() == [[1, 1], [0, 1], [0, 1]]


def test_earned_counts_what_leaves_were_given() -> None:
    node = parse("sum(min(nCk(a, 1, 5), LnCk(b, 4, 8)), max(nCk(a, 2, 1), nCk(b, 1, 3)))")
    assert earned(node, {0: 1, 1: 2, 3: 1}) == 4.0 + 3.0
    assert earned(node, {1: 4}) == 0.0
    left = Greedy(Parts((node,), SETS, MachineSupply(0b1111)))
    taken = left.best(0, lncks("a", 3, 3.0))
    assert earned(lncks("a", 3, 3.0), {one.leaf: sum(n for _, n in one.amounts) for one in taken}) == 2.0


@settings(max_examples=150)
@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from(["a", "b", "all"]), st.integers(1, 3), st.integers(0, 9), st.integers(1, 3)),
            min_size=1,
            max_size=3,
        ),
        min_size=1,
        max_size=3,
    ),
    st.integers(0, 15),
)
def test_a_plan_by_prices_is_possible_and_within_the_gap_that_it_tells(
    drawn: list[list[tuple[str, int, int, int]]], idle: int
) -> None:
    """The bound of prices is never below what no other way of giving machines exceeds."""
    requests: list[Expression] = [
        either(*(ncks(where, k, float(value), start, length) for start, (where, k, value, length) in enumerate(leaves)))
        for leaves in drawn
    ]
    supply = MachineSupply(idle, ((1, 0b1111 & ~idle),))
    found = solve(PlanProblem(tuple(requests), SETS, supply, limits=Limits(gap=0.0, jobs=0)))
    best = best_worth(requests, SETS, supply, 4)
    assert found.worth <= best + 1e-6
    assert found.worth >= best * (1 - found.cost.gap_per_mille / 1000) - 0.01
    given_out = [one.machines for one in found.now]
    assert sum(mask.bit_count() for mask in given_out) == sum(given_out).bit_count()
    assert sum(given_out) & ~idle == 0


APART = either(together(ncks("all", 2, 6.0), ncks("a", 1, 6.0)), together(ncks("b", 1, 5.0, 1), ncks("all", 1, 5.0, 1)))
ELASTIC = Sum((lncks("all", 3, 3.0), lncks("a", 2, 4.0)))


@pytest.mark.parametrize("kind", [APART, ELASTIC], ids=["a max of min", "without gangs"])
def test_only_jobs_with_prices_count_towards_the_jobs_of_a_program(kind: Expression) -> None:
    """A plan of jobs without prices is the solver's, the same one however few jobs a program may have."""
    simple, supply = ncks("all", 1, 2.0), MachineSupply(0b1111)

    def found(simples: int, jobs: int) -> CyclePlan:
        asked = (kind,) * 4 + (simple,) * simples
        return solve(PlanProblem(asked, SETS, supply, limits=Limits(gap=0.0, jobs=jobs)))

    without = found(0, 0)
    assert without.cost.variables, "the solver was called"
    assert without == found(0, 64)
    assert without.worth == best_worth([kind] * 4, SETS, supply, 4)
    assert found(2, 2).cost.rounds is None
    assert found(3, 2).cost.rounds is not None


def test_a_plan_by_prices_tells_its_gap_although_no_price_changed() -> None:
    """The first prices already prefer the shorter of two options that are worth as much; the greedy plan does not."""
    jobs = (either(ncks("one", 1, 5.0, 0, 2), ncks("one", 1, 5.0, 0, 1)), ncks("one", 1, 5.0, 1, 1))
    found = solve(PlanProblem(jobs, {"one": 0b1}, MachineSupply(0b1), limits=Limits(jobs=0)))
    assert (found.worth, found.cost.rounds, found.cost.gap_per_mille) == (10.0, 0, 0)
    within = solve(PlanProblem(jobs[1:], {"one": 0b1}, MachineSupply(0b1), limits=Limits(jobs=0)))
    assert within.cost.rounds is None, "the greedy plan is the best: nothing is made by prices"
