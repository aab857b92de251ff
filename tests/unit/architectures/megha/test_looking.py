"""What a Global Master sees, when it is asked: machines with room in its view, whether that is true or not."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.architectures.parts import SUBMITTER, Alone, submit

from volery.core.events import Look, Seen
from volery.core.model import Cluster

CLUSTER = Cluster((0b01, 0b11, 0b01, 0b11), (2, 2, 1, 1))
"""Six slots on four machines, of which the second and the last meet both constraints."""


@pytest.mark.parametrize(
    "parameters",
    [{}, {"reliable": True}, {"shares": "a:1+b:1"}, {"repartition": True}, {"shares": "a:1", "reliable": True}],
    ids=str,
)
def test_machines_with_room_in_the_view_are_counted(parameters: dict[str, Any]) -> None:
    master = Alone("megha", "gm/0", CLUSTER, **{"gms": 1, "lms": 2, "match": "min-constraints"} | parameters)
    assert master.hear(Look(1, 0b01)) == [(SUBMITTER, Seen(1, 4))], "two slots of a machine are one machine"
    assert master.hear(Look(2, 0b10)) == [(SUBMITTER, Seen(2, 2))]
    master.hear(submit(1, 0b10, 0b10, 0b10))
    assert master.hear(Look(3, 0b10)) == [(SUBMITTER, Seen(3, 0))], "though nobody has confirmed what it has asked for"
    assert master.hear(Look(4, 0b100)) == [(SUBMITTER, Seen(4, 0))]
