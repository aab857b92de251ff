"""What users are due, and who has more than that."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.policies.fairness.test_properties import guaranteed, trees

from volery.policies.fairness.ledger import ShareLedger, entitlements
from volery.policies.fairness.shares import Resources, Sharer, equal_users, parse_shares_text

SHARES = st.fractions(0, 1, max_denominator=20)
QUEUES = parse_shares_text("q1:10+q2:25+q3:15+q4:50")


def percent(ledger: ShareLedger) -> dict[str, Fraction]:
    return {leaf.name: 100 * ledger.due(leaf.name) for leaf in QUEUES.leaves()}


def test_what_one_leaves_goes_to_its_siblings_first_by_weight() -> None:
    tree = parse_shares_text("web:1(a:1+b:1)+dev:1(c:1+d:3)")
    all_of_it = Fraction(1)
    assert entitlements(tree, {"a": Fraction(1, 10), "b": all_of_it, "c": all_of_it, "d": all_of_it}) == {
        "a": Fraction(1, 10),
        "b": Fraction(4, 10),
        "c": Fraction(1, 8),
        "d": Fraction(3, 8),
    }
    assert entitlements(tree, {"a": Fraction(1, 10), "d": all_of_it}) == {
        "a": Fraction(1, 10),
        "b": 0,
        "c": 0,
        "d": Fraction(9, 10),
    }


@given(trees(), st.data())
def test_entitlements_deal_out_all_that_is_wanted_and_nobody_goes_without_its_guarantee(
    tree: Sharer, draw: st.DataObject
) -> None:
    part = guaranteed(tree)
    wanted = {user: draw.draw(SHARES) for user in part}
    due = entitlements(tree, wanted)
    assert sum(due.values()) == min(1, sum(wanted.values()))
    for user, share in part.items():
        assert min(share, wanted[user]) <= due[user] <= wanted[user]


def test_megha_s_four_queues() -> None:
    ledger = ShareLedger((200,), QUEUES)
    for user in ("q1", "q2", "q3", "q4"):
        ledger.wants(user, (500,))
    assert percent(ledger) == {"q1": 10, "q2": 25, "q3": 15, "q4": 50}
    for _ in range(120):
        ledger.launched("q1", (1,))
    for _ in range(80):
        ledger.launched("q2", (1,))
    assert list(ledger.violators()) == ["q1", "q2"], "q1 has 60 % for 10 %, q2 40 % for 25 %"
    assert ledger.violation("q1") == Fraction(1, 2)
    assert ledger.violation("q4") == Fraction(-1, 2)
    ledger.wants("q4", (20,))
    assert percent(ledger) == {"q1": 18, "q2": 45, "q3": 27, "q4": 10}
    assert list(ledger.violators()) == ["q1"]


def first_violator(ledger: ShareLedger, losing: Resources = (0, 0)) -> str | None:
    """The user to preempt first, of those that may lose so much."""
    return next((user for user in ledger.violators() if ledger.can_lose(user, losing)), None)


def test_nobody_loses_a_task_below_its_due() -> None:
    ledger = ShareLedger((10, 10), equal_users("a", "b", "c"))
    for user in "abc":
        ledger.wants(user, (9, 9))
    for _ in range(4):
        ledger.launched("a", (1, 0))
    for _ in range(3):
        ledger.launched("b", (1, 1))
    assert first_violator(ledger) == "a", "4/10 for 1/3"
    assert first_violator(ledger, (1, 0)) is None, "with 3/10 it would be short"
    ledger.launched("b", (0, 2))
    assert list(ledger.violators()) == ["b", "a"]
    assert first_violator(ledger, (0, 1)) == "b"
    assert first_violator(ledger, (1, 0)) == "b", "its memory is its dominant share: a CPU less changes nothing"
    assert first_violator(ledger, (4, 4)) is None
    ledger.ended("b", (0, 2))
    assert first_violator(ledger) == "a"


@given(trees(), st.data())
def test_a_ledger_keeps_what_a_fresh_count_gives_and_never_names_who_is_within_its_share(
    tree: Sharer, draw: st.DataObject
) -> None:
    names = sorted(guaranteed(tree))
    ledger = ShareLedger((12,), tree)
    used, total = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for _ in range(draw.draw(st.integers(1, 25))):
        user = draw.draw(st.sampled_from(names))
        if draw.draw(st.booleans()):
            total[user] = draw.draw(st.integers(0, 15))
            ledger.wants(user, (total[user],))
        elif used[user] and draw.draw(st.booleans()):
            used[user] -= 1
            ledger.ended(user, (1,))
        else:
            used[user] += 1
            ledger.launched(user, (1,))
        due = entitlements(tree, {name: Fraction(units, 12) for name, units in total.items()})
        violation = {name: Fraction(used[name], 12) - due[name] for name in names}
        order = [leaf.name for leaf in tree.leaves()]
        expected = sorted((n for n in order if violation[n] > 0), key=lambda n: (-violation[n], order.index(n)))
        assert list(ledger.violators()) == expected
