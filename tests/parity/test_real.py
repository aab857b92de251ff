"""A real Slurm, for some seconds; skipped where none is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from parity import recording
from parity.comparison import conditions
from parity.daemons import Slurm, check_installed
from parity.records import read_record
from parity.replay import lab_design, replay
from volery.core.errors import InputError

JOBS = 16


def demand_slurm(*, accounting: bool) -> None:
    try:
        check_installed(accounting=accounting)
    except InputError as error:
        pytest.skip(str(error))


def processes_of(folder: str) -> list[str]:
    """Processes with a SLURM_CONF in such a folder."""
    texts = []
    for folder_of_process in Path("/proc").iterdir():
        if folder_of_process.name.isdigit():
            try:
                texts.append((folder_of_process / "environ").read_text(errors="replace"))
            except OSError:
                continue
    return [text for text in texts if f"SLURM_CONF={folder}" in text]


def test_a_run_is_recorded_and_replayed(tmp_path: Path) -> None:
    demand_slurm(accounting=False)
    record = recording.record_run("backfill", 1, job_count=JOBS, kept=tmp_path / "kept")

    assert len(record.jobs) == JOBS
    assert read_record(record.write(tmp_path)) == record
    assert (tmp_path / "kept" / "jobcomp.log").read_text().count("JobState=COMPLETED") == JOBS
    assert conditions(record).overhead_ms >= 0
    assert record.main_ms
    assert record.backfill_ms
    assert all(len(attempt.answers_ms) == len(attempt.nodes) for job in record.jobs for attempt in job.attempts)
    starts = replay(record, lab_design(record))
    assert len(starts) == JOBS
    assert all(start.nodes for start in starts)


def test_nothing_is_left_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    demand_slurm(accounting=False)
    folders: list[str] = []

    def interrupted(slurm: Slurm, workload: object) -> None:
        folders.append(str(slurm.folder))
        slurm.output("sbatch", "-N8", "-o/dev/null", "--wrap", "sleep 600")
        assert processes_of(folders[0])
        raise KeyboardInterrupt

    monkeypatch.setattr(recording, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        recording.record_run("backfill", 1)
    assert not processes_of(folders[0])
    assert not Path(folders[0]).exists()


def test_accounts_with_shares_are_those_of_slurmdbd(tmp_path: Path) -> None:
    demand_slurm(accounting=True)
    record = recording.record_run("fairshare", 1, job_count=3, kept=tmp_path)
    assert len(record.jobs) == 3
    assert (tmp_path / "sacct.txt").read_text().count("|COMPLETED|") == 3
    assert "d||8|0.5" in (tmp_path / "sshare.txt").read_text()
