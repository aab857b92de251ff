"""The working folder of a task is its own: whatever a task does to it, the output can be read."""

from __future__ import annotations

import shutil
from pathlib import Path

import cloudpickle
import pytest
from tests.live.bench import Bench, bench, lines_of

from volery.live.command import Call, Command
from volery.live.config.limits import NodeRules


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf ./*",
        'rm -rf "$PWD"',
        "rm -rf ./* ./.[!.]*",
        "find . -mindepth 1 -delete",
        "if [ -e stdout ]; then mv stdout gone; fi",
        "echo mine >stdout; echo mine >stderr; echo mine >stdin",
        "mkdir stdout && ln -s /dev/null stderr",
        "tar cf all.tar . && ! tar tf all.tar | grep std",
        'chmod 0 .; cd /; rmdir "$OLDPWD"',
        "touch a && python3 -c 'import os, shutil; shutil.rmtree(os.getcwd())'",
    ],
)
def test_a_task_that_clears_its_working_folder_keeps_its_output(tmp_path: Path, command: str) -> None:
    async def scenario(it: Bench) -> None:
        end = await it.run(Command(("sh", "-c", f"echo begin; echo bad >&2; {command}; echo end")))
        assert lines_of(Path(end.folder) / "stdout") == ["begin", "end"]
        assert lines_of(Path(end.folder) / "stderr")[0] == "bad"

    bench(tmp_path, scenario)


@pytest.mark.parametrize("memory_mb", [0, 64])
@pytest.mark.parametrize("stdin", [b"", b"given"])
def test_the_working_folder_is_empty_when_a_task_begins(tmp_path: Path, memory_mb: int, stdin: bytes) -> None:
    async def scenario(it: Bench) -> None:
        end = await it.run(Command(("sh", "-c", "ls -A | wc -l"), stdin=stdin, memory_mb=memory_mb))
        assert lines_of(Path(end.folder) / "stdout") == ["0"]

    bench(tmp_path, scenario, rules=NodeRules(amounts=True))


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_git_clones_into_the_working_folder(tmp_path: Path) -> None:
    git = "git -c user.name=a -c user.email=a@b.c -c safe.directory='*'"
    script = f"{git} init -q r && {git} -C r commit -q --allow-empty -m x && mkdir c && cd c && {git} clone -q ../r ."

    async def scenario(it: Bench) -> None:
        made = await it.run(Command(("sh", "-c", script)))
        assert made.state == "finished", made
        cloned = await it.run(Command(("sh", "-c", f"{git} clone -q {made.folder}/work/r . && ls -A")))
        assert lines_of(Path(cloned.folder) / "stdout") == [".git"]

    bench(tmp_path, scenario)


def test_outputs_are_looked_for_where_the_task_works(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        left = await it.run(Command(("sh", "-c", "echo x >a.txt; echo mine >stdout"), outputs=("a.txt", "stdout")))
        assert left.state == "finished"
        missing = await it.run(Command(("true",), outputs=("stdout",)))
        assert missing.reason == f"it left no stdout in {missing.folder}/work"

    bench(tmp_path, scenario)


def clear_folder(name: str) -> str:
    """Print, remove the working folder, and print again."""
    print("begin")  # noqa: T201 - it is the output of a call
    shutil.rmtree(name)
    print("end")  # noqa: T201 - likewise
    return "result"


def test_a_call_that_removes_its_working_folder_keeps_its_output_and_result(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        for _ in range(2):
            end = await it.run(Call(cloudpickle.dumps((lambda: clear_folder(str(Path.cwd())), (), {}))))
            assert cloudpickle.loads(end.result) == "result"
            assert lines_of(Path(end.folder) / "stdout") == ["begin", "end"]

    bench(tmp_path, scenario, workers=1)
