"""A journal replays exactly, and whatever is not the same is found."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import msgspec
import pytest
from tests.live.commands import volery
from tests.live.federations import DESIGNS, Federation, plan
from typer.testing import CliRunner

from volery.architectures import lookup
from volery.cli.main import app
from volery.core.component import Component
from volery.core.errors import InputError
from volery.core.events import Event, TaskFinished
from volery.core.model import SUBMITTER, Address, Message, Task, Time
from volery.live.node.sleep import SleepExecutor
from volery.live.runtime.journal import KIND, VERSION, JournalReader, JournalWriter
from volery.live.runtime.port import LAUNCH, Effect
from volery.live.runtime.recordfile import first_line, write_record
from volery.live.runtime.replay import journals, replay
from volery.policies.queues import ConstraintQueue

MAGIC = first_line(KIND, VERSION)


def record(name: str, folder: Path, split: bool) -> None:
    async def scenario() -> None:
        executor = SleepExecutor(lambda task: task.id % 7 * 300)
        async with Federation(plan(name), executor, split, folder) as federation:
            for size in (1, 30, 0, 40, 7, 25):
                federation.submit(size, 1000)
                await asyncio.sleep(0)
            federation.cancel(3)
            await federation.until_done(6)

    asyncio.run(scenario())


@pytest.mark.parametrize("split", [False, True], ids=["one host", "a host per role"])
@pytest.mark.parametrize("name", DESIGNS)
def test_a_journal_replays_exactly(name: str, split: bool, tmp_path: Path) -> None:
    record(name, tmp_path, split)
    results = [replay(path, lookup) for path in journals(tmp_path)]
    assert len(results) == (3 if name not in ("oracle", "tetrisched", "jockey") else 2) if split else 1
    for result in results:
        assert result.difference is None
        assert result.torn_bytes == 0
    assert sum(result.events for result in results) > 150
    assert {path.stat().st_mode & 0o777 for path in journals(tmp_path)} == {0o600}


@pytest.mark.parametrize("name", DESIGNS)
def test_a_task_that_ends_does_not_bring_its_input_into_the_journal_once_more(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a replay hands the component the end of its attempt with the input, as the executor did."""
    carried = b"the input of a task, which is in no other place"

    async def scenario() -> None:
        async with Federation(plan(name), journal=tmp_path) as federation:
            federation.submit(40, 1000, payload=carried)
            await federation.until_done(1)

    asyncio.run(scenario())
    (path,) = journals(tmp_path)
    reader = JournalReader(path)
    events = [entry[2] for turn in reader.turns(lookup(name).messages) for entry in turn.entries]
    ended = [event for event in events if isinstance(event, TaskFinished)]
    assert len(ended) == 40
    assert {event.task.payload for event in ended} == {b""}
    assert path.read_bytes().count(carried) >= 40, "it came with the job"

    fed: list[bytes] = []
    handle = Component.handle

    def seen(self: Component, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, TaskFinished):
            fed.append(event.task.payload)
        handle(self, event, source, now)

    monkeypatch.setattr(Component, "handle", seen)
    assert replay(path, lookup).difference is None
    assert fed == [carried] * 40


@pytest.mark.parametrize("name", ["megha", "pigeon"])
def test_last_in_first_out_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(name, tmp_path, split=False)
    monkeypatch.setattr(ConstraintQueue, "push", ConstraintQueue.push_front)
    (result,) = (replay(path, lookup) for path in journals(tmp_path))
    assert result.difference is not None
    assert "checksum" in result.difference.problem
    assert result.difference.effects


class Unknown(Message, frozen=True):
    """A message of an older version of the design."""


def of_other_version(path: Path, how: str) -> None:
    """Write a journal as another version would: with another first line, header, parameter, or kind of event."""
    header = JournalReader(path).header
    if how == "format":
        path.write_bytes(path.read_bytes().replace(MAGIC, first_line(KIND, VERSION + 1), 1))
        return
    path.unlink()
    if how == "header":
        record = msgspec.msgpack.encode({"host": header.host})
        with path.open("wb") as file:
            file.write(MAGIC)
            write_record(file, record)
    elif how == "parameter":
        other = {**header.parameters, next(iter(header.parameters)): "of an older version"}
        JournalWriter(path, msgspec.structs.replace(header, parameters=other), "none").close()
    else:
        journal = JournalWriter(path, header, "none")
        journal.append(1, [(header.addresses[0], SUBMITTER, Unknown(), 0)])
        journal.close()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["format", "header", "parameter", "event"])
def test_a_journal_of_another_version_is_left_out_and_all_others_replay(tmp_path: Path, how: str) -> None:
    record("megha", tmp_path / "journal", split=True)
    other, *others = journals(tmp_path / "journal")
    of_other_version(other, how)
    told = volery("replay", tmp_path)
    assert f"{other.name} is left out: " in " ".join(told.split())
    assert f"All {len(others)} journals replay; 1 of another version are left out." in told
    results = json.loads(volery("replay", tmp_path, "--json"))
    assert [result["path"] for result in results if result["left_out"]] == [str(other)]
    for path in others:
        path.unlink()
    volery("replay", tmp_path, status=2)


def replayed(folder: Path, *options: str, status: int = 0) -> str:
    """The output of `volery replay`, in this process."""
    result = CliRunner().invoke(app, ["replay", str(folder), *options])
    found = 2 if isinstance(result.exception, InputError) else result.exit_code
    assert found == status, result.output
    return result.output


@pytest.mark.parametrize("content", [b"", MAGIC[:9], MAGIC], ids=["empty", "half a line", "no header"])
def test_a_journal_whose_host_ended_before_it_began_is_told_and_proves_nothing(tmp_path: Path, content: bytes) -> None:
    record("megha", tmp_path / "journal", split=True)
    first, *others = journals(tmp_path / "journal")
    first.write_bytes(content)
    told = " ".join(replayed(tmp_path).split())
    assert f"{first.name} holds no complete header: its host ended before it began" in told
    assert f"All {len(others)} journals replay" in told
    for path in others:
        path.unlink()
    replayed(tmp_path, status=2)


def damaged(content: bytes, how: str) -> bytes:
    """The content of a journal after a fault of a disk or of a person."""
    middle = len(content) * 3 // 5
    if how == "something else":
        return b"x" * 100
    if how == "zeros":
        return content[:middle] + bytes(64) + content[middle + 64 :]
    if how == "zeros to the end":
        return content[:middle].ljust(len(content), b"\0")
    if how == "a block twice":
        return content[:middle] + content[middle - 64 :]
    if how == "a block lost":
        return content[: middle - 64] + content[middle:]
    place = {"the version": len(b"volery journal "), "the header": len(MAGIC) + 40, "the last bit": len(content) - 1}
    flipped = bytearray(content)
    flipped[place[how]] ^= 1
    return bytes(flipped)


@pytest.mark.parametrize(
    "how",
    [
        "something else",
        "zeros",
        "zeros to the end",
        "a block twice",
        "a block lost",
        "the version",
        "the header",
        "the last bit",
    ],
)
def test_a_damaged_journal_is_told_with_its_place_and_all_others_replay(tmp_path: Path, how: str) -> None:
    record("megha", tmp_path / "journal", split=True)
    first, *others = journals(tmp_path / "journal")
    first.write_bytes(damaged(first.read_bytes(), how))
    told = " ".join(replayed(tmp_path, status=1).split())
    assert re.search(rf"{first.name}: is .*damaged .*at byte [0-9]+", told)
    assert "another version" not in told
    assert f"1 of {len(others) + 1} journals are damaged, and not proved." in told
    results = json.loads(replayed(tmp_path, "--json", status=1))
    assert [result["path"] for result in results if result["damage"]] == [str(first)]
    assert all(result["events"] > 0 for result in results if result["path"] != str(first))


def test_a_torn_tail_is_passed_over(tmp_path: Path) -> None:
    record("megha", tmp_path, split=False)
    (path,) = journals(tmp_path)
    whole = replay(path, lookup)
    content = path.read_bytes()
    for cut in (1, 9, 40):
        path.write_bytes(content[:-cut])
        torn = replay(path, lookup)
        assert torn.difference is None
        assert torn.torn_bytes > 0
        assert torn.events < whole.events


def test_a_handler_that_raises_is_the_last_entry_and_raises_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ConstraintQueue.push

    def push(queue: ConstraintQueue, task: Task) -> None:
        if task.id == 20:
            raise RuntimeError("planted")
        real(queue, task)

    monkeypatch.setattr(ConstraintQueue, "push", push)
    with pytest.raises(RuntimeError, match="planted"):
        record("megha", tmp_path, split=False)
    (path,) = journals(tmp_path)
    assert replay(path, lookup).difference is None
    monkeypatch.setattr(ConstraintQueue, "push", real)
    result = replay(path, lookup)
    assert result.difference is not None
    assert "raises nothing" in result.difference.problem


def test_a_witness_sees_what_was_launched_when(tmp_path: Path) -> None:
    record("pigeon", tmp_path, split=False)
    launched: dict[int, int] = {}
    ended: dict[int, int] = {}

    def witness(
        now: Time, address: Address, source: Address, event: object, effects: list[Effect], seconds: float
    ) -> None:
        launched.update({effect[1].id: now for effect in effects if effect[0] == LAUNCH})
        if isinstance(event, TaskFinished):
            ended[event.task.id] = now
        assert seconds >= 0

    (path,) = journals(tmp_path)
    assert replay(path, lookup, witness).difference is None
    assert launched.keys() == ended.keys()
    assert len(launched) >= 63
    assert all(ended[task] - at >= task % 7 * 300 or task in range(31, 71) for task, at in launched.items())
