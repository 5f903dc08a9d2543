"""Tests do not replace private names of the code: they use its ports, faults, settings and arguments."""

import ast
from collections.abc import Iterator

from syntax import SOURCE, parsed, tree_of, walk

TESTS = SOURCE.parents[1] / "tests"
PLANTED = "a planted bug: the test shows that the histories find it"
RACE = "another thread comes between two steps here; no port is called between them"
LOADED = "whether this process has loaded kernels, which no call takes back"
STEP = "a bug inside a piece of work; no public name is called where it would be"
STATE = "read, not replaced: two states are the same only if nothing that decides differs"
KEPT: dict[str, dict[str, str]] = {
    "engine/log/test_blocks.py": {"_known": RACE},
    "engine/replication/planted.py": dict.fromkeys(
        ("_advance", "_change", "_current", "_fault", "_is_late", "_lead", "_led_by", "_written"), PLANTED
    ),
    "engine/wire/test_shipped.py": {"_loaded": LOADED},
    "server/broker/test_transaction_stores.py": {"_known_leader": STEP, "_marked": STEP},
    "simulation/replication_model.py": {"_is_unsettled": STATE, "_refused": STATE},
    "simulation/test_cluster_bugs.py": {"_advance": PLANTED, "_diverging": PLANTED},
    "simulation/test_group_histories.py": {"_fetched_partition": PLANTED, "_transactional_refusal": PLANTED},
    "simulation/test_migration_histories.py": {"_newest": PLANTED},
    "simulation/test_planted_bugs.py": {"_end_of": PLANTED, "_head_size": PLANTED, "_lower": PLANTED},
    "simulation/test_power_bugs.py": {"_end_before": PLANTED, "_is_durable": PLANTED},
    "simulation/test_share_histories.py": dict.fromkeys(
        ("_KINDS", "_advance", "_change", "_fenced", "_is_held", "_put_one", "_released"), PLANTED
    ),
    "simulation/test_transaction_bugs.py": {"_fence": PLANTED, "_load": PLANTED, "_of": PLANTED, "_outcomes": PLANTED},
    "test_extras.py": {"_loaded": LOADED},
}
"""The private names that tests replace or set, by file, each with its reason. There are no others."""


def is_private(name: object) -> bool:
    return (
        isinstance(name, str)
        and name.isidentifier()
        and len(name.strip("_")) > 0
        and name[0] == "_"
        and not name.startswith("__")
    )


def texts(nodes: tuple[ast.AST, ...]) -> Iterator[str]:
    return (each.value for each in nodes if isinstance(each, ast.Constant) and isinstance(each.value, str))


def targets(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.Assign(targets=found) | ast.Delete(targets=found):
            pending = [*found]
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            pending = [target]
        case _:
            return
    while pending:
        match pending.pop():
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                pending += parts
            case ast.Subscript(value=of):
                pending.append(of)
            case target:
                yield target


def patched(tree: ast.AST) -> set[str]:
    """Return the private names that a module replaces in others or sets in objects: by `setattr` and its like, also
    if a table has the name; or by an assignment to an attribute of anything but `self`.
    """
    names, has_table = set[str](), False
    for node in walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=call) | ast.Attribute(attr=call), args=[first, *others]) if call in {
                "setattr", "delattr", "__setattr__",
            }:  # fmt: skip
                name = first if isinstance(first, ast.Constant) else next(iter(others), None)
                if isinstance(name, ast.Constant):
                    names.update(filter(is_private, str(name.value).split(".")))
                else:
                    has_table = True
            case ast.Assign() | ast.Delete() | ast.AugAssign() | ast.AnnAssign():
                names |= {
                    each.attr
                    for each in targets(node)
                    if isinstance(each, ast.Attribute)
                    and is_private(each.attr)
                    and not (isinstance(each.value, ast.Name) and each.value.id in ("self", "cls"))
                }
    return names | set(filter(is_private, texts(walk(tree)))) if has_table else names


def test_private_names_are_found_in_every_way_of_setting_them() -> None:
    found = patched(
        parsed(
            "patch.setattr(module, '_A', 1); patch.setattr('room.module._B.c', 1); object.__setattr__(x, '_c', 1)\n"
            "x._d = y._e, z.f = 1, 2; x._g[0] += 1; del x._h; self._i = x._j; x.k = 1; x.__doc__ = ''\n"
        )
    )
    assert found == {"_A", "_B", "_c", "_d", "_e", "_g", "_h"}
    assert patched(parsed("for name in ('_A', 'B'): patch.setattr(module, name, 1)")) == {"_A"}
    assert patched(parsed("patch.setattr(module, 'A', 1); x = '_B'")) == set()


def test_tests_replace_no_private_names_but_those_with_a_reason() -> None:
    """A private name is shown by an argument, by time that passes (`builders.pass_time`), or by a fault of a port."""
    found = {
        str(path.relative_to(TESTS)): names
        for path in sorted(TESTS.rglob("*.py"))
        if not path.is_relative_to(TESTS / "form") and (names := patched(tree_of(path)))
    }
    assert found == {path: names.keys() for path, names in KEPT.items()}
