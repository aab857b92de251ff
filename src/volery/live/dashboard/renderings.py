"""Pages that several browsers show are made once for all of them, until it is time to make them again."""

from __future__ import annotations

import asyncio
import hashlib
import time
import types
from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from volery.live.dashboard.frame import Again, PageView
from volery.live.service.authentication import Principal
from volery.live.service.requests import Traffic

KEPT_MAX: Final = 64
"""A page has some 150 KB at most."""

Key = tuple[Principal, str]
"""Who asks, and for which address: nothing else changes what a page shows."""


class Rendering(msgspec.Struct, frozen=True):
    """A view as it was rendered once.

    Args:
        tag: Tag of its live part: equal ones have equal tags.
        revision: Revision of the store when it was begun.
        made_s: when that was, in seconds of a clock that never goes back.
        cost_s: CPU seconds that it took.
    """

    view: PageView
    tag: str
    revision: int
    made_s: float
    cost_s: float


class Renderings:
    """Makes views, and keeps those that are fetched again and again.

    Args:
        traffic: counts open pages, and the cost of views.
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

    async def fresh(self, key: Key, show: Callable[[], Coroutine[Any, Any, PageView]]) -> Rendering:
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
        rendering = Rendering(view, f'"{tag}"', revision, made_s, meter.cpu_s)
        if view.every_s:
            self._keep(key, rendering)
        return rendering

    def _keep(self, key: Key, rendering: Rendering) -> None:
        old_s = rendering.made_s - 2 * EVERY_MAX_S
        self._kept = {name: item for name, item in self._kept.items() if item.made_s > old_s and name != key}
        while len(self._kept) >= KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = rendering

    async def shared(self, key: Key, show: Callable[[], Coroutine[Any, Any, PageView]]) -> Rendering:
        """A view as it was not long ago; whoever asks while one is made waits for that one.

        Raises:
            InputError, NotThereError: there is none.
        """
        rendering = self._kept.get(key)
        if rendering is not None and self.again_s(rendering) > 0:
            return rendering
        making = self._under_way.get(key)
        if making is None:
            making = self._under_way[key] = asyncio.ensure_future(self.fresh(key, show))
            making.add_done_callback(lambda _: self._under_way.pop(key))
        return await asyncio.shield(making)

    def again_s(self, rendering: Rendering) -> float:
        """Seconds until a view is to be made again; 0: never, or now."""
        if not rendering.view.every_s:
            return 0.0
        pages = max(1, self._traffic.pages_open)
        views = min(pages, len(self._kept))
        every_s = self._pacer.every_s(rendering.view.every_s, rendering.cost_s, views, pages)
        return max(0.0, rendering.made_s + every_s - self._clock_s())

    def again(self, rendering: Rendering) -> Again:
        """The waiting time of a page, sent with a view."""
        behind, age_s = rendering.revision != self._revision(), self._clock_s() - rendering.made_s
        return Again(self.again_s(rendering), rendering.tag, behind, age_s)


PART_OF_WORK: Final = 0.01
"""Where this process is busy all the time, making pages takes so much of what it gets."""
PART_OF_REST: Final = 0.1
"""And so much of the time in which it would do nothing."""
ANSWER_S: Final = 0.0005
"""CPU seconds that an answer takes where the view is made already."""
EVERY_MAX_S: Final = 60.0
SAMPLE_S: Final = 1.0

T = TypeVar("T")


class Meter:
    """CPU seconds that a coroutine takes by itself, whatever else its thread does while it waits."""

    def __init__(self) -> None:
        self.cpu_s = 0.0

    @types.coroutine
    def of(self, coroutine: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        send: Callable[[Any], Any] = coroutine.send
        value: Any = None
        while True:
            began_s = time.thread_time()
            try:
                awaited = send(value)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return] # it is what the coroutine returns
            finally:
                self.cpu_s += time.thread_time() - began_s
            try:
                send, value = coroutine.send, (yield awaited)
            except BaseException as error:
                send, value = coroutine.throw, error


def thread_use() -> tuple[float, float]:
    """Seconds that this thread has run, and that it has waited for a processor (0 where the kernel does not count)."""
    try:
        ran_ns, waited_ns, _ = Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return time.thread_time(), 0.0
    return int(ran_ns) / 1e9, int(waited_ns) / 1e9


class Pacer:
    """Tells how long to leave a page as it is.

    Args:
        use: seconds that the thread has run, and has waited for a processor.
    """

    def __init__(
        self, clock_s: Callable[[], float] = time.monotonic, use: Callable[[], tuple[float, float]] = thread_use
    ) -> None:
        self._clock_s = clock_s
        self._use = use
        self._sampled_s = clock_s()
        self._ran_s, self._waited_s = use()
        self._part = PART_OF_REST

    def _allowed(self) -> float:
        """The part of a processor that pages may take."""
        now_s = self._clock_s()
        if (passed_s := now_s - self._sampled_s) >= SAMPLE_S:
            ran_s, waited_s = self._use()
            ran, waited = (ran_s - self._ran_s) / passed_s, (waited_s - self._waited_s) / passed_s
            self._part = PART_OF_WORK * min(1.0, ran) + PART_OF_REST * max(0.0, 1.0 - ran - waited)
            self._sampled_s, self._ran_s, self._waited_s = now_s, ran_s, waited_s
        return max(self._part, PART_OF_WORK / 4)

    def every_s(self, least_s: float, cost_s: float, views: int, pages: int) -> float:
        """The lifetime of a view in seconds; all views get equal parts of the processor.

        Args:
            least_s: never shorter than this.
            cost_s: CPU seconds that it took to make it.
            views: how many different views are made again and again.
            pages: how many show one of them.
        """
        wanted_s = cost_s * views + ANSWER_S * pages
        return max(least_s, min(EVERY_MAX_S, wanted_s / self._allowed()))
