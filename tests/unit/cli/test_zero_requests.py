"""Requests of zero on the way from a file to a decision: the example of the H-DRF paper (SoCC 2013) as a trace."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from tests.unit.cli.conftest import Command

from volery.core.model import SECOND
from volery.workload.table import TableManifest, TaskRow, batches, table_output

USERS = {"n1": (0, 1000), "n21": (1000, 0), "n22": (0, 1000)}


def table_of(path: Path, seconds: int = 30) -> Path:
    """More work of each user, all along, than ten processors and ten GPUs can do; tasks of about a second."""
    stream = Random(1)
    rows = [
        TaskRow(
            job=f"{user}-{second}",
            task=str(task),
            user=user,
            submit_us=second * SECOND,
            runtime_us=stream.randrange(SECOND // 2, SECOND * 3 // 2),
            cpu_milli=cpu,
            gpu_milli=gpu,
        )
        for second in range(seconds)
        for user, (cpu, gpu) in USERS.items()
        for task in range(14)
    ]
    with table_output(path) as writer:
        for batch in batches(rows):
            writer.add(batch)
        writer.finish(TableManifest(1, "", "", "table", ""))
    return path


@pytest.mark.parametrize(
    ("design", "n22"),
    [
        ("oracle:order=hdrf,shares=n1:1+n2:1(n21:1+n22:1)", 0.5),
        ("oracle:order=hdrf,hierarchy=naive,shares=n1:1+n2:1(n21:1+n22:1)", 0.0),
        ("pipeline:T2=hdrf/shares:n1:1+n2:1(n21:1+n22:1)", 0.5),
    ],
)
def test_a_user_of_gpus_beside_one_of_processors_has_its_half_of_the_gpus(
    command: Command, tmp_path: Path, design: str, n22: float
) -> None:
    """Two groups; n2 has a user of processors, who takes them all, beside one of GPUs, who is due half of those."""
    work = ("--trace", table_of(tmp_path / "t.parquet"), "--workers", "1", "--delay-us", "0")
    ended = command("compare", design, *work, "--capacity", "cpu_milli=10000,gpu_milli=10000", "--json")
    shares = ended.json["runs"][0]["user_shares"]
    assert shares["n21"] > 0.9, shares
    assert abs(shares["n22"] - n22) < 0.1, shares
    assert abs(shares["n1"] - (1 - n22)) < 0.1, shares


@pytest.mark.parametrize(
    "design",
    [
        "oracle:order=drf",
        "oracle:order=hdrf,patience_s=1",
        "mesos",
        "megha:gms=1,lms=1,shares=a+b",
        "pipeline:T2=hdrf",
        "borg",
    ],
)
def test_tasks_run_that_ask_for_none_of_a_resource_of_which_machines_have_none(
    command: Command, tmp_path: Path, design: str
) -> None:
    """Pods without processors, memory or GPUs, on machines without GPUs: nobody has a share of what is not there."""
    path = tmp_path / "pods.csv"
    head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    pods = [
        f"p{k},{(k % 3) * 1000},{(k % 2) * 512},0,0,LS,Succeeded,{k // 4},{k // 4 + 5},{k // 4}\n" for k in range(40)
    ]
    path.write_text(head + "".join(pods))
    work = ("--trace", path, "--users", "a+b", "--workers", "2", "--delay-us", "0")
    ended = command("compare", design, *work, "--capacity", "cpu_milli=4000,memory_mb=2048,gpu_milli=0", "--json")
    assert ended.status == 0, ended.err
    run = ended.json["runs"][0]
    assert (run["jobs"], run["unsatisfiable_tasks"]) == (40, 0)
