"""A recording, served in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.applications import Starlette

from volery.playback.server import PlaybackServer


@contextmanager
def showing(app: Starlette) -> Iterator[str]:
    """Its address, without the stroke at the end."""
    one = PlaybackServer(app)
    thread = threading.Thread(target=one.run)
    thread.start()
    try:
        yield one.url.rstrip("/")
    finally:
        one.stop()
        thread.join(30)
        assert not thread.is_alive()
