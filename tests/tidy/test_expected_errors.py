"""A test that expects an error says which: any other one would pass too."""

import ast
from collections.abc import Iterator

from deltaworks import errors
from tests.tidy.repository import parsed, python_files

_BROAD = {"Exception", "BaseException"}
_OURS = {name for name, kind in vars(errors).items() if isinstance(kind, type) and kind.__subclasses__()} | {
    "BadRowsError", "CommandError", "DeclarationError", "QueryError", "SettingsError", "StackError",
}  # fmt: skip
"""Raised for more than one reason, or in more than one place."""


def test_expected_errors_are_told_apart() -> None:
    """No test takes whatever is raised; of a class that tells many things the text is looked at."""
    expected = [
        (path, call, named)
        for path in python_files()
        if path.name.startswith("test_")
        for call, named in _expected(parsed(path))
    ]
    whatever = [f"{path}:{call.lineno}" for path, call, _ in expected if _names(call) & _BROAD]
    silent = [f"{path}:{call.lineno}" for path, call, named in expected if _names(call) & _OURS and not named]

    assert len(expected) > 300
    assert whatever == []
    assert silent == []


def test_what_is_not_told_apart_is_found() -> None:
    """The search itself."""
    text = """
with pytest.raises(Exception, match="no"):
    act()
with pytest.raises(QueryError), other():
    act()
with pytest.raises((ValueError, QueryError)) as caught:
    act()
"""

    found = list(_expected(ast.parse(text)))

    assert [(sorted(_names(call)), named) for call, named in found] == [
        (["Exception"], True), (["QueryError"], False), (["QueryError", "ValueError"], True),
    ]  # fmt: skip


def _expected(tree: ast.AST) -> Iterator[tuple[ast.Call, bool]]:
    """Each `with pytest.raises(...)`, and whether its text is matched, or the error kept to be looked at."""
    for one in ast.walk(tree):
        for item in one.items if isinstance(one, ast.With) else ():
            call = item.context_expr
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.raises":
                matched = any(keyword.arg == "match" for keyword in call.keywords)
                yield call, matched or item.optional_vars is not None


def _names(call: ast.Call) -> set[str]:
    """The classes that it takes."""
    return {node.id for node in ast.walk(call.args[0]) if isinstance(node, ast.Name)}
