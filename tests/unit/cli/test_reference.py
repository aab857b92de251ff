"""The reference pages name what there is."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from tests.unit.cli.conftest import Command

from docs.pages import write_pages
from docs.pages.files import described
from docs.pages.measures import COUNTED, MEASURED
from docs.pages.structs import args, keys, structs_in
from volery.architectures import REGISTRY
from volery.architectures.pipeline.policies import METHODS, policies
from volery.cli.main import STATUSES, app
from volery.cli.output import LEFT_OUT
from volery.core.events import GANG_TASKS_REFUSED, TAG_TASKS_GIVEN_UP
from volery.live.config.federation import MACHINE_KEYS, FederationFile
from volery.live.config.machine import ATTRIBUTES
from volery.live.jobs import JobDescription
from volery.metrics import RunSummary
from volery.report.schema import COLUMNS, FILES, TraceFacts
from volery.setting import DECLARED, Setting
from volery.study import ArchitectureChoice, run_study
from volery.study.spec import make_study
from volery.workload.table import SCHEMA

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "src" / "volery"
METRICS, TRACE_TABLE = (ROOT / "docs" / "reference" / f"{name}.md" for name in ("metrics", "trace-table"))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("reference")
    write_pages(folder)
    return {page.stem: page.read_text(encoding="utf-8") for page in folder.glob("*.md")}


@pytest.mark.slow
def test_every_command_has_its_part(pages: dict[str, str]) -> None:
    known = {one.name for one in app.registered_commands} | {one.name for one in app.registered_groups}
    assert known == set(re.findall(r"^## volery (\S+)$", pages["commands"], flags=re.MULTILINE))
    assert "### volery trace doctor" in pages["commands"], "commands of groups"
    assert "| `--slots` | `K` | `1` | Tasks that a machine runs at once. |" in pages["commands"]


@pytest.mark.parametrize("struct", [FederationFile, JobDescription, Setting])
def test_every_key_of_every_file_is_told(struct: type[msgspec.Struct], pages: dict[str, str]) -> None:
    assert [name for name in struct.__struct_fields__ if f"| `{name}` |" not in pages["files"]] == []


def test_every_key_of_a_study_says_what_it_means() -> None:
    """From the declaration of the field, or from the docstring of its struct, over more than one line."""
    meanings = {row[0]: row[3] for row in keys(Setting)}
    assert [name for name, meaning in meanings.items() if not meaning] == []
    assert meanings["`hosts`"] == DECLARED["hosts"]["meaning"]
    assert {row[0]: row[3] for row in keys(TraceFacts)}["`cutoff_s`"].endswith("of at most this mean.")


def test_every_key_of_every_other_file_says_what_it_means() -> None:
    """And of the structs inside: machines, isolation, harms, claims."""
    for name, _, struct in described():
        for one in (struct, *structs_in(struct)):
            assert [key for key, _, _, meaning in keys(one) if not meaning] == [], f"{name}: {one.__name__}"
    assert set(ATTRIBUTES) < set(MACHINE_KEYS)


def test_every_measure_of_a_run_has_a_definition(pages: dict[str, str]) -> None:
    holders: list[type[msgspec.Struct]] = [RunSummary, *structs_in(RunSummary)]
    for struct in holders:
        told = args(struct)
        assert [name for name in struct.__struct_fields__ if not told.get(name)] == [], struct.__name__
    assert "| `makespan_s` | s | number | Time from first submit to last answer or finish. |" in pages["measures"]
    assert "| `messages` | count | whole number |" in pages["measures"]


COUNTING = re.compile(r'\b(Counted|Measured)\(f?"([^"]+)"')
OF_RESERVATIONS = re.compile(r'(?<!__slots__ = )\("_\w+", "(\w+)"\)')


def test_every_counter_is_told(pages: dict[str, str]) -> None:
    """Both ways: what components report is on the page, and what is on the page is reported."""
    counted: set[str] = set()
    measured: set[str] = set()
    rooms = ("architectures", "policies", "roles")
    for path in (path for room in rooms for path in PACKAGE.glob(f"{room}/**/*.py")):
        text = path.read_text(encoding="utf-8")
        for kind, name in COUNTING.findall(text):
            if "{" not in name:  # one that is put together
                (counted if kind == "Counted" else measured).add(name)
        if "FACTS" in text:
            counted |= set(OF_RESERVATIONS.findall(text))
    assert measured == set(MEASURED)
    by_driver = {"attempts_lost", "submissions_rejected"}
    counted |= {GANG_TASKS_REFUSED, TAG_TASKS_GIVEN_UP}  # the one for two designs, the other of the lab
    assert counted | by_driver == set(COUNTED) - {"inconsistencies_gmG_lmL"}, "one name is put together"
    assert "| `stolen_probes` |" in pages["measures"]


def test_the_metrics_that_the_reference_names_are_there() -> None:
    """`locality.node` and the like in docs/reference/metrics.md are measures of a run."""
    text = METRICS.read_text(encoding="utf-8")
    named = {one for one in re.findall(r"`(\w+)\.(\w+)`", text) if one[0] in RunSummary.__struct_fields__}
    assert len(named) > 5
    for holder, name in named:
        inside = [one for one in structs_in(RunSummary) if name in one.__struct_fields__]
        assert inside, f"there is no {holder}.{name}"
    for name in re.findall(r"`(\w+)_mean` and `_max`|`(\w+)`", text):
        word = name[0] or name[1]
        if word.startswith(("queued_", "estimated_", "crowded_")):
            assert word.removesuffix("_mean") in MEASURED


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a small run and of one that is too large to be kept task by task."""
    made = tmp_path_factory.mktemp("kept") / "results"
    axes: dict[str, list[object]] = {"trace": ["syn:5x6", "syn:60x40"], "workers": [100], "constraints": ["sharma2011"]}
    run_study(make_study("both", [ArchitectureChoice("oracle")], axes, [0], lambda axis, _at: axis), folder=made)
    return made


@pytest.mark.slow
def test_the_files_and_columns_of_a_results_folder_are_told(folder: Path, pages: dict[str, str]) -> None:
    assert {path.name for path in folder.iterdir()} <= set(FILES)
    tables = {path.name: pq.read_schema(path).names for path in folder.glob("*.parquet")}
    assert tables == {name: list(columns) for name, columns in COLUMNS.items()}
    assert set(COLUMNS) < set(FILES)
    for columns in COLUMNS.values():
        assert all(f"| `{column}` |" in pages["results"] for column in columns)


def test_every_column_of_the_trace_table_is_told_here_and_there(pages: dict[str, str]) -> None:
    by_hand = TRACE_TABLE.read_text(encoding="utf-8")
    assert [name for name in SCHEMA.names if f"`{name}`" not in by_hand] == []
    assert [name for name in SCHEMA.names if f"| `{name}` |" not in pages["results"]] == []


@pytest.mark.parametrize("name", REGISTRY)
def test_every_message_of_every_design_is_told(name: str, pages: dict[str, str]) -> None:
    known = set(re.findall(r"^\| `(\w+)`", pages["messages"], flags=re.MULTILINE))
    assert {one.__name__ for one in REGISTRY[name].messages} <= known


def test_messages_say_who_speaks_to_whom(pages: dict[str, str]) -> None:
    """Also of those that are sent under other parameters."""
    lines = pages["messages"].splitlines()
    (request,) = [line for line in lines if line.startswith("| `Request` |")]
    assert "| `number`: int, `partition`: int, `tasks`: tuple[Task, ...], `positions`: tuple[int, ...], " in request
    assert "| gm > lm |" in request
    assert any(line.startswith("| `Pass` |") and "scheduler > lrm" in line for line in lines), "with local managers"
    assert not [line for line in lines if "|  |" in line], "a message that no role sends"


def test_every_status_is_told(pages: dict[str, str]) -> None:
    assert {0, 1, 2, LEFT_OUT} < set(STATUSES)
    assert all(f"| `{status}` |" in pages["results"] for status in STATUSES)


def test_the_api_is_told_with_what_it_sends(pages: dict[str, str]) -> None:
    assert "| `GET /jobs/{id}` | One job, with its tasks counted by state. | `id` |" in pages["api"]
    assert "### JobStatus" in pages["api"]
    for asked in ("POST /forecast", "GET /jobs/{id}/forecast", "GET /summary", "PUT /shares/{name}"):
        assert f"| `{asked}` |" in pages["api"]


def test_links_of_made_pages_lead_somewhere(pages: dict[str, str]) -> None:
    made = ROOT / "docs" / "reference" / "generated"
    targets = {target for text in pages.values() for target in re.findall(r"\]\(([^)\s]+\.md)\)", text)}
    assert targets
    for target in targets:
        path = (made / target).resolve()
        assert path.exists() or (path.parent == made and path.stem in pages), target


def test_tables_stay_tables(pages: dict[str, str]) -> None:
    """Nothing in a cell ends its row or column early."""
    for text in pages.values():
        for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
            widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
            assert len(widths) == 1, block


def test_files_are_told_in_the_form_that_commands_read(pages: dict[str, str], tmp_path: Path, command: Command) -> None:
    for option, name in (("--scenario", "scenario.json"), ("--schedule", "schedule.json")):
        assert f"## {name}" in pages["files"]
        file = tmp_path / name
        file.write_text("{}", encoding="utf-8")
        assert "missing required field" in command("storm", option, file).err, "it is read as JSON"


def test_every_policy_of_every_stage_has_a_row(pages: dict[str, str]) -> None:
    named = set(re.findall(r"^\| `([\w-]+)`", pages["policies"], flags=re.MULTILINE))
    assert {name for stage in METHODS for name in policies(stage)} == named
    assert "## R5: Select and allocate" in pages["policies"]
