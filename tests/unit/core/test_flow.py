"""The message flow is read off the tables of the components, and shows nothing on which they disagree."""

from __future__ import annotations

import msgspec

from volery.architectures import configure, lookup
from volery.core.component import Component, Deployment, sent_to
from volery.core.events import Cancel, JobDone, MoreTasks, Submit, TaskFinished, TimerFired
from volery.core.flow import Flow, flow_of
from volery.core.model import SUBMITTER, Address, Message, Time
from volery.study.designs import example_flow


class Order(Message, frozen=True):
    """Chief > hand: do it. And more."""


class Report(Message, frozen=True):
    """Hand > chief: done"""


def _take(self: Component, event: object, source: Address, now: Time) -> None:
    """Take anything."""


class Chief(Component):
    receives = dict.fromkeys((Submit, MoreTasks, Cancel, Report, TimerFired), _take)
    sends = sent_to("hand", Order) | sent_to(SUBMITTER, JobDone) | sent_to("nobody", Order)


class Hand(Component):
    receives = dict.fromkeys((Order, TaskFinished), _take)
    sends = sent_to("chief", Report) | sent_to("hand", Report) | sent_to(SUBMITTER, JobDone)


def toy() -> Flow:
    components: dict[Address, Component] = {"hand/0": Hand(), "hand/1": Hand(), "chief/0": Chief()}
    return flow_of(Deployment(components, {"hand/0": 0, "hand/1": 1}, lambda _: "chief/0"))


def said(flow: Flow) -> list[str]:
    return [f"{hop.source} > {hop.to}: {hop.message}" for hop in flow.hops]


def test_a_hop_is_what_both_tables_agree_on() -> None:
    """A role that is not there, one that does not take it, and one that no job comes to: none of these is drawn."""
    assert said(toy()) == [
        "submitter > chief: Submit",
        "submitter > chief: MoreTasks",
        "submitter > chief: Cancel",
        "chief > hand: Order",
        "hand > task: launch",
        "task > hand: TaskFinished",
        "hand > chief: Report",
        "chief > submitter: JobDone",
    ]


def test_roles_say_who_plays_them_and_what_the_driver_tells_them() -> None:
    chief, hand = toy().roles
    assert (chief.name, chief.kinds, chief.count, chief.on_machines, chief.driver) == (
        "chief",
        ("Chief",),
        1,
        False,
        ("TimerFired",),
    )
    assert (hand.name, hand.count, hand.on_machines, hand.driver) == ("hand", 2, True, ())


def test_a_message_means_what_its_class_says_first() -> None:
    meanings = {hop.message: hop.meaning for hop in toy().hops}
    assert meanings["Order"] == "Do it."
    assert meanings["Report"] == "Done."


def test_links_are_seen_through() -> None:
    sparrow = lookup("sparrow")
    plain, linked = (
        example_flow(sparrow, configure(sparrow, {"reliable": reliable})) for reliable in ("false", "true")
    )
    assert not plain.linked
    assert linked == msgspec.structs.replace(plain, linked=True)


def test_other_parameters_are_another_flow() -> None:
    """Without late binding Sparrow's nodes are told their tasks and never ask for them (section 3.3)."""
    sparrow = lookup("sparrow")
    early = said(example_flow(sparrow, configure(sparrow, {"late_binding": "false"})))
    assert "scheduler > node: Place" in early
    assert "node > scheduler: TaskRequest" not in early


def test_only_the_entry_answers_the_submitter() -> None:
    """Omega's schedulers answer the front that jobs come to, and it alone the submitter."""
    omega = lookup("omega")
    flow = said(example_flow(omega, omega.defaults))
    assert "scheduler > front: JobDone" in flow
    assert "scheduler > submitter: JobDone" not in flow
    pipeline = lookup("pipeline")
    two_level = said(example_flow(pipeline, configure(pipeline, {"lrms": "3"})))
    assert "node > lrm: Completed" in two_level
    assert "node > scheduler: Completed" not in two_level


def test_a_deployment_in_which_nothing_is_declared_has_the_driver_s_arrows_alone() -> None:
    class Silent(Hand):
        sends = frozenset()

    flow = flow_of(Deployment({"hand/0": Silent()}, {"hand/0": 0}, lambda _: "hand/0"))
    assert said(flow) == ["hand > task: launch", "task > hand: TaskFinished"]
