"""Write tests/costs.txt from what `pytest --costs FILE` has measured: what each test takes, the longest first.

python -m tests.costs FILE
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.conftest import COSTS, QUICK_S


def main(file: Path) -> None:
    """Keep tests of `QUICK_S` or more; a test that ran twice has its lower cost."""
    found: dict[str, float] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        name, seconds = json.loads(line)
        found[name] = min(seconds, found.get(name, seconds))
    lines = sorted((-round(cost, 1), name) for name, cost in found.items() if round(cost, 1) >= QUICK_S)
    COSTS.write_text("".join(f"{-cost:.1f} {name}\n" for cost, name in lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
