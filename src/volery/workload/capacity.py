"""What machines offer, as options and files say it: amounts of named resources, and machines turned into slots."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from volery.core.errors import InputError
from volery.core.model import AMOUNT_MAX, Amounts, Cluster
from volery.core.trace import Trace
from volery.workload.requests import check_names


def parse_amounts(text: str, place: str) -> dict[str, int]:
    """Read `cpu_milli=64000,memory_mb=16384`.

    Raises:
        InputError: at `place`, when it is not of that form.
    """
    found: dict[str, int] = {}
    for part in text.split(","):
        name, equals, number = (word.strip() for word in part.partition("="))
        if not (equals and number.isascii() and number.isdigit() and int(number) <= AMOUNT_MAX):
            form = "RESOURCE=UNITS,..., whole numbers, as cpu_milli=64000,memory_mb=16384"
            raise InputError(place, f"{part.strip()!r} is not of the form {form}")
        if name in found:
            raise InputError(place, f"{name!r} is given twice; keep one")
        found[name] = int(number)
    check_names(tuple(found), place)
    return found


def in_order_of(names: Sequence[str], amounts: dict[str, int], place: str) -> Amounts:
    """The amounts of these resources; others that are given are not wanted.

    Raises:
        InputError: one is missing.
    """
    for name in names:
        if name not in amounts:
            raise InputError(place, f"says nothing of {name}, which tasks ask for; add {name}=N")
    return tuple(amounts[name] for name in names)


def offering(cluster: Cluster, names: tuple[str, ...], capacities: Sequence[Amounts]) -> Cluster:
    """The cluster with machines that offer amounts instead of slots."""
    slots = (1,) * len(cluster.constraints)
    return msgspec.structs.replace(cluster, slots=slots, resources=names, capacities=tuple(capacities))


def as_slots(trace: Trace, cluster: Cluster, slot_request: str, place: str) -> tuple[Trace, Cluster]:
    """Workload and machines for designs that know slots alone.

    Every machine has as many slots as it holds of `slot_request`, one at least, and every task takes one slot.

    Args:
        trace: whose tasks ask for amounts.
        cluster: with capacities.
        slot_request: what one slot stands for, as `cpu_milli=1000,memory_mb=256`.
        place: of the option, for errors.

    Raises:
        InputError: the cluster has slots already, or the amounts are wrong.
    """
    if not cluster.resources:
        raise InputError(place, "machines have slots already; leave it out, or give --capacity")
    amounts = in_order_of(cluster.resources, parse_amounts(slot_request, place), place)
    if not any(amounts):
        raise InputError(place, "stands for nothing at all; give one resource at least one unit")
    slots = [
        max(1, min(offered // asked for offered, asked in zip(capacity, amounts, strict=True) if asked))
        for capacity in cluster.capacities
    ]
    plain = msgspec.structs.replace(trace, resources=(), requests=(), request=trace.request[:0])
    name = f"{cluster.name}, slots of {slot_request}"
    return plain, msgspec.structs.replace(cluster, slots=tuple(slots), name=name, resources=(), capacities=())
