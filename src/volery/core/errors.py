"""The one kind of error that is the user's to mend; the command line prints it and exits with status 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Something that the user gave is wrong: the message names the place and the fix.

    Args:
        place: where it is, for example `trace.tr.gz:17` or `study.axes.workers[2]`.
        problem: what is wrong and how to mend it.
    """

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}")
        self.place = place
        self.problem = problem

    def __reduce__(self) -> tuple[type[InputError], tuple[str, str]]:
        """Survive the way back from a worker process."""
        return (InputError, (self.place, self.problem))


def suggestion(word: str, known: Iterable[str]) -> str:
    """What the user may have meant: "; did you mean 'megha'?", else the whole list of known words."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=3, cutoff=0.5)
    # of names that are equally close, the one that begins alike: people seldom mistake the first letter
    alike = [name for name in close if name[:1] == word[:1] and _likeness(name, word) == _likeness(close[0], word)]
    return f"; did you mean {(alike or close)[0]!r}?" if close else f"; known are {', '.join(names)}"


def _likeness(name: str, word: str) -> float:
    return difflib.SequenceMatcher(None, name, word).ratio()
