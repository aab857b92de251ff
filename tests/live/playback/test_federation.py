"""What a federation has journalled is played as it was: every task where and when it ran, whatever hosts there were."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from tests.live.runtime.test_replay import record
from typer.testing import CliRunner

from volery.architectures import lookup
from volery.cli.main import app
from volery.core.component import Component
from volery.core.errors import InputError
from volery.core.model import Address, Time
from volery.live.runtime.journal import Header
from volery.live.runtime.journal_trace import read_period
from volery.live.runtime.replay import journals
from volery.playback.journals import Journals
from volery.playback.run_log import FINISHED, RunLog
from volery.playback.tracer import Tracer


def filmed(folder: Path) -> RunLog:
    together = Journals(list(journals(folder)), lookup)
    span = together.span()
    tracer = Tracer(span.first_us, span.end_us, span.cluster.slots, span.machines)

    def watch(header: Header, components: Mapping[Address, Component], offset_us: Time) -> None:
        assert set(components) == set(header.addresses)
        tracer.watch(components, offset_us)

    together.play(watch)
    return tracer.log()


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
    assert all(flight.received_us >= flight.sent_us for flight in found.flights)


def test_a_trace_of_journals_has_every_attempt_and_options_of_results_are_refused(tmp_path: Path) -> None:
    record("megha", tmp_path, split=True)
    answer = CliRunner().invoke(app, ["watch", str(tmp_path), "-o", str(tmp_path / "trace.json"), "--json"])
    told = msgspec.json.decode(answer.stdout)
    assert len(told["hosts"]) == 3
    assert told["events"] > 150
    events = msgspec.json.decode(Path(told["trace"]).read_bytes())["traceEvents"]
    finished = [one for one in events if one.get("args", {}).get("outcome") == "finished"]
    trace = read_period(journals(tmp_path), "period", lookup).trace
    assert sorted(one["dur"] for one in finished) == sorted(trace.duration_us)
    with pytest.raises(InputError, match="are for results"):
        CliRunner().invoke(app, ["watch", str(tmp_path), "--seed", "1"], catch_exceptions=False)
