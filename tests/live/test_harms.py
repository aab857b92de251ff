"""Whatever a called function does to its process, it has an end with the right reason, and the next call is well."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.live.bench import Bench, bench, is_gone, lines_of
from tests.live.harms import HARMS, Harm, handles_signals, seen
from tests.live.test_call import call, value


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
def test_a_call_that_harms_its_process_has_its_end_and_the_next_finds_the_process_as_ever(
    tmp_path: Path, harm: Harm
) -> None:
    async def scenario(it: Bench) -> None:
        worker = value(await it.run(call(os.getpid)))
        before = value(await it.run(call(seen)))
        end = await it.run(call(harm.function))
        if harm.reason:
            assert (end.state, harm.reason in end.reason) == ("failed", True), end.reason
        else:
            assert (end.state, end.reason, value(end)) == ("finished", "", harm.value)
        after = await it.run(call(seen))
        assert value(after) == before
        assert lines_of(Path(after.folder) / "stdout") == ["printed"]
        assert lines_of(Path(after.folder) / "stderr") == ["written"]
        later = value(await it.run(call(os.getpid)))
        assert later == worker or is_gone(worker), "no worker is left over"

    bench(tmp_path, scenario, workers=1)


def test_a_timer_of_a_call_ends_its_own_call_or_none(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        before = value(await it.run(call(seen)))
        for _ in range(20):
            end = await it.run(call(handles_signals))
            assert (end.state, end.reason) in (("finished", ""), ("failed", "SystemExit: 8"))
            assert value(await it.run(call(seen))) == before

    bench(tmp_path, scenario, workers=1)
