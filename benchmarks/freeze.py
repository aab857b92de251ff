"""What designs do, frozen while the house is rebuilt: `python -m benchmarks.freeze write|check [NAME ...]`.

Per design and variant: digest and count of messages of every case; per design that tolerates faults: of 50 storms.
It goes when the house stands (step 10).
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec
from tests.conformance.entries import VARIANTS, entries, variant

from volery.architectures import configure, lookup
from volery.conformance.cases import all_cases, flow_cases, gang_cases
from volery.conformance.verdict import judged, run
from volery.core.component import Architecture
from volery.faults import draw, run_scenario

FROZEN = Path(__file__).with_name("frozen.json")
STORMS = 50
COMBINED = {
    f"{base}+{'+'.join(sorted(added)) or 'plain'}": (base, added)
    for base in ("megha", "megha-2021")
    for shares in ({}, {"shares": "a:1+b:2+c:1"})
    for reliable in ({}, {"reliable": "true"})
    for why in ({}, {"why": "true"})
    for added in [{**shares, **reliable, **why}]
}


def design(name: str) -> Architecture:
    """A design, a variant, or a combination of Megha's."""
    if name in COMBINED:
        base, added = COMBINED[name]
        entry = lookup(base)
        given = configure(entry, {**entry.immediate, "gms": "3", "lms": "2", "heartbeat_s": "0.2", **added})
        return msgspec.structs.replace(entry, defaults=given, immediate={})
    return variant(name) if name in VARIANTS else entries()[name]


def found(name: str) -> dict[str, list[object]]:
    """Per case: digest, messages."""
    try:
        entry = design(name)
    except Exception as error:
        return {"refused": [str(error)]}
    results: dict[str, list[object]] = {}
    entry = judged(entry)
    cases = [*all_cases(0, entry.vectors), *flow_cases(1, entry.vectors)]
    if lookup(name.split(":")[0].split("+")[0]).gangs:
        cases += gang_cases(0)
    for case in cases:
        try:
            records = run(entry, case, seed=3)
            results[case.name] = [records.digest()[:16], records.counters["messages"]]
        except Exception as error:
            results[case.name] = [type(error).__name__ + ": " + str(error)[:120]]
    return results


def stormed(name: str) -> dict[str, list[object]]:
    """Per seed: digest, messages, attempts killed, tasks run again."""
    entry = lookup(name)
    results: dict[str, list[object]] = {}
    for seed in range(STORMS):
        try:
            it = run_scenario(entry, draw(entry, seed))
            results[str(seed)] = [it.digest[:16], it.messages, it.killed, it.repeated]
        except Exception as error:
            results[str(seed)] = [str(error)[:120]]
    return results


def main() -> int:
    """Write or check."""
    mode, only = sys.argv[1], sys.argv[2:]
    names = [*entries(), *VARIANTS, *COMBINED]
    storms = [name for name, entry in entries().items() if entry.bearing]
    if only:
        names, storms = (
            [name for name in names if name.split(":")[0].split("+")[0] in only],
            [name for name in storms if name in only],
        )
    old = json.loads(FROZEN.read_text()) if FROZEN.exists() else {"cases": {}, "storms": {}}
    new: dict[str, dict[str, dict[str, list[object]]]] = {"cases": {}, "storms": {}}
    with ProcessPoolExecutor(2) as pool:
        works = {("cases", name): pool.submit(found, name) for name in names}
        works |= {("storms", name): pool.submit(stormed, name) for name in storms}
        for (kind, name), work in works.items():
            new[kind][name] = work.result()
            if mode == "check":
                before, after = old[kind].get(name, {}), new[kind][name]
                moved = [case for case in before if before[case] != after.get(case)]
                told = f"MOVED {[(case, before[case], after.get(case)) for case in moved[:3]]}" if moved else "equal"
                print(kind, name, told, flush=True)
            else:
                print(kind, name, flush=True)
    if mode == "write":
        for kind, results in new.items():
            old[kind].update(results)
        FROZEN.write_text(json.dumps(old, indent=0, sort_keys=True))
        return 0
    return int(
        any(old[k].get(n, {}).get(c) != new[k][n].get(c) for k in new for n in new[k] for c in old[k].get(n, {}))
    )


if __name__ == "__main__":
    sys.exit(main())
