"""Machines of a cluster from slurm.conf, sinfo, scontrol and kubectl; the Slurm texts were made with Slurm 22.05.8."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from volery.core.errors import InputError
from volery.workload import counted_resources, load_cluster
from volery.workload.clusters import read_inventory
from volery.workload.formats.columns.kubernetes import pod_cpu, pod_gpus, pod_memory, quantity
from volery.workload.inventory import ListedMachine, write_machines

CONF = """\
ClusterName=maps
SelectTypeParameters=CR_Core_Memory
NodeName=DEFAULT Sockets=1 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=16000 # all alike
NodeName=n[0-3] NodeAddr=10.0.0.[1-4] Gres=gpu:a100:2,gpu:v100:1,shard:8 Weight=10 \\
   Features=fast,big State=UNKNOWN
NodeName=m[08-10],login RealMemory=32000 MemSpecLimit=1000 CoreSpecCount=1 CPUs=8
NodeSet=fastest Feature=fast
DownNodes=n3 State=DRAIN Reason="power, ETA Dec"
DownNodes=m10 Reason=gone
PartitionName=DEFAULT MaxTime=60
PartitionName=p Nodes=fastest,m08 Default=YES
PartitionName=q Nodes=ALL
"""
SINFO = """\
NODELIST|PARTITION|STATE|CPUS|MEMORY|GRES
login|q|idle|8|32000|(null)
n0|p*|mixed|8|16000|gpu:a100:2(S:0-1),gpu:v100:1,shard:8
n0|q|mixed|8|16000|gpu:a100:2(S:0-1),gpu:v100:1,shard:8
n3|q|drained|8|16000|gpu:a100:2(S:0-1),gpu:v100:1
n4|q|idle*|8|16000|gpu:a100:2(S:0-1),gpu:v100:1
"""
A100 = {"cpu_milli": 8000, "memory_mb": 16000, "gpu_milli": 3000}


def stored(folder: Path, text: str, name: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_slurm_conf_gives_the_machines_that_slurm_gives(tmp_path: Path) -> None:
    """A real slurmctld says of m08 cpu=6: its core of two threads is reserved."""
    inventory = read_inventory(stored(tmp_path, CONF, "slurm.conf"))
    machines = {listed.name: listed for listed in inventory.machines}
    assert list(machines) == ["n0", "n1", "n2", "n3", "m08", "m09", "m10", "login"]
    assert machines["n0"] == ListedMachine("n0", A100, "a100+v100", frozenset({"p", "q"}))
    assert machines["login"] == ListedMachine(
        "login", {"cpu_milli": 6000, "memory_mb": 31000}, partitions=frozenset({"q"})
    )
    assert {name: listed.state for name, listed in machines.items() if listed.state} == {
        "n3": "DRAIN (power, ETA Dec)",
        "m10": "DOWN (gone)",
    }
    path = Path("slurm.conf")
    assert [listed.name for listed in inventory.working(path, "p")] == ["n0", "n1", "n2", "m08"]
    assert len(inventory.working(path, "q", down=True)) == 8


def test_each_record_is_accounted_for(tmp_path: Path) -> None:
    inventory = read_inventory(stored(tmp_path, CONF, "slurm.conf"))
    uses = [(use.place.rpartition(":")[2], use.meaning, use.ignored) for use in inventory.uses]
    assert uses == [
        ("1", "", ("ClusterName (not about machines)",)),
        ("2", "", ("SelectTypeParameters (not about machines)",)),
        ("3", "defaults of the nodes below", ()),
        (
            "4",
            "4 machines of 8 CPUs, 15.625 GB, 3 GPUs (a100+v100)",
            (
                "NodeAddr (address)",
                "Weight (order in which Slurm fills nodes)",
                "Features (property that jobs may require)",
                "shard:8 (no GPU)",
            ),
        ),
        ("6", "4 machines of 6 CPUs, 30.2734 GB", ()),
        ("7", "set of nodes fastest", ()),
        ("8", "1 machine, takes no work: DRAIN (power, ETA Dec)", ()),
        ("9", "1 machine, takes no work: DOWN (gone)", ()),
        ("10", "defaults of the partitions below", ("MaxTime (rules of the scheduler)",)),
        ("11", "partition p: 5 machines", ("Default (rules of the scheduler)",)),
        ("12", "partition q: 8 machines", ()),
    ]


@pytest.mark.parametrize(
    ("line", "amounts"),
    [
        ("", {"cpu_milli": 1000}),
        ("CPUs=6", {"cpu_milli": 6000}),
        ("Procs=6 Sockets=2 CoresPerSocket=3 ThreadsPerCore=2", {"cpu_milli": 6000}),
        ("Boards=2 SocketsPerBoard=2 CoresPerSocket=3 ThreadsPerCore=2", {"cpu_milli": 24000}),
        ("CPUs=16 CoresPerSocket=4 ThreadsPerCore=2 CoreSpecCount=2", {"cpu_milli": 12000}),
        ("CPUs=8 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 CoreSpecCount=2", {"cpu_milli": 6000}),
        ("CPUs=4 Sockets=2 CoresPerSocket=4", {"cpu_milli": 8000}),
        ("Gres=gpu:2,bandwidth:lustre:no_consume:4G TmpDisk=7", {"cpu_milli": 1000, "gpu_milli": 2000, "disk_mb": 7}),
        ("Gres=gpu:tesla:1,gpu:kepler:1", {"cpu_milli": 1000, "gpu_milli": 2000}),
    ],
)
def test_the_size_of_a_node_is_what_slurmctld_says(tmp_path: Path, line: str, amounts: dict[str, int]) -> None:
    """The amounts are CfgTRES and Gres of `scontrol show node` for these lines."""
    (machine,) = read_inventory(stored(tmp_path, f"NodeName=a {line}\n", "slurm.conf")).machines
    assert machine.amounts == amounts


def test_memory_that_one_node_alone_does_not_state_is_one_megabyte_as_in_slurm(tmp_path: Path) -> None:
    machines = read_inventory(stored(tmp_path, "NodeName=a\nNodeName=b RealMemory=5\n", "slurm.conf")).machines
    assert [listed.amounts.get("memory_mb") for listed in machines] == [1, 5]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("NodeName=a CPUs=eight", r":2: cpus is 'eight'; write a whole number from 1"),
        ("NodeName=a CPUs=0", r":2: cpus is '0'; write a whole number from 1"),
        ("NodeName=a RealMemroy=5", r":2: 'RealMemroy' is no parameter of a node; did you mean 'realmemory'"),
        ("NodeName=a RealMemory=5 MemSpecLimit=5", r":2: MemSpecLimit takes all of RealMemory; give less"),
        ("NodeName=a CPUs=2 CoreSpecCount=2", r":2: 2 of 2 CPUs are reserved for the system; leave one for jobs"),
        ("NodeName=a Gres=gpu:a100:x", r":2: 'gpu:a100:x' is no generic resource; write NAME:TYPE:NUMBER"),
        ("NodeName=a State=BUSY", r":2: 'BUSY' is no state of a node; write UNKNOWN"),
        ("DownNodes=n0 State=UP", r":2: 'UP' is no state of a node; write UNKNOWN"),
        ("NodeSet=s Nodes=s\nPartitionName=p Nodes=s", r":2: there is no node 's'; add its NodeName= line"),
        ("NodeName=n[0-1]", r":2: names the node n0 again, as .*slurm.conf:1 does; take it out"),
        ("DownNodes=x", r":2: there is no node 'x'; add its NodeName= line, or take it out here"),
        ("PartitionName=p Nodes=n0,x", r":2: there is no node 'x'"),
    ],
)
def test_a_wrong_record_is_refused_by_line(tmp_path: Path, line: str, problem: str) -> None:
    with pytest.raises(InputError, match=r"slurm\.conf" + problem):
        read_inventory(stored(tmp_path, f"NodeName=n0\n{line}\n", "slurm.conf"))


def test_a_file_without_nodes_a_partition_that_is_not_there_and_a_cluster_that_is_down_are_refused(
    tmp_path: Path,
) -> None:
    with pytest.raises(InputError, match=r"slurm.conf: has no NodeName= line; name the file that lists the nodes"):
        read_inventory(stored(tmp_path, "ClusterName=a\n", "slurm.conf"))
    path = stored(tmp_path, "NodeName=n0 State=DOWN\nPartitionName=long Nodes=n0\n", "slurm.conf")
    inventory = read_inventory(path)
    with pytest.raises(InputError, match=r"--partition: slurm.conf has no 'log'; did you mean 'long'"):
        inventory.working(path, "log")
    with pytest.raises(
        InputError, match=r"slurm.conf: lists no machine that takes work in partition long; give --down"
    ):
        inventory.working(path, "long")


@pytest.mark.parametrize("text", ["n0|p|idle|8|16000|(null)\n", "# of nodes\nname,cores\n"])
def test_what_lists_no_machines_is_told_what_does(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"list: begins with '.*', as nothing that lists machines; give a slurm.conf"):
        read_inventory(stored(tmp_path, text, "list"))


def test_a_slurm_conf_may_begin_with_many_comments(tmp_path: Path) -> None:
    inventory = read_inventory(stored(tmp_path, "# words\n" * 60 + "NodeName=a\n", "conf"))
    assert [listed.name for listed in inventory.machines] == ["a"]


def test_sinfo_lists_a_node_once_per_partition(tmp_path: Path) -> None:
    inventory = read_inventory(stored(tmp_path, SINFO, "sinfo.txt"))
    states = {listed.name: listed.state for listed in inventory.machines}
    assert states == {"login": "", "n0": "", "n3": "DRAINED", "n4": "NOT_RESPONDING"}
    assert inventory.machines[1] == ListedMachine("n0", A100, "a100+v100", frozenset({"p", "q"}))
    assert [use.meaning for use in inventory.uses] == [
        "columns NODELIST, PARTITION, STATE, CPUS, MEMORY, GRES",
        "1 machine of 8 CPUs, 31.25 GB",
        "1 machine of 8 CPUs, 15.625 GB, 3 GPUs (a100+v100)",
        "1 machine of 8 CPUs, 15.625 GB, 3 GPUs (a100+v100), takes no work: DRAINED",
        "1 machine of 8 CPUs, 15.625 GB, 3 GPUs (a100+v100), takes no work: NOT_RESPONDING",
    ]
    assert [use.ignored for use in inventory.uses if use.ignored] == [("shard:8 (no GPU)",)]


def test_sinfo_with_wide_columns_and_groups_of_nodes_is_read_too(tmp_path: Path) -> None:
    text = "NODELIST            WEIGHT  CPUS  MEMORY\nn[0-1],m3           1       8     16000 \n"
    inventory = read_inventory(stored(tmp_path, text, "sinfo.txt"))
    assert [(listed.name, listed.amounts["cpu_milli"]) for listed in inventory.machines] == [
        ("n0", 8000),
        ("n1", 8000),
        ("m3", 8000),
    ]
    assert inventory.uses[0].ignored == ("WEIGHT (not read)",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("NODELIST|MEMORY\nn0|1\n", r":1: lacks the column CPUS; print it by sinfo -N -o"),
        ("NODELIST|CPUS\nn0|x\n", r":2: CPUS is 'x'; write a whole number from 1"),
        ("NODELIST|CPUS|MEMORY\nn0|4|x\n", r":2: MEMORY is 'x'; write a whole number from 0"),
        ("NODELIST|CPUS\nn[0-3]|4+\n", r":2: CPUS is '4\+', the least of several nodes; print it by sinfo -N"),
        ("NODELIST|CPUS|GRES\nn0|4|gpu:a:\n", r":2: 'gpu:a:' is no generic resource"),
        ("NODELIST GRES STATE CPUS\nn0 gpu:a100:2,gpu:v100:idle 8\n", r":2: has 3 fields where the header has 4"),
        ("HOSTNAMES|CPUS\nvm|4\nvm|4\n", r":3: lists vm again, as line 2 does; print it by sinfo -N"),
    ],
)
def test_wrong_output_of_sinfo_is_refused_by_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=r"sinfo.txt" + problem):
        read_inventory(stored(tmp_path, text, "sinfo.txt"))


def slurm_nodes(**more: Any) -> str:
    node = {"name": "n0", "cpus": 8, "real_memory": 16000, "gres": "gpu:a100:2", "tres": "cpu=6,mem=16000M", "extra": 1}
    return json.dumps({"meta": {}, "nodes": [node | more, node | {"name": "n1", "partitions": ["q"]}]})


@pytest.mark.parametrize(
    ("more", "state"),
    [
        ({"state": "idle", "state_flags": []}, ""),
        ({"state": ["IDLE", "DRAIN"], "reason": "fan"}, "DRAIN (fan)"),
        ({"state": "down", "state_flags": ["NOT_RESPONDING"]}, "DOWN+NOT_RESPONDING"),
    ],
)
def test_nodes_of_slurm_as_json_of_older_and_later_versions(tmp_path: Path, more: dict[str, Any], state: str) -> None:
    first, second = read_inventory(stored(tmp_path, slurm_nodes(**more), "nodes.json")).machines
    assert (first.state, first.amounts["cpu_milli"], first.amounts["gpu_milli"]) == (state, 6000, 2000)
    assert second.partitions == frozenset({"q"})


def test_cpus_that_jobs_may_take_are_those_that_later_versions_state(tmp_path: Path) -> None:
    first = read_inventory(stored(tmp_path, slurm_nodes(effective_cpus=7, specialized_memory=100), "n.json")).machines[
        0
    ]
    assert first.amounts == {"cpu_milli": 7000, "memory_mb": 15900, "gpu_milli": 2000}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"sinfo": []}', r"has no key nodes, as `scontrol show nodes --json` prints it; print that instead"),
        ('{"nodes": [{"name": "a", "cpus": "4"}]}', r"is no list of Slurm's nodes: .* at `\$.nodes\[0\].cpus`"),
        ('{"nodes": [{"name": "a", "cpus": 4, "gres": "gpu:"}]}', r"node a: 'gpu:' is no generic resource"),
    ],
)
def test_wrong_nodes_of_slurm_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read_inventory(stored(tmp_path, text, "nodes.json"))


def kube_nodes(*nodes: dict[str, Any]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(nodes)})


def kube_node(name: str, *, ready: str = "True", labels: Any = None, **more: Any) -> dict[str, Any]:
    allocatable = {"cpu": "3920m", "memory": "16Gi", "pods": "110", "ephemeral-storage": "2Mi"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels or {}, "uid": "1"},
        "spec": more.pop("spec", {}),
        "status": {
            "allocatable": allocatable | more,
            "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}],
        },
    }


def test_nodes_of_kubernetes_offer_what_pods_may_ask_for(tmp_path: Path) -> None:
    taints = [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]
    gpus = {"nvidia.com/gpu": "8", "hugepages-2Mi": "0", "example.com/nic": "2"}
    text = kube_nodes(
        kube_node("a"),
        kube_node("b", labels={"nvidia.com/gpu.product": "A100"}, **gpus),
        kube_node("c", spec={"taints": taints}),
        kube_node("d", ready="Unknown"),
        kube_node("e", spec={"unschedulable": True, "taints": [{"key": "team", "effect": "NoSchedule"}]}),
    )
    inventory = read_inventory(stored(tmp_path, text, "nodes.json"))
    plain = {"cpu_milli": 3920, "memory_mb": 16384, "disk_mb": 2}
    assert inventory.machines[:2] == (
        ListedMachine("a", plain),
        ListedMachine("b", plain | {"gpu_milli": 8000}, "A100"),
    )
    assert [listed.state for listed in inventory.machines[2:]] == ["control plane", "NotReady", "cordoned"]
    assert [use.ignored for use in inventory.uses if use.ignored] == [
        ("example.com/nic (no resource here)",),
        ("taint team (which pods tolerate it is not known)",),
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (kube_nodes(kube_node("a", cpu="four")), r"node a: status.allocatable.cpu: 'four' is no quantity .*; mend it"),
        (kube_nodes(kube_node("a", memory="1 Gi")), r"node a: status.allocatable.memory: '1 Gi' is no quantity"),
        (kube_nodes(kube_node("a") | {"kind": "Pod"}), r"node a: is a Pod; print nodes, by kubectl get nodes -o json"),
        (kube_nodes(kube_node("a") | {"status": {}}), r"node a: states no status.allocatable.cpu; print whole nodes"),
        ('{"apiVersion": "v1", "items": [{}]}', r"is no list of nodes, as `kubectl get nodes -o json` .*`metadata`"),
    ],
)
def test_wrong_nodes_of_kubernetes_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read_inventory(stored(tmp_path, text, "nodes.json"))


@pytest.mark.parametrize(
    ("text", "value"),
    [("2", 2), ("1500m", 1.5), ("0.5", 0.5), (".5k", 500), ("16Gi", 16 * 2**30), ("2e3", 2000), ("1E", 10**18)],
)
def test_quantities_are_those_of_kubernetes(text: str, value: float) -> None:
    assert quantity(text) == value


def test_the_file_of_machines_is_read_again(tmp_path: Path) -> None:
    inventory = read_inventory(stored(tmp_path, CONF, "slurm.conf"))
    output = tmp_path / "machines.csv"
    write_machines(inventory.working(output), output, force=False)
    assert output.read_text().splitlines()[:2] == [
        "name,cpu_milli,memory_mb,gpu_milli,gpu_model",
        "n0,8000,16000,3000,a100+v100",
    ]
    resources = counted_resources("", "", output)
    assert resources == ("cpu_milli", "memory_mb", "gpu_milli")
    capacities = load_cluster(6, machines=output, resources=resources).capacities
    assert capacities == ((8000, 16000, 3000),) * 3 + ((6000, 31000, 0),) * 3
    with pytest.raises(InputError, match=r"machines.csv: exists already; give --force"):
        write_machines(inventory.working(output), output, force=False)


def test_a_slurm_conf_is_a_file_of_machines(tmp_path: Path) -> None:
    path = stored(tmp_path, CONF, "slurm.conf")
    resources = counted_resources("", "", path)
    assert resources == ("cpu_milli", "memory_mb", "gpu_milli")
    cluster = load_cluster(6, machines=path, resources=resources)
    assert cluster.capacities == ((8000, 16000, 3000),) * 3 + ((6000, 31000, 0),) * 3
    with pytest.raises(InputError, match=r"slurm.conf: holds 6 machines, fewer than the 7 workers"):
        load_cluster(7, machines=path, resources=resources)
    with pytest.raises(InputError, match=r"slurm.conf: says nothing of disk_mb, which tasks ask for"):
        load_cluster(6, machines=path, resources=("disk_mb",))
    with pytest.raises(InputError, match=r"slurm.conf: lists CPUs and memory, and tasks ask for none"):
        load_cluster(6, machines=path)
    with pytest.raises(InputError, match=r"slurm.conf: states no speeds; make a file of machines of it"):
        load_cluster(6, machines=path, resources=resources, reference_mhz=3000)


def test_a_slurm_conf_that_includes_a_file_is_turned_into_a_file_of_machines_first(tmp_path: Path) -> None:
    stored(tmp_path, "NodeName=n0\n", "nodes.conf")
    path = stored(tmp_path, "include nodes.conf\n", "slurm.conf")
    assert len(read_inventory(path).machines) == 1
    with pytest.raises(
        InputError, match=r"includes other files; make a file of machines of it with `volery trace mach"
    ):
        load_cluster(1, machines=path, resources=("cpu_milli",))


@pytest.mark.parametrize("wrong", [{"cpus": 0}, {"cpus": -4}, {"real_memory": 0}, {"temporary_disk": -1}])
def test_a_node_of_slurm_with_an_offer_below_zero_is_refused(tmp_path: Path, wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match=r"node n0: offers .*; give CPUs and memory from 1"):
        read_inventory(stored(tmp_path, slurm_nodes(tres="", **wrong), "nodes.json"))


@pytest.mark.parametrize("name", ["cpu", "memory", "nvidia.com/gpu"])
def test_a_node_of_kubernetes_with_an_offer_below_zero_is_refused(tmp_path: Path, name: str) -> None:
    node = kube_node("a")
    node["status"]["allocatable"][name] = "-2"
    with pytest.raises(InputError, match=rf"node a: status\.allocatable\.{name}: '-2' is no offer above 0; mend it"):
        read_inventory(stored(tmp_path, kube_nodes(node), "nodes.json"))


def test_a_node_that_is_listed_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="node a: is listed twice; keep one"):
        read_inventory(stored(tmp_path, kube_nodes(kube_node("a"), kube_node("a")), "nodes.json"))
    with pytest.raises(InputError, match="node n1: is listed twice; keep one"):
        read_inventory(stored(tmp_path, slurm_nodes(name="n1"), "nodes.json"))


def test_numbers_of_endless_digits_are_refused(tmp_path: Path) -> None:
    for text in ("1e99999999999999999999", "1e999", "9" * 5000):
        with pytest.raises(ValueError, match="is more than any quantity of Kubernetes"):
            quantity(text)
    digits = "9" * 5000
    for line in (f"NodeName=a CPUs={digits}", f"NodeName=a Gres=gpu:{digits}", f"NodeName=a[1-{digits}]"):
        with pytest.raises(InputError, match=r"slurm\.conf:1: "):
            read_inventory(stored(tmp_path, f"{line}\n", "slurm.conf"))


def test_slices_of_a_gpu_are_parts_of_one_and_names_that_end_alike_are_others(tmp_path: Path) -> None:
    offers = {"nvidia.com/mig-1g.5gb": "7", "nvidia.com/mig-3g.20gb": "2", "example.com/vcpu": "9", "x.y/memory": "1"}
    path = stored(tmp_path, kube_nodes(kube_node("a", **offers)), "nodes.json")
    node = read_inventory(path).machines[0]
    assert node.amounts["gpu_milli"] == 7 * 142 + 2 * 428
    assert node.amounts["cpu_milli"] == read_inventory(
        stored(tmp_path, kube_nodes(kube_node("a")), "plain.json")
    ).machines[0].amounts["cpu_milli"]  # fmt: skip

    asked = {"cpu": "2", "memory": "1Gi", **offers, "example.com/gpu": "1", "nvidia.com/gpu": "2"}
    pod = json.dumps({"containers": [{"resources": {"requests": asked}}], "overhead": {"example.com/vcpu": "1"}})
    assert (pod_cpu(pod), pod_memory(pod)) == (2, 1 << 30)
    assert pod_gpus(pod) == pytest.approx(3 + 7 * 0.142 + 2 * 0.428)
