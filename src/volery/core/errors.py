"""The one kind of error that is the user's to mend; the command line prints it and exits with status 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

WORD_MAX: Final = 200
"""Characters of a user's word that are compared or repeated; to compare takes time that grows with their square."""
PLACE_MAX: Final = 1_000
PROBLEM_MAX: Final = 10_000
NEAR: Final = 0.65
"""Names that have less in common mislead: `retries` is no `request`."""
BEGINNING_MIN: Final = 3
"""Characters of a name's beginning that stand for the name, as `mem` for `memory_mb`."""


class InputError(ValueError):
    """Something that the user gave is wrong: the message names the place and the fix.

    Args:
        place: Place of the mistake, for example `trace.tr.gz:17` or `study.axes.workers[2]`.
        problem: Mistake and its remedy. Of both, what is longer than any reader wants is cut.
    """

    def __init__(self, place: str, problem: str) -> None:
        self.place, self.problem = shortened(place, PLACE_MAX), shortened(problem, PROBLEM_MAX)
        super().__init__(f"{self.place}: {self.problem}")

    def __reduce__(self) -> tuple[type[InputError], tuple[str, str]]:
        """Survive the way back from a worker process."""
        return (InputError, (self.place, self.problem))


class DamagedError(InputError):
    """A file that this program has written is no longer as it was written; the message names where."""


def install_command(extra: str) -> str:
    """The command that installs an extra of this package; no package index has the package."""
    return f"`pip install -e '.[{extra}]'` in the checkout of volery"


def shortened(text: str, length: int = WORD_MAX) -> str:
    """A text, cut after so many characters."""
    return text if len(text) <= length else f"{text[: length - 3]}..."


def suggestion(word: str, known_names: Iterable[str]) -> str:
    """A known word close to the user's: "; did you mean 'megha'?", else the whole list of known words."""
    names = sorted(known_names)
    word = word[:WORD_MAX]
    close = difflib.get_close_matches(word, names, n=3, cutoff=NEAR)

    if not close and len(word) >= BEGINNING_MIN:
        close = [name for name in names if name.startswith(word)][:1]

    # Of names that are equally close, the one that begins alike: people seldom mistake the first letter.
    alike = [name for name in close if name[:1] == word[:1] and _likeness(name, word) == _likeness(close[0], word)]

    return f"; did you mean {(alike or close)[0]!r}?" if close else f"; known are {', '.join(names)}"


def _likeness(name: str, word: str) -> float:
    return difflib.SequenceMatcher(None, name, word).ratio()
