"""Queues of tasks by class: sorted, with the first short one in them."""

from __future__ import annotations

from random import Random

from tests.unit.architectures.pipeline.policies.states import Made

from volery.architectures.pipeline.queues import BLOCK, Entry, SortedQueue
from volery.core.model import Cluster


def test_a_sorted_queue_agrees_with_a_sorted_list() -> None:
    made, draw = Made(Cluster.uniform(1)), Random(3)
    job = made.job(0)
    line, entries = SortedQueue(), list[Entry]()
    for number in range(4 * BLOCK):
        entry: Entry = (draw.randrange(50), 0, number, made.wait(job, estimate_us=draw.randrange(1000)))
        line.push(entry)
        entries.append(entry)
        if draw.random() < 0.4:
            gone = entries.pop(draw.randrange(len(entries)))
            assert line.remove(gone) == bool(entries)
        entries.sort(key=lambda one: one[:3])
        if entries:
            assert line.head is entries[0]
        if number % 16 == 0:
            limit = draw.randrange(-5, 300)
            expected = next((one for one in entries if one[3].task.estimate_us <= limit), None)
            assert line.first_within(limit) is expected
    assert len(line) == len(entries)
    while entries:
        assert line.remove(entries.pop(0)) == bool(entries)
