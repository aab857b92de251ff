"""Queues of tasks by class: sorted, with the first short one in them; classes that fit are unblocked."""

from __future__ import annotations

from random import Random

import pytest
from tests.unit.architectures.pipeline.policies.states import Made

from volery.architectures.pipeline.classes import ANYWHERE, LOOP_MAX, EquivalenceClasses
from volery.architectures.pipeline.policies import Kind, Waiting
from volery.architectures.pipeline.queues import BLOCK, Entry, SortedQueue
from volery.core.model import Cluster

OFFERED = (7, 3, 5, 0)


def made_kinds(count: int, draw: Random) -> tuple[Made, list[Kind]]:
    made = Made(Cluster(OFFERED, (1,) * 4, "pairs", ("a", "b"), ((50, 50),) * 4))
    job, kinds = made.job(0), dict[Kind, None]()
    while len(kinds) < count:
        kinds[made.wait(job, (draw.randrange(40), draw.randrange(40)), draw.randrange(8)).kind] = None
    return made, list(kinds)


@pytest.mark.parametrize("count", [LOOP_MAX // 2, 6 * LOOP_MAX])
def test_room_given_back_unblocks_what_fits_and_room_taken_blocks_it(count: int) -> None:
    draw = Random(count)
    made, listed = made_kinds(count, draw)
    kinds = EquivalenceClasses(made.state.packing, OFFERED)
    free = [made.state.packing.free((0, 0))] * len(OFFERED)
    amounts = [[0, 0] for _ in OFFERED]
    waiting: dict[Kind, int] = {}

    def fits(kind: Kind, machine: int) -> bool:
        left = free[machine] - kind.packed
        return left & made.state.packing.guards == made.state.packing.guards and bool(kind.suitable >> machine & 1)

    for _ in range(400):
        kind = draw.choice(listed)
        if draw.random() < 0.6:
            kinds.joined(kind)
            waiting[kind] = waiting.get(kind, 0) + 1
        elif waiting.get(kind):
            kinds.left(kind)
            waiting[kind] -= 1
        for one in [one for one in kinds.unblocked if not any(fits(one, machine) for machine in range(4))]:
            kinds.block(one)
        machine = draw.randrange(4)
        amounts[machine] = [min(50, amount + draw.randrange(20)) for amount in amounts[machine]]
        free[machine] = made.state.packing.free(tuple(amounts[machine]))
        kinds.given_back(machine, free[machine])
        assert all(not fits(one, machine) for one in kinds.blocked)
        assert all(where == ANYWHERE or fits(one, where) for one, where in kinds.unblocked.items())
        amounts[machine] = [max(0, amount - draw.randrange(25)) for amount in amounts[machine]]
        free[machine] = made.state.packing.free(tuple(amounts[machine]))
        kinds.taken(machine, free[machine])
        assert all(where == ANYWHERE or fits(one, where) for one, where in kinds.unblocked.items())
        kinds.check()
        assert kinds.counts.keys() == {one for one, number in waiting.items() if number}


def ends_within(waiting: Waiting, left_us: int, estimate_us: int) -> bool:
    limit_us = waiting.job.limit_us
    return limit_us <= left_us if limit_us >= 0 else waiting.task.estimate_us <= estimate_us


def test_a_sorted_queue_agrees_with_a_sorted_list() -> None:
    made, draw = Made(Cluster.uniform(1)), Random(3)
    jobs = [made.job(0), made.job(1), made.job(2)]
    jobs[1].limit_us, jobs[2].limit_us = 100, 250
    line, entries = SortedQueue(), list[Entry]()
    for number in range(4 * BLOCK):
        entry: Entry = (draw.randrange(50), 0, number, made.wait(draw.choice(jobs), estimate_us=draw.randrange(1000)))
        line.push(entry)
        entries.append(entry)
        if draw.random() < 0.4:
            gone = entries.pop(draw.randrange(len(entries)))
            assert line.remove(gone) == bool(entries)
        entries.sort(key=lambda one: one[:3])
        if entries:
            assert line.head is entries[0]
        if number % 16 == 0:
            left_us = draw.randrange(-5, 300)
            estimate_us = left_us if left_us < 0 else draw.choice((left_us, left_us // 2, 2 * left_us))
            expected = next((one for one in entries if ends_within(one[3], left_us, estimate_us)), None)
            assert line.first_within(left_us, estimate_us) is expected
    assert len(line) == len(entries)
    while entries:
        assert line.remove(entries.pop(0)) == bool(entries)
