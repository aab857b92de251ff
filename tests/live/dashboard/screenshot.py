"""The picture of the dashboard in docs/how-to/watch-a-federation.md: a federation of three clusters, in chromium.

`make screenshot` writes docs/figures/live-page.png; `python -m tests.live.dashboard.screenshot FOLDER` writes every
view at 400, 1200 and 3840 pixels, light and dark, to be looked at.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from pathlib import Path
from random import Random
from typing import Any, Final, Literal

from playwright.sync_api import Browser, Page
from tests.live.browsing import chromium
from tests.live.serving import at_work

from volery.live.client import Client

PICTURE: Final = Path("docs/figures/live-page.png")
USERS: Final = ("ann", "bob", "eve")
KEYS: Final[dict[str, Any]] = {
    "executor": "sleep",
    "machines": [
        {"count": 24, "slots": 2, "labels": {"zone": zone, "disk": "ssd" if zone == "a" else "hdd"}} for zone in "abc"
    ],
    "parameters": {
        "gms": 3,
        "lms": 3,
        "why": True,
        "heartbeat_s": 0.2,
        "shares": "ann:2+lab:3(bob:2+eve:1)",
        "reliable": False,
    },
}
SETTLE_S: Final = 45.0
"""The page shows what has happened since it was opened, and its curves have a point every ten seconds."""
Scheme = Literal["light", "dark"]
SIZES: Final = ((400, 900), (1200, 900), (3840, 2160))


def set_to_work(client: Client) -> int:
    """Jobs that last, and two drained nodes; returns the number of one that waits for others."""
    client.send({"command": "true", "name": "grid search", "user": "bob", "tasks": 40, "estimate_s": 600})
    wide = {"command": "true", "name": "rendering", "user": "ann", "tasks": 60, "constraints": ['label.disk == "ssd"']}
    waits = client.send(wide | {"estimate_s": 600})
    client.drain("node/5")
    client.drain("node/31")
    return waits.id


def keep_at_work(client: Client, over: threading.Event) -> None:
    """Small jobs of all users, one after the other; once eve has more of a share."""
    draw, count = Random(7), 0
    while not over.is_set():
        user, tasks = USERS[count % 3], draw.choice((1, 4, 10, 30))
        job = {"command": "true", "name": f"step {count}", "user": user, "tasks": tasks}
        if count % 4 == 1:
            job["constraints"] = ['label.disk == "ssd"']
        client.send(job | {"estimate_s": draw.choice((0.02, 0.1, 0.4))})
        count += 1
        if count == 40:
            client.share("eve", 3)
        time.sleep(0.1)


def seen(browser: Browser, url: str, size: tuple[int, int], scheme: Scheme) -> Page:
    """A view as somebody sees it, its content in place."""
    width, height = size
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    page.goto(url)
    page.get_by_text("live", exact=True).wait_for()
    return page


def take_all(browser: Browser, url: str, wide: int, folder: Path) -> None:
    """Every view, at every size, light and dark."""
    views = {
        "federation": "/",
        "jobs": "/dashboard/jobs",
        "job": f"/dashboard/jobs/{wide}",
        "task": f"/dashboard/jobs/{wide}/tasks/59",
        "nodes": "/dashboard/nodes",
        "node": "/dashboard/nodes/node/3",
        "users": "/dashboard/users",
        "preemptions": "/dashboard/preemptions",
    }
    folder.mkdir(parents=True, exist_ok=True)
    for scheme in ("light", "dark"):
        for size in SIZES:
            for name, path in views.items():
                page = seen(browser, url + path, size, scheme)
                page.screenshot(path=folder / f"{name}-{size[0]}-{scheme}.png", full_page=size[0] < 2000)
                page.context.close()


def main(folder: str | None = None) -> None:
    """Write the picture, or all of them into a folder."""
    over = threading.Event()
    with tempfile.TemporaryDirectory() as place, at_work(Path(place), **KEYS) as url, Client(url) as client:
        wide = set_to_work(client)
        worker = threading.Thread(target=keep_at_work, args=(client, over))
        worker.start()
        try:
            time.sleep(8)
            with chromium() as browser:
                if folder is not None:
                    take_all(browser, url, wide, Path(folder))
                else:
                    page = seen(browser, url, (1180, 780), "light")
                    time.sleep(SETTLE_S)
                    page.screenshot(path=PICTURE, full_page=True)
        finally:
            over.set()
            worker.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
