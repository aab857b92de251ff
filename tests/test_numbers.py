"""Every sentence with a number in README.md, docs/README.md and the tutorials is held by something that can fail.

A sentence is found by its number. `HELD` says what holds it: an input that the page's own commands show, a check of the
code, or a measurement that is made again here. docs/papers.md and docs/findings.md are generated; the numbers that a
finding writes itself must be inputs of its experiment.
"""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.comparison import compare

from experiments.experiment import FINDINGS, read_toml
from experiments.findings import Findings
from volery.core.model import SECOND
from volery.core.stages import STAGES
from volery.study import read_study, run_study
from volery.workload import load_workload
from volery.workload.clusters import read_inventory

ROOT = Path(__file__).parents[1]
EXPORTS = ROOT / "examples" / "cluster"
README, PAGES, WATCH = "README.md", "docs/README.md", "docs/how-to/watch-a-federation.md"
FIRST, OWN = "docs/tutorial/first-comparison.md", "docs/tutorial/write-your-own-scheduler.md"
YOURS = "docs/tutorial/your-cluster.md"
HIDDEN = re.compile(r"^```.*?^```|<!--.*?-->|^#+ \d+\. ", re.MULTILINE | re.DOTALL)
SPLIT = re.compile(r"(?<=[.!?:;])\s+(?=[\"A-Z*`\[(])")
NUMBER = re.compile(
    r"\d|\b(minutes?|hours?|milliseconds?|half|twice as|percent|thirds?|hundred|thousand|million)\b"
    r"|\b(one|two|three|four|nine) \w+ in (three|four|ten)\b"
)
YEAR = re.compile(r"\b(19|20)\d\d\b|\barXiv \d{4}\.\d{5}\b|`[^`]*`")
"""Numbers that are names: years, papers, and what stands between backticks, which the tests of snippets hold."""
NAMES = ("Python 3.11", "Apache-2.0", "megha-2021")


def sentences(text: str) -> Iterator[str]:
    """The sentences with a number in a page's prose, tables included, code left out."""
    for block in re.split(r"\n\s*\n|\n(?=[|-] )", HIDDEN.sub("", text)):
        for sentence in SPLIT.split(" ".join(re.sub(r"\]\([^)]*\)", "]", block).split())):
            plain = YEAR.sub("", sentence)
            for name in NAMES:
                plain = plain.replace(name, "")
            if NUMBER.search(plain):
                yield sentence


def check_the_first_picture(folder: Path) -> None:
    """README.md: Megha below 3 ms; PigeonC below 3 ms for two jobs in three; the public code up to minutes."""
    compare(
        "megha",
        "pigeonc",
        "pigeonc:constraint_counting=published-code",
        trace="syn:250x300",
        workers=10_000,
        constraints="sharma2011",
        seeds=3,
        folder=folder,
    )
    jobs = pq.read_table(folder / "jobs.parquet").to_pandas()
    delay_s = {label: rows.to_numpy() for label, rows in jobs.groupby("label")["delay_s"]}
    megha, exact, published = (delay_s[label] for label in sorted(delay_s))
    assert np.mean(megha < 0.003) > 0.99
    assert np.mean(exact < 0.003) == pytest.approx(2 / 3, abs=0.05)
    assert published.max() > 120


def check_the_load(_: Path) -> None:
    """README.md: 2.5 % load."""
    tasks, seconds, workers = 250 * 300, 300, 10_000
    assert tasks / seconds / workers == pytest.approx(0.025)


def check_masters(folder: Path) -> None:
    """The tutorial: ten masters of each kind make the median a millisecond longer, and of the mean it is open."""
    page = (ROOT / FIRST).read_text(encoding="utf-8")
    file = folder / "masters.toml"
    file.write_text(page.split("```toml\n")[1].split("```")[0], encoding="utf-8")
    study = read_study(file)
    study = msgspec.structs.replace(study, axes={**study.axes, "workers": (10_000,)})
    results = run_study(study)
    one, ten = ([run.delay_s.p50 for run in results.runs if run.parameters.get("gms", 1) == count] for count in (1, 10))
    assert np.mean(ten) - np.mean(one) == pytest.approx(0.001, abs=0.0005)
    (mean,) = (found for found in results.differences if (found.quantity, found.jobs) == ("mean delay", "all"))
    assert mean.difference.verdict.startswith("no difference shown")


def check_under_a_minute(folder: Path) -> None:
    """The tutorial: the first comparison takes under a minute (of processor time)."""
    began = time.process_time()
    compare("megha", "pigeonc", trace="syn:250x300", workers=10_000, constraints="sharma2011", seeds=3, folder=folder)
    assert time.process_time() - began < 60


def check_stages(_: Path) -> None:
    """docs/README.md: 33 stages."""
    assert len(STAGES) == 33


def check_lines(_: Path) -> None:
    """README.md and the tutorial: a scheduler in 100 lines, without its docstrings, comments and blank lines."""
    tree = ast.parse((ROOT / "examples" / "lottery" / "lottery.py").read_text(encoding="utf-8"))
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            first = node.body[0].lineno if hasattr(node, "body") else (node.end_lineno or 0) + 1
            lines |= set(range(node.lineno, max(first, node.lineno + 1)))
    assert 80 <= len(lines) <= 110


def check_nodes(_: Path) -> None:
    """The dashboard in the picture is of 72 nodes."""
    text = (ROOT / "tests" / "live" / "dashboard" / "screenshot.py").read_text(encoding="utf-8")
    assert '"count": 24' in text
    assert 'for zone in "abc"' in text


def check_speed(_: Path) -> None:
    """README.md: each figure of speed stands in the page that the README names as its source."""
    readme, speed, live = (
        (ROOT / page).read_text(encoding="utf-8")
        for page in (README, "docs/reference/speed.md", "docs/how-to/measure-a-federation.md")
    )
    rows = [line for line in readme.split("## Speed")[1].splitlines() if "tasks" in line and line.startswith("|")]
    assert len(rows) == 5
    for row in rows:
        figure = row.split("|")[2].split()[0]
        assert figure in (speed if row.startswith("| lab") else live), row


def check_exports(_: Path) -> None:
    """The tutorial: both exports are of eight nodes of four cores, and limits are minutes where jobs take seconds."""
    for log, conf in (("sacct.txt", "fairshare.conf"), ("jobcomp.log", "fifo.conf")):
        machines = read_inventory(EXPORTS / conf).working(EXPORTS / conf)
        assert [machine.amounts["cpu_milli"] for machine in machines] == [4000] * 8
        trace = load_workload(str(EXPORTS / log), limits="enforce")[0]
        assert max(trace.duration_us) <= 12 * SECOND
        assert min(trace.limit_us) >= 60 * SECOND


INPUT = "input"
"""The number is a setting or a definition, which the page's commands or the sentence's own design fix."""
TOLD = "told"
"""The number is advice about a reader's time, or what a limit or an exit status is; other tests hold the latter."""
HELD: dict[tuple[str, str], str | Callable[[Path], None]] = {
    (README, "takes ten minutes"): TOLD,
    (README, "Your own scheduler in 100 lines"): check_lines,
    (README, "with 95 % confidence intervals"): INPUT,
    (README, "Megha below 3 ms"): check_the_first_picture,
    (README, "PigeonC below 3 ms for two jobs in three"): check_the_first_picture,
    (README, "up to minutes"): check_the_first_picture,
    (README, "2.5 % load"): check_the_load,
    (README, "Megha, synthetic work with constraints, 10,000 machines | 320,500"): check_speed,
    (README, "Pigeon, Google sub-trace of 312,558 tasks, 10,000 machines | 107,200"): check_speed,
    (README, "Megha, ten processes, no-op tasks | 30,800"): check_speed,
    (README, "Ray 2.60, no-op tasks on the same machine | 2,370"): check_speed,
    (README, "Dask distributed 2026.8, no-op tasks on the same machine | 640"): check_speed,
    (WATCH, "72 nodes of one machine"): check_nodes,
    (PAGES, "33 stages of the reference architecture"): check_stages,
    (README, "exit status 2"): TOLD,
    (FIRST, "This page takes ten minutes"): TOLD,
    (FIRST, "is 300 jobs, one per second, of 250 one-second tasks"): check_the_load,
    (FIRST, "takes under a minute"): check_under_a_minute,
    (FIRST, "a 95 % interval over seeds"): INPUT,
    (FIRST, "begins with three and adds seeds"): INPUT,
    (FIRST, "ends at 30 seeds"): INPUT,
    (FIRST, "at most 2,000 tasks"): TOLD,
    (FIRST, "On 10,000 ten masters of each kind make the median a millisecond longer"): check_masters,
    (YOURS, "a real Slurm 22.05 with eight nodes of four cores"): check_exports,
    (YOURS, "tau is 1 if all start as recorded, and 0 for any order"): INPUT,
    (YOURS, "The status of the command is 1"): INPUT,
    (YOURS, "a difference as small as that between 72 and 82 s"): INPUT,
    (YOURS, "users of this cluster state minutes for jobs of seconds"): check_exports,
    (YOURS, "a quarter of the mean delay"): INPUT,
    (OWN, "Write your own scheduler in 100 lines"): check_lines,
    (OWN, "draws a hundred runs with such faults"): INPUT,
}
DEAR = (check_the_first_picture, check_masters, check_under_a_minute)


def unheld(page: str, text: str) -> list[str]:
    """The sentences with a number that nothing holds."""
    known = [excerpt for of, excerpt in HELD if of == page]
    return [sentence for sentence in sentences(text) if not any(excerpt in sentence for excerpt in known)]


@pytest.mark.parametrize("page", [README, PAGES, FIRST, OWN, YOURS])
def test_every_sentence_with_a_number_is_held(page: str) -> None:
    found = unheld(page, (ROOT / page).read_text(encoding="utf-8"))
    assert found == [], "say in HELD what holds these numbers, or leave them out"


def test_what_is_held_is_on_its_page() -> None:
    for page, excerpt in HELD:
        text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        assert excerpt in text, f"{page} no longer says {excerpt!r}"


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(check, marks=[pytest.mark.slow] if check in DEAR else [], id=check.__name__)
        for check in dict.fromkeys(check for check in HELD.values() if callable(check))
    ],
)
def test_the_number_is_right(check: Callable[[Path], None], tmp_path: Path) -> None:
    check(tmp_path)


def test_a_number_that_nothing_holds_is_found() -> None:
    """A check that cannot fail is a defect."""
    text = "Megha is quick. It is 10 times as fast.\n\n| a | twice as good |\n\n```\n5\n```\nIn 2019 it was `x=3`."
    assert unheld(README, text) == ["It is 10 times as fast.", "| a | twice as good |"]


WORDS = {"ten": "10", "hundred": "100", "thousand": "1000", "five": "5", "four": "4", "eight": "8"}
SHARES = re.compile(r"\b(half|halve[sd]?|twice|double[sd]?|thirds?|quarters?|percent|tenfold|million)\b")


def typed_numbers(text: str) -> list[str]:
    """The numbers of a finding that no value fills in; of those in words, the ones beyond three, and shares."""
    plain = re.sub(r"\{\w+\}", "", text)
    digits = [found.replace(",", "") for found in re.findall(r"\d[\d,]*(?:\.\d+)?", plain)]
    words = [WORDS[found] for found in re.findall(r"\w+", plain.lower()) if found in WORDS]
    return digits + words + SHARES.findall(plain.lower())


def test_the_numbers_that_a_finding_writes_itself_are_inputs_of_its_experiment() -> None:
    findings: Findings = read_toml(ROOT / "experiments" / FINDINGS, Findings)
    for finding in findings.finding:
        experiment = (ROOT / "experiments" / f"{finding.experiment}.toml").read_text(encoding="utf-8")
        inputs = set(re.findall(r"\d+(?:\.\d+)?", experiment))
        typed = typed_numbers(" ".join([finding.title, finding.text, finding.table.title if finding.table else ""]))
        assert [one for one in typed if one not in inputs] == [], finding.title


def test_a_typed_result_is_found() -> None:
    assert typed_numbers("{a} of 1,000 tasks wait 2.5 s, ten times as long.") == ["1000", "2.5", "10"]
    assert typed_numbers("The loop halves the bill.") == ["halves"]
