"""Links: delays, jitter, faults, ties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.sim.actors import Actor, Note, answer, play

from volery.conformance.cases import trace_of
from volery.core.errors import InputError
from volery.core.port import Port
from volery.sim import Network, Options
from volery.sim.network import MessageFaultRates

ONE = trace_of("one", [0], [[]])
MANY = 200


def from_two_senders(**settings: object) -> Actor:
    """A receiver of two senders' numbered notes, all sent at once."""

    def start(port: Port) -> None:
        for number in range(MANY):
            port.send("entry/0", Note(number))

    receiver = Actor(answer)
    play({"entry/0": receiver, "a/0": Actor(None, start), "b/0": Actor(None, start)}, ONE, **settings)  # type: ignore[arg-type]  # passed on
    return receiver


def test_the_users_override_beats_the_designs_delay_which_beats_the_default() -> None:
    declared = {("node", "lm"): 0, ("gm", "lm"): 70}
    network = Network(delay_us=500, overrides={("gm", "lm"): 90})
    assert network.delay("lm", "node", declared) == 500
    assert network.delay("node", "lm", declared) == 0
    assert network.delay("gm", "lm", declared) == 90


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"delay_us": -1}, "network.delay_us"),
        ({"jitter_us": -5}, "network.jitter_us"),
        ({"overrides": {("gm", "lm"): -2}}, "network.overrides.gm:lm"),
    ],
)
def test_negative_delays_are_refused(settings: dict[str, object], place: str) -> None:
    with pytest.raises(InputError, match="cannot be negative") as refused:
        Network(**settings)  # type: ignore[arg-type]  # wrong on purpose
    assert refused.value.place == place


def test_constant_delays_keep_the_order_of_sending() -> None:
    receiver = from_two_senders(network=Network(delay_us=500))
    assert receiver.times(Note) == [500] * 2 * MANY
    assert [s for _, e, s in receiver.seen if isinstance(e, Note)] == ["a/0"] * MANY + ["b/0"] * MANY


def test_jitter_spreads_messages_and_keeps_each_link_fifo() -> None:
    receiver = from_two_senders(network=Network(delay_us=500, jitter_us=3_000))
    for sender in ("a/0", "b/0"):
        assert receiver.numbers(sender) == list(range(MANY))
    times = receiver.times(Note)
    assert min(times) >= 500
    assert len(set(times)) > 10
    senders = [s for _, e, s in receiver.seen if isinstance(e, Note)]
    assert senders != sorted(senders), "nothing is promised across links"


def test_jitter_comes_from_the_seed() -> None:
    runs = [from_two_senders(network=Network(jitter_us=3_000), seed=seed).times(Note) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_dropped_messages_never_arrive_but_the_submitters_links_are_sound() -> None:
    receiver = from_two_senders(options=Options(faults=MessageFaultRates(drop=1.0)))
    assert receiver.numbers() == []
    assert len(receiver.seen) == 1


def test_repeated_messages_arrive_twice_the_second_time_later() -> None:
    receiver = from_two_senders(options=Options(faults=MessageFaultRates(repeat=1.0)))
    assert sorted(receiver.numbers("a/0")) == sorted([*range(MANY), *range(MANY)])
    arrivals = [(now, e.number) for now, e, s in receiver.seen if isinstance(e, Note) and s == "a/0"]
    for number in range(MANY):
        first, second = (now for now, n in arrivals if n == number)
        assert first == 500 < second


def test_late_messages_are_overtaken() -> None:
    receiver = from_two_senders(options=Options(faults=MessageFaultRates(delay=0.5)))
    got = receiver.numbers("a/0")
    assert sorted(got) == list(range(MANY))
    assert got != sorted(got)


@given(drop=st.floats(0, 1), repeat=st.floats(0, 1), delay=st.floats(0, 1))
def test_copies_are_none_one_or_two_and_never_early(drop: float, repeat: float, delay: float) -> None:
    from random import Random

    copies = MessageFaultRates(drop, repeat, delay).copies(Random(1))
    assert len(copies) <= 2
    assert all(extra >= 0 for extra in copies)
    assert list(copies) == sorted(set(copies))


def test_shuffled_ties_keep_each_link_in_order_and_mix_the_links() -> None:
    mixed = []
    for tie_seed in range(6):
        receiver = from_two_senders(options=Options(tie_shuffle=tie_seed))
        for sender in ("a/0", "b/0"):
            assert receiver.numbers(sender) == list(range(MANY))
        mixed.append([s for _, e, s in receiver.seen if isinstance(e, Note)])
    assert len({tuple(order) for order in mixed}) > 1
