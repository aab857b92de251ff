"""Demand over supply, the formula of Pollaczek and Khinchine, the monitor and its reports."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.unit.architectures.parts import Alone, launched, messages, submit, tasks
from tests.unit.effects import TimerSet

from volery.architectures import configure, lookup
from volery.architectures.hybrid.messages import (
    Assign,
    CentralTasks,
    Crowded,
    Demanded,
    LongProbe,
    Probe,
    Reorder,
    Scarcity,
    WithdrawJob,
)
from volery.architectures.hybrid.phoenix import (
    LOAD_MAX,
    WINDOW,
    ConstraintDemand,
    Negotiation,
    RecentService,
    scarcity,
    supply,
)
from volery.core.errors import InputError
from volery.core.events import Cancel, JobDone, PeerLost, TaskFinished, TimerFired
from volery.core.model import SECOND, Cluster, Task
from volery.core.streams import Streams
from volery.roles.reservations import TaskRequest


def test_supply_counts_slots_of_machines_that_have_a_constraint() -> None:
    assert supply((0b101, 0b001, 0b000), (1, 3, 9)) == [4, 0, 1]


def test_the_crv_is_what_waits_everywhere_over_who_has_it() -> None:
    assert scarcity([(3, 0, 5), (1, 0, 0)], [4, 0, 10]) == [1.0, 0.0, 0.5]
    assert scarcity([], [4, 2]) == [0.0, 0.0]


def test_demand_counts_each_constraint_of_a_set() -> None:
    demand = ConstraintDemand(3)
    demand.add(0b101, 4)
    demand.add(0b001, 2)
    demand.add(0b101, -1)
    assert demand.counts == [5, 0, 3]


def served(services: list[int], gap_us: int, servers: int = 1) -> RecentService:
    recent = RecentService(servers)
    for number, ran_us in enumerate(services):
        recent.add(number * gap_us, ran_us)
    return recent


def test_constant_service_waits_half_as_long_as_exponential_service() -> None:
    """M/D/1: R S / (2 (1 - R)); M/M/1: R S / (1 - R)."""
    constant = served([100] * WINDOW, 200)
    assert constant.load() == pytest.approx(0.5)
    assert constant.wait_us(0.5) == pytest.approx(50)
    assert constant.wait_us(0.9) == pytest.approx(450)
    stream = Random(0)
    waits = [served([int(stream.expovariate(1e-4)) for _ in range(WINDOW)], 1).wait_us(0.5) for _ in range(200)]
    assert sum(waits) / len(waits) == pytest.approx(10_000, rel=0.05)


def test_load_is_per_slot_and_clipped() -> None:
    assert served([100] * 10, 200, servers=2).load() == pytest.approx(0.25)
    assert served([100] * 10, 100).load() == LOAD_MAX
    assert served([100] * 10, 0).load() == LOAD_MAX
    assert served([0] * 10, 0).load() == 0.0


def test_fewer_than_two_tasks_tell_nothing() -> None:
    recent = RecentService(1)
    assert (recent.load(), recent.wait_us(0.5)) == (0.0, 0.0)
    recent.add(0, 100)
    assert recent.load() == 0.0


def test_only_the_last_tasks_count() -> None:
    recent = served([1_000] * WINDOW + [10] * WINDOW, 100)
    assert recent.load() == pytest.approx(0.1)
    assert recent.wait_us(0.5) == pytest.approx(5)


def test_the_scarcest_soft_constraints_are_given_up_until_a_machine_fits() -> None:
    negotiation = Negotiation(0b110, (9, 4, 4))
    negotiation.thousandths = (0, 100, 900)
    task = Task(0, 0, 0b111)
    admitted, dropped = negotiation.admitted(task, lambda needs: needs in (0b011, 0b001))
    assert (admitted.constraints, dropped) == (0b011, 1)
    admitted, dropped = negotiation.admitted(task, lambda needs: needs == 0b001)
    assert (admitted.constraints, dropped) == (0b001, 2)


def test_a_task_is_left_as_it_is_where_giving_up_is_not_needed_or_of_no_use() -> None:
    negotiation = Negotiation(0b110, (9, 4, 4))
    task = Task(0, 0, 0b111)
    assert negotiation.admitted(task, lambda needs: True) == (task, 0)
    assert negotiation.admitted(task, lambda needs: False) == (task, 0)
    hard = Task(1, 0, 0b001)
    assert negotiation.admitted(hard, lambda needs: False) == (hard, 0)


SCHEDULER, CENTRAL, NODE, MONITOR = "scheduler/0", "central/0", "node/0", "monitor/0"
BEAT = TimerFired("beat")
LONG_US = 2_000 * SECOND
TASKS = tasks(0, *[0] * 60)
SCARCE = 0b10
"""The set of constraint 1."""
CLUSTER = Cluster((0b11, 0b01, 0b01, 0b01), (1,) * 4)


def phoenix(address: str, cluster: Cluster = CLUSTER, **parameters: Any) -> Alone:
    return Alone("phoenix", address, cluster, schedulers=1, short_part=0.0, **parameters)


def probe(number: int, needs: int = 0, estimate_us: int = 10, left: int = 1) -> Probe:
    return Probe(number, number, estimate_us, estimate_us * left, needs)


def asked(effects: list[Any]) -> list[int]:
    return [message.number for _, message in messages(effects, TaskRequest)]


class Served:
    """A worker with one slot, and which reservations it serves in turn when its slot frees again and again."""

    def __init__(self, **parameters: Any) -> None:
        self.alone = phoenix(NODE, **parameters)
        self.requests = 0
        self.hear(probe(100))

    def hear(self, *waiting: Probe | LongProbe) -> None:
        for one in waiting:
            self.requests += len(asked(self.alone.hear(one, SCHEDULER)))

    def next(self, left: int = 0) -> list[int]:
        """Run what was asked for, and see what the slot asks for afterwards."""
        task = TASKS[self.requests % len(TASKS)]
        assert launched(self.alone.hear(Assign(self.requests, task, left), SCHEDULER)) == [task.id]
        said = asked(self.alone.hear(TaskFinished(task, 0), NODE))
        self.requests += len(said)
        return said

    def order(self, count: int) -> list[int]:
        return [number for _ in range(count) for number in self.next()]


def test_without_word_from_the_monitor_the_worker_is_eagles() -> None:
    served = Served()
    served.hear(probe(2, 0, 30, 3), probe(4, SCARCE, 40), probe(6, 0, 20))
    assert served.order(3) == [6, 4, 2], "least remaining work first"


def test_tasks_with_the_scarcest_constraint_go_first_in_their_order_and_the_others_by_remaining_work() -> None:
    served = Served()
    served.hear(probe(2, 0, 30, 3), probe(4, SCARCE, 40), probe(6, 0, 20), probe(8, SCARCE | 1, 10))
    served.alone.hear(Reorder(1), MONITOR)
    assert served.order(4) == [4, 8, 6, 2]


def test_nothing_is_passed_more_than_five_times() -> None:
    """Section IV: a task with a slack of 5 may not be passed any more; it is served before the seventh."""
    served = Served()
    served.hear(probe(2))
    served.alone.hear(Reorder(1), MONITOR)
    served.hear(*[probe(10 + 2 * k, SCARCE) for k in range(7)])
    assert served.order(8) == [10, 12, 14, 16, 18, 2, 20, 22]


def test_a_task_that_has_been_passed_five_times_is_not_passed_after_a_pause_either() -> None:
    served = Served(reorder_max=1)
    served.hear(probe(2, 0, 30), probe(4, SCARCE, 40), probe(6, SCARCE, 40))
    served.alone.hear(Reorder(1), MONITOR)
    assert served.next() == [4]
    served.alone.hear(Reorder(-1), MONITOR)
    served.alone.hear(Reorder(1), MONITOR)
    assert served.next() == [2]


def test_long_tasks_neither_pass_nor_are_passed() -> None:
    served = Served()
    served.hear(LongProbe(3, 3, 9_000, 9_000, 1, b""), probe(4, SCARCE))
    served.alone.hear(Reorder(1), MONITOR)
    assert served.order(1) == [3]


def test_reservations_do_not_stick_while_the_order_is_by_scarcity() -> None:
    served = Served()
    served.hear(probe(2, 0, 10, 3))
    assert served.next() == [2]
    assert served.next(left=2) == [2], "Eagle's sticks"
    served.alone.hear(Reorder(1), MONITOR)
    assert served.next(left=1) == [2], "it was asked for before and waits still"
    assert served.next(left=1) == [], "the one that is taken now does not stay"


def test_the_order_ends_with_the_monitor_and_jumps_are_counted_when_it_ends() -> None:
    served = Served()
    served.hear(probe(2, 0, 10), probe(4, SCARCE, 40), probe(6, 0, 10), probe(8, SCARCE, 40))
    served.alone.hear(Reorder(1), MONITOR)
    assert served.order(1) == [4]
    assert served.alone.facts(PeerLost("somebody/0")) == {}
    assert served.alone.facts(PeerLost(MONITOR)) == {"reordered_tasks": 1}
    assert served.order(3) == [2, 6, 8], "Eagle's order again"


def run_back_to_back(alone: Alone, first: int, count: int, gap_us: int, ran_us: int) -> list[Any]:
    """So many tasks, of which each runs at once; the effects of the last end."""
    said: list[Any] = []
    for k in range(first, first + count):
        begin = k * gap_us
        alone.hear(probe(2 * k + 200), SCHEDULER, begin)
        alone.hear(Assign(k + 1, TASKS[k], 0), SCHEDULER, begin)
        said = alone.hear(TaskFinished(TASKS[k], 0), NODE, begin + ran_us)
    return said


def test_a_worker_tells_at_the_heartbeat_that_its_queue_has_become_crowded_and_nothing_else() -> None:
    alone = phoenix(NODE, heartbeat_s=9)
    said = run_back_to_back(alone, 0, 20, 1_000, 500)
    assert not [effect for effect in said if isinstance(effect, TimerSet)], "a load of one half is not crowded"
    crowding = [effect for k in range(20, 24) for effect in run_back_to_back(alone, k, 1, 1_000, 20_000)]
    assert [effect for effect in crowding if isinstance(effect, TimerSet)] == [TimerSet("beat", 9 * SECOND)]
    ((to, report),) = messages(alone.hear(BEAT, NODE, 9 * SECOND), Crowded)
    assert (to, report.crowded) == (MONITOR, True)
    assert report.wait_us > 9 * 20_000
    assert alone.hear(BEAT, NODE, 18 * SECOND) == [], "no change, no message"


def monitor(**parameters: Any) -> Alone:
    return phoenix(MONITOR, **parameters)


def told(alone: Alone, event: Any, source: str) -> list[Any]:
    """What the monitor says when all that came in the instant is heard."""
    said = [effect for effect in alone.hear(event, source) if not isinstance(effect, TimerSet)]
    return said + alone.hear(TimerFired("heard"), MONITOR)


def test_crowded_workers_are_told_the_constraint_of_the_largest_crv_and_nobody_else() -> None:
    alone = monitor()
    assert told(alone, Crowded(True, 5), NODE) == []
    assert told(alone, Demanded((4, 1)), SCHEDULER) == [], "4 of 4 and 1 of 1 workers: not above 1"
    assert told(alone, Demanded((3, 2)), CENTRAL) == [(NODE, Reorder(1))], "7 of 4, 3 of 1"
    assert told(alone, Demanded((9, 2)), CENTRAL) == [(NODE, Reorder(0))], "13 of 4, 3 of 1"
    assert told(alone, Crowded(True, 7), "node/2") == [("node/2", Reorder(0))]
    assert told(alone, Crowded(False, 0), NODE) == [(NODE, Reorder(-1))]
    assert told(alone, Demanded((0, 0)), CENTRAL) == [("node/2", Reorder(-1))]


def test_schedulers_hear_of_the_crv_where_they_may_negotiate() -> None:
    assert told(monitor(soft_constraints=(1,)), Demanded((2, 3)), SCHEDULER) == [(SCHEDULER, Scarcity((500, 3000)))]
    assert told(monitor(), Demanded((2, 0)), SCHEDULER) == []


def test_the_monitor_counts_its_messages() -> None:
    alone = monitor()
    alone.hear(Crowded(True, 5), NODE)
    alone.hear(Demanded((9, 0)), SCHEDULER)
    facts = alone.facts(TimerFired("heard"), MONITOR)
    assert facts == {"monitor_messages": 3, "crowded_workers": 1}


def demanded(alone: Alone) -> list[tuple[int, ...]]:
    """What a scheduler reports at its heartbeat."""
    return [message.counts for _, message in messages(alone.hear(BEAT, alone.port.address), Demanded)]


def test_a_scheduler_reports_tasks_that_wait_not_probes_and_only_changes() -> None:
    alone = phoenix(SCHEDULER)
    said = alone.hear(submit(0, 0b01, 0b11, 0))
    assert TimerSet("beat", 9 * SECOND) in said
    assert demanded(alone) == [(2, 1)]
    assert demanded(alone) == []
    (node, sent), *_ = [(to, p) for to, p in messages(said, Probe) if p.needs == 0b01]
    alone.hear(TaskRequest(sent.batch, sent.number, 1, 0), node)
    assert demanded(alone) == [(1, 1)]
    alone.hear(Cancel(0))
    assert demanded(alone) == [(0, 0)]


def test_the_central_scheduler_reports_long_tasks_that_wait() -> None:
    alone = phoenix(CENTRAL)
    job = CentralTasks(1, False, LONG_US, tasks(1, 0b01, 0b11, 0b11, estimate_us=LONG_US))
    said = messages(alone.hear(job, SCHEDULER), LongProbe)
    assert demanded(alone) == [(3, 2)]
    node, first = said[0]
    alone.hear(TaskRequest(first.batch, first.number, 1, 0), node)
    assert demanded(alone) == [(2, 2)]
    alone.hear(WithdrawJob(1), SCHEDULER)
    assert demanded(alone) == [(0, 0)]


THREE = Cluster((0b0011, 0b0101, 0b0001, 0b1001), (1,) * 4)
"""All machines have constraint 0; one each has 1, 2 and 3; none has two of those."""


def probed_for(alone: Alone, *needs: int) -> set[int]:
    return {message.needs for _, message in messages(alone.hear(submit(0, *needs)), Probe)}


def test_a_soft_constraint_is_dropped_where_no_worker_has_all_and_never_a_hard_one() -> None:
    assert probed_for(phoenix(SCHEDULER, THREE, soft_constraints=(1,)), 0b0110) == {0b0100}
    assert probed_for(phoenix(SCHEDULER, THREE, soft_constraints=(1,)), 0b0011) == {0b0011}, "that can be met"
    hard = phoenix(SCHEDULER, THREE).hear(submit(0, 0b0110))
    assert [message for _, message in messages(hard, JobDone)] == [JobDone(0, 1)]
    both = phoenix(SCHEDULER, THREE, soft_constraints=(0,)).hear(submit(0, 0b0111))
    assert [message for _, message in messages(both, JobDone)] == [JobDone(0, 1)], "1 and 2 are hard and too much"


def test_of_several_soft_constraints_the_scarcest_is_dropped_first_and_no_more_than_it_takes() -> None:
    alone = phoenix(SCHEDULER, THREE, soft_constraints=(1, 2, 3))
    alone.hear(Scarcity((0, 500, 2_000, 1_000)), MONITOR)
    assert probed_for(alone, 0b0110) == {0b0010}
    alone.hear(Scarcity((0, 3_000, 2_000, 1_000)), MONITOR)
    assert {m.needs for _, m in messages(alone.hear(submit(1, 0b1110)), Probe)} == {0b1000}
    assert alone.facts(submit(2))["negotiated_constraints"] == 2, "the first was told when the second job came"


def test_a_constraint_that_no_machine_has_goes_first() -> None:
    alone = phoenix(SCHEDULER, THREE, soft_constraints=(1, 40))
    assert probed_for(alone, 1 << 40 | 0b0010) == {0b0010}


def test_a_constraint_has_a_number() -> None:
    design = lookup("phoenix")
    with pytest.raises(InputError, match="phoenix:soft_constraints: constraints are numbered from 0"):
        design.build(CLUSTER, configure(design, {"soft_constraints": (-1,)}), Streams(0))
