"""Tasks that fail: they have ended like those that succeed. Whether they run again is for the submitter to say."""

from __future__ import annotations

import msgspec

from volery.conformance.cases import mixed_cases
from volery.conformance.verdict import check, demand, run
from volery.conformance.watching import Watch
from volery.core.component import Architecture, Component
from volery.core.events import Event, TaskFinished
from volery.core.model import Address

EVERY = 3
"""Of so many tasks one fails."""


class _Failures(Watch):
    """Tells whoever launched them that some tasks have failed."""

    def event(self, component: Component, event: Event, source: Address, address: Address) -> None:
        if isinstance(event, TaskFinished) and event.outcome == "finished" and event.task.id % EVERY == 0:
            event = msgspec.structs.replace(event, outcome="failed")
        super().event(component, event, source, address)


@check
def check_failed_tasks_are_over(architecture: Architecture) -> None:
    """With every third task failing at its end instead of succeeding, the digest is the same."""
    for case in mixed_cases(seed=14):
        plain = run(architecture, case).digest()
        failing = run(architecture, case, watch=_Failures()).digest()
        demand(plain == failing, f"tasks that fail change the result of case {case.name!r}")
