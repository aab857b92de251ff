"""Resource vectors, exact shares of them, and the tree of organisations and users with their weights.

A vector counts integer units per resource (milli-CPU, MB, GPUs); a slot is the one resource of a cluster whose tasks
take one unit each. Shares are kept as whole numbers of 2^-128, rounded down: two weighted shares whose capacity times
weight stays below 2^64 then compare as the rationals do, ties included, at the price of one division.

In a tree as tables (TOML, JSON), a user is a weight and an organisation a table with `users`:

    {"alt": 1, "dev": {"weight": 1, "users": {"little": 1, "big": 9}}}

and the same as a text, for a parameter on the command line: `alt:1+dev:1(little:1+big:9)`. A weight left out is 1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from operator import le
from typing import Any, Final

import msgspec

from volery.core.errors import InputError, suggestion

Resources = tuple[int, ...]

SHARE_BITS: Final = 128
WHOLE: Final = 1 << SHARE_BITS
"""The share of one who holds all of a resource."""


def plus(first: Resources, second: Resources) -> Resources:
    """The sum, resource by resource."""
    return tuple([a + b for a, b in zip(first, second, strict=True)])


def minus(first: Resources, second: Resources) -> Resources:
    """The difference, resource by resource."""
    return tuple([a - b for a, b in zip(first, second, strict=True)])


def fits(demand: Resources, free: Resources) -> bool:
    """True if there is enough of everything."""
    return all(map(le, demand, free))


def dominant_share(used: Resources, capacity: Resources) -> Fraction:
    """The largest of the shares of each resource that there is (Ghodsi et al., NSDI 2011, section 4)."""
    pairs = zip(used, capacity, strict=True)
    return max([Fraction(units, total) for units, total in pairs if total], default=Fraction(0))


def share_key(used: Resources, capacity: Resources, weight: int = 1) -> int:
    """The dominant share over the weight, in units of 2^-128, to compare by."""
    pairs = zip(used, capacity, strict=True)
    return max([(units << SHARE_BITS) // (total * weight) for units, total in pairs if total], default=0)


def dominant_resources(demand: Resources, capacity: Resources) -> list[int]:
    """The places of the resources of which a demand takes its largest share; none where it takes nothing."""
    # Shares over a common denominator are compared as whole numbers, which is faster than as fractions.
    common_multiple = math.lcm(*[total for total in capacity if total])
    shares = [units * (common_multiple // total) if total else 0 for units, total in zip(demand, capacity, strict=True)]
    largest = max(shares)
    return [j for j, share in enumerate(shares) if share and share == largest]


def checked_capacity(capacity: Sequence[int]) -> Resources:
    """The capacity as a vector; of a resource of which there is none, nobody has a share.

    Raises:
        ValueError: when there is no resource, or less than none of one.
    """
    if not capacity or min(capacity) < 0:
        raise ValueError(f"a share needs a capacity of every resource, from 0; not {tuple(capacity)}")
    return tuple(capacity)


def checked_demand(demand: Resources, capacity: Resources) -> Resources:
    """A demand, which has as many resources as the capacity.

    Raises:
        ValueError: otherwise.
    """
    if len(demand) != len(capacity) or min(demand) < 0:
        raise ValueError(f"{demand} is no demand on {len(capacity)} resources: give each of them, >= 0")
    return demand


WEIGHT_MAX: Final = 1 << 31
DEPTH_MAX: Final = 64
_KEYS: Final = ("weight", "users")
_TOKEN: Final = re.compile(r"\s*([^\s:+()]+|[:+()])\s*")


class Sharer(msgspec.Struct, frozen=True):
    """A user, or an organisation that shares its part among its members.

    Args:
        name: Name of a user, as in `Job.user`, unique in the tree, or of an organisation.
        weight: Weight against its siblings, from 1.
        members: Members in the order in which ties are decided; none: a user.
    """

    name: str
    weight: int = 1
    members: tuple[Sharer, ...] = ()

    def leaves(self) -> Iterator[Sharer]:
        """The users below, or this one."""
        if not self.members:
            yield self
        for member in self.members:
            yield from member.leaves()


def nodes(tree: Sharer, within: tuple[str, ...] = ()) -> Iterator[tuple[Sharer, tuple[str, ...]]]:
    """All users and organisations below, each after the one that it is part of, with the names of those above it."""
    for member in tree.members:
        yield member, within
        yield from nodes(member, (*within, member.name))


def reweighed(tree: Sharer, weights: Mapping[str, int], place: str = "shares") -> Sharer:
    """The tree with other weights for some users, or organisations; a name that a user has is the user's.

    Raises:
        InputError: a name is not in the tree, or two organisations have it; a weight is none.
    """
    users = {leaf.name for leaf in tree.leaves()}
    for name, weight in weights.items():
        _weight(weight, f"{place}.{name}")
        match_count = sum(node.name == name and (not node.members or name not in users) for node, _ in nodes(tree))

        if not match_count:
            hint = suggestion(name, sorted(node.name for node, _ in nodes(tree)))
            problem = f"is not in the tree of shares; who is to have one has to be there at the start{hint}"
            raise InputError(f"{place}.{name}", problem)

        if match_count > 1:
            raise InputError(f"{place}.{name}", "is the name of several organisations; give them names of their own")
    return _with_weights(tree, weights, users) if weights else tree


def _with_weights(node: Sharer, weights: Mapping[str, int], users: Collection[str]) -> Sharer:
    is_meant = not node.members or node.name not in users
    weight = weights.get(node.name, node.weight) if is_meant else node.weight
    return Sharer(node.name, weight, tuple(_with_weights(member, weights, users) for member in node.members))


def equal_users(*names: str) -> Sharer:
    """A tree of one level, all weights 1."""
    return Sharer("", 1, tuple(Sharer(name) for name in names))


def parse_shares(content: Mapping[str, Any], place: str = "shares") -> Sharer:
    """The tree that nested tables describe; its root has no name.

    Raises:
        InputError: naming the place, as `shares.dev.users.big`, of the first thing that is wrong.
    """
    root = Sharer("", 1, _members(content, place, DEPTH_MAX))

    users: set[str] = set()
    for leaf in root.leaves():
        if leaf.name in users:
            raise InputError(place, f"names the user {leaf.name!r} twice; a user has one place in the tree")
        users.add(leaf.name)
    return root


def _members(content: Any, place: str, depth: int) -> tuple[Sharer, ...]:
    if not isinstance(content, Mapping):
        raise InputError(place, f"expected a table of users and their weights, not {content!r}")

    if not content:
        raise InputError(place, "names no user; give at least one, as { ann = 1 }")

    if not depth:
        raise InputError(place, f"lies deeper than {DEPTH_MAX} organisations; flatten the tree")
    return tuple(_member(name, entry, f"{place}.{name}", depth) for name, entry in content.items())


def _member(name: Any, entry: Any, place: str, depth: int) -> Sharer:
    if not isinstance(name, str) or not name:
        raise InputError(place, f"{name!r} is not a name")
    if not isinstance(entry, Mapping):
        return Sharer(name, _weight(entry, place))

    for key in entry:
        if key not in _KEYS:
            raise InputError(f"{place}.{key}", f"unknown key{suggestion(str(key), _KEYS)}")

    weight = _weight(entry.get("weight", 1), f"{place}.weight")
    members = _members(entry["users"], f"{place}.users", depth - 1) if "users" in entry else ()
    return Sharer(name, weight, members)


def _weight(value: Any, place: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= WEIGHT_MAX:
        raise _no_weight(value, place)
    return value


def _no_weight(value: Any, place: str) -> InputError:
    return InputError(place, f"{value!r} is not a weight: give a whole number from 1 to {WEIGHT_MAX}")


def parse_shares_text(text: str, place: str = "shares") -> Sharer:
    """The tree that a text such as `alt:1+dev:1(little:1+big:9)` describes.

    Raises:
        InputError: at the place, naming what was expected; or as `parse_shares`.
    """
    tokens: list[str] = _TOKEN.findall(text)[::-1]
    levels: list[dict[str, Any]] = [{}]
    while True:
        entry = _entry(tokens, levels[-1], text, place)

        if tokens[-1:] == ["("]:
            tokens.pop()
            entry["users"] = {}
            levels.append(entry["users"])
            continue

        while tokens[-1:] == [")"] and len(levels) > 1:
            tokens.pop()
            levels.pop()

        if not tokens:
            break
        if (token := tokens.pop()) != "+":
            raise InputError(place, f"{text!r} has {token!r} where '+' or the end belongs")

    if len(levels) > 1:
        raise InputError(place, f"{text!r} lacks a ')'")
    return parse_shares(levels[0], place)


def _entry(tokens: list[str], level: dict[str, Any], text: str, place: str) -> dict[str, Any]:
    """Read `NAME[:WEIGHT]` into a level; the tokens stand last first."""
    name = tokens.pop() if tokens else ""
    if not name or name in ":+()":
        found_text = repr(name) if name else "nothing"
        raise InputError(
            place, f"{text!r} has {found_text} where a name belongs; write NAME:WEIGHT+NAME:WEIGHT(NAME:..)"
        )

    if name in level:
        raise InputError(f"{place}.{name}", "is given twice; keep one")

    entry: dict[str, Any] = {"weight": 1}
    level[name] = entry
    if tokens[-1:] == [":"]:
        tokens.pop()
        number = tokens.pop() if tokens else ""
        if not (number.isascii() and number.isdigit() and len(number) < 12):
            raise _no_weight(number, f"{place}.{name}")
        entry["weight"] = int(number)
    return entry
