"""Megha's messages, written as briefly as the tests need them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.unit.architectures.parts import messages

from volery.architectures.megha.messages import Change, Refusal, Request, StateUpdate, TasksEnded
from volery.core.model import Address, Task
from volery.policies.match import vector_bytes


def request(number: int, partition: int, *placements: tuple[Task, int]) -> Request:
    """Tasks at positions of a partition."""
    return Request(number, partition, tuple(task for task, _ in placements), tuple(place for _, place in placements))


def requests(effects: list[Any]) -> list[tuple[Address, int, dict[int, int]]]:
    """LM, partition and task > position of each request among effects."""
    return [
        (to, asked.partition, dict(zip([task.id for task in asked.tasks], asked.positions, strict=True)))
        for to, asked in messages(effects, Request)
    ]


def notice(*tasks: int) -> TasksEnded:
    """These tasks have finished."""
    return TasksEnded(tasks)


def news(number: int, changes: Mapping[int, tuple[int, int]], snapshot: bool = False) -> StateUpdate:
    """Partition > (freed, taken), as vectors."""
    told = tuple(Change(part, vector_bytes(freed), vector_bytes(taken)) for part, (freed, taken) in changes.items())
    return StateUpdate(number, changes=told, is_snapshot=snapshot)


def refusal(tasks: tuple[int, ...], update: StateUpdate) -> Refusal:
    """These placements were invalid."""
    return Refusal(tasks, update)
