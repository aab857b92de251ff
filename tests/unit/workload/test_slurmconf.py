"""Records of a slurm.conf: comments, escapes, continued lines, includes, ranges of nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from volery.core.errors import InputError
from volery.workload.slurmconf import conf_records, node_names


def conf(folder: Path, text: str, name: str = "slurm.conf") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def pairs(path: Path) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
    return [(record.place.rpartition("/")[2], record.pairs) for record in conf_records(path)]


def test_a_record_is_a_line_without_its_comment_with_those_that_continue_it(tmp_path: Path) -> None:
    text = '# head\n\nClusterName=A # name\r\nNodeName=n[0-1] \\\n  CPUs = 8 Reason="two words" \\  \n\nX=a\\#b\\\\\n'
    assert pairs(conf(tmp_path, text)) == [
        ("slurm.conf:3", (("ClusterName", "A"),)),
        ("slurm.conf:4", (("NodeName", "n[0-1]"), ("CPUs", "8"), ("Reason", "two words"))),
        ("slurm.conf:7", (("X", "a#b\\"),)),
    ]


def test_a_comment_ends_a_continued_line_as_it_does_in_slurm(tmp_path: Path) -> None:
    assert pairs(conf(tmp_path, "A=1 # more \\\nB=2\nC=3 \\")) == [
        ("slurm.conf:1", (("A", "1"),)),
        ("slurm.conf:2", (("B", "2"),)),
        ("slurm.conf:3", (("C", "3"),)),
    ]


def test_the_case_of_a_parameter_does_not_count_and_the_last_value_does(tmp_path: Path) -> None:
    (record,) = conf_records(conf(tmp_path, "nodename=a CPUS=2 cpus=4 Nodes=\n"))
    assert record.values() == {"nodename": "a", "cpus": "4", "nodes": ""}


def test_included_files_stand_in_their_place(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    conf(tmp_path, "B=2\ninclude c.conf\n", "more/red_nodes.conf")
    conf(tmp_path, "C=3\n", "more/c.conf")
    conf(tmp_path, "", "empty.conf")
    path = conf(tmp_path, "A=1\nClusterName=Red\nInclude more/%c_nodes.conf\ninclude empty.conf\nD=4\n")
    assert [(place, pair[0][0]) for place, pair in pairs(path)] == [
        ("slurm.conf:1", "A"),
        ("slurm.conf:2", "ClusterName"),
        ("red_nodes.conf:1", "B"),
        ("c.conf:1", "C"),
        ("slurm.conf:5", "D"),
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("A=1\nsome words\n", r"slurm.conf:2: 'some words' is no Parameter=Value; mend it, or quote"),
        ('A=1\nReason="open B=2\n', r"slurm.conf:2: 'Reason=.open B=2' is no Parameter=Value"),
        ("A=1\nB+=2\n", r"slurm.conf:2: 'B\+=2' is no Parameter=Value"),
        ("include %c.conf\nClusterName=a\n", r"slurm.conf:1: includes '%c.conf', and no ClusterName is above it"),
        ("A=1\ninclude gone.conf\n", r"slurm.conf:2: includes '.*gone.conf', which is no file; copy it there"),
        ("include slurm.conf\n", r"slurm.conf:1: includes 'slurm.conf', which includes this file; take out"),
        ("", r"slurm.conf: the file is empty"),
    ],
)
def test_a_wrong_file_is_refused_by_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        list(conf_records(conf(tmp_path, text)))


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("n3", ["n3"]),
        ("n[0-2,7]", ["n0", "n1", "n2", "n7"]),
        ("n[08-11],login", ["n08", "n09", "n10", "n11", "login"]),
        ("r[0-1]b[1-2]", ["r0b1", "r0b2", "r1b1", "r1b2"]),
        ("u[0-1]rack,a.b-c", ["u0rack", "u1rack", "a.b-c"]),
        ("a,b,", ["a", "b"]),
    ],
)
def test_ranges_give_names_in_order(expression: str, names: list[str]) -> None:
    assert node_names(expression, "here") == names


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("n[3-1]", r"here: \[3-1\] of 'n\[3-1\]' holds no ranges; write them as \[0-3,7\]"),
        ("n[a]", r"here: \[a\] of 'n\[a\]' holds no ranges"),
        ("n[]", r"here: \[\] of 'n\[\]' holds no ranges"),
        ("n[0-3", r"here: 'n\[0-3' is no list of nodes; write it as n\[0-3,7\],login"),
        ("", r"here: '' is no list of nodes"),
        ("n[0-9999999]", r"here: 'n\[0-9999999\]' stands for over 1048576 nodes; give fewer"),
        ("r[0-9999]n[0-9999]", r"here: 'r\[0-9999\]n\[0-9999\]' stands for over 1048576 nodes"),
    ],
)
def test_what_is_no_list_of_nodes_is_refused(expression: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        node_names(expression, "here")
