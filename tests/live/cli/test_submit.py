"""Commands and scripts that are submitted without a file of a job, to a federation that runs them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.live.serving import serving

from volery.cli.main import main

SCRIPT = """#!/bin/sh
#SBATCH --array=5-9:4 --mem=1G
#VOLERY --env COLOUR=blue
echo "$1 $COLOUR $SLURM_ARRAY_TASK_ID $SLURM_JOB_ID $(cat)"
test "$SLURM_ARRAY_TASK_ID" = 5 || exit 9
"""


def test_a_command_and_a_script_run_to_their_status(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "run.sh"
    script.write_text(SCRIPT)

    with serving(tmp_path / "federation") as (url, _):
        monkeypatch.setenv("VOLERY_API", url)

        def call(*words: str | Path) -> tuple[object, str, str]:
            with pytest.raises(SystemExit) as leaving:
                main([str(word) for word in words])
            return leaving.value.code or 0, *capfd.readouterr()

        line = "echo $VOLERY_INDEX"
        assert call("submit", "--wait", "--array", "0-1", "--", "sh", "-c", line)[0] == 0
        assert call("submit", "--wait", "--array", "0-4:4", "--", "sh", "-c", line)[0] == 0
        assert [call("logs", f"{job}/1")[1] for job in (0, 1)] == ["1\n", "4\n"]

        status, _, err = call("submit", "--wait", script, "--fast")
        assert status == 9
        assert "warning: run.sh:2: --mem: is left out; machines have slots here" in err
        assert [call("logs", f"2/{place}")[1] for place in (0, 1)] == ["--fast blue 5 2 \n", "--fast blue 9 2 \n"]
        assert call("submit", "--json", "--", "true")[1] == "3\n"
