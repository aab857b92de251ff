"""A journal whose file is taken away under its host is missed within a second."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.live.federations import header_of, plan

from volery.core.model import SECOND
from volery.live.runtime.journal import JournalWriter


@pytest.mark.parametrize("harm", ["removed", "replaced", "with its folder"])
def test_a_journal_that_was_taken_away_is_not_written_on(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "journal" / "h-1.journal"
    writer = JournalWriter(path, header_of(plan("oracle"), "h", ()), "none")
    writer.append(0, [])
    writer.append(2 * SECOND, [])
    if harm == "with its folder":
        shutil.rmtree(path.parent)
    else:
        path.unlink()
    if harm == "replaced":
        path.write_bytes(b"")
    writer.append(2 * SECOND + 1, [])
    with pytest.raises(FileNotFoundError, match=r"was removed or replaced.*h-1\.journal"):
        writer.append(3 * SECOND, [])
    writer.close()
