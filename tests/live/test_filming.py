"""What a federation has journalled is played as it was: every task where and when it ran, whatever hosts there were."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from tests.live.test_replay import record
from typer.testing import CliRunner

from volery.architectures import lookup
from volery.cli.main import app
from volery.core.component import Component
from volery.core.errors import InputError
from volery.core.film import FINISHED, Filmed
from volery.core.model import Address, Time
from volery.live.hosts.journal import Header
from volery.live.trials.period import read_period
from volery.live.trials.replay import journals
from volery.live.trials.together import Together
from volery.metrics.filming import Camera


def filmed(folder: Path) -> Filmed:
    together = Together(list(journals(folder)), lookup)
    span = together.span()
    camera = Camera(span.first_us, span.end_us, span.cluster.slots, span.machines)

    def watch(header: Header, components: Mapping[Address, Component], offset_us: Time) -> None:
        assert set(components) == set(header.addresses)
        camera.watch(components, offset_us)

    together.play(watch)
    return camera.filmed()


@pytest.mark.parametrize("split", [False, True], ids=["one host", "a host per role"])
def test_every_task_that_ran_is_played(split: bool, tmp_path: Path) -> None:
    record("megha", tmp_path, split)
    found = filmed(tmp_path)
    trace = read_period(journals(tmp_path), "period", lookup).trace
    finished = [
        end - start
        for start, end, outcome in zip(
            found.attempts["start_us"], found.attempts["finish_us"], found.attempts["outcome"], strict=True
        )
        if outcome == FINISHED
    ]
    assert sorted(finished) == sorted(trace.duration_us)
    assert {role.name for role in found.roles} >= {"gm", "lm", "node"}
    assert all(role.waiting[-1] == 0 for role in found.roles)
    assert sum(found.sent[found.kinds.index("Launch")]) >= len(finished)
    assert all(flight.heard_us >= flight.sent_us for flight in found.flights)


def test_the_page_of_journals_names_hosts_and_refuses_what_is_for_results(tmp_path: Path) -> None:
    record("megha", tmp_path, split=True)
    answer = CliRunner().invoke(app, ["watch", str(tmp_path), "-o", str(tmp_path / "watch.html"), "--json"])
    told = msgspec.json.decode(answer.stdout)
    assert len(told["hosts"]) == 3
    assert told["events"] > 150
    page = Path(told["page"]).read_text(encoding="utf-8")
    assert '"said":{' in page
    with pytest.raises(InputError, match="are for results"):
        CliRunner().invoke(app, ["watch", str(tmp_path), "--messages"], catch_exceptions=False)
