"""Stage R2: which machines a user may have (Andreadis et al., SC18, section III-D4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec

from volery.architectures.pipeline.policies.policy import Policy
from volery.architectures.pipeline.policies.view import View


class Everybody(Policy, frozen=True):
    """Every user may have every machine."""

    def machines(self, view: View, user: str) -> Iterable[int] | None:
        """All."""
        return None


class AccessList(Policy, frozen=True):
    """Users that are listed may have the machines beside their name and no others."""

    users: Annotated[str, msgspec.Meta(description="who may have what, as ann=0-9+bob=3+bob=20-29")] = ""
    others: Annotated[bool, msgspec.Meta(description="whether users that are not listed may have all")] = True

    def __post_init__(self) -> None:
        """Refuse what is no list.

        Raises:
            ValueError: naming the entry.
        """
        self._listed()

    def _listed(self) -> dict[str, list[int]]:
        listed: dict[str, list[int]] = {}
        for entry in filter(None, self.users.split("+")):
            user, equals, machines = entry.partition("=")
            low, _, high = machines.partition("-")
            if not (equals and low.isdigit() and (high or low).isdigit() and int(low) <= int(high or low)):
                raise ValueError(f"{entry!r} is not USER=MACHINE or USER=FIRST-LAST")
            listed.setdefault(user, []).extend(range(int(low), int(high or low) + 1))
        return listed

    def machines(self, view: View, user: str) -> Iterable[int] | None:
        """Those of the list."""
        listed = self._listed()
        if user in listed:
            return listed[user]
        return None if self.others else ()
