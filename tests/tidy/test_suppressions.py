"""What is switched off has its reason beside it."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.repository import ROOT, parsed, python_files

_SUPPRESSION = re.compile(r"#\s*(noqa|type:\s*ignore|pragma:\s*no cover|ruff:\s*noqa|mypy:)", re.IGNORECASE)
_REASONED = re.compile(r"#\s*(noqa: [A-Z]+\d+(, ?[A-Z]+\d+)*|type: ignore\[[\w, -]+\]|pragma: no cover)\s+# \w.*\w")
_SKIPS = ("skip", "skipif", "xfail", "importorskip")


def test_suppression_names_its_rule_and_its_reason() -> None:
    """`# noqa: S603  # a list of our own` is fine; a bare one, or one without the second comment, is not."""
    comments = [(path, line, text) for path in python_files() for line, text in _comments(path)]
    suppressions = [(path, line, text) for path, line, text in comments if _SUPPRESSION.search(text)]

    bare = [f"{path}:{line} {text}" for path, line, text in suppressions if not _REASONED.search(text)]

    assert suppressions
    assert not bare


def test_reasoned_tells_a_reason_from_none() -> None:
    """The pattern itself: what it takes and what it refuses."""
    fine = ["# noqa: S603  # our own list", "# type: ignore[arg-type]  # stubs are wrong", "# noqa: E501, S101  # why"]
    bare = ["# noqa", "# noqa: S603", "# type: ignore", "# type: ignore[arg-type]", "# type: ignore  # a reason"]

    assert [text for text in fine if not _REASONED.search(text)] == []
    assert [text for text in bare if _REASONED.search(text)] == []
    assert [text for text in [*fine, *bare] if not _SUPPRESSION.search(text)] == []


def test_skipped_test_says_why() -> None:
    """Skip and xfail carry a reason. That there are none at all is the best case, so nothing needs to be found."""
    tests = [path for path in python_files() if path.parts[0] == "tests"]

    silent = [f"{path}:{line}" for path in tests for line in _silent_skips(parsed(path))]

    assert len(tests) > 1
    assert not silent


def test_silent_skip_is_found() -> None:
    """The finder itself: a bare mark and an empty call are found, one with a reason is not."""
    code = (
        "@pytest.mark.skip\ndef a(): pytest.skip()\n@pytest.mark.xfail(reason='known')\ndef b(): pytest.skip('no disk')"
    )

    assert list(_silent_skips(ast.parse(code))) == [1, 2]


def _comments(path: Path) -> Iterator[tuple[int, str]]:
    tokens = tokenize.generate_tokens(io.StringIO((ROOT / path).read_text()).readline)
    yield from ((token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT)


def _silent_skips(tree: ast.Module) -> Iterator[int]:
    """Lines of pytest's skips that give no reason."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_skip(node.func):
            reasons = [given.value for given in node.keywords if given.arg == "reason"] + node.args
            if not any(isinstance(reason, ast.Constant | ast.JoinedStr | ast.Name) for reason in reasons):
                yield node.lineno
        elif _is_skip(node) and id(node) not in called:
            yield node.lineno  # type: ignore[attr-defined]  # _is_skip accepts attributes only, and those have a line


def _is_skip(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in _SKIPS and ast.unparse(node).startswith("pytest.")
