"""Handlers that are methods of a component's parts."""

from __future__ import annotations

from typing import Any

from volery.core.component import Handler, UnknownMessageError, unknown
from volery.core.events import Event
from volery.core.model import Address, Time


def of_part(name: str, method: str) -> Handler:
    """The handler, for the table of a component, that hands an event to a method of one of its parts.

    Args:
        name: of the part, an attribute of the component.
        method: takes the event, its source and the time; UnknownMessageError where the component has no such part, or
            the part no such method.
    """

    def deliver(component: Any, event: Event, source: Address, now: Time) -> None:
        handler = getattr(getattr(component, name, None), method, None)
        if handler is None:
            raise UnknownMessageError(unknown(component, event, source, now))
        handler(event, source, now)

    return deliver
