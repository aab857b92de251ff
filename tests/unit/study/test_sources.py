"""What a stored result depends on: its own design's sources, not its neighbours', and what they say, not how."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from volery import architectures
from volery.architectures.megha import MEGHA
from volery.study import sources
from volery.study.sources import PACKAGE, code_digest, inputs_code_digest


def files(*modules: str) -> set[str]:
    return {path.relative_to(PACKAGE).as_posix() for path in sources._closure(set(modules))}


def test_a_design_depends_on_its_own_folder_the_kernel_and_its_policies_and_on_no_other_design() -> None:
    found = files("volery.sim", "volery.architectures.megha")
    assert {"architectures/megha/global_master.py", "sim/kernel.py", "policies/match.py", "core/model.py"} <= found
    assert not {name for name in found if "pigeon" in name or name.startswith(("study/", "cli/", "report/"))}
    assert "architectures/__init__.py" not in found, "the index names every design"


def test_number_tables_belong_to_the_inputs() -> None:
    assert "workload/data/sharma2011.json" in files("volery.workload")


def test_designs_differ_and_presets_of_one_design_agree() -> None:
    assert code_digest("megha") == code_digest("central") != code_digest("pigeon")
    assert len({code_digest(), code_digest("megha", "pigeon"), code_digest("megha"), inputs_code_digest()}) == 4


def test_comments_docstrings_and_blank_lines_mean_nothing(tmp_path: Path) -> None:
    bare, dressed = tmp_path / "a.py", tmp_path / "b.py"
    bare.write_text("def f(x):\n    return x\n")
    dressed.write_text('"""Says."""\n\n# why\n\ndef f(x):  # what\n    """Says\n    more."""\n\n    return x\n')
    assert sources._meaning(bare) == sources._meaning(dressed)
    dressed.write_text("def f(x):\n    return x + 1\n")
    sources._meaning.cache_clear()
    assert sources._meaning(bare) != sources._meaning(dressed)


def test_a_hash_sign_in_a_text_is_no_comment(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text('x = "# y"\n')
    assert sources._meaning(path) == b'x = "# y"'


def test_foreign_code_counts_by_its_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*_: object) -> None:
        raise NotImplementedError

    mine = msgspec.structs.replace(MEGHA, name="mine", build=build)
    monkeypatch.setattr(architectures, "REGISTRY", architectures.REGISTRY | {"mine": mine})
    assert len({code_digest("mine"), code_digest("megha"), code_digest()}) == 3
