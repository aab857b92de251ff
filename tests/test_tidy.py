"""Style is a test (DESIGN section 10): what a reviewer would otherwise have to say again and again."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "volery"
ROOMS = ("src", "experiments", "parity", "tests", "benchmarks", "docs")
SOURCES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
OURS = [path for path in SOURCES if path.is_relative_to(PACKAGE)]
PURE = [path for path in OURS if path.relative_to(PACKAGE).parts[0] in ("core", "roles", "policies", "architectures")]

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 500
BANNED_WORDS = {"helper", "helpers", "util", "utils", "info", "tmp", "data"}
BANNED_NAMES = {"do", "process"}
OPENERS = r"(What|Who|Whom|Whose|Whoever|How|Where|Which|When|Whether|That|So)\b"
SHARING_BASES = {"Message", "Component"}
ROLE_NAMES = {"Layout", "Machine", "Node", "Scheduler"}
"""Names of one role in several designs."""
ING_NOUNS = {"provisioning", "recording", "setting"}
LIBRARY_NAMES = {"tmp_path", "tmp_path_factory", "handle_data", "do_GET", "do_HEAD", "data_received"}
"""What pytest, html.parser, http.server and asyncio call things."""
VAGUE_NAMES = frozenset(
    re.findall(
        r"\w+",
        "found one ones other others told known unknown before after held left asked chosen wanted whole kept here "
        "there gone taken given made done seen heard said sent anew again beside ahead away more less rest some any "
        "all none both each such same this that these those it its they them their what who which whose where when how "
        "why yes no much many few nothing something anything everything everyone somebody nobody thing things stuff",
    )
)
"""Names of variables and parameters that say no noun."""
VAGUE_NAMES_MAX = 130
"""It only falls: most of them are parameters that users of a command or a protocol write."""
IMPURE_MODULES = {"time", "datetime", "uuid", "asyncio", "threading", "os", "secrets", "socket", "subprocess"}
IMPURE_CALLS = {"print", "hash", "id", "input", "open"}
MARKERS = ["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]
ENTRY_POINTS = {
    "volery.cli.main",
    "volery.cli.__main__",
    "volery.__main__",
    "volery.cli.forecast",
}
FOR_TESTS = {"volery.conformance", "volery.theory"}
"""What authors of tests import, here and elsewhere."""
FOR_AUTHORS = {
    "volery.policies.fairness.ledger",
    "volery.policies.locality",
}
"""What docs/reference offers to authors of schedulers, whichever designs of ours use it."""
TRACE_ENDINGS = (".tr", ".gwf", ".swf", ".gz", ".parquet", ".xz", ".bz2", ".zip")
COMMITTED_BYTES_MAX = 500_000
LAB_BOOK = {"experiments/first_forms.jsonl"}
"""The first form of every claim: larger than that, and no rows of a trace."""


def demand_none(violations: list[str]) -> None:
    """Fail on any violation, naming all."""
    assert not violations, "; ".join(violations)


@functools.cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path), str(path))


def place(path: Path, line: int | None = None) -> str:
    return str(path.relative_to(ROOT)) + (f":{line}" if line else "")


def statement_lines(lines: list[str]) -> int:
    """How many lines are neither blank nor a comment: paragraphs and reasons make no function long."""
    return sum(1 for line in lines if line.strip() and not line.lstrip().startswith("#"))


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def tracked() -> list[Path]:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [ROOT / name for name in listed.decode().split("\0") if name]


def test_every_committed_module_is_looked_at() -> None:
    committed = {path for path in tracked() if path.suffix == ".py" and path.is_relative_to(PACKAGE) and path.exists()}
    assert set(OURS) >= committed
    assert {path.relative_to(PACKAGE).parts[0] for path in PURE} == {"core", "roles", "policies", "architectures"}


def test_functions_fit_a_screen() -> None:
    long = [
        f"{place(path, node.lineno)} {node.name} has {lines} lines"
        for path in SOURCES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := statement_lines(text_of(path).splitlines()[node.lineno - 1 : node.end_lineno]))
        > FUNCTION_LINES_MAX
    ]
    assert not long


def test_files_are_split_before_they_are_giants() -> None:
    long = {
        place(path): count
        for path in SOURCES
        if (count := statement_lines(text_of(path).splitlines())) > FILE_LINES_MAX
    }
    assert not long


def local_names(tree: ast.AST) -> Iterator[str]:
    """Names that functions bind: parameters, and targets of assignments, loops and contexts."""
    inside = {
        id(below)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for below in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) in inside:
            yield node.id


def test_local_names_are_nouns() -> None:
    vague = [
        f"{place(path)} {name}"
        for path in OURS
        for name in local_names(tree_of(path))
        if name.strip("_") in VAGUE_NAMES
    ]
    assert len(vague) <= VAGUE_NAMES_MAX, vague


def test_vague_names_are_found() -> None:
    tree = ast.parse("def f(found, *, job):\n    for one in job:\n        left = [it for it in one]\nkept = 1\n")
    assert VAGUE_NAMES.intersection(local_names(tree)) == {"found", "one", "left", "it"}


def test_every_module_says_what_it_is() -> None:
    assert not [place(path) for path in SOURCES if not ast.get_docstring(tree_of(path))]


def test_docstrings_begin_with_the_thing_that_they_describe() -> None:
    """Rules 1 and 6 of the style card (CONTRIBUTING.md): no question word first, and no docstring of three words."""
    demand_none(
        [f"{place(path, line)} {text[:40]!r}" for path in OURS for line, text in docstrings(path) if not opens(text)]
    )


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of the docstrings of a file."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text


def opens(text: str) -> bool:
    """Whether a docstring begins as the style card wants it."""
    return re.match(OPENERS, text) is None and len(text.split()) > 3


def test_class_names_have_one_meaning() -> None:
    """Roles and messages of designs have the field's names, which designs share; other names stand for one class."""
    places: dict[str, list[Path]] = {}
    for path in OURS:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef) and not {ast.unparse(base) for base in node.bases} & SHARING_BASES:
                places.setdefault(node.name, []).append(path)
    twice = {name: found for name, found in places.items() if len(found) > 1 and name not in ROLE_NAMES}
    demand_none([f"{name} {' '.join(map(place, found))}" for name, found in twice.items()])


def test_modules_are_named_by_nouns() -> None:
    demand_none([place(path) for path in OURS if path.stem.endswith("ing") and path.stem not in ING_NOUNS])


def test_unit_tests_mirror_the_source() -> None:
    unit = ROOT / "tests" / "unit"
    rooms = {path.parent.relative_to(PACKAGE) for path in OURS}
    strange = {
        place(path)
        for path in unit.rglob("test_*.py")
        if path.parent.relative_to(unit) not in rooms
        or (path.parent == unit and not (PACKAGE / f"{path.stem.removeprefix('test_')}.py").exists())
    }
    assert not strange, "no such room in src/volery"
    untested = {room for room in rooms if len(room.parts) == 1 and not any((unit / room).rglob("test_*.py"))}
    assert not untested, "a room of src/volery without unit tests"


def defined_names(path: Path) -> Iterator[tuple[int, str]]:
    """Line and name of what a file names itself; the arguments of a library's hook are the library's."""
    theirs = {
        id(argument)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef) and node.name in LIBRARY_NAMES
        for argument in node.args.args
    }
    for node in ast.walk(tree_of(path)):
        if id(node) in theirs:
            continue
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.alias(asname=str(name)):
                yield node.lineno, name


def words(name: str) -> set[str]:
    """The words of a snake_case or CamelCase name."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return {word for word in spaced.lower().split("_") if word}


def test_names_say_something() -> None:
    empty = [
        f"{place(path, line)} {name}"
        for path in SOURCES
        for line, name in (*defined_names(path), (0, path.stem))
        if (words(name) & BANNED_WORDS or name in BANNED_NAMES or name.startswith("do_")) and name not in LIBRARY_NAMES
    ]
    demand_none(empty)


def imported_modules(path: Path) -> Iterator[tuple[int, str, str]]:
    """Line, module, and the name taken from it ("" for the module itself)."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.lineno, node.module, alias.name) for alias in node.names)


def test_components_have_no_clock_no_entropy_and_no_channel_of_their_own() -> None:
    """In core, roles, policies and architectures: DESIGN section 1."""
    impure = [
        f"{place(path, line)} imports {module}"
        for path in PURE
        for line, module, name in imported_modules(path)
        if module.partition(".")[0] in IMPURE_MODULES or (module == "random" and name != "Random")
    ]
    called = [
        f"{place(path, node.lineno)} calls {node.func.id}"
        for path in PURE
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS
    ]
    assert not impure + called


def source_of(module: str, name: str) -> str:
    """The module that defines a name: of one that a package hands on, the module that the package has it from."""
    submodule = PACKAGE.parent.joinpath(*module.split("."), f"{name}.py")
    package = PACKAGE.parent.joinpath(*module.split("."), "__init__.py")
    if submodule.exists():
        return f"{module}.{name}"
    if package.exists():
        for _, source, handed_on in imported_modules(package):
            if handed_on == name:
                return source_of(source, name)
    return module


@functools.cache
def our_modules() -> frozenset[str]:
    return frozenset(map(module_of, OURS))


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def dependencies(path: Path) -> set[str]:
    """The modules of ours that a file imports, functions included; what types alone need apart."""
    found = set()
    nodes: list[ast.AST] = [tree_of(path)]
    for node in nodes:
        nodes += [one for one in ast.iter_child_nodes(node) if not is_for_types(one)]
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            submodules = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {one if one in our_modules() else node.module for one in submodules}
    return found & (our_modules() - {module_of(path)})


def cycle_of(imports: Mapping[str, set[str]]) -> list[str]:
    """Modules that import each other in a circle; empty where there are none."""
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other() -> None:
    """Not through others either, nor by an import inside a function: what both need is in one module below."""
    assert cycle_of({module_of(path): dependencies(path) for path in OURS}) == []


def test_roles_and_policies_serve_two_designs_or_more() -> None:
    """Themselves, or through other modules of these rooms: what one design alone uses lives with it."""
    shared = [path for path in PURE if path.relative_to(PACKAGE).parts[0] in ("roles", "policies")]
    shared = [path for path in shared if path.name != "__init__.py"]
    users: dict[str, set[str]] = {module_of(path): set() for path in shared}
    for path in PURE:
        room, *below = path.relative_to(PACKAGE).with_suffix("").parts
        user = f"design {below[0]}" if room == "architectures" else module_of(path)
        for _, module, name in imported_modules(path):
            users.get(source_of(module, name), set()).add(user)

    def designs(module: str, seen: frozenset[str]) -> set[str]:
        direct = {user for user in users[module] if user.startswith("design ")}
        above = (users.keys() & users[module]) - seen
        return direct.union(*(designs(one, seen | {module}) for one in above))

    lonely = {module: sorted(designs(module, frozenset())) for module in users.keys() - FOR_AUTHORS}
    demand_none([f"{module} serves {found}" for module, found in sorted(lonely.items()) if len(found) < 2])


def test_no_module_is_hidden_by_a_folder_of_its_name() -> None:
    demand_none([path.as_posix() for path in (ROOT / "src").rglob("*.py") if path.with_suffix("").is_dir()])


def test_no_module_is_an_orphan() -> None:
    imported = {
        target
        for path in OURS
        for _, module, name in imported_modules(path)
        for target in (module, f"{module}.{name}")
        if module_of(path) != target
    }
    packages = {module_of(path) for path in OURS if path.name == "__init__.py"}
    named = {
        module
        for path in OURS
        for module in re.findall(r"[\"'](volery\.[a-z_.]+)[\"']", text_of(path))
        if module_of(path) != module
    }
    rooms = {module for module in packages if any(target.startswith(f"{module}.") for target in imported)}
    orphans = {module_of(path) for path in OURS} - imported - named - rooms - ENTRY_POINTS - FOR_TESTS - {"volery"}
    assert not orphans


def test_nothing_is_left_for_later() -> None:
    pattern = re.compile(rf"\b({'|'.join(MARKERS)})\b")
    left = [
        f"{place(path, number)} {line.strip()}"
        for path in tracked()
        if path.suffix in (".py", ".md", ".toml", ".txt", "") and path.is_file()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not left


def test_no_trace_is_committed() -> None:
    """Traces have owners and mostly no licence; tests read them from beside the repository, where they are."""
    committed = [place(path) for path in tracked() if path.name.endswith(TRACE_ENDINGS)]
    assert not committed
    large = [place(path) for path in tracked() if path.is_file() and path.stat().st_size > COMMITTED_BYTES_MAX]
    assert not {*large} - LAB_BOOK


def test_every_exception_to_a_rule_states_its_reason() -> None:
    silent = []
    for path in SOURCES:
        for number, line in enumerate(text_of(path).splitlines(), 1):
            comment = line[line.find("#") :]
            if re.search(r"#\s*noqa", comment) and not re.search(r"#\s*noqa: [A-Z0-9, ]+( - |\s*\()\w{2}", comment):
                silent.append(f"{place(path, number)} {comment}")
            if re.search(r"#\s*type:\s*ignore", comment) and not re.search(
                r"#\s*type: ignore\[[a-z, -]+\]\s+# \w{2}", comment
            ):
                silent.append(f"{place(path, number)} {comment}")
    demand_none(silent)


def test_the_tidy_rules_can_fail() -> None:
    """A check that cannot fail is a defect."""
    assert words("tmpFile_util") == {"tmp", "file", "util"}
    assert words("worker_jrt_us").isdisjoint(BANNED_WORDS)
    assert words("parseData") & BANNED_WORDS
    assert [name for _, name in defined_names(Path(__file__)) if name == "defined_names"]
    assert not opens("Whether a task fits.")
    assert not opens("Checks the queue.")
    assert opens("Tasks that wait for a machine.")
    assert source_of("volery.statistics", "InterimLook") == "volery.statistics.differences"
    assert source_of("volery.policies.fairness", "hdrf") == "volery.policies.fairness.hdrf"
    assert "volery.study.dask_pool" in dependencies(PACKAGE / "study" / "pool.py"), "an import inside a function counts"
    assert is_for_types(ast.parse("if TYPE_CHECKING:\n    import volery").body[0])
    assert sorted(set(cycle_of({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}))) == ["a", "b", "c"]


def direct_requirements(*extras: str, groups: Iterable[str] = ()) -> list[Requirement]:
    """What pyproject.toml asks for, with extras and dependency groups, on this Python."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    texts = project["project"]["dependencies"] if extras else []
    for extra in extras:
        texts = texts + project["project"]["optional-dependencies"].get(extra, [])
    for group in groups:
        texts = texts + project["dependency-groups"][group]
    requirements = [Requirement(text) for text in texts]
    own = [requirement for requirement in requirements if requirement.name == "volery"]
    others = [each for each in requirements if each.name != "volery" and (not each.marker or each.marker.evaluate())]
    return others + [each for requirement in own for each in direct_requirements(*sorted(requirement.extras))]


def locked_versions(lock: str) -> dict[str, str]:
    """The versions of a lock file that are for this Python and machine, by package."""
    lines = re.findall(r"^([a-z0-9._-]+==.*?) \\$", (ROOT / "requirements" / lock).read_text(), re.MULTILINE)
    pins = [Requirement(line) for line in lines]
    return {pin.name: str(pin.specifier).removeprefix("==") for pin in pins if not pin.marker or pin.marker.evaluate()}


@pytest.mark.parametrize(
    ("lock", "extras", "groups"),
    [
        ("run.txt", ["live"], ["build"]),
        ("test.txt", ["dev"], ["build"]),
        ("docs.txt", ["docs"], ["build"]),
        ("peers.txt", [], ["peers"]),
        ("lock.txt", [], ["lock"]),
    ],
)
def test_what_the_commands_install_is_locked(lock: str, extras: list[str], groups: list[str]) -> None:
    """Run `make lock` after a change of the dependencies in pyproject.toml."""
    versions = locked_versions(lock)
    for requirement in direct_requirements(*extras, groups=groups):
        assert requirement.specifier.contains(versions.get(requirement.name, "0")), f"{lock}: {requirement}"


def test_locks_agree_on_the_version_of_a_package_and_have_hashes_of_it() -> None:
    tested = locked_versions("test.txt")
    for lock in ("run.txt", "docs.txt"):
        others = locked_versions(lock)
        assert {name: others[name] for name in tested.keys() & others.keys()} == {
            name: tested[name] for name in tested.keys() & others.keys()
        }
    for path in (ROOT / "requirements").iterdir():
        text = path.read_text()
        assert len(re.findall(r"^[a-z0-9._-]+==", text, re.MULTILINE)) == len(re.findall(r"==.* \\\n +--hash", text))
