"""`python -m parity`: what it answers where Slurm cannot be started, and what it compares."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from parity import daemons
from parity.commands import main
from parity.records import FOLDER


def status_of(*words: str) -> int:
    with pytest.raises(SystemExit) as leaving:
        main(words)
    return int(leaving.value.code or 0)


def fake_program(folder: Path, name: str, text: str = "exit 0") -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def fake_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs that all succeed and do nothing; as root."""
    for name in daemons.PROGRAMS:
        fake_program(tmp_path, name)
    monkeypatch.setattr("parity.daemons.shutil.which", lambda name, path=None: str(tmp_path / name))
    monkeypatch.setattr("parity.daemons.os.geteuid", lambda: 0)
    return tmp_path


def test_a_machine_without_slurm_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("parity.daemons.shutil.which", lambda name, path=None: None)
    assert status_of("record", "fifo", "--seed", "1") == 2
    assert "error: slurmctld: this program is not installed: apt-get install slurmctld" in capfd.readouterr().err


def test_only_root_starts_jobs(
    fake_slurm: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("parity.daemons.os.geteuid", lambda: 1000)
    assert status_of("record", "fifo", "--seed", "1") == 2
    assert "must be started by root: use sudo" in capfd.readouterr().err


def test_a_port_in_use_is_named(fake_slurm: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as busy:
        busy.bind(("", 0))
        busy.listen()
        port = busy.getsockname()[1]
        assert status_of("record", "fifo", "--seed", "1", "--port", str(port)) == 2
    assert f"error: --port: port {port} is in use; 9 successive free ones are needed" in capfd.readouterr().err


def test_a_daemon_that_does_not_come_up_is_quoted(fake_slurm: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fake_program(fake_slurm, "slurmctld", 'echo "slurmctld: fatal: no such plugin: sched/none"; exit 1')
    fake_program(fake_slurm, "scontrol", "exit 1")
    assert status_of("record", "fifo", "--seed", "1") == 2
    answer = capfd.readouterr().err
    assert "error: slurmctld: it does not come up (it ended)" in answer
    assert "fatal: no such plugin: sched/none" in answer


def test_nodes_that_do_not_come_up_are_quoted(
    fake_slurm: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(daemons, "START_S", 0.5)
    fake_program(fake_slurm, "slurmctld", "exec sleep 30")
    fake_program(fake_slurm, "slurmd", 'echo "slurmd: error: cannot bind"; exec sleep 30')
    assert status_of("record", "fifo", "--seed", "1") == 2
    assert (
        "slurmd of node n0: it does not come up (not within 0 s): slurmd: error: cannot bind" in capfd.readouterr().err
    )


def test_a_name_of_no_scenario_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert status_of("compare", "fiof") == 2
    assert "error: fiof: no scenario has this name; there are fifo, backfill" in capfd.readouterr().err


def test_several_runs_cannot_share_ports(capfd: pytest.CaptureFixture[str]) -> None:
    assert status_of("record", "fifo", "--port", "20000") == 2
    assert "5 runs cannot share the ports; give one scenario and one --seed" in capfd.readouterr().err


def test_a_part_of_a_run_takes_the_place_of_no_record(capfd: pytest.CaptureFixture[str]) -> None:
    assert status_of("record", "fifo", "--seed", "1", "--jobs", "10") == 2
    assert "error: --jobs: a record of fewer jobs would take the place of a whole one" in capfd.readouterr().err


def test_records_are_compared_as_a_table_and_as_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "fifo-1.json").write_bytes((FOLDER / "fifo-1.json").read_bytes())
    assert status_of("compare", "fifo", "--records", str(tmp_path)) == 0
    shown = capfd.readouterr().out
    assert all(word in shown for word in ("FIFO", "tau"))
    assert status_of("compare", "fifo", "--json", "--records", str(tmp_path)) == 0
    (row,) = json.loads(capfd.readouterr().out)
    assert (row["scenario"], row["seed"], row["conditions"]["jobs"]) == ("fifo", 1, 220)
