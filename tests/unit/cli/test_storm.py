"""`volery storm`: seeds, files, exit status."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from volery.architectures import lookup
from volery.cli.main import main
from volery.core.model import SECOND
from volery.faults import draw_schedule
from volery.faults.schedule import HostFault
from volery.roles.recovery.channel import Linked


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(["storm", *words])
    told = capsys.readouterr()
    return int(str(left.value.code)), told.out, told.err


def test_a_design_that_weathers_all_is_told_in_one_row(capsys: pytest.CaptureFixture[str]) -> None:
    status, text, _ = answer(capsys, "-a", "sparrow", "--seeds", "3")
    assert status == 0
    assert "sparrow" in text


def test_every_storm_is_an_entry_of_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    status, text, _ = answer(capsys, "-a", "megha", "-a", "pigeon", "--seeds", "2", "--json")
    storms = json.loads(text)["storms"]
    assert status == 0
    assert [(storm["architecture"], storm["seed"]) for storm in storms] == [
        ("megha", 0),
        ("megha", 1),
        ("pigeon", 0),
        ("pigeon", 1),
    ]
    assert all(storm["failure"] == "" and storm["digest"] for storm in storms)


def test_several_processes_come_to_the_same_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    one = answer(capsys, "-a", "sparrow", "--seeds", "3", "--json")
    assert answer(capsys, "-a", "sparrow", "--seeds", "3", "--json", "-p", "2") == one


def test_minutes_go_on_with_further_seeds(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter((0.0, 59.0, 61.0))
    monkeypatch.setattr("volery.cli.storm.time", SimpleNamespace(monotonic=lambda: next(moments)))
    _, text, _ = answer(capsys, "-a", "sparrow", "--seeds", "1", "--minutes", "1", "--json")
    assert [storm["seed"] for storm in json.loads(text)["storms"]] == [0, 1]


def test_a_failure_prints_its_command_and_is_kept_small(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept = tmp_path / "small.json"
    with monkeypatch.context() as patch:
        patch.setattr(Linked, "_send_again", lambda self, end, peer, count: setattr(end, "sent_at", self.now))
        status, text, _ = answer(capsys, "-a", "sparrow", "--seeds", "4", "-o", str(kept))
        assert status == 1
        assert "volery storm --architecture sparrow --seed " in text
        again, told, _ = answer(capsys, "--scenario", str(kept))
        assert again == 1
        assert "Quiet" in told or "Stalled" in told or "links" in told
    status, told, _ = answer(capsys, "--scenario", str(kept))
    assert status == 0
    assert "sparrow weathers it" in told


@pytest.mark.parametrize("content", [None, "{}", "no json"])
@pytest.mark.parametrize(("option", "writer"), [("--scenario", "volery storm -o"), ("--schedule", "make chaos")])
def test_a_file_that_is_no_scenario_is_refused(
    option: str, writer: str, content: str | None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "storm.json"
    if content is not None:
        path.write_text(content)
    status, _, told = answer(capsys, option, str(path))
    assert status == 2
    assert writer in told


def test_a_schedule_of_harm_to_processes_is_played_in_the_lab(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "schedule.json"
    schedule = draw_schedule(lookup("megha"), 5, 20 * SECOND)
    path.write_bytes(msgspec.json.encode(schedule))
    status, text, _ = answer(capsys, "--schedule", str(path), "--json")
    assert status == 0
    assert json.loads(text)["tasks"] == sum(len(job.durations_us) for job in schedule.jobs)
    harmed = msgspec.structs.replace(schedule, faults=(HostFault(0, "kill", 1, "lm-a"),))
    path.write_bytes(msgspec.json.encode(harmed).replace(b'"host":"lm-a"', b'"host":"nobody"'))
    status, _, told = answer(capsys, "--schedule", str(path))
    assert status == 2
    assert "faults[0].host" in told
    assert answer(capsys, "--schedule", str(path), "--scenario", str(path))[0] == 2


def test_an_unknown_design_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, told = answer(capsys, "-a", "megga")
    assert status == 2
    assert "megha" in told
