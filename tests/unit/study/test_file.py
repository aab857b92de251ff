"""STUDY.toml: every mistake is named by its dotted path, with what may have been meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from volery.core.errors import InputError
from volery.study.file import read_study
from volery.study.spec import ArchitectureChoice

GOOD = """
[study]
name = "small"
[workload]
trace = "syn:5x6"
constraints = "sharma2011"
[network]
delay_us = 250
links = { "lm:node" = 1000 }
[axes]
architectures = ["megha", "megha:gms=2", { name = "central", parameters = { heartbeat_s = 2.5 } }]
workers = [50, 100]
seeds = 2
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "small.toml"
    path.write_text(text)
    return path


def test_a_study_file_is_read(tmp_path: Path) -> None:
    study = read_study(written(tmp_path, GOOD))
    assert study.name == "small"
    assert study.seeds == (0, 1)
    assert study.architectures == (
        ArchitectureChoice("megha"),
        ArchitectureChoice("megha", {"gms": "2"}),
        ArchitectureChoice("central", {"heartbeat_s": 2.5}),
    )
    first, second = study.settings()
    assert (first.workers, second.workers) == (50, 100)
    assert first.trace == "syn:5x6"
    assert first.links == {"lm:node": 1000}
    assert (first.delay_us, first.constraints) == (250, "sharma2011")


def test_file_names_are_relative_to_the_study_file(tmp_path: Path) -> None:
    text = GOOD.replace('"syn:5x6"', '"../a.tr"').replace("delay_us", "delay_us")
    (tmp_path / "inner").mkdir()
    study = read_study(written(tmp_path / "inner", text))
    assert next(study.settings()).trace == str(tmp_path / "a.tr")


@pytest.mark.parametrize(
    ("wrong", "right", "message"),
    [
        ("workers = [50, 0]", "workers = [50, 100]", r"study\.axes\.workers\[1\]: expected int >= 1, not 0"),
        ("workers = 50", "workers = [50, 100]", r"study\.axes\.workers: an axis is a list, as \[50\]"),
        ("wrokers = [50]", "workers = [50, 100]", r"study\.axes\.wrokers: unknown key; did you mean 'workers'"),
        ("[axis]", "[axes]", r"study\.axis: unknown table; did you mean 'axes'"),
        ('nmae = "x"', 'name = "small"', r"study\.study\.nmae: unknown key; known are name|did you mean 'name'"),
        ("name = 5", 'name = "small"', r"study\.name: expected a name, not 5"),
        ('constraints = "sharma"', 'constraints = "sharma2011"', r"study\.workload\.constraints: there is no 'sharma'"),
        ("delay_us = -1", "delay_us = 250", r"study\.network\.delay_us: expected int >= 0, not -1"),
        ("seeds = 0", "seeds = 2", r"study\.axes\.seeds: expected a number of seeds >= 1"),
        ("seeds = [0, 1.5]", "seeds = 2", r"study\.axes\.seeds\[1\]: expected int"),
        ('"megha:gms"', '"megha:gms=2"', r"study\.axes\.architectures\[1\]: 'gms' in 'megha:gms'"),
        ('title = "central"', 'name = "central"', r"study\.axes\.architectures\[2\]\.title: unknown key"),
        ("heartbeat_s = [1]", "heartbeat_s = 2.5", r"architectures\[2\]\.parameters\.heartbeat_s: expected a single"),
        ("5,", '"megha",', r"study\.axes\.architectures\[0\]: expected an architecture's name, not 5"),
        ("", "workers = [50, 100]", r"study\.workload\.workers: is missing"),
        ("trace = 1", 'trace = "syn:5x6"', r"study\.workload\.trace: expected str"),
    ],
)
def test_a_mistake_is_named_by_its_dotted_path(tmp_path: Path, wrong: str, right: str, message: str) -> None:
    assert right in GOOD
    with pytest.raises(InputError, match=message):
        read_study(written(tmp_path, GOOD.replace(right, wrong)))


def test_a_value_cannot_be_given_alone_and_as_an_axis(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"study\.workload\.workers: is given under \[axes\] as well"):
        read_study(written(tmp_path, GOOD.replace("[network]", "workers = 5\n[network]")))


@pytest.mark.parametrize(
    ("table", "key", "home"),
    [("workload", "jitter_us = 5", "network"), ("network", "slots = 2", "workload"), ("study", "seeds = 3", "axes")],
)
def test_a_key_in_the_wrong_table_is_told_where_it_belongs(tmp_path: Path, table: str, key: str, home: str) -> None:
    text = GOOD.replace(f"[{table}]", f"[{table}]\n{key}")
    assert text != GOOD
    with pytest.raises(InputError, match=rf"study\.{table}\.\w+: unknown key; it belongs under \[{home}\]"):
        read_study(written(tmp_path, text))


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        ("workload", "load", "[0.2, 0.3]"),
        ("workload", "estimates", '["mean", "f:2"]'),
        ("workload", "window", "[[0, 10], [10, 20]]"),
        ("network", "jitter_us", "[1, 2]"),
    ],
)
def test_a_list_of_values_outside_the_axes_is_told_where_it_belongs(
    tmp_path: Path, table: str, key: str, value: str
) -> None:
    text = GOOD.replace(f"[{table}]", f"[{table}]\n{key} = {value}")
    with pytest.raises(InputError, match=rf"study\.{table}\.{key}: expected one value, .* belongs under \[axes\]$"):
        read_study(written(tmp_path, text))


def test_a_parameter_under_the_workload_is_told_where_it_belongs(tmp_path: Path) -> None:
    for key in ('"sparrow.probe_ratio" = [1, 2]', "sparrow.probe_ratio = [1, 2]"):
        text = GOOD.replace("[workload]", f"[workload]\n{key}")
        with pytest.raises(InputError, match=r"study\.workload\.sparrow.*: unknown key; it belongs under \[axes\]$"):
            read_study(written(tmp_path, text))


def test_what_is_no_toml_or_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"small\.toml: is not TOML"):
        read_study(written(tmp_path, "axes = ["))
    with pytest.raises(InputError, match=r"gone\.toml: cannot be read: No such file"):
        read_study(tmp_path / "gone.toml")
    with pytest.raises(InputError, match=r"study\.axes: is a table: write \[axes\]"):
        read_study(written(tmp_path, "axes = 5"))
