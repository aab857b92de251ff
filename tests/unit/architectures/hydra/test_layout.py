"""What a router or proxy knows of the sub-clusters."""

from __future__ import annotations

from volery.architectures.hydra.layout import Membership
from volery.architectures.hydra.messages import Directory


def test_stale_news_are_ignored_and_losses_are_named() -> None:
    membership = Membership(2)
    assert membership.update(Directory(2, (True, False), (1000, 0), (3, -1))) == ([1], [])
    assert membership.update(Directory(1, (True, True), (1000, 1000), (0, 0))) == ([], [])
    assert membership.headroom == {0: 3}
    assert membership.usable([0, 1]) == [0]
    assert membership.usable([1]) == [1], "rather one that is lost than none"
    assert membership.update(Directory(3, (True, True), (1000, 1000), (0, 2))) == ([], [1])
