"""Text of an HTML page, by which two reports are compared."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path


class PageText(HTMLParser):
    """Takes the text and the attributes that a reader sees, and the JSON that scripts read, from an HTML page."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.content: list[str] = []
        self._within = ""
        self._broken = False

    @classmethod
    def of(cls, path: Path) -> PageText:
        """The text of a file."""
        text = cls()
        text.feed(path.read_text(encoding="utf-8"))
        text.close()
        return text

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep attributes; notice parts whose text nobody reads, and words that go on after a line break's place."""
        self._broken = tag == "wbr"
        if not self._within and tag not in ("svg", "wbr"):
            self.words += " ".join(f"{name}={value}" for name, value in attrs).split()
        if not self._within and tag in ("svg", "style", "script"):
            self._within = "json" if dict(attrs).get("type") == "application/json" else tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self._within or (tag == "script" and self._within == "json"):
            self._within = ""

    def handle_data(self, data: str) -> None:
        """Keep words and content."""
        if self._within == "json":
            self.content.append(data)
        elif not self._within:
            words = data.split()
            if self._broken and self.words and words:
                self.words[-1] += words.pop(0)
            self.words += words
            self._broken = False
