"""A study on a real Dask cluster: same digests, workers that die, other code, Ctrl-C, a scheduler that is not there."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import cloudpickle
import distributed
import pytest

import volery
from volery.core.errors import InputError
from volery.sim import Progress
from volery.study import (
    LostRunError,
    PlannedRun,
    Results,
    RunOutcome,
    TraceFacts,
    compare_spec,
    plan,
    run_study,
    verify,
)
from volery.study import dask_pool as module
from volery.study.dask_pool import Code, DaskOutcomes, code_here
from volery.study.plan import code_digest
from volery.study.pool import each_outcome

DEADLINE_S = 60.0
STUDY = compare_spec(("megha", "sparrow"), {"trace": "syn:100x400", "workers": 300}, 3)
LONG = compare_spec(("megha",), {"trace": "syn:1000x5000", "workers": 1000}, 1)


class Cluster:
    """A scheduler and its workers, each a process of ours."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "scheduler.json"
        self._folder = folder
        self._children: list[subprocess.Popen[bytes]] = []
        self._start("dask_scheduler", "--host", "127.0.0.1", "--port", "0")
        self.wait_for(self._file.exists)
        client: Any = distributed.Client
        self.client = client(scheduler_file=str(self._file), set_as_default=False)
        self.address = str(self.client.scheduler_info()["address"])

    def add_worker(self) -> None:
        """Start a worker and wait until it has joined."""
        expected = len(self.workers()) + 1
        self._start("dask_worker", "--nthreads", "1", "--no-nanny", "--local-directory", str(self._folder))
        self.client.wait_for_workers(expected, timeout=DEADLINE_S)

    def workers(self) -> dict[str, int]:
        """Process id by address."""
        return dict(self.client.run(os.getpid))

    def kill_at(self, key: str) -> str | None:
        """End the worker that runs `key` as the kernel does when memory runs out; None where it had just finished."""
        running = self.workers()
        worker = self._worker_at(key)
        if worker is None:
            return None
        # Stopped, it cannot finish; but what it said just before may still be on its way, hence the second look.
        os.kill(running[worker], signal.SIGSTOP)
        if self._worker_at(key) == worker and self._worker_at(key) == worker:
            os.kill(running[worker], signal.SIGKILL)
            return worker
        os.kill(running[worker], signal.SIGCONT)
        return None

    def _worker_at(self, key: str) -> str | None:
        at_work = self.client.processing().items()
        return next((worker for worker, keys in at_work if any(key in task for task in keys)), None)

    def lost_tasks(self) -> list[str]:
        """What workers had to run when they were lost."""
        events = [event for _, event in self.client.get_events("all")]
        return [key for event in events if event["action"] == "remove-worker" for key in event["processing-tasks"]]

    def _start(self, command: str, *words: str) -> None:
        words = (*words, "--scheduler-file", str(self._file), "--no-dashboard")
        with (self._folder / f"{command}.log").open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.{command}", *words], stdout=log, stderr=log
            )
        self._children.append(child)

    def wait_for(self, condition: Any) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, "it does not happen"
            time.sleep(0.02)

    def close(self) -> None:
        self.client.close()
        for child in self._children:
            child.kill()
            child.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with closing(Cluster(tmp_path_factory.mktemp("dask"))) as started:
        started.add_worker()
        started.add_worker()
        yield started


class Killer:
    """Kills, when a few runs have ended, a worker that is in the middle of one."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.victim: tuple[str, str] | None = None
        self.told: dict[str, list[str]] = {}

    def expected(self, run_count: int) -> None:
        assert run_count == 6

    def started(self, run: PlannedRun) -> None:
        self.told[run.key] = ["started"]

    def sized(self, run: PlannedRun, facts: TraceFacts) -> None:
        assert facts.tasks == 40_000
        self.told[run.key].append("sized")
        if self.victim is None and sum("ended" in words for words in self.told.values()) >= 2:
            worker = self._cluster.kill_at(run.key)
            if worker is not None:
                self.victim = worker, run.key

    def moved(self, run: PlannedRun, progress: Progress) -> None:
        assert "sized" in self.told[run.key]

    def ended(self, run: PlannedRun, outcome: RunOutcome) -> None:
        self.told[run.key].append("ended")


def digests(results: Results) -> list[tuple[str, int, str]]:
    return [(run.label, run.seed, run.digest) for run in results.runs]


@pytest.mark.slow
def test_a_study_survives_a_killed_worker_with_the_digests_of_any_other_way(cluster: Cluster, tmp_path: Path) -> None:
    killer = Killer(cluster)
    spread = run_study(STUDY, folder=tmp_path / "dask", dask=cluster.address, watcher=killer)
    assert killer.victim is not None
    worker, key = killer.victim
    assert worker not in cluster.workers()
    assert any(key in task for task in cluster.lost_tasks()), "the worker was not in the middle of a run"
    assert all(words[0] == "started" and words[-1] == "ended" for words in killer.told.values())
    assert all(words.count("started") == words.count("ended") == 1 for words in killer.told.values())

    here = run_study(STUDY)
    apart = run_study(STUDY, folder=tmp_path / "apart", processes=2)
    assert digests(spread) == digests(here) == digests(apart)
    assert (tmp_path / "dask" / "report.html").exists()
    assert run_study(STUDY, folder=tmp_path / "dask", dask="tcp://nobody:1").reused == 6, "nothing is left to run"


def test_closing_early_frees_the_worker(cluster: Cluster) -> None:
    small = compare_spec(("megha",), {"trace": "syn:5x2", "workers": 60}, 1)

    class Started(Killer):
        def expected(self, run_count: int) -> None: ...

        def sized(self, run: PlannedRun, facts: TraceFacts) -> None:
            raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        closing(each_outcome(plan(LONG), 1, Started(cluster), cluster.address)) as outcomes,
    ):
        next(outcomes)
    # Its five million tasks would take a minute; and nobody else waits for the worker.
    cluster.wait_for(lambda: not any(cluster.client.run(executing).values()))
    with closing(each_outcome(plan(small), 1, None, cluster.address)) as outcomes:
        ((run, outcome),) = outcomes
    assert run.spec.trace == "syn:5x2"
    assert outcome.summary.tasks == 10


def test_runs_that_no_worker_has_begun_are_given_up_when_no_more_may_begin(cluster: Cluster) -> None:
    runs = plan(compare_spec(("megha",), {"trace": "syn:100x400", "workers": 300}, 12))
    finished: list[int] = []
    with closing(each_outcome(runs, 1, None, cluster.address, lambda: len(finished) < 2)) as outcomes:
        for run, _ in outcomes:
            finished.append(run.spec.seed)
    assert 2 <= len(finished) < 12
    cluster.wait_for(lambda: not any(cluster.client.run(executing).values()))


@pytest.mark.slow
def test_added_seeds_are_the_same_on_a_cluster(cluster: Cluster) -> None:
    work = {"trace": "syn:20x8", "workers": 60, "constraints": "sharma2011"}
    study = compare_spec(("megha", "megha:gms=2"), work, "auto", seeds_max=5)
    here, spread = run_study(study), run_study(study, dask=cluster.address)
    assert spread.stopping == here.stopping
    assert [run.digest for run in spread.runs] == [run.digest for run in here.runs]


def executing(dask_worker: Any) -> int:
    return int(dask_worker.state.executing_count)


def test_an_error_on_a_worker_comes_back_as_it_is(cluster: Cluster, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.tr"
    wrong.write_text("0 1 1 one\n")
    study = compare_spec(("megha",), {"trace": wrong, "workers": 60}, 1)
    with pytest.raises(InputError, match=r"wrong\.tr:1"):
        run_study(study, dask=cluster.address)


def test_other_code_on_a_worker_is_refused_before_anything_is_written(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volery, "__version__", "99.0")
    with pytest.raises(InputError, match=r"worker tcp://\S+: has volery .*, here is 99\.0; install the same"):
        run_study(STUDY, folder=tmp_path, dask=cluster.address)
    monkeypatch.undo()
    monkeypatch.setattr(module, "code_digest", lambda *names: "0" * 64)
    with pytest.raises(InputError, match=r"has other sources of volery .*here 000000000000"):
        run_study(STUDY, folder=tmp_path, dask=cluster.address)
    assert not (tmp_path / "manifest.json").exists()


def test_a_worker_without_volery_can_say_so() -> None:
    question = cloudpickle.dumps(module._examination(["megha"]))
    program = """
import sys, cloudpickle
sys.modules["volery"] = None
print(*cloudpickle.loads(sys.stdin.buffer.read())(), sep="|")
"""
    answered = subprocess.run([sys.executable, "-c", program], input=question, capture_output=True, check=True)
    theirs = Code(*answered.stdout.decode().strip().split("|"))
    assert theirs == Code("", "", "has no module 'volery.study'")
    told = module._unlike(theirs, Code("1.0", "x"))
    assert told.startswith("has no module 'volery.study' (volery 1.0 and the study's schedulers must be installed")


def test_a_verification_runs_on_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    study = compare_spec(("megha", "sparrow"), {"trace": "syn:5x2", "workers": 60}, 1)
    run_study(study, folder=tmp_path)
    assert verify(tmp_path, dask=cluster.address).agrees


def test_a_worker_whose_code_or_input_is_another_refuses_the_run(cluster: Cluster) -> None:
    (run,) = plan(compare_spec(("megha",), {"trace": "syn:5x2", "workers": 60}, 1))
    with pytest.raises(InputError, match="has other sources of volery, or another syn:5x2, than the client"):
        cluster.client.submit(module.run_on_worker, run, "otherwise", "nobody", pure=False).result()


@pytest.mark.slow
def test_a_lost_scheduler_is_told_and_what_is_finished_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    class Ended(Killer):
        def ended(self, run: PlannedRun, outcome: RunOutcome) -> None:
            own._children[0].kill()

        def sized(self, run: PlannedRun, facts: TraceFacts) -> None:
            self.told[run.key].append("sized")

    with closing(Cluster(tmp_path)) as own:
        own.add_worker()
        own.client.close()  # this one would tell of the loss, too
        with pytest.raises(LostRunError, match=r"the Dask scheduler tcp://\S+ is gone"):
            run_study(STUDY, folder=tmp_path / "kept", dask=own.address, watcher=Ended(own))
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    shown = [record.getMessage() + (record.exc_text or "") for record in told]
    assert "Traceback" not in "".join(shown) + capfd.readouterr().err, "what is logged as information nobody is shown"
    kept = len(list((tmp_path / "kept" / "runs").glob("*.json")))
    assert 1 <= kept < 6
    assert run_study(STUDY, folder=tmp_path / "kept").reused == kept


def test_a_scheduler_without_workers_is_refused_with_the_command_that_starts_one(tmp_path: Path) -> None:
    with closing(Cluster(tmp_path)) as empty, pytest.raises(InputError, match=r"no workers; .*`dask worker tcp://"):
        DaskOutcomes(plan(LONG), empty.address, None)


def test_a_scheduler_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECT_S", 0.3)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(InputError, match=rf"{address}: no Dask scheduler answers there .* mend --dask"):
            run_study(STUDY, dask=address)


@pytest.mark.parametrize("address", ["8786", "localhost:8786", "http://localhost:80", "tcp://localhost", "tcp://a b:1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InputError, match=r"--dask: .* is not an address like tcp://HOST:PORT"):
        run_study(STUDY, dask=address)


@pytest.mark.slow
def test_processes_and_a_cluster_exclude_each_other(tmp_path: Path) -> None:
    for call in (
        lambda: run_study(STUDY, processes=2, dask="tcp://a:1"),
        lambda: verify(tmp_path, processes=2, dask="tcp://a:1"),
    ):
        with pytest.raises(InputError, match="give -p or --dask, not both"):
            call()


@pytest.mark.slow
def test_without_the_extra_the_command_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "volery.study.dask_pool")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"--dask: Dask is not installed; `pip install volery\[dask\]`"):
        run_study(STUDY, dask="tcp://127.0.0.1:1")


@pytest.mark.slow
def test_sources_that_changed_under_a_worker_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert code_here(["megha"]) == (volery.__version__, code_digest("megha"), "")
    monkeypatch.setattr(module, "LOADED_S", 0.0)
    assert "restart it" in Code(*code_here(["megha"])).problem
    monkeypatch.undo()
    assert "nothere" in Code(*code_here(["nothere"])).problem
