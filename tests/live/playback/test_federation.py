"""What a federation has journalled is played as it was: every task where and when it ran, whatever hosts there were."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.live.runtime.test_replay import record
from typer.testing import CliRunner

from volery.architectures import lookup
from volery.cli.main import app
from volery.core.errors import InputError
from volery.live.runtime.journal_trace import read_period
from volery.live.runtime.replay import journals
from volery.playback.run_log import FINISHED
from volery.playback.traced_runs import trace_journals


@pytest.mark.parametrize("split", [False, True], ids=["one host", "a host per role"])
def test_every_task_that_ran_is_played(split: bool, tmp_path: Path) -> None:
    record("megha", tmp_path, split)
    log = trace_journals(list(journals(tmp_path))).log
    trace = read_period(journals(tmp_path), "period", lookup).trace
    finished = [
        end - start
        for start, end, outcome in zip(
            log.attempts["start_us"], log.attempts["finish_us"], log.attempts["outcome"], strict=True
        )
        if outcome == FINISHED
    ]
    assert sorted(finished) == sorted(trace.duration_us)
    assert {role.name for role in log.roles} >= {"gm", "lm", "node"}
    assert all(role.waiting[-1] == 0 for role in log.roles)
    assert sum(log.sent[log.kinds.index("Launch")]) >= len(finished)
    assert all(flight.received_us >= flight.sent_us for flight in log.flights)


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
