"""The shipped maps of public traces and of the logs of managers: 24 rows of each, made to the named documentation.

Right values are computed here, by plain arithmetic on the number of the row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from volery.core.errors import InputError
from volery.workload.formats import format_of, read_source
from volery.workload.formats.source import Noticed

ROWS = 24
SECOND = 1_000_000
EPOCH = datetime(2024, 3, 1, 8, tzinfo=UTC)
BEGIN_S = 1_709_280_000
"""EPOCH in seconds since 1970."""

Source = list[dict[str, Any]]
Expected = dict[str, Any]


class Case(NamedTuple):
    """A map with a file for it.

    Attributes:
        row: fields of a row by column.
        right: values of a row in the trace table; those that are absent are unknown.
        text: file of rows.
        bad: column -> wrong value, and the words of its error.
        line: number of the line of a row.
    """

    row: Callable[[int], dict[str, Any]]
    right: Callable[[int], Expected]
    text: Callable[[Source], str]
    bad: dict[str, tuple[Any, str]]
    line: Callable[[int], int]


def table(*, header: bool, separator: str = ",", top: str = "") -> Callable[[Source], str]:
    """A text of rows."""

    def text(rows: Source) -> str:
        lines = [separator.join(rows[0])] if header else []
        lines += [separator.join(str(value) for value in row.values()) for row in rows]
        return top + "".join(f"{line}\n" for line in lines)

    return text


def shape(tasks: int, nodes: int | None = None, **amounts: float | None) -> Expected:
    """A row of tasks that run only together and share what all of them ask for; of one task, a row of its own.

    Args:
        amounts: request of each task.
    """
    together = {name: None if amount is None else amount * tasks for name, amount in amounts.items()}
    return together | {"instances": 1} | ({"gang_tasks": tasks, "gang_nodes": nodes} if tasks > 1 else {})


def cycle(k: int, *choices: Any) -> Any:
    return choices[k % len(choices)]


# Alibaba GPU 2020: every fourth task fails, runs on, or waits.
PAI_STATES = ("Terminated", "Failed", "Running", "Waiting")


def pai_row(k: int) -> dict[str, Any]:
    state = cycle(k, *PAI_STATES)
    return {
        "job_name": f"job{k // 2}",
        "task_name": cycle(k, "worker", "ps"),
        "inst_num": f"{k + 1}.0",
        "status": state,
        "start_time": "" if state == "Waiting" else f"{494_000 + 10 * k}.0",
        "end_time": f"{495_000 + 20 * k}.0" if state in ("Terminated", "Failed") else "",
        "plan_cpu": f"{100 * (k + 1)}.0",
        "plan_mem": "29.296875",
        "plan_gpu": cycle(k, "50.0", "100.0", "800.0", ""),
        "gpu_type": cycle(k, "MISC", "T4", "V100", ""),
    }


def pai_right(k: int) -> Expected:
    state = cycle(k, "finished", "failed", "running", "waiting")
    start_us = None if state == "waiting" else (494_000 + 10 * k) * SECOND
    end_us = (495_000 + 20 * k) * SECOND if k % 4 < 2 else None
    return {
        "job": f"job{k // 2}",
        "task": cycle(k, "worker", "ps"),
        "start_us": start_us,
        "end_us": end_us,
        "runtime_us": (1000 + 10 * k) * SECOND if end_us else None,
        "status": state,
    } | shape(k + 1, cpu_milli=1000.0 * (k + 1), memory_mb=30_000.0, gpu_milli=cycle(k, 500.0, 1000.0, 8000.0, None))


PAI_BAD = {
    "inst_num": ("1.5", "inst_num gives no tasks: '1.5' is no whole number"),
    "status": ("Gone", "status gives no state: 'Gone' is no state of the map"),
    "start_time": ("nan", "start_time gives no start: 'nan' is no time"),
    "end_time": ("1e99", "end_time gives no end: '1e+99' is no time"),
    "plan_cpu": ("-1", "plan_cpu gives no cores: '-1' is no amount from 0"),
    "plan_mem": ("-1", "plan_mem gives no memory: '-1' is no amount from 0"),
    "plan_gpu": ("-50", "plan_gpu gives no devices: '-50' is no amount from 0"),
}


def helios_row(k: int) -> dict[str, Any]:
    submit = EPOCH + timedelta(seconds=60 * k)
    start = submit + timedelta(seconds=k)
    end = start + timedelta(seconds=100 + k)
    nodes = 1 + k % 3
    return {
        "job_id": 1_425_511 + k,
        "user": f"u{k % 5}",
        "vc": f"vc{k % 2}",
        "gpu_num": 8 * nodes,
        "cpu_num": 16 * nodes,
        "node_num": nodes,
        "state": cycle(k, "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL"),
        "submit_time": f"{submit:%Y-%m-%d %H:%M:%S}",
        "start_time": f"{start:%Y-%m-%d %H:%M:%S}",
        "end_time": f"{end:%Y-%m-%d %H:%M:%S}",
        "duration": 100 + k,
        "queue": k,
    }


def helios_right(k: int) -> Expected:
    submit_us = (BEGIN_S + 60 * k) * SECOND
    nodes = 1 + k % 3
    return {
        "job": str(1_425_511 + k),
        "task": "0",
        "user": f"u{k % 5}",
        "partition": f"vc{k % 2}",
        "submit_us": submit_us,
        "start_us": submit_us + k * SECOND,
        "end_us": submit_us + (100 + 2 * k) * SECOND,
        "runtime_us": (100 + k) * SECOND,
        "status": cycle(k, "finished", "killed", "failed", "killed", "lost"),
    } | shape(nodes, nodes, cpu_milli=16_000.0, gpu_milli=8000.0)


HELIOS_BAD = {
    "gpu_num": ("many", "gpu_num gives no devices: could not convert"),
    "cpu_num": ("-2", "cpu_num gives no cores: '-2' is no amount from 0"),
    "node_num": ("0.5", "node_num gives no nodes: '0.5' is no whole number"),
    "state": ("DONE", "state gives no state: 'DONE' is no state of the map"),
    "submit_time": ("yesterday", "submit_time gives no submit: 'yesterday' is no date with a time"),
    "start_time": ("2024-13-01 00:00:00", "start_time gives no start: '2024-13-01 00:00:00' is no date"),
    "end_time": ("8", "end_time gives no end: '8' is no date with a time"),
}


def elastic_row(k: int) -> dict[str, Any]:
    return {
        "job_id": f"6b2d9ccc-{k:04d}",
        "submission_time": 16_566 + 30 * k,
        "num_iteration": 40_285,
        "model_name": "bert",
        "deadline": 21_347 + 40 * k,
        "batch_size": 64,
        "num_gpu": 2 ** (k % 4),
        "duration": 3_890 + k,
    }


def elastic_right(k: int) -> Expected:
    return {
        "job": f"6b2d9ccc-{k:04d}",
        "task": "0",
        "submit_us": (16_566 + 30 * k) * SECOND,
        "deadline_us": (21_347 + 40 * k) * SECOND,
        "runtime_us": (3_890 + k) * SECOND,
    } | shape(2 ** (k % 4), gpu_milli=1000.0)


ELASTIC_BAD = {
    "submission_time": ("soon", "submission_time gives no submit: could not convert"),
    "deadline": ("never", "deadline gives no deadline: could not convert"),
    "num_gpu": ("1.5", "num_gpu gives no tasks: '1.5' is no whole number"),
    "duration": ("-1", "duration gives no runtime: '-1' is no duration from 0"),
}


def azure_row(k: int) -> dict[str, Any]:
    return {
        "vmid": f"x/Xs{k}+uf==",
        "subscriptionid": f"s{k % 3}=",
        "deploymentid": f"d{k % 7}=",
        "vmcreated": 300 * k,
        "vmdeleted": 2_591_700 if k % 5 == 0 else 300 * (2 * k + 1),
        "maxcpu": 99.37,
        "avgcpu": 3.42,
        "p95maxcpu": 10.19,
        "vmcategory": cycle(k, "Delay-insensitive", "Interactive", "Unknown"),
        "vmcorecountbucket": cycle(k, "2", "4", "8", "24", ">24"),
        "vmmemorybucket": cycle(k, "2", "8", "64", ">64"),
    }


def azure_right(k: int) -> Expected:
    end_s = 2_591_700 if k % 5 == 0 else 300 * (2 * k + 1)
    cores, memory_gb = cycle(k, 2, 4, 8, 24, None), cycle(k, 2, 8, 64, None)
    return {
        "job": f"x/Xs{k}+uf==",
        "task": "0",
        "user": f"s{k % 3}=",
        "group": f"d{k % 7}=",
        "submit_us": 300 * k * SECOND,
        "start_us": 300 * k * SECOND,
        "end_us": end_s * SECOND,
        "runtime_us": (end_s - 300 * k) * SECOND,
        "instances": 1,
        "cpu_milli": None if cores is None else 1000.0 * cores,
        "memory_mb": None if memory_gb is None else 1024.0 * memory_gb,
    }


AZURE_BAD = {
    "vmcreated": ("1e99", "vmcreated gives no submit: '1e+99' is no time"),
    "vmdeleted": ("nan", "vmdeleted gives no end: 'nan' is no time"),
    "vmcorecountbucket": ("two", "vmcorecountbucket gives no cores: could not convert"),
    "vmmemorybucket": ("-8", "vmmemorybucket gives no memory: '-8' is no amount from 0"),
}


# HTCondor: 1 idle, 3 removed while it ran, 4 completed after two attempts, 5 held.
def condor_row(k: int) -> dict[str, Any]:
    status = cycle(k, 4, 3, 1, 5)
    start_s, end_s = BEGIN_S + 60 * k + 7, BEGIN_S + 60 * k + 1007
    row = {
        "MyType": "Job",
        "GlobalJobId": f"schedd#{k}.0#{BEGIN_S}",
        "ClusterId": k,
        "ProcId": 0,
        "Owner": f"u{k % 4}",
        "User": f"u{k % 4}@pool",
        "AcctGroup": "physics",
        "JobStatus": status,
        "QDate": BEGIN_S + 60 * k,
        "CompletionDate": end_s if status == 4 else 0,
        "EnteredCurrentStatus": end_s + 1,
        "RemoteWallClockTime": 0.0 if status == 1 else 900.0 + k,
        "RequestCpus": 1 + k % 8,
        "RequestMemory": cycle(k, 2048, "/Expr(ifThenElse(MemoryUsage =!= undefined,MemoryUsage,1))/"),
        "RequestGPUs": k % 2,
    }
    return row if status == 1 else row | {"JobStartDate": start_s, "NumJobStarts": 2}


def condor_right(k: int) -> Expected:
    state = cycle(k, "finished", "killed", "waiting", "evicted")
    submit_us = (BEGIN_S + 60 * k) * SECOND
    end_us = submit_us + (1007 if state == "finished" else 1008) * SECOND
    return {
        "job": f"schedd#{k}.0#{BEGIN_S}",
        "task": "0",
        "user": f"u{k % 4}@pool",
        "group": "physics",
        "submit_us": submit_us,
        "start_us": None if state == "waiting" else submit_us + 7 * SECOND,
        "end_us": None if state == "waiting" else end_us,
        "runtime_us": None if state == "waiting" else (900 + k) * SECOND,
        "instances": 1,
        "cpu_milli": 1000.0 * (1 + k % 8),
        "memory_mb": cycle(k, 2048.0, None),
        "gpu_milli": 1000.0 * (k % 2),
        "status": state,
    }


CONDOR_BAD = {
    "JobStatus": (9, "JobStatus gives no state: '9' is no state of the map"),
    "QDate": ("soon", "QDate gives no submit: could not convert"),
    "JobStartDate": ("soon", "JobStartDate gives no start: could not convert"),
    "CompletionDate": ("soon", "CompletionDate gives no end: could not convert"),
    "EnteredCurrentStatus": ("soon", "EnteredCurrentStatus gives no end: could not convert"),
    "RemoteWallClockTime": (-5, "RemoteWallClockTime gives no runtime: '-5' is no duration from 0"),
    "RequestCpus": ("few", "RequestCpus gives no cores: could not convert"),
    "RequestMemory": (-1, "RequestMemory gives no memory: '-1' is no amount from 0"),
    "RequestGPUs": (-1, "RequestGPUs gives no devices: '-1' is no amount from 0"),
}


def ads_text(rows: Source) -> str:
    """Attributes in the order of their names, as condor_history -long prints them."""

    def value(name: str, given: Any) -> str:
        if name == "RequestMemory" and str(given).startswith("/Expr"):
            return "ifThenElse(MemoryUsage =!= undefined,MemoryUsage,1)"
        return json.dumps(given)

    names = sorted({name for row in rows for name in row})
    ads = ["".join(f"{name} = {value(name, row.get(name, UNDEFINED))}\n" for name in names) for row in rows]
    return "\n".join(ads).replace(json.dumps(UNDEFINED), "undefined")


UNDEFINED = "(undefined)"
ADS_LINES = 1 + 17
"""Lines of an ad, with the blank one."""


# PBS: exit 0, an error, a signal and a kill by the server; each third job is one of Torque, with nodes and ppn.
def pbs_row(k: int) -> dict[str, Any]:
    nodes = 1 + k % 3
    size = {"Resource_List.ncpus": 8 * nodes, "Resource_List.ngpus": nodes, "Resource_List.mem": f"{4 * nodes}gb"}
    if k % 3 == 2:
        size = {"Resource_List.nodes": f"{nodes}:ppn=8:fast"}
    return {
        "user": f"u{k % 4}",
        "group": "g",
        "project": "_pbs_project_default",
        "jobname": "a b",
        "queue": cycle(k, "workq", "long"),
        "ctime": BEGIN_S + k,
        "qtime": BEGIN_S + 2 * k,
        "etime": BEGIN_S + 2 * k,
        "start": BEGIN_S + 100 + k,
        "exec_host": "n0/0*8",
        **size,
        "Resource_List.nodect": nodes,
        "Resource_List.walltime": "01:00:00",
        "session": 1,
        "end": BEGIN_S + 200 + 3 * k,
        "Exit_status": cycle(k, 0, 1, 271, -11),
        "resources_used.walltime": "00:01:00",
        "run_count": 1,
    }


def pbs_right(k: int) -> Expected:
    nodes = 1 + k % 3
    is_torque = k % 3 == 2
    gpus = None if is_torque else 1000.0
    return {
        "job": f"{k}.server",
        "task": "0",
        "user": f"u{k % 4}",
        "group": "g",
        "partition": cycle(k, "workq", "long"),
        "submit_us": (BEGIN_S + 2 * k) * SECOND,
        "start_us": (BEGIN_S + 100 + k) * SECOND,
        "end_us": (BEGIN_S + 200 + 3 * k) * SECOND,
        "runtime_us": (100 + 2 * k) * SECOND,
        "limit_us": 3600 * SECOND,
        "estimate_us": 3600 * SECOND,
        "status": cycle(k, "finished", "failed", "killed", "killed"),
    } | shape(nodes, nodes, cpu_milli=8000.0, memory_mb=None if is_torque else 4096.0, gpu_milli=gpus)


def pbs_text(rows: Source) -> str:
    lines = ["03/01/2024 08:00:00;L;license;floating license hour:3 day:9 month:9 max:10"]
    for k, row in enumerate(rows):
        lines.append(f"03/01/2024 08:00:01;Q;{k}.server;queue=workq")
        lines.append(f"03/01/2024 08:00:02;S;{k}.server;user=u{k % 4} start={BEGIN_S}")
        lines.append(f"03/01/2024 08:00:03;E;{k}.server;" + " ".join(f"{name}={value}" for name, value in row.items()))
    return "".join(f"{line}\n" for line in lines)


PBS_BAD = {
    "qtime": ("soon", "message gives no submit: could not convert"),
    "start": ("soon", "message gives no start: could not convert"),
    "end": ("soon", "message gives no end: could not convert"),
    "Resource_List.ncpus": ("few", "message gives no cores: could not convert"),
    "Resource_List.ngpus": ("-1", "message gives no devices: '-1' is no amount from 0"),
    "Resource_List.mem": ("big", "message gives no memory: could not convert"),
    "Resource_List.nodect": ("x", "message gives no nodes: could not convert"),
    "Resource_List.walltime": ("long", "message gives no limit: could not convert"),
    "Exit_status": ("odd", "message gives no state: 'odd' is no state of the map"),
}


def stamp(second: int) -> str:
    return f"{EPOCH + timedelta(seconds=second):%Y-%m-%dT%H:%M:%SZ}"


# Pods: each has two containers and two init containers, of which the first needs more than all that follow.
def pod_row(k: int) -> dict[str, Any]:
    phase = cycle(k, "Succeeded", "Failed", "Running", "Pending")
    resources = {"requests": {"cpu": "500m", "memory": "64Mi"}, "limits": {"cpu": "4", "nvidia.com/gpu": "1"}}
    spec = {
        "containers": [{"name": "a", "resources": resources}, {"name": "b", "resources": {"limits": {"cpu": 1}}}],
        "initContainers": [
            {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "0.25"}}},
            {"name": "i", "resources": {"requests": {"memory": f"{k}Gi"}}},
        ],
        "overhead": {"cpu": "250m"},
        "priority": k,
        "activeDeadlineSeconds": 600,
    }
    status: dict[str, Any] = {"phase": phase, "conditions": [{"type": "PodScheduled", "status": "False"}]}
    if phase != "Pending":
        placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(10 * k + 3)}
        status["conditions"] = [{"type": "Ready", "status": "True"}, placed]
        ended = [{"state": {"terminated": {"finishedAt": stamp(10 * k + 50 + n)}}} for n in range(2)]
        status["containerStatuses"] = [*ended[:1], {"state": {"running": {}}}] if phase == "Running" else ended
    metadata = {"name": f"p{k}", "namespace": f"ns{k % 2}", "uid": f"uid-{k}", "creationTimestamp": stamp(10 * k)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def pod_right(k: int) -> Expected:
    state = cycle(k, "finished", "failed", "running", "waiting")
    submit_us = (BEGIN_S + 10 * k) * SECOND
    has_ended = state in ("finished", "failed")
    return {
        "job": f"uid-{k}",
        "task": "0",
        "user": f"ns{k % 2}",
        "submit_us": submit_us,
        "start_us": None if state == "waiting" else submit_us + 3 * SECOND,
        "end_us": submit_us + 51 * SECOND if has_ended else None,
        "runtime_us": 48 * SECOND if has_ended else None,
        "limit_us": 600 * SECOND,
        "estimate_us": 600 * SECOND,
        "priority": k,
        "instances": 1,
        "cpu_milli": 500.0 + 1000 + 250 + 250,
        "memory_mb": max(64.0, 1024.0 * k),
        "gpu_milli": 1000.0,
        "status": state,
    }


def pods_text(rows: Source) -> str:
    return json.dumps({"apiVersion": "v1", "items": rows, "kind": "List"}, indent=4)


POD_BAD = {
    "spec": (
        {"containers": [{"resources": {"requests": {"cpu": "two"}}}]},
        "spec gives no cores: 'two' is no quantity",
    ),
    "spec ": ({"containers": 3}, "spec gives no cores: it is no specification of a pod"),
    "metadata": ({"uid": "x", "creationTimestamp": "soon"}, "creationTimestamp gives no submit: 'soon' is no date"),
    "status": ({"phase": "Odd"}, "status.phase gives no state: 'Odd' is no state of the map"),
    "status ": ({"phase": "Failed", "conditions": 1}, "status.conditions gives no start: it is no list of conditions"),
    "status  ": ({"phase": "Failed", "containerStatuses": 1}, "containerStatuses gives no end: it is no list of stat"),
}

GWA_NAMES = (
    "JobID SubmitTime WaitTime RunTime NProcs AverageCPUTimeUsed UsedMemory ReqNProcs ReqTime ReqMemory Status UserID "
    "GroupID ExecutableID QueueID PartitionID OrigSiteID LastRunSiteID JobStructure JobStructureParams UsedNetwork "
    "UsedLocalDiskSpace UsedResources ReqPlatform ReqNetwork ReqLocalDiskSpace ReqResources VOID ProjectID"
)


def gwa_row(k: int) -> dict[str, Any]:
    row = dict.fromkeys(GWA_NAMES.split(), "-1") | {"JobStructure": "UNITARY", "OrigSiteID": "fs1", "VOID": "VO1"}
    return row | {
        "JobID": k + 1,
        "SubmitTime": 1_109_000_000 + 60 * k,
        "WaitTime": k,
        "RunTime": 100 + k,
        "NProcs": k % 4 + 1,
        "ReqNProcs": cycle(k, "-1", 2, 3),
        "ReqTime": cycle(k, 900, "-1"),
        "ReqMemory": cycle(k, 1024, "-1"),
        "Status": cycle(k, 1, 0, 5),
        "UserID": f"U{k % 3}",
        "GroupID": "G1",
        "QueueID": "Q1",
    }


def gwa_right(k: int) -> Expected:
    size = cycle(k, k % 4 + 1, 2, 3)
    submit_us = (1_109_000_000 + 60 * k) * SECOND
    return {
        "job": str(k + 1),
        "task": "0",
        "user": f"U{k % 3}",
        "group": "G1",
        "partition": "Q1",
        "submit_us": submit_us,
        "start_us": submit_us + k * SECOND,
        "end_us": submit_us + (100 + 2 * k) * SECOND,
        "runtime_us": (100 + k) * SECOND,
        "limit_us": cycle(k, 900 * SECOND, None),
        "estimate_us": cycle(k, 900 * SECOND, None),
        "status": cycle(k, "finished", "failed", "killed"),
    } | shape(size, cpu_milli=1000.0, memory_mb=cycle(k, 1.0, None))


GWA_TOP = "# Grid Workload Format\n#\tJobID\tSubmitTime\n\n"
GWA_BAD = {
    "SubmitTime": ("1e99", "SubmitTime gives no submit: '1e+99' is no time"),
    "WaitTime": ("-7", "WaitTime gives no wait: '-7' is no duration from 0"),
    "RunTime": ("-7", "RunTime gives no runtime: '-7' is no duration from 0"),
    "ReqNProcs": ("1.5", "ReqNProcs gives no tasks: '1.5' is no whole number"),
    "ReqTime": ("long", "ReqTime gives no limit: could not convert"),
    "ReqMemory": ("big", "ReqMemory gives no memory: could not convert"),
    "Status": ("9", "Status gives no state: '9' is no state of the map"),
}

CASES = {
    "alibaba-pai": Case(pai_row, pai_right, table(header=False), PAI_BAD, lambda k: k + 1),
    "alibaba-pai with a header": Case(pai_row, pai_right, table(header=True), PAI_BAD, lambda k: k + 2),
    "helios": Case(helios_row, helios_right, table(header=True), HELIOS_BAD, lambda k: k + 2),
    "elasticflow": Case(elastic_row, elastic_right, table(header=True), ELASTIC_BAD, lambda k: k + 2),
    "azure-vmtable": Case(azure_row, azure_right, table(header=False), AZURE_BAD, lambda k: k + 1),
    "azure-vmtable with a header": Case(azure_row, azure_right, table(header=True), AZURE_BAD, lambda k: k + 2),
    "condor-history": Case(
        condor_row, condor_right, lambda rows: json.dumps(rows, indent=1), CONDOR_BAD, lambda k: k + 1
    ),
    "condor-history-long": Case(condor_row, condor_right, ads_text, CONDOR_BAD, lambda k: ADS_LINES * k + 1),
    "pbs": Case(pbs_row, pbs_right, pbs_text, PBS_BAD, lambda k: 3 * k + 4),
    "kube-pods": Case(pod_row, pod_right, pods_text, POD_BAD, lambda k: k + 1),
    "gwa": Case(gwa_row, gwa_right, table(header=False, separator="\t", top=GWA_TOP), GWA_BAD, lambda k: k + 4),
    "gwa with blanks": Case(gwa_row, gwa_right, table(header=False, separator="  "), GWA_BAD, lambda k: k + 1),
}


def read(path: Path, noticed: Noticed | None = None) -> list[dict[str, Any]]:
    counts = Noticed() if noticed is None else noticed
    return [row for batch in read_source(path, format_of(path), counts) for row in batch.to_pylist()]


def stored(folder: Path, text: str) -> Path:
    path = folder / "log"
    path.write_text(text)
    return path


def test_a_history_file_of_condor_has_a_line_behind_each_ad(tmp_path: Path) -> None:
    ad = ads_text([condor_row(0)])
    rows = read(stored(tmp_path, ad + "*** Offset = 0 ClusterId = 0\n" + ad.replace("#0.0#", "#1.0#")))
    assert [row["job"] for row in rows] == [f"schedd#{number}.0#{BEGIN_S}" for number in (0, 1)]


@pytest.mark.parametrize("name", CASES)
def test_a_shipped_map_is_chosen_by_the_content_and_gives_the_right_values(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    path = stored(tmp_path, case.text([case.row(k) for k in range(ROWS)]))
    assert format_of(path).name == name.partition(" ")[0]
    rows = read(path)
    assert len(rows) == ROWS
    for k, row in enumerate(rows):
        right = {field: value for field, value in case.right(k).items() if value is not None}
        known = {field: value for field, value in row.items() if value is not None}
        if "status" not in right:
            known.pop("status", None)
        assert known == right | {"line": case.line(k)}, f"row {k}"


def bad_fields() -> Iterator[Any]:
    for name, case in CASES.items():
        for column, (value, problem) in case.bad.items():
            yield pytest.param(name, column, value, problem, id=f"{name}-{column}")


@pytest.mark.parametrize(("name", "column", "value", "problem"), [*bad_fields()])
def test_a_wrong_value_of_each_field_is_refused_by_line(
    tmp_path: Path, name: str, column: str, value: Any, problem: str
) -> None:
    """The wrong value stands in the second-last row that has the field; what is before it is read."""
    case = CASES[name]
    rows = [case.row(k) for k in range(ROWS)]
    k = max(
        k for k in range(ROWS - 1) if rows[k].get(column.strip(), "") not in ("", "-1") and is_read(rows[k], column)
    )
    rows[k][column.strip()] = value
    path = stored(tmp_path, case.text(rows))
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}:{case.line(k)}: "), str(caught.value)
    assert problem in str(caught.value)


def is_read(row: dict[str, Any], column: str) -> bool:
    """The end of a job of HTCondor that has completed is not looked for elsewhere."""
    return column != "EnteredCurrentStatus" or not row["CompletionDate"]
