"""Machines say what they are, and declarations that are wrong are named."""

from __future__ import annotations

import os

import pytest

from volery.core.errors import InputError
from volery.live.config.machine import MEMORY_STEP_MB, Machine, check_labels, discover, machine_from_table


def test_this_machine_describes_itself() -> None:
    machine = discover({"zone": "a"})
    assert machine.arch == os.uname().machine
    assert machine.os == os.uname().sysname.lower()
    assert os.uname().release.startswith(machine.kernel)
    assert machine.cores == len(os.sched_getaffinity(0))
    assert machine.memory_mb % MEMORY_STEP_MB == 0 or machine.memory_mb == 1
    assert machine.attributes()["label.zone"] == "a"


def test_what_a_file_leaves_out_is_taken_from_the_base() -> None:
    base = Machine("x86_64", "linux", "6.1", 8, 4096, {"zone": "a"})
    declared = machine_from_table({"cores": 2, "labels": {"rank": 3}}, "nodes[0]", base)
    assert declared == Machine("x86_64", "linux", "6.1", 2, 4096, {"zone": "a", "rank": 3})


@pytest.mark.parametrize(
    ("table", "place", "problem"),
    [
        ({"core": 2}, "nodes[0].core", "did you mean 'cores'"),
        ({"cores": 0}, "nodes[0].cores", "whole number >= 1"),
        ({"cores": True}, "nodes[0].cores", "whole number >= 1"),
        ({"arch": 86}, "nodes[0].arch", "text in quotes"),
        ({"labels": "a"}, "nodes[0].labels", "is a table"),
        ({"labels": {"zone": 1.5}}, "nodes[0].labels.zone", "text or a whole number"),
        ({"labels": {"a.b": "c"}}, "nodes[0].labels.a.b", "a label's name has"),
    ],
)
def test_a_wrong_declaration_is_named(table: dict[str, object], place: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        machine_from_table(table, "nodes[0]")
    assert caught.value.place == place
    assert problem in caught.value.problem


def test_a_label_is_never_a_truth_value() -> None:
    with pytest.raises(InputError, match="text or a whole number"):
        check_labels({"fast": True}, "labels")
