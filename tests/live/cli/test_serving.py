"""The federation as users run it: one command, or one process per host over a broker; and what its journals prove."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from tests.live.commands import serving, volery
from tests.live.conftest import CALLS, RUN_AS

from volery.architectures import choose
from volery.cli.federation import sizes_of, usual_sizes
from volery.live.config.federation import FederationFile, resolve

JOB = 'command = "echo hello $VOLERY_INDEX"\ntasks = 12\n'


@pytest.mark.slow
@pytest.mark.parametrize("design", ["megha", "pigeon"])
def test_one_command_runs_a_federation_and_its_journal_replays(design: str, open_folder: Path) -> None:
    (open_folder / "job.toml").write_text(JOB)
    folder = str(open_folder / "f")
    words = ["up", "-a", design, "--nodes", "9", "--clusters", "2", "--api", "127.0.0.1:0", "-o", folder]
    words += ["--run-as", RUN_AS, "--calls" if CALLS == "true" else "--no-calls"]
    with serving(words) as (federation,):
        url = federation.ready()["api"]
        job = json.loads(volery("submit", open_folder / "job.toml", "--watch", "--api", url, "--json"))
        assert (job["job"]["state"] if "job" in job else job["state"]) == "done"
        assert "hello 3" in volery("logs", "0/3", "--api", url)
        status, errors = federation.stop(signal.SIGINT)
        assert status == 0, errors
    assert "All 1 journals replay" in volery("replay", folder)


def test_one_process_per_host_over_the_broker(broker: str, open_folder: Path) -> None:
    (open_folder / "job.toml").write_text(JOB)
    config = open_folder / "federation.toml"
    config.write_text(
        f'name = "serving"\nbroker = "{broker}"\napi = "127.0.0.1:0"\nrun_as = "{RUN_AS}"\ncalls = {CALLS}\n'
        "[parameters]\ngms = 1\nlms = 2\n"
        '[[machines]]\ncount = 8\n[hosts]\ngm = ["gm/*"]\nlm-0 = ["lm/0"]\nlm-1 = ["lm/1"]\nnode = ["node/*"]\n'
    )
    hosts = ("gm", "lm-0", "lm-1", "node", "api")
    with serving(*(["serve", host, "-c", str(config)] for host in hosts)) as started:
        url = [one.ready() for one in started][-1]["api"]
        job = json.loads(volery("submit", open_folder / "job.toml", "--watch", "--api", url, "--json"))
        assert (job["job"]["state"] if "job" in job else job["state"]) == "done"
        assert "hello 3" in volery("logs", "0/3", "--api", url)
        for one in started:
            status, errors = one.stop()
            assert status == 0, errors
    assert "All 4 journals replay" in volery("replay", open_folder / "federation")


@pytest.mark.parametrize("cpus", [1, 2, 3, 4, 6, 8, 64])
@pytest.mark.parametrize("design", ["megha", "pigeon", "sparrow", "omega"])
def test_by_default_there_is_a_slot_per_processor(design: str, cpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("volery.live.config.machine.usable_cpu_milli", lambda *_: cpus * 1000)
    nodes, clusters, gms = usual_sizes(1, None, None, None)
    assert nodes == cpus
    assert (clusters, gms) == (3, 2) or cpus < 6
    machines = [{"count": nodes}]
    sizes = sizes_of(design, clusters, gms, nodes)
    resolve(FederationFile(machines=machines, architecture=design, parameters=sizes), Path(), choose).plan.build()


def test_sizes_that_are_given_stay_and_the_others_fit_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("volery.live.config.machine.usable_cpu_milli", lambda *_: 8000)
    assert usual_sizes(4, None, None, None) == (2, 2, 1)
    assert usual_sizes(1, 40, None, None) == (40, 3, 2)
    assert usual_sizes(1, None, None, 4) == (8, 2, 4)
    assert usual_sizes(1, 2, 3, None) == (2, 3, 1)
    assert usual_sizes(100, None, None, None) == (1, 1, 1)
    assert usual_sizes(1, None, 5, 3) == (15, 5, 3), "a node for each Global Master in each cluster"
    assert usual_sizes(8, None, None, 4) == (4, 1, 4)


@pytest.mark.slow
def test_mistakes_end_with_status_2(tmp_path: Path) -> None:
    volery("up", "-a", "mega", status=2)
    volery("serve", "gm", "-c", tmp_path / "none.toml", status=2)
    volery("replay", tmp_path, status=2)
    config = tmp_path / "federation.toml"
    config.write_text('broker = "nats://127.0.0.1:1"\n[parameters]\ngms = 1\nlms = 1\n[[machines]]\n')
    volery("serve", "gmm", "-c", config, status=2)
    volery("serve", "gm", "-c", config, status=2)


def test_a_host_that_waits_for_others_ends_when_it_is_told_to(broker: str, tmp_path: Path) -> None:
    config = tmp_path / "federation.toml"
    config.write_text(f'name = "lonely"\nbroker = "{broker}"\n[parameters]\ngms = 1\nlms = 1\n[[machines]]\n')
    with serving(["serve", "gm", "-c", str(config)]) as (host,):
        assert host.running.stderr is not None
        assert "with reliable = true it would recover from that" in host.running.stderr.readline()
        assert "waits for api, lm, node" in host.running.stderr.readline()
        status, errors = host.stop(signal.SIGINT)
        assert status == 0, errors
