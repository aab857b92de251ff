"""Processing costs of real hosts: the model that `volery calibrate` measures live and the lab charges.

A **host** is one processor that several roles share, as the components of a live host share its process. It works in
turns: a turn takes everything in that waits, and what it leads to on the same host; its launches and its messages to
other hosts leave when it ends. An event costs `event_us`, `task_us` per task that it carries, and `rested_us` more
when the host has not handled one of its kind for long: caches forget. After a rest of `rest_half_us` it is half of it.

Hosts that are processes of their own exchange **frames**: all messages of a turn to another host. Making a frame,
writing it to the socket and reading it there is work of these hosts, beside its time on the way. Where hosts share
**cores**, a host with work waits for a free core.

Costs of a host are fractions of microseconds; they are rounded once per turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

Microseconds = Annotated[float, msgspec.Meta(ge=0)]


class EventCost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The cost of one kind of event.

    Args:
        event_us: Cost of each event, when the last one was a moment ago.
        task_us: Further cost per task that it carries.
        rested_us: Further cost, at most, after a rest; once per turn.
        entry_us: Further cost per machine whose state it contains.
        change_us: Further cost per slot that it frees or takes; a snapshot of slots frees all that are free.
    """

    event_us: Microseconds = 0.0
    task_us: Microseconds = 0.0
    rested_us: Microseconds = 0.0
    entry_us: Microseconds = 0.0
    change_us: Microseconds = 0.0


OTHER = "other"
"""The key for events of a role that were not measured."""
NOTHING = EventCost()


class HostCosts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The costs of one host, by role and event.

    Args:
        roles: Role -> name of an event's type -> cost; `submitter`: the cost of a submission to a host
            that the submitter shares.
        turn: Cost of a turn beside its events.
        sends: Name of a message's type -> cost of making it for another host, beside the event that leads to it.
        launch: Cost of each launch when the turn has ended; a task starts when those before it have been launched.
        rest_half_us: Rest after which half of `rested_us` is charged.
        each: True if every component of these roles has a processor of its own.
        made: Cost of making a frame for another host; `task_us` is as `carried` counts.
        written: Cost of writing the frames of a turn, once; `task_us` is per frame.
        read: Cost of reading a frame; `task_us` is as `carried` counts.
        reports: True if it reports each start and end of a task to the submitter, as hosts with nodes do.
    """

    roles: dict[str, dict[str, EventCost]]
    turn: EventCost = NOTHING
    launch: EventCost = NOTHING
    rest_half_us: Annotated[float, msgspec.Meta(gt=0)] = 1000.0
    each: bool = False
    sends: dict[str, EventCost] = {}
    made: EventCost = NOTHING
    written: EventCost = NOTHING
    read: EventCost = NOTHING
    reports: bool = False

    def of(self, role: str, event: str) -> EventCost:
        """The cost of an event."""
        costs = self.roles.get(role, {})
        return costs.get(event) or costs.get(OTHER, NOTHING)


class Frames(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The network between hosts that are processes of their own.

    Args:
        delays_us: Delays of frames, as measured, equally likely: each frame draws one. From its having been written to
            its receiver's beginning to read it, where the receiver is at rest.
        broker_us: Part of that during which the broker works.
        cores: Count of cores that the hosts and the broker share; 0: each has one of its own.
    """

    delays_us: Annotated[tuple[Annotated[int, msgspec.Meta(ge=0)], ...], msgspec.Meta(min_length=1)]
    broker_us: Microseconds = 0.0
    cores: Annotated[int, msgspec.Meta(ge=0)] = 0


class CostModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of a file of costs.

    Args:
        delay_us: Delay of a message between two hosts.
        links: "Sender's role:receiver's role" -> delay, where it is another.
        costs: Role -> whole microseconds per message, for roles with a processor to each component.
        hosts: Name -> roles that share a processor.
        frames: Network between these hosts, where it was measured; then `delay_us` is for components on none.
    """

    delay_us: Annotated[int, msgspec.Meta(ge=0)] | None = None
    links: dict[str, Annotated[int, msgspec.Meta(ge=0)]] = {}
    costs: dict[str, Annotated[int, msgspec.Meta(ge=0)]] = {}
    hosts: dict[str, HostCosts] = {}
    frames: Frames | None = None


def entries_in(event: Any) -> int:
    """The count of machines whose state an event contains: its `entries`."""
    entries: int = getattr(event, "entries", 0)
    return entries


def changes_in(event: Any) -> int:
    """The count of slots that an event frees or takes: its `changed_slots`."""
    slots: int = getattr(event, "changed_slots", 0)
    return slots


def carried(messages: Iterable[Any]) -> int:
    """The load of a frame, by which `task_us` of making and reading it is charged: messages, or their tasks."""
    return sum(max(1, tasks_in(message)) for message in messages)


def tasks_in(event: Any) -> int:
    """The count of tasks in an event: the length of its `tasks`, or of its job's."""
    # MoreTasks and messages of designs have tasks of their own, Submit has them in its job.
    tasks = getattr(event, "tasks", None)
    return len(getattr(getattr(event, "job", None), "tasks", ()) if tasks is None else tasks)
