"""CPU seconds and peak memory of reading a million rows of `sacct -P`, a JSON line each: `python -m benchmarks.table`.

Once of a million jobs, and once of a third of them with their steps, each read as a workload in a process of its own.
Meant: at most 60 CPU s and 1,000 MB where the yardstick takes 0.044 s.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from benchmarks.lab import yardstick

ROWS: Final = 1_000_000
HEADER: Final = (
    "JobID|JobName|User|Account|Partition|Submit|Start|End|Elapsed|Timelimit|NNodes|NCPUS|ReqMem|AllocTRES|State"
)
READ: Final = """
import json, resource, sys, time
from pathlib import Path
from volery.workload import load_workload

begun = time.process_time()
trace, _ = load_workload(Path(sys.argv[1]))
cost = {"cpu_s": round(time.process_time() - begun, 1),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6)}
print(json.dumps({"jobs": trace.job_count, "tasks": trace.task_count} | cost))
"""


def rows(*, has_steps: bool) -> Iterator[str]:
    """Rows of jobs, each with its batch and extern step if wanted; sizes and times are drawn with a fixed seed."""
    draw = random.Random(1)
    came = datetime(2024, 3, 1)
    for job in range(ROWS):
        came += timedelta(seconds=draw.randrange(20))
        start = came + timedelta(seconds=draw.randrange(5000))
        elapsed = timedelta(seconds=int(draw.lognormvariate(6, 2)) + 1)
        nodes = draw.choice([1] * 8 + [2, 4])
        cores, devices = nodes * draw.choice([1, 4, 16, 32]), nodes * draw.choice([0] * 8 + [1, 4])
        memory = f"{nodes * draw.choice([1, 4, 16, 64])}G"
        tres = f"cpu={cores},mem={memory},node={nodes}" + (f",gres/gpu={devices}" if devices else "")
        state = draw.choice(["COMPLETED"] * 8 + ["FAILED", "TIMEOUT", "CANCELLED by 1001"])
        clock = f"{elapsed.days}-{timedelta(seconds=elapsed.seconds)!s:0>8}"
        times = f"{start.isoformat()}|{(start + elapsed).isoformat()}|{clock}"
        shape = f"{nodes}|{cores}|{memory}|{tres}"
        owner = f"n{draw.randrange(500)}|u{draw.randrange(200)}|a{draw.randrange(20)}|{'gpu' if devices else 'cpu'}"
        yield f"{job}|{owner}|{came.isoformat()}|{times}|{draw.choice([1, 4, 24, 48]):02}:00:00|{shape}|{state}"
        for step in ("batch", "extern") if has_steps else ():
            yield f"{job}.{step}|{step}||||{start.isoformat()}|{times}||{shape}|{state.split()[0]}"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for has_steps in (False, True):
            path = Path(folder) / "sacct.txt"
            with path.open("w", encoding="ascii") as file:
                file.write(HEADER + "\n")
                for row, _ in zip(rows(has_steps=has_steps), range(ROWS), strict=False):
                    file.write(row + "\n")
            done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, check=True, text=True)
            print(json.dumps(json.loads(done.stdout) | {"yardstick_s": yardstick()}), flush=True)


if __name__ == "__main__":
    main()
