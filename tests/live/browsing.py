"""A real browser on pages of a server, and all that it complains of."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from playwright.sync_api import Browser, Page, sync_playwright

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextmanager
def chromium() -> Iterator[Browser]:
    """The system's own."""
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # chromium refuses to start otherwise
    with sync_playwright() as started:
        found = started.chromium.launch(executable_path=BROWSER, args=arguments)
        yield found
        found.close()


def opened(
    browser: Browser, url: str, width: int = 1200, scheme: Literal["light", "dark"] = "light"
) -> tuple[Page, list[str]]:
    """A page, and its list of complaints."""
    page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(url)
    return page, complaints
