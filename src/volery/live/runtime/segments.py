"""Journals in segments: a full one is followed by another that begins with a snapshot, and the oldest are deleted.

Nothing is deleted before the snapshot that makes it dispensable is on the disk. So what is kept can always be replayed,
from its first segment on; each further snapshot is compared with the state to which the segment before it leads.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from volery.core.component import Component
from volery.core.errors import InputError
from volery.core.model import Address, Key
from volery.live.config.limits import Durability, JournalSize
from volery.live.runtime.journal import SUFFIX, Header, JournalWriter, journal_order, journal_path, snapshot_path
from volery.live.runtime.snapshots import UNFINISHED, failure_of, obstacle, snapshot_apart

MB: Final = 1_000_000
CLOSE_S: Final = 10.0
"""A host that ends waits so long for a snapshot that is being written."""

log = logging.getLogger(__name__)


class SegmentedJournal(JournalWriter):
    """Appends turns to one file after the other.

    Args:
        header: the first record, of the first file.
        components: of the host, as they were built, to try whether snapshots can be made.

    Raises:
        InputError: the file exists or cannot be written.
    """

    def __init__(
        self, folder: Path, header: Header, durability: Durability, size: JournalSize,
        components: Mapping[Address, Component],
    ) -> None:  # fmt: skip
        super().__init__(journal_path(folder, header.host, header.incarnation), header, durability)
        self._folder, self._header = folder, header
        self._limit, self._keep = size.segment_mb * MB, size.keep_mb * MB
        self._child = 0
        if problem := obstacle(components):
            self._limit = 0
            log.warning("the journal of host %s grows without end, no snapshot can be made: %s", header.host, problem)
        prune(folder, header.host, self._keep, self.path)

    @property
    def is_full(self) -> bool:
        if self._child:
            self._reap()
        return 0 < self._limit <= self.size and not self._child

    def rotate(self, components: Mapping[Address, Component], problems: Mapping[tuple[Address, Key], Any]) -> None:
        header = msgspec.structs.replace(self._header, segment=self._header.segment + 1)
        path = journal_path(self._folder, header.host, header.incarnation, header.segment)
        before, full = self._file, self.path
        try:
            before.flush()
            self._begin(path, header)
            self._header = header
            self._file.flush()
            before.close()
        except (OSError, InputError) as error:
            self._limit *= 2
            log.error("the journal of host %s stays in one file for now: %s", header.host, error)
            return
        try:
            self._child = snapshot_apart(snapshot_path(path), full, components, problems)
        except OSError as error:
            log.error("no snapshot of host %s could be written, earlier files are kept: %s", header.host, error)

    def close(self) -> None:
        super().close()
        until_s = time.monotonic() + CLOSE_S
        while self._child and time.monotonic() < until_s:
            self._reap()
            time.sleep(0.001 if self._child else 0)

    def _reap(self) -> None:
        """Delete what is dispensable, once the snapshot is written."""
        try:
            ended, status = os.waitpid(self._child, os.WNOHANG)
        except ChildProcessError:  # somebody else has waited for it
            ended, status = self._child, 0
        if not ended:
            return
        self._child = 0
        snapshot = snapshot_path(self.path)
        if status or not snapshot.exists():
            host, why = self._header.host, failure_of(snapshot)
            log.error("no snapshot of host %s could be written, earlier files are kept: %s", host, why)
        else:
            prune(self._folder, self._header.host, self._keep, self.path)


def prune(folder: Path, host: str, keep_bytes: int, current: Path) -> None:
    """Delete the oldest files of a host's journals, of all its incarnations, beyond so many bytes.

    A file that continues another and has no snapshot is deleted together with the other one. The file that is written
    now stays, and so do those before it that its replay needs.
    """
    paths = sorted(
        (path for path in folder.glob(f"{host}-*{SUFFIX}") if journal_order(path)[0] == host), key=journal_order
    )
    for left in (*folder.glob(f"{host}-*.snapshot"), *folder.glob(f"{host}-*{UNFINISHED}")):
        journal = left.with_suffix(SUFFIX)
        if journal_order(journal)[0] == host and (left.suffix == UNFINISHED or not journal.exists()):
            left.unlink(missing_ok=True)
    together: list[list[Path]] = []
    for path in paths:
        if together and journal_order(path)[2] and not snapshot_path(path).exists():
            together[-1].append(path)
        else:
            together.append([path])
    sizes = [sum(_size(path) + _size(snapshot_path(path)) for path in files) for files in together]
    total = sum(sizes)
    for files, size in zip(together, sizes, strict=True):
        if total <= keep_bytes or current in files:
            return
        for path in reversed(files):
            path.unlink(missing_ok=True)
            snapshot_path(path).unlink(missing_ok=True)
        total -= size


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
