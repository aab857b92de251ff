"""Pages that several windows show are made once for all of them, until it is time to make them anew."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec

from volery.live.dashboard.frame import Again, View
from volery.live.dashboard.pacing import EVERY_MAX_S, Meter, Pacer
from volery.live.service.admission import Traffic
from volery.live.service.tokens import Principal

KEPT_MAX: Final = 64
"""A page has some 150 KB at most."""

Key = tuple[Principal, str]
"""Who asks, and for which address: nothing else changes what a page shows."""


class Rendering(msgspec.Struct, frozen=True):
    """A view as it was.

    Args:
        view: what was made.
        tag: stands for its live part: equal ones have equal tags.
        revision: of the store when it was begun.
        made_s: when that was, in seconds of a clock that never goes back.
        cost_s: CPU seconds that it took.
    """

    view: View
    tag: str
    revision: int
    made_s: float
    cost_s: float


class Renderings:
    """Makes views, and keeps those that are fetched again and again.

    Args:
        pacer: tells how long a view stays as it is.
        revision: of the last change.
        traffic: knows how many pages are open, and counts what views cost.
        clock_s: seconds that never go back.
    """

    def __init__(
        self, pacer: Pacer, revision: Callable[[], int], traffic: Traffic,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._pacer = pacer
        self._traffic = traffic
        self._revision = revision
        self._clock_s = clock_s
        self._kept: dict[Key, Rendering] = {}
        self._under_way: dict[Key, asyncio.Task[Rendering]] = {}

    async def fresh(self, key: Key, show: Callable[[], Coroutine[Any, Any, View]]) -> Rendering:
        """A view as it is now.

        Raises:
            InputError, NotThereError: there is none.
        """
        meter, revision, made_s = Meter(), self._revision(), self._clock_s()
        try:
            view = await meter.of(show())
        finally:
            self._traffic.views_made += 1
            self._traffic.views_cpu_s += meter.cpu_s
        tag = hashlib.blake2b(view.live.encode(), digest_size=12).hexdigest()
        found = Rendering(view, f'"{tag}"', revision, made_s, meter.cpu_s)
        if view.every_s:
            self._keep(key, found)
        return found

    def _keep(self, key: Key, found: Rendering) -> None:
        old_s = found.made_s - 2 * EVERY_MAX_S
        self._kept = {other: one for other, one in self._kept.items() if one.made_s > old_s and other != key}
        while len(self._kept) >= KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = found

    async def shared(self, key: Key, show: Callable[[], Coroutine[Any, Any, View]]) -> Rendering:
        """A view as it was not long ago; whoever asks while one is made waits for that one.

        Raises:
            InputError, NotThereError: there is none.
        """
        found = self._kept.get(key)
        if found is not None and self.again_s(found) > 0:
            return found
        making = self._under_way.get(key)
        if making is None:
            making = self._under_way[key] = asyncio.ensure_future(self.fresh(key, show))
            making.add_done_callback(lambda _: self._under_way.pop(key))
        return await asyncio.shield(making)

    def again_s(self, found: Rendering) -> float:
        """In how many seconds a view is to be made anew; 0: never, or now."""
        if not found.view.every_s:
            return 0.0
        pages = max(1, self._traffic.pages_open)
        made = min(pages, len(self._kept))
        every_s = self._pacer.every_s(found.view.every_s, found.cost_s, made, pages)
        return max(0.0, found.made_s + every_s - self._clock_s())

    def again(self, found: Rendering) -> Again:
        """What a page is told with a view."""
        behind, age_s = found.revision != self._revision(), self._clock_s() - found.made_s
        return Again(self.again_s(found), found.tag, behind, age_s)
