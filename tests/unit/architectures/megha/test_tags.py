"""The queue of tasks with tags: first come first served among those that fit."""

from __future__ import annotations

from volery.architectures.megha.tags import TagQueue
from volery.core.model import Tags, Task

WEB, CACHE = Tags(("web",)), Tags(("cache",))


def queue() -> TagQueue:
    found = TagQueue()
    for number, tags in enumerate((WEB, CACHE, WEB, None)):
        found.push(Task(number, number, 0, 1, tags=tags))
    return found


def test_the_task_that_has_waited_longest_of_those_that_fit_is_taken() -> None:
    waiting = queue()
    taken = [waiting.pop_fitting(0, lambda tags: tags != WEB) for _ in range(3)]
    assert [task and task.id for task in taken] == [1, 3, None]
    assert waiting.length == 2


def test_a_task_that_is_put_back_is_first() -> None:
    waiting = queue()
    task = waiting.pop((0, CACHE))
    waiting.push_front(task)
    assert waiting.kinds()[0] == (0, CACHE)


def test_what_is_removed_leaves_the_order_of_the_rest() -> None:
    waiting = queue()
    assert [task.id for task in waiting.remove(lambda task: task.id == 0)] == [0]
    assert [kind[1] for kind in waiting.kinds()] == [CACHE, WEB, None]
    assert waiting.length == 3
