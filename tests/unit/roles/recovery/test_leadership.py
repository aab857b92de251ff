"""Leadership as tables: no state is without a way out, and what a table does not permit raises with the story."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import pytest
from tests.unit.roles.recovery.test_election import NODES, PAIR, Bench, leading

from volery.core.events import PeerBack, PeerLost, TimerFired
from volery.roles.recovery.leadership import (
    CONTACT,
    LEADER,
    NODE,
    Contact,
    ContactEvent,
    LeaderEvent,
    LeaderState,
    NodeEvent,
    NodeState,
)

TABLES: list[tuple[Mapping[Any, Any], type[Enum], type[Enum]]] = [
    (LEADER, LeaderState, LeaderEvent),
    (NODE, NodeState, NodeEvent),
    (CONTACT, Contact, ContactEvent),
]


@pytest.mark.parametrize(("table", "states", "events"), TABLES, ids=["leader", "node", "contact"])
def test_every_state_is_reached_and_left_and_every_event_is_permitted_somewhere(
    table: Mapping[Any, Any], states: type[Enum], events: type[Enum]
) -> None:
    moves = {(state, following) for (state, _), (following, _) in table.items() if state is not following}
    assert {state for state, _ in moves} == set(states)
    assert {following for _, following in moves} | {NodeState.UNREPORTED} >= set(states), "a claim begins with it"
    assert {event for _, event in table} == set(events)


def test_only_a_report_or_the_voters_make_a_node_usable() -> None:
    ways = {(state, event) for (state, event), (following, _) in NODE.items() if following is NodeState.REPORTED}
    assert {event for _, event in ways} == {NodeEvent.REPORT, NodeEvent.CONFIRMED}
    assert (NodeState.UNCONFIRMED, NodeEvent.REPORT) not in ways


def test_an_illegal_transition_raises_with_the_last_ones() -> None:
    leader = leading()
    leader.take(PeerLost(NODES[0]), PAIR[0])
    leader.take(PeerBack(NODES[0]), PAIR[0])
    problem = "m/0, epoch 0: node/0 is PRESENT and cannot take LEASE_OVER; "
    story = "transitions before: node/0 PRESENT LOSS, node/0 LOST RETURN"
    with pytest.raises(AssertionError, match=problem + story):
        leader.take(TimerFired(("lease", NODES[0])), PAIR[0])


def test_masters_own_the_epochs_in_turn() -> None:
    first, second = (Bench(me).master.leadership for me in (0, 1))
    assert [first.next_epoch(above) for above in range(-1, 4)] == [0, 2, 2, 4, 4]
    assert [second.next_epoch(above) for above in range(-1, 4)] == [1, 1, 3, 3, 5]
