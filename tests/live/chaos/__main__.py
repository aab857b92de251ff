"""python -m tests.live.chaos: one run from the command line."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

import msgspec
from tests.live.chaos.judging import report
from tests.live.chaos.links import Namespaces
from tests.live.chaos.run import Chaos
from tests.live.conftest import program

from volery.architectures import lookup
from volery.core.model import SECOND
from volery.faults.schedule import Schedule, draw_schedule


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Draw or read a schedule, play it, and tell; status 1 where something is wrong."""
    words = argparse.ArgumentParser(description="harm a federation of real processes, and see whether anything is lost")
    words.add_argument("--design", default="megha", help="one that bears partitions")
    words.add_argument("--amounts", action="store_true", help="place amounts of resources, for users with shares")
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--minutes", type=float, default=10.0)
    words.add_argument("--schedule", type=Path, help="play this file instead of drawing one")
    words.add_argument("--tls", action="store_true", help="with certificates")
    words.add_argument("--namespaces", action="store_true", help="between network namespaces, where permitted")
    words.add_argument("--folder", type=Path, help="kept; by default a temporary one")
    given = words.parse_args()
    path = program()
    if path is None:
        sys.exit("nats-server is not installed (Debian package nats-server)")
    namespaces = given.namespaces and Namespaces.permitted()
    if given.namespaces and not namespaces:
        _say("network namespaces are not permitted here: relays instead")
    if given.schedule is not None:
        schedule = msgspec.json.decode(given.schedule.read_bytes(), type=Schedule)
    else:
        lasts_us = round(60 * given.minutes * SECOND)
        schedule = draw_schedule(lookup(given.design), given.seed, lasts_us, amounts=given.amounts)
    folder: Path | None = given.folder
    if folder is not None and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        words.error(f"--folder: {folder} is there already, and not empty; give a new one, or remove it")
    folder = folder or Path(tempfile.mkdtemp(prefix="volery-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and take everything down
    _say(f"{schedule.architecture}, seed {schedule.seed}, {len(schedule.faults)} faults, in {folder}")
    _say(f"the same in the lab: volery storm --schedule {folder / 'schedule.json'}")
    run = Chaos(folder, path, schedule, _say, tls=given.tls, namespaces=namespaces).play()
    _say(report(run))
    sys.exit(1 if run.wrong else 0)


if __name__ == "__main__":
    main()
