"""The shape of the house: one home for a rule, one class for a name."""

from __future__ import annotations

import ast
import functools
import itertools
import pkgutil
import re
from collections.abc import Iterator

from syntax import SOURCE, parsed, sources, tree_of, walk


def names_in(tree: ast.AST) -> set[str]:
    return {each.id for each in walk(tree) if isinstance(each, ast.Name)}


def test_one_module_says_where_an_entry_of_each_magic_ends() -> None:
    least = {"RECORD_BATCH_MINIMUM", "V1_MINIMUM"}
    homes = {name for name, tree in sources().items() if least <= names_in(tree)}
    assert homes == {"records/layout.py", "records/kernels/framing.py"}


def test_files_are_walked_over_by_one_generator_and_behind_damage_by_one_loop() -> None:
    """What else takes size fields in a loop does so in memory, by the rule of `framing`, or after a walk by it."""
    homes = {
        name
        for name, tree in sources().items()
        if not name.startswith("records/") and {"SIZE", "SIZE_AT", "_SIZE_AND_MAGIC"} & names_in(tree)
        for each in walk(tree)
        if isinstance(each, ast.While) and {"SIZE", "SIZE_AT", "unpack"} & names_in(each)
    }
    assert homes == {"log/files/heads.py", "log/files/resync.py", "log/append/index_kernels.py"}


def test_reports_are_made_json_by_the_room_that_makes_them() -> None:
    """Commands print what `to_json()` of a report returns, as pipelines and the console keep and show it."""
    helpers = {
        f"{name} {each.name}"
        for name, tree in sources().items()
        if name.startswith("cli/")
        for each in walk(tree)
        if isinstance(each, ast.FunctionDef) and each.name.endswith("_json")
    }
    output = {
        "cli/output.py say_json",
        "cli/render.py _json",
        "cli/render.py _as_json",
    }  # a value as JSON, any value
    assert helpers == output | {"cli/migrate.py to_json"}


TWINS = "of `groups/` and of `transactions/`, two coordinators of one make, each imported by its room"
IN_TWO_FILES = {
    **dict.fromkeys(("Coordinator", "Loading"), TWINS),
    "Answer": "of a page of HTTP, and of a coordinator's request",
    "Store": "of keys and certificates, and an effect of transactions",
    "Client": "the public name of the client, and the one that it adds to",
    "Broker": "the public name of a broker in tests, and the broker itself",
    "Route": "of an API in a server, and of a partition in a mirror",
    "Request": "of the broker, and of the rules of one version of Produce in `log/append`",
}
"""Names of classes that stand in two files, with the reason. No other does, so that a name tells what it means."""


def test_no_class_name_stands_in_two_files() -> None:
    homes: dict[str, set[str]] = {}
    for name, tree in sources().items():
        for each in walk(tree):
            if isinstance(each, ast.ClassDef):
                homes.setdefault(each.name, set()).add(name)
    assert {name: files for name, files in homes.items() if len(files) > 1 and name not in IN_TWO_FILES} == {}
    assert {name for name in IN_TWO_FILES if len(homes.get(name, ())) < 2} == set()


@functools.cache
def imports() -> dict[str, set[str]]:
    """Return what each module of `src/` imports of it, anywhere in it: for types, or in a function, too."""
    paths = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    found: dict[str, set[str]] = {}
    for module, path in paths.items():
        names = found[module] = set()
        for each in walk(tree_of(path)):
            if isinstance(each, ast.Import):
                names |= {alias.name for alias in each.names if alias.name in paths}
            elif isinstance(each, ast.ImportFrom) and each.module in paths:
                inner = {f"{each.module}.{alias.name}" for alias in each.names}
                names |= (inner & paths.keys()) | ({each.module} if inner - paths.keys() else set())
        names.discard(module)
    return found


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of nodes that lead to each other."""
    reached = {}
    for start in graph:
        seen, waiting = set[str](), [*graph[start]]
        while waiting:
            if (node := waiting.pop()) not in seen:
                seen.add(node)
                waiting += graph[node]
        reached[start] = seen
    groups = {frozenset(b for b in reached[a] if a in reached[b]) for a in graph if a in reached[a]}
    return sorted(sorted(each) for each in groups)


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]


def test_no_modules_import_each_other_not_even_for_types() -> None:
    assert circles(imports()) == []


def test_one_module_of_the_broker_knows_the_whole_of_it() -> None:
    """Handlers are given its parts (docs/decisions/0021-routes.md)."""
    house, room = "magicbyte.server.", "magicbyte.server.broker."
    users = {each for each, used in imports().items() if each.startswith(house) and f"{room}broker" in used}
    assert users == set()


def bound(body: list[ast.stmt]) -> set[str]:
    """Return the names that statements of a module bind."""
    found = set[str]()
    for each in body:
        match each:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found |= {name.asname or name.name.partition(".")[0] for name in names}
            case ast.If() | ast.Try() | ast.With() | ast.For():
                parts = [each.body, getattr(each, "orelse", []), *(one.body for one in getattr(each, "handlers", []))]
                found |= {name for part in parts for name in bound(part)}
            case _:
                names = {part.id for part in walk(each) if isinstance(part, ast.Name)}
                found |= names if isinstance(each, ast.Assign | ast.AnnAssign) else set()
    return found


def is_fixture(each: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("fixture" in ast.unparse(decorator) for decorator in each.decorator_list)


def test_what_several_test_files_do_stands_once() -> None:
    """What files of a room share is in its `builders.py`, what rooms share in `tests/builders.py`."""
    tests, homes = SOURCE.parents[1] / "tests", dict[str, set[str]]()
    for path in sorted(tests.rglob("*.py")):
        if "clients" in path.parts:  # programs of other environments
            continue
        for each in tree_of(path).body:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and not is_fixture(each):
                code = [
                    part for part in each.body if not isinstance(part, ast.Expr) or part.lineno != each.body[0].lineno
                ]
                if code:
                    what = ast.dump(each.args) + "".join(map(ast.dump, code))
                    homes.setdefault(what, set()).add(f"{path.relative_to(tests)} {each.name}")
    assert [sorted(names) for names in homes.values() if len({name.split()[0] for name in names}) > 1] == []


def test_what_tests_and_benchmarks_import_exists() -> None:
    """Type checks do not read them, and those that need Java do not run each time."""
    root, homes = SOURCE.parents[1], dict[str, set[str]]()

    def names(module: str) -> set[str]:
        path = SOURCE.parent / module.replace(".", "/")
        if module not in homes:
            is_package = path.is_dir()
            homes[module] = bound(tree_of(path / "__init__.py" if is_package else path.with_suffix(".py")).body)
            homes[module] |= {each.stem for each in path.iterdir()} if is_package else set()
        return homes[module]

    missing = []
    for path in sorted((*(root / "tests").rglob("*.py"), *(root / "benchmarks").rglob("*.py"))):
        if "magicbyte" not in path.read_text():
            continue
        for each in walk(tree_of(path)):
            if isinstance(each, ast.ImportFrom) and each.module and each.module.split(".")[0] == "magicbyte":
                known = names(each.module)
                missing += [
                    f"{path.relative_to(root)}:{each.lineno} {each.module}.{name.name}"
                    for name in each.names
                    if name.name not in known and "__getattr__" not in known
                ]
    assert missing == []


def dotted_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of our names in strings: targets of `monkeypatch.setattr`, modules for `-m`."""
    for node in walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="setattr" | "delattr"), args=[ast.Constant(value=str(name)), *_]):
                candidates = [name]
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Call(args=items):
                texts = [item.value if isinstance(item, ast.Constant) else None for item in items]
                candidates = [name for flag, name in itertools.pairwise(texts) if flag == "-m"]
            case _:
                continue
        yield from ((node.lineno, name) for name in candidates if isinstance(name, str) and "magicbyte." in name)


def exists(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def test_a_dotted_name_that_does_not_exist_is_found() -> None:
    text = 'm.setattr("magicbyte.engine.records.scan.gone", 1); run([python, "-m", "magicbyte.engine.records.scan"])'
    assert [name for _, name in dotted_names(parsed(text))] == [
        "magicbyte.engine.records.scan.gone",
        "magicbyte.engine.records.scan",
    ]
    assert [name for _, name in dotted_names(parsed(text)) if not exists(name)] == [
        "magicbyte.engine.records.scan.gone"
    ]


def test_dotted_names_in_strings_of_tests_and_tools_exist() -> None:
    """A name that was moved or renamed is missed by type checks where a string has it."""
    root = SOURCE.parents[1]
    missing = [
        f"{path.relative_to(root)}:{line} {name}"
        for folder in ("tests", "benchmarks", "tools")
        for path in sorted((root / folder).rglob("*.py"))
        if '"magicbyte.' in (text := path.read_text())
        for line, name in dotted_names(parsed(text))
        if not exists(name)
    ]
    assert missing == []


def test_the_names_in_the_table_of_what_to_open_are_there() -> None:
    """ARCHITECTURE.md, *To change X, open Y*: each file binds the name beside it, in a class or at its top."""
    page = (SOURCE.parents[1] / "ARCHITECTURE.md").read_text()
    rows = re.findall(r"^\| .+? \| \[`.+?`\]\((src/.+?)\) \| `(\w+)` \|$", page, re.MULTILINE)
    assert len(rows) > 15
    for path, name in rows:
        tree = tree_of(SOURCE.parents[1] / path)
        inner = (each.body for each in ast.walk(tree) if isinstance(each, ast.ClassDef))
        assert name in bound(tree.body).union(*map(bound, inner)), f"{path} has no {name}"
