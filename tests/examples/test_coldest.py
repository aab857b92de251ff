"""A policy of one's own is found by its entry point, works by name, and is judged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.examples.installed import EXAMPLES, install

from volery.architectures.pipeline.policies import forget, parse
from volery.cli.main import main
from volery.core.errors import InputError
from volery.core.stages import Stage

BAD = '''
import time
from volery.architectures.pipeline.policies import Policy


class Fickle(Policy, frozen=True):
    """Whatever the clock says."""

    def select(self, view, task, machines, draw):
        return time.monotonic_ns() % view.machine_count


class Meddler(Policy, frozen=True):
    """Takes what it is shown."""

    def select(self, view, task, machines, draw):
        task.job.priority += 1
        return machines.first()


class Slow(Policy, frozen=True):
    """Looks at everything, often, in the order of hashes."""

    def select(self, view, task, machines, draw):
        for _ in range(8):
            names = {str(m): m for m in machines}
        return names[min(set(names), key=hash)]


class Lacking(Policy, frozen=True):
    """Has no decision."""
'''


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    install("coldest", tmp_path, monkeypatch)
    (tmp_path / "bad.py").write_text(BAD, encoding="utf-8")
    record = tmp_path / "bad-1.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 1\n")
    names = "fickle = bad:Fickle\nmeddler = bad:Meddler\nslow = bad:Slow\n"
    (record / "entry_points.txt").write_text(f"[volery.policies.R5]\n{names}\n[volery.policies.J5]\nno = bad:Lacking\n")
    forget()
    yield
    forget()


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as left:
        main(list(words))
    return int(str(left.value.code)), capsys.readouterr().out


def test_it_is_at_most_thirty_lines() -> None:
    assert len((EXAMPLES / "coldest" / "coldest.py").read_text(encoding="utf-8").splitlines()) <= 30


@pytest.mark.slow
def test_it_works_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    designs = ["pipeline:R5=coldest/look_at:9", "pipeline"]
    status, text = answer(capsys, "compare", *designs, "--trace", "syn:20x10", "--workers", "30", "--json")
    assert status == 0
    assert "coldest" in text


def test_it_is_listed_and_appears_among_the_stages(capsys: pytest.CaptureFixture[str]) -> None:
    _, text = answer(capsys, "policy", "list", "R5", "--json")
    found = {one["name"]: one for one in json.loads(text)["R5"]}
    assert found["coldest"]["package"] == "coldest"
    assert found["coldest"]["parameters"] == [
        {"name": "look_at", "default": 100, "description": "machines that are compared, the lowest numbers"}
    ]
    _, text = answer(capsys, "stages", "pipeline:R5=coldest", "--json")
    assert json.loads(text)["architectures"][0]["stages"]["R5"]["how"] == "coldest"


@pytest.mark.slow
def test_it_keeps_what_every_policy_has_to(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = answer(capsys, "policy", "check", "coldest", "--budget-us", "100000")
    assert status == 0, text
    assert text.count("passed") == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "failures"),
    [("fickle", {"decisions", "determinism", "imports"}), ("meddler", {"purity"})],
)
def test_what_a_policy_may_not_is_found(capsys: pytest.CaptureFixture[str], name: str, failures: set[str]) -> None:
    status, text = answer(capsys, "policy", "check", f"R5={name}", "--json", "--budget-us", "100000")
    assert status == 1
    found = {one["check"] for one in json.loads(text)["R5"] if not one["passed"]}
    assert failures <= found <= failures | {"imports"}


@pytest.mark.slow
def test_what_is_slow_or_goes_by_hashes_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = answer(capsys, "policy", "check", "R5=slow", "--json", "--budget-us", "20")
    assert status == 1
    found = {one["check"] for one in json.loads(text)["R5"] if not one["passed"]}
    assert found - {"imports"} == {"determinism", "budget"}


def test_what_is_no_policy_of_its_stage_is_refused_with_its_entry_point() -> None:
    assert parse(Stage.J5, "none", "J5") is not None, "what others got wrong does not stand in the way"
    with pytest.raises(InputError, match=r"entry point no = bad:Lacking .*a policy of J5 has stage_us"):
        parse(Stage.J5, "no", "J5")
