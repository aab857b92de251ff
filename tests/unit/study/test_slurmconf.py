"""A slurm.conf becomes parameters of the design `slurm`, and each of its lines is accounted for."""

from __future__ import annotations

from pathlib import Path

import pytest

from volery import architectures
from volery.core.errors import InputError
from volery.setting import Setting
from volery.study.plan import complete_parameters
from volery.study.slurmconf import read_conf
from volery.study.spec import parse_architecture

SLURM_DEFAULTS = {"SelectType": "select/linear", "AccountingStorageEnforce": "none"}
SITE = """\
# a site
ClusterName=tiny
AuthInfo=cred_expire=60
SchedulerParameters=bf_interval=2,bf_continue,defer,bf_yield_interval=1000000
selecttype=select/cons_tres
SelectTypeParameters=CR_Core
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityFavorSmall=YES
PriorityFlags=SMALL_RELATIVE_TO_TIME,MAX_TRES
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=n[0-3] CPUs=4 Weight=5
NodeName=broken CPUs=4 State=DOWN
NodeName=fat CPUs=8
PartitionName=DEFAULT MaxTime=1:00:00 State=UP
PartitionName=low Nodes=n[0-1],n3,fat Default=YES
PartitionName=high Nodes=n[0-1],broken PriorityTier=10 \\
  AllowGroups=staff
"""


def conf(tmp_path: Path, text: str = SITE) -> Path:
    path = tmp_path / "slurm.conf"
    path.write_text(text, encoding="utf-8")
    return path


def test_parameters_are_those_of_the_file_and_of_slurm_where_it_names_none(tmp_path: Path) -> None:
    """A machine that is down is none; numbers are places among the others."""
    parameters = read_conf(conf(tmp_path)).parameters
    assert parameters == {
        "AccountingStorageEnforce": "none",
        "cred_expire": "60",
        "bf_interval": "2",
        "bf_continue": "true",
        "defer": "true",
        "SelectType": "select/cons_tres",
        "PriorityType": "priority/multifactor",
        "PriorityWeightAge": "1000",
        "PriorityFavorSmall": "true",
        "PriorityFlags": "SMALL_RELATIVE_TO_TIME",
        "PreemptType": "preempt/partition_prio",
        "PreemptMode": "REQUEUE",
        "Weight": "0-3:5",
        "PartitionName": "low/Nodes:0-1_3-4/MaxTime:1:00:00/Default:YES+high/Nodes:0-1/MaxTime:1:00:00/PriorityTier:10",
    }
    architectures.configure(architectures.lookup("slurm"), parameters)
    assert read_conf(conf(tmp_path, "ClusterName=x\nNodeName=n\n")).parameters == SLURM_DEFAULTS


def test_each_line_is_accounted_for(tmp_path: Path) -> None:
    uses = {int(use.place.rpartition(":")[2]): use for use in read_conf(conf(tmp_path)).uses}
    assert sorted(uses) == list(range(2, 19)), "all but the comment, continued lines as one"
    assert uses[2].ignored == ("ClusterName (not known here)",)
    assert (uses[4].meaning, uses[4].ignored) == (
        "bf_interval=2 bf_continue=true defer=true",
        ("bf_yield_interval (not modelled: passes that are interrupted)",),
    )
    assert uses[6].ignored == ("SelectTypeParameters (not modelled: all resources are consumed, whole cores)",)
    assert uses[10].ignored == ("MAX_TRES (not modelled: another size factor)",)
    assert uses[13].meaning == "order of nodes: n[0-3], weight 5"
    assert uses[18].ignored == ("AllowGroups (not modelled)",)


@pytest.mark.parametrize(
    ("line", "number", "problem"),
    [
        ("SchedulerType=sched/wiki", 3, "SchedulerType: 'sched/wiki' is not one of its values"),
        ("SelectType=select/cray_aries", 3, "did you mean"),
        ("PriorityWeightAge=-5", 3, "PriorityWeightAge: '-5' does not fit"),
        ("PriorityMaxAge=soon", 3, "is no time; write minutes"),
        ("PreemptMode=SUSPEND,GANG", 3, "or give it beside the file, as slurm:conf=FILE,PreemptMode=.."),
        ("SchedulerParameters=defer,bf_interval=often", 3, "bf_interval: 'often' does not fit"),
        ("PartitionName=empty Nodes=", 3, "partition empty has no nodes"),
        ("PartitionName=a Nodes=m7", 3, "there is no node 'm7'"),
        ("PartitionName=a Nodes=n PriorityTier=high", 3, "write a whole number"),
        ("NodeName=m Weight=heavy", 3, "Weight is 'heavy'; write a whole number"),
        ("PartitionName=a Nodes=n\nPartitionName=a Nodes=n", 4, "partition a stands in an earlier line, too"),
        ("PartitionName=a Nodes=n MaxTime=5 maxtime=6", 3, "MaxTime stands twice in this line"),
        ("PartitionName=a Nodes=n MaxTime=0", 3, "in which no job can run; write a longer time"),
        ("PartitionName=a Nodes=n OverSubscribe=FOO", 3, "OverSubscribe is 'FOO'"),
        ("PreemptType=preempt/qos\nClusterName=y", 3, "and PreemptMode is OFF; give REQUEUE or CANCEL"),
        ("PriorityType=priority/multifactor\nPriorityWeightFairshare=5", 4, "nothing is weighed without accounts"),
    ],
)
def test_what_cannot_be_names_file_line_reason_and_fix(tmp_path: Path, line: str, number: int, problem: str) -> None:
    path = conf(tmp_path, f"ClusterName=x\nNodeName=n\n{line}\n")
    with pytest.raises(InputError) as error:
        read_conf(path)
    assert error.value.place == f"{path}:{number}"
    assert problem in error.value.problem


def test_words_of_slurm_are_read_as_slurm_reads_them(tmp_path: Path) -> None:
    lines = [
        "PreemptType=preempt/partition_prio", "PreemptMode=requeue", "PreemptParameters=youngest_first,strict_order",
        "PriorityType=priority/multifactor", "PriorityWeightFairshare=5", "SchedulerParameters=bf_busy_nodes",
        "PriorityFlags=NO_FAIR_TREE", "NodeName=n", "PartitionName=a Nodes=n OverSubscribe=FORCE:1 PreemptMode=off",
    ]  # fmt: skip
    reading = read_conf(conf(tmp_path, "\n".join([*lines, ""])), {"accounts": "ann:1"})
    assert reading.parameters["PreemptMode"] == "REQUEUE"
    assert reading.parameters["preempt_youngest_first"] == "true"
    assert [ignored for use in reading.uses[:7] for ignored in use.ignored] == [
        "strict_order (not modelled: preemption in strict order)",
        "bf_busy_nodes (not modelled: nodes that run jobs first)",
        "NO_FAIR_TREE (not modelled: another fair share)",
    ]


def test_a_given_parameter_goes_before_the_file_which_may_then_have_anything(tmp_path: Path) -> None:
    path = conf(tmp_path, "NodeName=n[0-3]\nPreemptMode=SUSPEND,GANG\nSchedulerParameters=bf_interval=7\n")
    choice = parse_architecture(f"slurm:conf={path},PreemptMode=REQUEUE,bf_interval=9", "ARCH")
    parameters = complete_parameters(choice, Setting(trace="syn:1x1", workers=4))
    assert parameters == {**SLURM_DEFAULTS, "PreemptMode": "REQUEUE", "bf_interval": "9"}


def test_the_content_of_the_file_decides_and_not_its_name(tmp_path: Path) -> None:
    first, second = tmp_path / "a.conf", tmp_path / "b.conf"
    for path in (first, second):
        path.write_text("NodeName=n[0-3]\n", encoding="utf-8")
    choices = [parse_architecture(f"slurm:conf={path}", "ARCH") for path in (first, second)]
    assert complete_parameters(choices[0], Setting(trace="syn:1x1", workers=4)) == complete_parameters(
        choices[1], Setting(trace="syn:1x1", workers=4)
    )
