"""Scripts as jobs: what their heads state, and what of Slurm's options is heeded, said or refused."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from volery.core.errors import InputError
from volery.live.scripts import (
    HeadLine,
    SlurmHead,
    array_tasks,
    memory_mb,
    on_offer,
    script_in,
    slurm_head,
    slurm_seconds,
)

HEAD = """#!/usr/bin/env -S python3 -u
# a comment
#SBATCH --mem=4G  # enough
#VOLERY --name 'two words' --key k

##SBATCH --nodes=9
print("x")
#SBATCH --nodes=9
"""


def head_of(*options: str, **environment: str) -> SlurmHead:
    lines = [HeadLine(f"run.sh:{number}", option.split()) for number, option in enumerate(options, 2)]
    return slurm_head(lines, "run.sh", environment)


def test_the_head_of_a_script_ends_at_its_first_command(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(HEAD)
    script = script_in(path)
    assert script is not None
    assert script.options == [HeadLine("run.py:4", ["--name", "two words", "--key", "k"])]
    assert script.slurm == [HeadLine("run.py:3", ["--mem=4G"])]
    assert script.interpreter == ("/usr/bin/env", "-S python3 -u"), "one argument, as the kernel reads it"


def test_a_file_of_another_kind_is_no_script(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text('command = "true"')
    assert script_in(tmp_path / "job.toml") is None
    assert script_in(tmp_path / "missing") is None


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"#!\ntrue", "run.sh:1: names no interpreter; write it as #!/bin/sh"),
        (b"#!/bin/sh\n#VOLERY --name 'x", "run.sh:2: cannot be read: no closing quotation; close the quote"),
        (
            b"#!/bin/sh\n" + b"x" * (1 << 20),
            (
                "run.sh: has 1,048,586 characters, more than 1,048,576 that travel with a job; "
                "submit a command, `-- PATH`, with a path that nodes see"
            ),
        ),
        (b"#!/bin/sh\n\xff", "run.sh: is not UTF-8 text: invalid start byte"),
    ],
)
def test_what_is_wrong_with_a_script_is_named_by_its_line(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "run.sh"
    path.write_bytes(content)
    with pytest.raises(InputError) as raised:
        script_in(path)
    assert str(raised.value) == problem


@pytest.mark.parametrize("interpreter", ["/bin/sh", "/bin/bash", "/usr/bin/env python3"])
def test_a_script_runs_from_its_standard_input(tmp_path: Path, interpreter: str) -> None:
    body = "import sys\nprint(sys.argv[1:], sys.stdin.read())" if "python" in interpreter else 'echo "[$*]" "$(cat)"'
    path = tmp_path / "run"
    path.write_text(f"#!{interpreter}\n{body}\n")
    script = script_in(path)
    assert script is not None
    with path.open() as file:  # a file, as on a node
        ended = subprocess.run(
            script.command("run", ["a", "b c"]), stdin=file, capture_output=True, text=True, check=True
        )
    assert ended.stdout.strip() in ("['a', 'b c']", "[a b c]"), "its own standard input is empty"


def test_slurm_scripts_find_slurm_s_numbers(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_text("#!/bin/sh\n#SBATCH -n 1\necho $SLURM_JOB_ID $SLURM_ARRAY_TASK_ID\n")
    script = script_in(path)
    assert script is not None
    with path.open() as file:
        variables = {"VOLERY_JOB": "7", "VOLERY_INDEX": "12"}
        ended = subprocess.run(script.command("run", ()), stdin=file, env=variables, capture_output=True, check=True)
    assert ended.stdout == b"7 12\n"


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("5", [(5, 1)]),
        ("3-9:3", [(3, 1), (6, 1), (9, 1)]),
        ("1,4-5", [(1, 1), (4, 2)]),
        ("1-999999", [(1, 999_999)]),
    ],
)
def test_an_array_lists_the_tasks_whose_indices_are_not_their_places(text: str, spans: list[tuple[int, int]]) -> None:
    assert array_tasks(text, "--array") == [{"index": first, "count": count} for first, count in spans]


@pytest.mark.parametrize(("text", "count"), [("0-99", 100), ("0", 1), ("0-999999", 1_000_000), ("0-9:1", 10)])
def test_an_array_of_places_is_a_number(text: str, count: int) -> None:
    assert array_tasks(text, "--array") == count


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0-99%10", "limits how many tasks run at once, which no scheduler here can do; write 0-99"),
        ("9-0", "'9-0' is no array; write indices as 0-99, 0-99:2 or 1,3,5-7"),
        ("0-9:0", "is no array"),
        ("1,,2", "'' is no array"),
        ("-3", "'-3' is no array"),
        ("\N{ARABIC-INDIC DIGIT THREE}", "is no array"),
        ("1-3,2", "'1-3,2' has an index twice; leave one out"),
        ("1-200002:2", "'1-200002:2' has 100,001 tasks; an array has at most 1,000,000, and 100,000 that do not"),
        ("0-999999999", "has 1,000,000,000 tasks"),
    ],
)
def test_what_is_no_array_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as raised:
        array_tasks(text, "--array")
    assert raised.value.place == "--array"


@pytest.mark.parametrize(
    ("text", "amount"),
    [("512", 512), ("512M", 512), ("4G", 4096), ("4GB", 4096), ("1.5GiB", 1536), ("1k", 1), ("1T", 1 << 20)],
)
def test_amounts_of_memory(text: str, amount: int) -> None:
    assert memory_mb(text, "--memory") == amount


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("1:30", 90),
        ("2:00:05", 7205),
        ("1-2", 93_600),
        ("1-2:30", 95_400),
        ("1-0:0:1", 86_401),
        ("0", 0),
        ("UNLIMITED", 0),
    ],
)
def test_times_as_slurm_writes_them(text: str, seconds: float) -> None:
    assert slurm_seconds(text, "--time") == seconds


def test_slurm_options_that_mean_the_same_become_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    head = head_of(
        "--job-name=x -a 0-9", "-c2 --ntasks 3", "--mem-per-cpu=1G", "--gres=gpu:2", "-t 5 -D data",
        "--export=A=1,B,NONE", "--nodes=1 --requeue",
        B="2",
    )  # fmt: skip
    env = {"A": "1", "B": "2", "SLURM_CPUS_PER_TASK": "2", "SLURM_NTASKS": "3", "SLURM_JOB_NAME": "x"}
    assert head.keys == {
        "name": "x",
        "tasks": 10,
        "cwd": str(tmp_path / "data"),
        "timeout_s": 300,
        "env": env | {"SLURM_SUBMIT_DIR": str(tmp_path)},
        "request": {"cpu_milli": 6000, "memory_mb": 6144, "gpus": 2},
    }
    assert head.notes == []
    assert head.places["gpus"] == "run.sh:5: --gres"


@pytest.mark.parametrize(
    ("option", "note"),
    [
        ("--mail-type=END", "run.sh:2: --mail-type: is left out; it has no meaning here"),
        ("-o %j.out", "run.sh:2: --output: is left out; what a task prints is kept, and `volery logs JOB` shows it"),
        ("-p long", "run.sh:2: --partition: is left out; there are no queues"),
        ("--export=ALL", "run.sh:2: --export: ALL is left out: tasks get the variables of their node"),
        ("--export=NO_SUCH", "'NO_SUCH' is left out; it is not set here"),
        ("--gres=gpu:a100:2", "run.sh:2: --gres: 'a100' is left out; #VOLERY --constraint names a model"),
        ("--gres=tape:1", "run.sh:2: --gres: is left out"),
        ("-Zx", "run.sh:2: -Zx: is left out; it has no meaning here"),
        ("word", "run.sh:2: word: is left out; it has no meaning here"),
        ("--exclusive", "run.sh:2: --exclusive: is left out"),
    ],
)
def test_slurm_options_without_a_meaning_are_said(option: str, note: str) -> None:
    assert note in "\n".join(head_of(option).notes)


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("--nodes=2", "run.sh:2: --nodes: a task runs on one machine here; submit an array"),
        ("-N 2-4", "run.sh:2: --nodes: a task runs on one machine here"),
        ("--dependency=afterok:1", "run.sh:2: --dependency: jobs do not wait for each other"),
        (
            "-C haswell",
            "run.sh:2: --constraint: says which machines the job may have; write it as #VOLERY --constraint",
        ),
        ("--array=0-9%2", "run.sh:2: --array: '0-9%2' limits how many tasks run at once"),
        ("--time=soon", "run.sh:2: --time: 'soon' is no time"),
        ("--mem=much", "run.sh:2: --mem: 'much' is no amount of memory"),
        ("-c none", "run.sh:2: --cpus-per-task: 'none' is no number of them; write 1 or more"),
        ("--hold", "run.sh:2: --hold: a job starts as soon as there is room for it"),
        ("--time", "run.sh:2: --time: has no value; write it as --name=value"),
    ],
)
def test_slurm_options_that_change_what_runs_are_refused(option: str, problem: str) -> None:
    with pytest.raises(InputError) as raised:
        head_of(option)
    assert str(raised.value).startswith(problem)


@pytest.mark.parametrize(
    ("offers", "request_", "notes"),
    [
        ({"cpu_milli", "memory_mb"}, {"cpu_milli": 2000, "memory_mb": 4096}, []),
        ({"cpu_milli"}, {"cpu_milli": 2000}, ["run.sh:3: --mem: is left out; no machine offers it"]),
        (
            set(),
            {},
            [f"run.sh:{line}: is left out; machines have slots here" for line in ("2: --cpus-per-task", "3: --mem")],
        ),
    ],
)
def test_amounts_count_where_machines_offer_them(offers: set[str], request_: dict[str, Any], notes: list[str]) -> None:
    head = head_of("-c 2", "--mem=4G")
    on_offer(head, offers)
    assert head.keys["request"] == request_
    assert [note.partition(",")[0] for note in head.notes] == notes


def test_a_processor_is_the_least_and_is_a_slot() -> None:
    bare, one = head_of("-J x"), head_of("-c 1")
    on_offer(bare, {"cpu_milli", "memory_mb"})
    on_offer(one, ())
    assert bare.keys["request"] == {"cpu_milli": 1000}
    assert (one.keys["request"], one.notes) == ({}, [])
