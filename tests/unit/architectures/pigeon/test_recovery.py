"""Recovery of masters and machines: what distributors send again, and what a master of a pair takes over."""

from __future__ import annotations

from typing import Any

from tests.unit.architectures.parts import Alone, submit
from tests.unit.effects import Observed, RecordingPort, Sent

from volery.architectures.pigeon.messages import Deal, Lost, Report, Withdraw, Withdrawn
from volery.core.events import Cancel, JobDone, PeerLost
from volery.core.model import Address, Cluster, Task
from volery.roles.node import Kill
from volery.roles.recovery.channel import Linked
from volery.roles.recovery.leases import Forget, Lead, LeaderStatus, Result, Run, RunningAttempt, StaleEpoch, Status

FIRST, STANDBY, DEALER = "master/0", "master/0/standby", "distributor/0"


class Bare:
    """A component without its link: events in, messages out."""

    def __init__(self, address: Address, machines: int = 1) -> None:
        parameters: dict[str, Any] = {"groups": 1, "reserved": 0, "distributors": 1, "reliable": True}
        linked = Alone("pigeon", address, Cluster.uniform(machines), **parameters).component
        assert isinstance(linked, Linked)
        self.component = linked.inner
        self.port = RecordingPort.under(self.component, address)
        self.component.start(0)

    def hear(self, event: Any, source: Address) -> list[tuple[Address, Any]]:
        self.component.handle(event, source, 0)
        self.component.check()
        sent = [effect for effect in self.port.drain() if not isinstance(effect, Observed)]
        return [(effect.to, effect.message) for effect in sent if isinstance(effect, Sent)]


def dealt(effects: list[tuple[Address, Any]]) -> list[tuple[Address, int, tuple[int, ...], tuple[int, ...]]]:
    """Receiver, epoch, tasks and attempts of all that is dealt."""
    return [
        (to, deal.epoch, tuple(task.id for task in deal.tasks), deal.attempts)
        for to, deal in effects
        if isinstance(deal, Deal)
    ]


def active(task: int, attempt: int = 0, unit: int = 0) -> RunningAttempt:
    return RunningAttempt(task, 0, attempt, DEALER, unit)


def test_tasks_that_a_settled_leader_does_not_know_of_are_sent_again() -> None:
    one = Bare(DEALER)
    assert dealt(one.hear(submit(0, 0, 0), "submitter")) == [(FIRST, 0, (0, 1), (0, 0))]
    assert not one.hear(Report(1, whole=False, settled=True, running=()), STANDBY), "a leader's first report is whole"
    assert not one.hear(Report(1, whole=True, settled=False, running=(active(0),)), STANDBY)
    assert dealt(one.hear(Report(1, whole=False, settled=True, running=()), STANDBY)) == [(STANDBY, 1, (1,), (1,))]
    assert one.hear(LeaderStatus(-1, False), FIRST) == [(FIRST, StaleEpoch(1))]
    assert not one.hear(Report(0, whole=True, settled=True, running=()), FIRST), "deposed"


def test_a_new_leader_that_knows_of_an_attempt_that_the_former_one_has_lost_knows_nothing_of_its_successor() -> None:
    """It wrote its report before the machine crashed; the former leader may run the second attempt."""
    one = Bare(DEALER)
    one.hear(submit(0, 0), "submitter")
    assert dealt(one.hear(Lost((active(0),)), FIRST)) == [(FIRST, 0, (0,), (1,))]
    assert not one.hear(Report(1, whole=True, settled=False, running=(active(0),)), STANDBY)
    assert not one.hear(Lost((active(0),)), STANDBY)
    assert dealt(one.hear(Report(1, whole=False, settled=True, running=()), STANDBY)) == [(STANDBY, 1, (0,), (2,))]


def test_lost_attempts_are_sent_again_by_word_of_the_leader_alone() -> None:
    one = Bare(DEALER)
    one.hear(submit(0, 0), "submitter")
    assert not one.hear(Lost((active(0),)), STANDBY)
    assert dealt(one.hear(Lost((active(0),)), FIRST)) == [(FIRST, 0, (0,), (1,))]
    assert not one.hear(Lost((active(0),)), FIRST), "of an earlier attempt"


def test_the_result_of_any_attempt_counts_once_and_its_worker_may_forget_it() -> None:
    one = Bare(DEALER)
    one.hear(submit(0, 0), "submitter")
    one.hear(Lost((active(0),)), FIRST)
    effects = one.hear(Result(active(0)), "node/0")
    assert effects == [("node/0", Forget((0,))), ("submitter", JobDone(0))]
    assert one.hear(Result(active(0, 1)), FIRST) == [], "passed on by the master"
    one.component.check_rest()


def test_a_lost_task_of_a_cancelled_job_is_not_sent_again() -> None:
    one = Bare(DEALER)
    one.hear(submit(0, 0), "submitter")
    assert (FIRST, Withdraw((0,))) in one.hear(Cancel(0), "submitter")
    assert one.hear(Lost((active(0),)), FIRST) == [("submitter", JobDone(0))]


def master_with_one_task() -> Bare:
    one = Bare(FIRST)
    effects = one.hear(Deal(0, True, (Task(0, 0), Task(1, 0)), (0, 0)), DEALER)
    assert effects == [("node/0", Run(0, Task(0, 0), 0, DEALER, 0))], "the other waits"
    return one


def test_a_leader_serves_its_queues_and_passes_results_on() -> None:
    one = master_with_one_task()
    assert not one.hear(Deal(1, True, (Task(2, 0),), (0,)), DEALER), "of another epoch"
    effects = one.hear(Result(active(0)), "node/0")
    assert effects == [(DEALER, Result(active(0))), ("node/0", Run(0, Task(1, 0), 0, DEALER, 0))]
    assert one.hear(Result(active(0)), "node/0") == [(DEALER, Result(active(0)))], "repeated: it frees nothing"


def test_what_waits_is_withdrawn_and_what_runs_is_stopped() -> None:
    one = master_with_one_task()
    assert one.hear(Withdraw((0, 1)), DEALER) == [("node/0", Kill(0)), (DEALER, Withdrawn((1,)))]
    one.hear(Result(active(0)), "node/0")
    one.component.check_rest()


def test_a_standby_takes_over_what_runs_and_reports_it() -> None:
    one = Bare(STANDBY, machines=2)
    assert not one.hear(Deal(0, True, (Task(0, 0),), (0,)), DEALER), "it does not lead"
    effects = one.hear(PeerLost(FIRST), STANDBY)
    assert [to for to, message in effects if isinstance(message, Lead)] == ["node/0", "node/1"]
    one.hear(Status(1, (active(5),), ()), "node/0")
    effects = one.hear(Status(1, (), ()), "node/1")
    assert (DEALER, Report(1, whole=True, settled=True, running=(active(5),))) in effects
    assert one.hear(Deal(1, True, (Task(6, 0),), (0,)), DEALER)[0][0] == "node/1", "node/0 is busy"
