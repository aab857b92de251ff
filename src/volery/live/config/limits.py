"""Limits in a federation's file: isolation of tasks, and how much output, jobs and journals are kept."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

DAYS_MAX = 36_500
CALLS_MAX: Final = 10_000
"""Python calls of a worker process by default: a new one takes some 150 ms of CPU, that is 15 us per call."""


class Isolation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Isolation of tasks that ask for amounts."""

    cgroups: Annotated[
        Literal["auto", "require", "off"],
        Meta(description="control groups: where permitted, or the host does not start without, or never"),
    ] = "auto"
    cpu: Annotated[
        Literal["limit", "share"],
        Meta(description="at most the processors asked for; or at least so many, and what others leave idle"),
    ] = "limit"
    pids_max: Annotated[int, Meta(ge=0, description="processes and threads of an attempt; 0: no limit")] = 4096
    account_pids_max: Annotated[
        int,
        Meta(ge=0, description="processes and threads of each account that runs tasks, on a machine; 0: no limit"),
    ] = 16_384
    gpus: Annotated[
        tuple[str, ...] | None,
        Meta(description='devices that tasks may be given, as ["0", "1"]; left out: those that are found'),
    ] = None


class OutputLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of the output that is kept on a node's host."""

    stream_mb: Annotated[
        int, Meta(ge=0, le=1 << 30, description="the newest so many MB of stdout and of stderr, per attempt; 0: all")
    ] = 256
    keep_days: Annotated[
        float, Meta(ge=0, le=DAYS_MAX, description="folders of attempts go after so many days; 0: never")
    ] = 0
    keep_mb: Annotated[
        int, Meta(ge=0, le=1 << 40, description="the oldest folders go when all have more MB; 0: never")
    ] = 0


class Retention(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of the jobs in the API's database; the others leave for the folder `archive`."""

    days: Annotated[
        float, Meta(ge=0, le=DAYS_MAX, description="jobs move to the archive so many days after their end; 0: never")
    ] = 0
    jobs: Annotated[
        int, Meta(ge=0, le=1 << 40, description="the oldest move when more than so many have ended; 0: never")
    ] = 0


class NodeRules(msgspec.Struct, frozen=True):
    """Rules of a federation's file for its node agents.

    Args:
        isolation: isolation of tasks that ask for amounts.
        output: limits of the output that is kept.
        amounts: true if tasks ask for amounts, and not for slots.
        environment: names of variables that they take over from the agent, beside the usual ones; `*` ends a pattern.
        gives_back: true if an attempt may end as "unstarted" where the machine lacks something, to start elsewhere.
        api: address of the API, for tasks; empty: they do not get it.
        calls_max: Python calls of a worker process, before another takes its place; 0: no limit.
    """

    isolation: Isolation = Isolation()
    output: OutputLimits = OutputLimits()
    amounts: bool = False
    environment: tuple[str, ...] = ()
    gives_back: bool = False
    calls_max: int = CALLS_MAX
    api: str = ""


NO_RULES: Final = NodeRules()

Durability = Literal["none", "flush", "fsync"]
"""What a turn waits for before its effects leave the host: nothing, the operating system, or the disk."""


class JournalSize(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits of the journal of each host."""

    segment_mb: Annotated[int, Meta(ge=1, le=1_000_000, description="megabytes of a file, before another is begun")] = (
        64
    )
    keep_mb: Annotated[
        int, Meta(ge=1, le=1_000_000_000, description="megabytes of files and snapshots; beyond them the oldest go")
    ] = 1_024
