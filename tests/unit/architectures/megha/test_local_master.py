"""Megha's Local Master and nodes: events in, effects out (Thiyyakat et al., IoT 2023, sections 2.1 and 4.4)."""

from __future__ import annotations

from typing import Any

from tests.unit.architectures.megha.words import news, refusal, request
from tests.unit.architectures.parts import Alone, launched, messages, tasks
from tests.unit.effects import Observed, TimerSet

from volery.architectures.megha.messages import Refusal, StateUpdate, TasksEnded
from volery.core.events import Counted, TaskFinished, TimerFired
from volery.core.model import Cluster
from volery.roles.node import Completed, Launch

A, B, C = tasks(0, 0, 0, 0)
PERIOD_US = 5_000_000


def lm(**parameters: Any) -> Alone:
    """lm/0 of two GMs: partition 0 (node/0, node/1) is gm/0's, partition 1 (node/2, node/3) gm/1's."""
    return Alone("megha", "lm/0", Cluster.uniform(4), **{"gms": 2, "lms": 1, **parameters})


def fire(master: Alone, effects: list[Any], now: int) -> list[Any]:
    """Let the timers go off that were set for now, in order."""
    follow_up = []
    for effect in effects:
        if isinstance(effect, TimerSet) and effect.at <= now:
            follow_up += master.hear(TimerFired(effect.key), "lm/0", now)
    return follow_up


def heartbeat(master: Alone, effects: list[Any]) -> list[Any]:
    """What the heartbeat says that was set among these effects."""
    (beat,) = [effect for effect in effects if isinstance(effect, TimerSet) and effect.at % PERIOD_US == 0]
    return master.hear(TimerFired(beat.key), "lm/0", beat.at)


def test_valid_placements_are_launched_in_order_and_a_heartbeat_is_set() -> None:
    effects = lm().hear(request(1, 0, (A, 0), (B, 1)), "gm/0", 700)
    assert messages(effects, Launch) == [("node/0", Launch(1, A)), ("node/1", Launch(2, B))]
    assert [effect.at for effect in effects if isinstance(effect, TimerSet)] == [PERIOD_US]


def test_an_invalid_placement_is_refused_with_the_news_that_the_gm_lacks() -> None:
    """The piggybacked state of section 2.1."""
    master = lm()
    master.hear(request(1, 1, (A, 0)), "gm/0")
    effects = master.hear(request(1, 1, (B, 0), (C, 1)), "gm/1")
    assert messages(effects, Launch) == [("node/3", Launch(2, C))]
    assert messages(effects, Refusal) == [("gm/1", refusal((B.id,), news(1, {})))]
    master.hear(request(2, 0, (B, 1)), "gm/1")
    third = tasks(1, 0)[0]
    ((to, refused),) = messages(master.hear(request(2, 0, (third, 1)), "gm/0"), Refusal)
    assert (to, refused) == ("gm/0", refusal((third.id,), news(1, {1: (0, 0b10)}))), "gm/0 has not heard of C"


def test_a_repeated_request_is_ignored() -> None:
    master = lm()
    master.hear(request(1, 0, (A, 0)), "gm/0")
    assert master.hear(request(1, 0, (A, 0)), "gm/0") == []


def test_a_heartbeat_tells_each_gm_what_it_cannot_know_and_then_falls_silent() -> None:
    """Deltas per GM (section 4.4); nothing is sent that says nothing."""
    master = lm()
    effects = master.hear(request(1, 0, (A, 0)), "gm/0")
    said = heartbeat(master, effects)
    assert said == [("gm/1", news(1, {0: (0, 0b01)}))]
    assert not any(isinstance(effect, TimerSet) for effect in said), "no timer keeps the system alive"


def test_what_was_taken_and_freed_between_two_updates_is_never_mentioned() -> None:
    master = lm()
    effects = master.hear(request(1, 0, (A, 0)), "gm/0", 10)
    fire(master, master.hear(Completed(A.id), "node/0", 20), 20)
    assert messages(heartbeat(master, effects), StateUpdate) == []


def test_the_owner_hears_of_a_completion_in_its_instant_and_the_unit_is_free() -> None:
    master = lm()
    master.hear(request(1, 0, (A, 0), (B, 1)), "gm/0", 10)
    effects = master.hear(Completed(A.id), "node/0", 20)
    effects += master.hear(Completed(B.id), "node/1", 20)
    told = messages(effects + fire(master, effects, 20), TasksEnded)
    assert sorted(task for to, message in told for task in message.tasks if to == "gm/0") == [A.id, B.id]
    assert messages(master.hear(request(2, 0, (C, 0)), "gm/0", 30), Launch) == [("node/0", Launch(3, C))]


def test_a_repeated_completion_is_ignored() -> None:
    master = lm()
    master.hear(request(1, 0, (A, 0)), "gm/0", 10)
    fire(master, master.hear(Completed(A.id), "node/0", 20), 20)
    assert master.hear(Completed(A.id), "node/0", 30) == []


def test_own_completions_are_repeated_only_where_the_first_design_is_asked_for() -> None:
    """Section 4.4: the cause of inconsistencies that the revised design removes."""
    for completion_notice, expected in (("once", []), ("twice", [("gm/0", news(1, {0: (0b01, 0)}))])):
        master = lm(completion_notice=completion_notice)
        effects = master.hear(request(1, 0, (A, 0)), "gm/0", 10)
        fire(master, master.hear(Completed(A.id), "node/0", 20), 20)
        assert messages(heartbeat(master, effects), StateUpdate) == expected


def test_snapshots_carry_the_whole_state_of_all_partitions() -> None:
    master = lm(updates="snapshots")
    effects = master.hear(request(1, 0, (A, 0)), "gm/0", 10)
    whole = news(1, {0: (0b10, 0), 1: (0b11, 0)}, snapshot=True)
    assert messages(heartbeat(master, effects), StateUpdate) == [("gm/1", whole)]


def test_update_entries_are_counted() -> None:
    master = lm()
    effects = master.hear(request(1, 0, (A, 0), (B, 1)), "gm/0", 10)
    (beat,) = [effect for effect in effects if isinstance(effect, TimerSet)]
    master.component.handle(TimerFired(beat.key), "lm/0", beat.at)
    counted = [effect.fact for effect in master.port.drain() if isinstance(effect, Observed)]
    assert sum(fact.amount for fact in counted if isinstance(fact, Counted)) == 2


def test_a_node_launches_each_number_once_and_reports_to_its_local_master() -> None:
    node = Alone("megha", "node/3", Cluster.uniform(4), gms=2, lms=2)
    assert launched(node.hear(Launch(1, A), "lm/1")) == [A.id]
    assert node.hear(Launch(1, A), "lm/1") == []
    assert node.hear(TaskFinished(A, 0), "node/3") == [("lm/1", Completed(A.id))]
