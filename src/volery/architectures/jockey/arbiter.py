"""Division of tokens among jobs that ask for more than there are, by the value of a further token."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class TokenClaim(msgspec.Struct, frozen=True):
    """The request of a job.

    Args:
        steps: allocations that it may be given, tokens, increasing, from 0 to what it asks for.
        utilities: what each is worth.
    """

    steps: tuple[int, ...]
    utilities: tuple[float, ...]

    def best_from(self, place: int, tokens: int) -> tuple[float, int]:
        """(utility per token, place) of the step up that pays best, at most so many tokens up; the place itself: none.

        Utilities need not be concave, so that steps further up are looked at too.
        """
        best, chosen = 0.0, place
        for further in range(place + 1, len(self.steps)):
            more = self.steps[further] - self.steps[place]
            gain = (self.utilities[further] - self.utilities[place]) / more
            if more <= tokens and gain > best:
                best, chosen = gain, further
        return best, chosen


def arbitrated(claims: Sequence[TokenClaim], tokens: int) -> list[int]:
    """Per claim what it is given: what it asks for where all fit, else by marginal utility; ties go to the first."""
    if sum([claim.steps[-1] for claim in claims]) <= tokens:
        return [claim.steps[-1] for claim in claims]
    at, left = [0] * len(claims), tokens
    while True:
        offers = [claim.best_from(place, left) for claim, place in zip(claims, at, strict=True)]
        best = max(range(len(claims)), key=lambda number: (offers[number][0], -number), default=-1)
        if best < 0 or not offers[best][0]:
            return [claim.steps[place] for claim, place in zip(claims, at, strict=True)]
        left -= claims[best].steps[offers[best][1]] - claims[best].steps[at[best]]
        at[best] = offers[best][1]
