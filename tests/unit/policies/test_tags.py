"""The index of tags: its vectors are those of the definition, whatever comes and goes."""

from __future__ import annotations

from random import Random

import pytest

from volery.core.model import UNLIMITED, Cluster, TagConstraint, Tags
from volery.core.tags import NODE_GROUPS, exceeded, lacking
from volery.policies.match import positions
from volery.policies.tags import TagIndex

RACKS = (0, 0, 0, 1, 1, 2, 2, 2)
CLUSTER = Cluster((0,) * 8, (9,) * 8, racks=RACKS)
KINDS = (
    Tags(("s",), (TagConstraint(("s",), ("s",), 0, 0, "node"), TagConstraint(("s",), ("s",), 0, 1, "rack"))),
    Tags(("cache",)),
    Tags(("w",), (TagConstraint(("w",), ("cache",), 1, UNLIMITED, "rack"), TagConstraint(("w",), ("w",), 0, 2))),
    Tags(("loud",), (TagConstraint(("loud",), ("cache",), 0, 0, "rack"),)),
    Tags(("g",), (TagConstraint(("g",), ("g",), 2, UNLIMITED, "rack"),)),
)


def by_definition(placed: list[tuple[int, Tags]], tags: Tags) -> list[int]:
    """Machines that the constraints leave, counted anew."""

    def held(machines: set[int]) -> dict[Tags, int]:
        there = [one for at, one in placed if at in machines]
        return {one: there.count(one) for one in there}

    found = []
    for machine in range(len(RACKS)):
        sets = {"node": {machine}, "rack": {at for at, rack in enumerate(RACKS) if rack == RACKS[machine]}}
        everywhere = held(set(range(len(RACKS))))
        broken = [
            lacking(tags, held(sets[group]), everywhere, group) or exceeded(tags, held(sets[group]), group)
            for group in NODE_GROUPS
        ]
        if not any(broken):
            found.append(machine)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_vectors_are_those_of_the_definition(seed: int) -> None:
    stream, index = Random(seed), TagIndex(CLUSTER)
    placed: list[tuple[int, Tags]] = []
    for _ in range(60):
        tags = stream.choice(KINDS)
        allowed = positions(index.allowed(tags))
        assert allowed == by_definition(placed, tags)
        assert [machine for machine in range(8) if index.allows(machine, tags)] == allowed
        if allowed and stream.random() < 0.7:
            placed.append((stream.choice(allowed), tags))
            index.add(*placed[-1])
        elif placed:
            gone = placed.pop(stream.randrange(len(placed)))
            index.add(*gone, -1)
        index.check(placed)


def test_a_copy_is_apart_and_a_machine_can_be_set() -> None:
    index = TagIndex(CLUSTER)
    index.add(3, KINDS[1])
    other = index.copy()
    other.set(3, ())
    other.set(5, ((KINDS[0], 1), (KINDS[1], 2)))
    index.check([(3, KINDS[1])])
    other.check([(5, KINDS[0]), (5, KINDS[1]), (5, KINDS[1])])
    assert other.on(5) == ((KINDS[0], 1), (KINDS[1], 2))
