"""Seeds of a study: given, or added until its comparisons are decided (`auto`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import msgspec

from volery.core.bounds import SECONDS_MAX, SEEDS_MAX
from volery.core.errors import InputError
from volery.setting import checked_value
from volery.statistics import SEEDS_MIN, Looks, looks

AUTO: Final = "auto"
LIMIT: Final = 30
FIRST_LOOK: Final = 3
"""Two seeds decide next to nothing: Student's t with one degree of freedom is wide."""
Seeds = Annotated[int, msgspec.Meta(ge=1, le=SEEDS_MAX)]
Limit = Annotated[int, msgspec.Meta(ge=SEEDS_MIN, le=SEEDS_MAX)]
Budget = Annotated[float, msgspec.Meta(gt=0, le=SECONDS_MAX)]


class AutoSeeds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of a study that adds seeds until its comparisons are decided, or of an experiment and its claims.

    Args:
        seeds_max: number of seeds at which it ends, whatever is decided.
        budget_s: CPU seconds of all runs together (of an experiment: of the added seeds), after which no run is begun;
            None: no limit.
        budget_looks: numbers of seeds at which a budget has ended a call between two planned looks.
    """

    seeds_max: Limit = LIMIT
    budget_s: Budget | None = None
    budget_looks: tuple[Limit, ...] = ()

    def looks(self) -> Looks:
        """The numbers of seeds at which the comparisons are judged: the planned ones, and those of budgets."""
        return self._with(looks(min(FIRST_LOOK, self.seeds_max), self.seeds_max), self.budget_looks)

    def look_from(self, seeds: int) -> int:
        """The number of seeds of the first look at or after a number of seeds."""
        return next((count for count in self.looks().counts if count >= seeds), self.seeds_max)

    def looks_of(self, seeds: int) -> Looks:
        """The looks of a study that has ended with a number of seeds, at which a budget may have put one more look."""
        return self._with(self.looks(), (seeds,))

    def ended_at(self, seeds: int) -> AutoSeeds:
        """The limits after an end with a number of seeds: a look that a budget has added is remembered.

        Without memory, the looks of calls with ever larger budgets would spend more than the error of one study. One
        seed decides nothing, and is no look.
        """
        if seeds < SEEDS_MIN or seeds in self.looks().counts:
            return self
        return msgspec.structs.replace(self, budget_looks=(*self.budget_looks, seeds))

    def confidence_at(self, seeds: int) -> float:
        """The confidence that intervals have at the look after a number of seeds."""
        return self.looks_of(seeds).confidence_at(seeds)

    @staticmethod
    def _with(plan: Looks, counts: Sequence[int]) -> Looks:
        return msgspec.structs.replace(plan, counts=tuple(sorted({*plan.counts, *counts})))


def read_seeds(
    seeds: Any, seeds_max: Any, budget_s: Any, place: Callable[[str], str]
) -> tuple[Sequence[Any], AutoSeeds | None]:
    """The seeds that a study begins with, and the limits of one that adds seeds.

    Args:
        seeds: a number of seeds, a list of them, or "auto".
        seeds_max, budget_s: see `AutoSeeds`; None where not given. They belong to "auto".
        place: maps "seeds", "seeds_max" and "budget_s" to the caller's names of them, for error messages.

    Raises:
        InputError: naming the first value that is wrong.
    """
    if seeds == AUTO:
        auto = AutoSeeds(*_limits(seeds_max, budget_s, place))
        return range(auto.look_from(0)), auto

    listed = seeds if isinstance(seeds, Sequence) and not isinstance(seeds, str) else None
    if AUTO in (listed or ()):
        raise InputError(place("seeds"), '"auto" is no member of a list; give "auto" alone, or numbers')

    for name, value in (("seeds_max", seeds_max), ("budget_s", budget_s)):
        if value is not None:
            raise InputError(
                place(name), f"belongs to seeds that are added; set {place('seeds')} to auto, or leave it out"
            )

    if listed is not None:
        return listed, None

    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < 1:
        raise InputError(place("seeds"), f"expected a number of seeds >= 1, or auto, not {seeds!r}")
    return range(checked_value(seeds, Seeds, place("seeds"))), None


def with_limits(auto: AutoSeeds, seeds_max: Any, budget_s: Any, place: Callable[[str], str]) -> AutoSeeds:
    """The limits with others in place of those that are given.

    Raises:
        InputError: one of them is wrong.
    """
    limit, budget = _limits(seeds_max, budget_s, place)
    return AutoSeeds(auto.seeds_max if seeds_max is None else limit, auto.budget_s if budget_s is None else budget)


def _limits(seeds_max: Any, budget_s: Any, place: Callable[[str], str]) -> tuple[int, float | None]:
    if seeds_max == 1 and not isinstance(seeds_max, bool | float):
        raise InputError(
            place("seeds_max"), f"1 seed decides no comparison; give {SEEDS_MIN} or more ({LIMIT} if left out)"
        )
    limit = LIMIT if seeds_max is None else checked_value(seeds_max, Limit, place("seeds_max"))
    if budget_s == 0 and not isinstance(budget_s, bool):
        raise InputError(place("budget_s"), "a budget of 0 pays for no run; give CPU seconds above 0, or leave it out")
    return limit, None if budget_s is None else checked_value(budget_s, Budget, place("budget_s"))
