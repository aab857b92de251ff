"""The register of scripts, and what they are written with."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from volery.conformance.cases import Case, trace_of
from volery.core.model import Cluster

SCRIPTS: dict[str, Callable[[], str]] = {}


def script(render: Callable[[], str]) -> Callable[[], str]:
    """Register a script under its file's name."""
    SCRIPTS[render.__name__] = render
    return render


def bits(*constraints: int) -> int:
    """The constraint set with these numbers."""
    return sum(1 << constraint for constraint in constraints)


def case(
    arrivals_us: Sequence[int],
    jobs_us: Sequence[Sequence[int]],
    machines: Sequence[int],
    needs: Sequence[Sequence[int]] = (),
) -> Case:
    """A case on machines of one slot with these constraint sets."""
    cluster = Cluster(tuple(machines), (1,) * len(machines))
    return Case("script", 0, trace_of("script", arrivals_us, jobs_us, needs), cluster)


def responses(text: str) -> list[float]:
    """The response times at the end of a transcript, seconds."""
    return [float(found) for found in re.findall(r"response ([0-9.]+) s", text)]


def counter(text: str, name: str) -> int:
    """A counter at the end of a transcript; 0 when it is not there."""
    found = re.search(rf"^{name}: ([0-9]+)$", text, re.MULTILINE)
    return int(found[1]) if found else 0
