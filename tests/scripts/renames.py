"""Names of messages and fields that were changed, and a check that transcripts changed by nothing else.

`python -m tests.scripts.renames COMMIT` applies the table to the transcripts of an earlier commit, and compares them
with those of today.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

MESSAGES = {
    "Active": "RunningAttempt",
    "Answer": "PreemptionVote",
    "Ask": "UpdateRequest",
    "Deposed": "StaleEpoch",
    "Ended": "TasksEnded",
    "Join": "ResyncRequest",
    "Lost": "AttemptsLost",
    "Report": "ResyncReply",
    "Standing": "LeaderStatus",
    "Taken": "PreemptionDone",
    "Yield": "PreemptionRequest",
}
"""Message of Megha, or of a pair of masters, to its present name."""
PAIRED = frozenset({"Active", "Deposed", "Standing"})
"""Messages of `roles/recovery`, which Pigeon sends, too; its other messages keep their names."""
FIELDS = {
    "AttemptsLost": {"preempted": "is_preemption"},
    "Holdings": {"ended": "ended_tasks", "started": "started_tasks", "whole": "is_whole", "leaving": "leaving_tasks"},
    "Lead": {"confirmed": "is_confirmed"},
    "LeaderStatus": {"leading": "is_leading"},
    "Preempt": {"weighed": "weights_number"},
    "PreemptionRequest": {"heard": "last_request"},
    "PreemptionVote": {"agreed": "is_agreed"},
    "Refusal": {"gone": "unavailable_victims", "kept": "is_vetoed"},
    "Result": {"evicted": "is_evicted"},
    "ResyncReply": {
        "whole": "is_whole",
        "settled": "is_settled",
        "running": "running_attempts",
        "finished": "finished_attempts",
        "fenced": "fenced_epoch",
    },
    "StateUpdate": {"heard": "last_request", "snapshot": "is_snapshot"},
    "Status": {"anew": "is_restarted"},
    "TasksEnded": {"heard": "last_request"},
}
"""Fields of messages, by the present name of the message, to their present names."""
TOKEN = re.compile(r"(?P<opened>[A-Za-z]\w*)\(|(?P<field>[a-z]\w*)=|(?P<closed>\))|(?P<pushed>\()")


def renamed(line: str, messages: dict[str, str]) -> str:
    """A line of a transcript, with today's names."""
    stack: list[str] = []

    def replaced(match: re.Match[str]) -> str:
        if match["opened"]:
            stack.append(messages.get(match["opened"], match["opened"]))
            return f"{stack[-1]}("
        if match["field"]:
            fields = FIELDS.get(stack[-1], {}) if stack else {}
            return f"{fields.get(match['field'], match['field'])}="
        if match["closed"] and stack:
            stack.pop()
        elif match["pushed"]:
            stack.append("")
        return match[0]

    return TOKEN.sub(replaced, line)


def table_of(text: str) -> dict[str, str]:
    """Names to replace in a transcript, by the design in its title."""
    design = re.search(r"^# (\S+): .*; seed", text, re.MULTILINE)
    if design is None:
        return {}
    if design[1].startswith(("megha", "central")):
        return MESSAGES
    return {old: new for old, new in MESSAGES.items() if old in PAIRED} if design[1].startswith("pigeon") else {}


def main(commit: str) -> int:
    """Number of transcripts that differ from those of the commit by more than names."""
    different = 0
    for path in sorted(Path("tests/scripts").glob("*.txt")):
        shown = subprocess.run(["git", "show", f"{commit}:{path}"], capture_output=True, text=True, check=True)
        table = table_of(shown.stdout)
        lines = [renamed(line, table) if table else line for line in shown.stdout.splitlines()]
        if lines != path.read_text().splitlines():
            different += 1
            sys.stdout.write(f"{path} differs\n")
    return different


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
