"""Weights change for the users of the tree alone; a change is stored, then sent with its number, and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from volery.core.capabilities import Share
from volery.core.errors import InputError
from volery.core.events import Reweigh
from volery.core.model import Address, Message
from volery.live.service.store import JobStore
from volery.live.service.user_shares import UserShares


def tree(weights: Mapping[str, int]) -> tuple[Share, ...]:
    given = {"ann": 1, "bob": 1} | {name: weight for name, weight in weights.items() if name in ("ann", "bob")}
    for name in weights.keys() - given.keys():
        raise InputError(f"shares/{name}", "nobody of that name has a share")
    return tuple(Share(name, (), weight, Fraction(weight, sum(given.values()))) for name, weight in given.items())


class Shares:
    """Shares over a store, and the messages that they send."""

    def __init__(self, store: JobStore, by: Callable[[Mapping[str, int]], tuple[Share, ...]] | None = tree) -> None:
        self.store = store
        self.sent: list[tuple[Address, Message]] = []
        self.shares = UserShares(
            {"ann": Fraction(1, 3)},
            by,
            ["gm/0", "gm/1"],
            store.shares,
            self.written,
            lambda to, message: self.sent.append((to, message)),
        )

    def written(self, write: Callable[[], Any]) -> Coroutine[Any, Any, Any]:
        async def commit() -> Any:
            self.store.begin(durable=False)
            try:
                return write()
            finally:
                self.store.commit()

        return commit()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[JobStore]:
    opened = JobStore(tmp_path / "jobs.sqlite")
    yield opened
    opened.close()


def test_a_new_weight_is_stored_and_sent_to_the_components_that_place_tasks(store: JobStore) -> None:
    it = Shares(store)
    changed = asyncio.run(it.shares.reweigh("ann", 3, "olga"))
    assert (changed.weight, changed.share) == (3, 0.75)
    message = Reweigh(1, (("ann", 3),))
    assert it.sent == [("gm/0", message), ("gm/1", message)]
    again = Shares(store)
    assert again.shares.weights() == {"ann": 3, "bob": 1}
    again.shares.send_weights(["gm/1"])
    assert again.sent == [("gm/1", message)]
    (change,) = again.shares.changes(None, 9)
    assert (change.name, change.weight, change.was, change.by) == ("ann", 3, 1, "olga")


def test_a_weight_of_a_user_who_has_left_the_tree_is_left_out(store: JobStore) -> None:
    asyncio.run(Shares(store).shares.reweigh("bob", 4, ""))
    alone = Shares(store, lambda weights: tuple(share for share in tree(weights) if share.name == "ann"))
    assert alone.shares.weights() == {"ann": 1}


def test_a_scheduler_without_changeable_shares_refuses_weights_and_has_those_of_its_design(store: JobStore) -> None:
    it = Shares(store, None)
    assert it.shares.due() == {"ann": Fraction(1, 3)}
    with pytest.raises(InputError, match="no shares that can change"):
        asyncio.run(it.shares.reweigh("ann", 2, ""))
    it.shares.send_weights()
    assert it.sent == []


def test_a_user_sees_the_own_share_alone(store: JobStore) -> None:
    it = Shares(store)
    assert [share.name for share in it.shares.listed("ann")] == ["ann"]
    assert it.shares.named("bob", "ann") is None
    found = it.shares.named("bob")
    assert found is not None
    assert found.share == 0.5
