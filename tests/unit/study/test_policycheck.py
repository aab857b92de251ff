"""Checks of policies: ours decide for what they are offered, and each check refuses a policy that breaks it."""

from __future__ import annotations

import ast
import re
from random import Random
from typing import Any

import pytest

from volery.architectures.pipeline.policies import METHODS, Candidates, Eviction, View, Waiting, names, parse
from volery.core.errors import InputError
from volery.core.stages import Stage
from volery.study import policycheck
from volery.study.policycheck import Example, decisions, find_stage

ARGUMENTS = {(Stage.R2, "acl"): "acl/rules:ann:0-9", (Stage.T2, "hdrf"): "hdrf/shares:ann:2"}


@pytest.fixture(scope="module")
def example() -> Example:
    return Example(0)


@pytest.mark.parametrize("stage", METHODS, ids=str)
def test_the_first_policies_of_every_stage_decide_for_what_they_are_offered(stage: Stage, example: Example) -> None:
    for name in list(names(stage))[:2]:
        try:
            policy = parse(stage, ARGUMENTS.get((stage, name), name), "here")
        except InputError:
            continue  # it has a parameter without default
        found = [problem for _, problem in decisions(stage, policy, example)]
        assert found, f"{stage}={name} was asked nothing"
        assert not any(found), f"{stage}={name}"


class Astray:
    """Decides for what it was not offered, whatever it is asked."""

    def select(self, view: View, task: Waiting, machines: Candidates, draw: Random) -> int:
        return -7

    def evict(self, view: View, task: Waiting, suitable: Any) -> Eviction:
        return Eviction(0, (10**9,))

    def usable(self, view: View, task: Waiting, manager: Any) -> int:
        return 1

    def brokered(self, view: View, task: Waiting) -> None:
        return None

    def machines(self, view: View, user: str) -> list[str]:
        return ["m1"]

    def stage_us(self, view: View, what: Any) -> float:
        return -0.5

    def units(self, view: View, supply: Any) -> float:
        return 0.5

    def provision(self, view: View, supply: Any, offers: Any, most: int) -> list[int]:
        return [-1]

    release = provision

    def waits_us(self) -> tuple[int, ...]:
        return (1, -2)

    def period_us(self) -> float:
        return 0.5

    def copies(self, view: View, run: Any) -> int:
        return 0

    def ask_us(self, view: View, run: Any) -> int:
        return 1

    def key(self, view: View, task: Waiting) -> Any:
        return 1 if task.task.id % 2 else "one"


@pytest.mark.parametrize(
    ("stage", "problem"),
    [
        (Stage.R5, "machine -7 was no candidate"),
        (Stage.M5, "there is no manager -7"),
        (Stage.M4, "1 is neither True nor False"),
        (Stage.M1, "None is neither True nor False"),
        (Stage.R2, "machines are numbers"),
        (Stage.T5, "-0.5 is no time in microseconds"),
        (Stage.T9, "at least one runs"),
        (Stage.R7, "0.5 is no number of processors"),
        (Stage.R6, r"machines \[-1\] were not offered"),
        (Stage.R3, "waits are two times"),
        (Stage.T11, "a period is a time"),
        (Stage.T10, "some of the tasks .* cannot be ended on machine 0"),
        (Stage.T2, "keys cannot be compared"),
    ],
    ids=str,
)
def test_a_policy_that_goes_astray_is_found(stage: Stage, problem: str, example: Example) -> None:
    policy: Any = Astray()
    found = policycheck._check_decisions(stage, policy)
    assert not found.passed
    assert re.search(problem, found.detail)


class Meddler:
    """Changes the state that it is shown."""

    def brokered(self, view: View, task: Waiting) -> bool:
        task.job.left_us += 1
        return True


def test_a_policy_that_changes_what_it_is_shown_is_found() -> None:
    policy: Any = Meddler()
    assert not policycheck._check_view(Stage.M1, policy).passed
    assert policycheck._check_view(Stage.M1, parse(Stage.M1, "none", "here")).passed


def test_a_policy_that_takes_too_long_is_found() -> None:
    policy = parse(Stage.R5, "first-fit", "here")
    assert policycheck._check_budget(Stage.R5, policy, 1e6).passed
    assert not policycheck._check_budget(Stage.R5, policy, 0.0).passed


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import os.path", ["imports os.path"]),
        ("from random import choice", ["imports choice from random"]),
        ("from random import Random", []),
        ("from math import inf\nprint(inf)", ["calls print"]),
    ],
)
def test_clocks_entropy_and_channels_are_found_in_a_source(source: str, found: list[str]) -> None:
    assert [what for _, what in policycheck._impure(ast.parse(source))] == found


def test_examples_of_a_seed_are_equal_and_of_two_seeds_are_not(example: Example) -> None:
    assert Example(0).fingerprint() == example.fingerprint() != Example(1).fingerprint()


def test_a_name_belongs_to_its_stages() -> None:
    assert Stage.R5 in find_stage("kubernetes/balanced:1")
    with pytest.raises(InputError, match="no stage has a policy 'best-fti'; did you mean 'best-fit'"):
        find_stage("best-fti")
