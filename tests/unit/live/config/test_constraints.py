"""Constraints in words mean the same as their bits; what is wrong with them is named, with what to write instead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volery.core.errors import InputError
from volery.core.model import CONSTRAINT_BITS_MAX
from volery.live.config.constraints import (
    NOWHERE,
    MachineCondition,
    Vocabulary,
    holds,
    parse_condition,
    parse_conditions,
)
from volery.live.config.machine import Machine
from volery.live.status import AttributeValue

TEXTS = ("a", "b", "c", "d")
NUMBERS = (1, 2, 4, 8)
KERNELS = ("5.9", "5.10", "6.1")

machines = st.builds(
    Machine,
    arch=st.sampled_from(("x86_64", "aarch64")),
    os=st.just("linux"),
    kernel=st.sampled_from(KERNELS),
    cores=st.sampled_from(NUMBERS),
    memory_mb=st.sampled_from((1024, 2048)),
    labels=st.dictionaries(st.sampled_from(("zone", "rack")), st.sampled_from(TEXTS)),
)
fleets = st.lists(machines, min_size=1, max_size=8)


def compared(attribute: str, known: tuple[AttributeValue, ...], ordered: bool) -> st.SearchStrategy[MachineCondition]:
    single = ("==", "!=", "<", "<=", ">", ">=") if ordered else ("==", "!=")
    one = st.builds(MachineCondition, st.just(attribute), st.sampled_from(single), st.tuples(st.sampled_from(known)))
    some = st.lists(st.sampled_from(known), min_size=1, max_size=3).map(tuple)
    return one | st.builds(MachineCondition, st.just(attribute), st.sampled_from(("in", "not in")), some)


conditions = st.one_of(
    compared("cores", (*NUMBERS, 3, 16), True),
    compared("memory_mb", (0, 1024, 2048, 4096), True),
    compared("kernel", (*KERNELS, "5", "7.0"), True),
    compared("arch", ("x86_64", "aarch64", "riscv64"), False),
    compared("label.zone", (*TEXTS, "z"), False),
)


@given(fleets, st.lists(conditions, max_size=4))
def test_bits_agree_with_direct_evaluation(fleet: list[Machine], wanted: list[MachineCondition]) -> None:
    vocabulary = Vocabulary(fleet)
    if not any("zone" in machine.labels for machine in fleet):
        wanted = [condition for condition in wanted if condition.attribute != "label.zone"]
    needed = vocabulary.needed(wanted)
    offers = [vocabulary.offered(machine) for machine in fleet]
    for machine, offered in zip(fleet, offers, strict=True):
        assert (needed & ~offered == 0) == holds(wanted, machine)
        assert 0 <= offered < NOWHERE
    assert bool(vocabulary.obstacle(wanted, offers)) != any(holds(wanted, machine) for machine in fleet)


@given(conditions)
def test_a_condition_reads_as_it_is_written(condition: MachineCondition) -> None:
    assert parse_condition(str(condition), "constraint") == condition


@given(fleets)
def test_the_bits_do_not_depend_on_the_order_of_machines(fleet: list[Machine]) -> None:
    one, other = Vocabulary(fleet), Vocabulary(list(reversed(fleet)))
    assert [one.offered(machine) for machine in fleet] == [other.offered(machine) for machine in fleet]


def fleet_of(*zones: str, cores: int = 4) -> list[Machine]:
    return [Machine("x86_64", "linux", "6.1", cores, 1024, {"zone": zone}) for zone in zones]


def test_spelling_is_free_where_it_can_be() -> None:
    assert parse_condition("cores>=1_000", "x") == MachineCondition("cores", ">=", (1000,), "x")
    assert parse_condition(" label.zone  not in ['a','b'] ", "x") == MachineCondition(
        "label.zone", "not in", ("a", "b"), "x"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "column 1: expected the name of an attribute, but it ends there"),
        ("8 <= cores", "column 1: expected the name of an attribute, not '8'"),
        ("cores = 8", "column 7: expected one of =="),
        ("cores", "column 6: expected one of =="),
        ("cores >=", "column 9: expected a whole number or text in quotes, but it ends"),
        ("cores >= 8GB", "expected a whole number or text in quotes"),
        ("cores >= 8.5", "expected a whole number"),
        ("arch == x86_64", "(\"x86_64\"), not 'x86_64'"),
        ('arch == "x86_64', "column 9"),
        ("cores in 8", "expected a list in [ ]"),
        ("cores in []", "expected a whole number"),
        ("cores in [8 4]", "expected a comma or ]"),
        ("cores in [8,", "but it ends there"),
        ("cores not 8", "expected one of"),
        ('cores >= 8 and arch == "x86_64"', "column 12: is one condition each"),
        ('cores >= 8 && arch == "x86_64"', "column 12: is one condition each"),
        ("cores >= 8 9", "expected the end of the condition"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_column(text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_condition(text, "job.constraints[1]")
    assert caught.value.place == "job.constraints[1]"
    assert problem in caught.value.problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("core >= 8", "unknown attribute 'core'; did you mean 'cores'?"),
        ('zone == "a"', "did you mean 'label.zone'?"),
        ('label.zon == "a"', "did you mean 'label.zone'?"),
        ('cores == "8"', "cores is a whole number, not '8'"),
        ("arch == 86", "arch is text, in quotes, not 86"),
        ('arch < "x86_64"', "arch has no order"),
        ('kernel >= "new"', 'with a version, as "6.1"'),
    ],
)
def test_what_the_fleet_does_not_know_is_named(text: str, problem: str) -> None:
    vocabulary = Vocabulary(fleet_of("a", "b"))
    with pytest.raises(InputError) as caught:
        vocabulary.needed([parse_condition(text, "job.constraints[1]")])
    assert caught.value.place == "job.constraints[1]"
    assert problem in caught.value.problem


def test_a_list_of_constraints_is_a_list_of_strings() -> None:
    with pytest.raises(InputError, match="is a list of conditions"):
        parse_conditions("cores >= 8", "job.constraints")
    with pytest.raises(InputError, match=r"job.constraints\[1\]: a constraint is a string"):
        parse_conditions(["cores >= 8", 8], "job.constraints")


def test_what_no_machine_has_is_nowhere_and_says_what_there_is() -> None:
    fleet = fleet_of("a", "b")
    vocabulary = Vocabulary(fleet)
    offers = [vocabulary.offered(machine) for machine in fleet]
    wanted = parse_conditions(["cores >= 4", "cores > 4"], "x")
    assert vocabulary.needed(wanted) == NOWHERE
    assert vocabulary.obstacle(wanted, offers) == "no machine has cores > 4; there is 4"
    assert vocabulary.needed(parse_conditions(['label.zone == "c"'], "x")) == NOWHERE


def test_conditions_that_only_different_machines_meet_are_an_obstacle() -> None:
    fleet = fleet_of("a") + fleet_of("b", cores=8)
    vocabulary = Vocabulary(fleet)
    wanted = parse_conditions(['label.zone == "a"', "cores >= 8"], "x")
    assert vocabulary.needed(wanted) != NOWHERE
    assert "no single machine" in vocabulary.obstacle(wanted, [vocabulary.offered(machine) for machine in fleet])


def test_attributes_that_all_machines_share_cost_no_bits() -> None:
    vocabulary = Vocabulary(fleet_of("a", "a"))
    assert vocabulary.offered(fleet_of("a")[0]) == 0
    assert vocabulary.needed(parse_conditions(['arch == "x86_64"', "cores >= 4"], "x")) == 0


def test_too_many_values_are_named_by_attribute() -> None:
    assert Vocabulary(fleet_of(*(str(n) for n in range(CONSTRAINT_BITS_MAX - 1))))
    with pytest.raises(InputError) as caught:
        Vocabulary(fleet_of(*(str(n) for n in range(CONSTRAINT_BITS_MAX))))
    assert caught.value.place == "label.zone"
    assert "63 different values" in caught.value.problem


def test_a_label_is_a_number_everywhere_or_nowhere() -> None:
    mixed = [Machine("x86_64", "linux", "6.1", 1, 1024, {"rank": value}) for value in (1, "one")]
    with pytest.raises(InputError, match=r"label.rank: is a number on some machines"):
        Vocabulary(mixed)


def test_a_machine_that_joins_with_a_new_value_is_refused() -> None:
    vocabulary = Vocabulary(fleet_of("a"))
    with pytest.raises(InputError, match="no machine of the fleet has 'b'"):
        vocabulary.offered(fleet_of("b")[0])
    with pytest.raises(InputError, match="no machine of the fleet has this attribute"):
        vocabulary.offered(Machine("x86_64", "linux", "6.1", 4, 1024, {"rack": "r1", "zone": "a"}))
