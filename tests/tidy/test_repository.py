"""What must not get into the repository, and what must be said in it."""

import ast
import functools
import re
import tomllib
from pathlib import Path

from tests.tidy.repository import ROOT, files, parsed, python_files

_BYTES_MAX = 500_000  # a source file is far smaller; pictures for the docs are kept below this too
# Written in pieces, so that this file does not name them either.
_REGISTRIES = re.compile(
    r"(pypi|pythonhosted|maven|npmjs|crates|debian|docker|conda|anaconda|sonatype|golang)\.(org|io|com|apache)|repo1\.|"
    r"/(simple|maven2)/",
    re.IGNORECASE,
)
_HOMES = re.compile(r"(?<![\w.}~)-])/(work|root|tmp/w|home/\w+|Users/\w+)/\w")
_STATE = re.compile("withWatermark|dropDuplicatesWithinWatermark|(flatM|m)apGroupsWithState|.*WithState(InPandas)?")
_CREDITS = ("LICENSE",)  # its own address is part of the text


def test_no_file_names_a_registry_or_its_address() -> None:
    """Where packages come from is the machine's business: index, mirror and cache are set outside the repository."""
    named = _lines_with(_REGISTRIES)

    assert len(files()) > 20
    assert not named


def test_no_file_names_a_folder_of_one_machine() -> None:
    """Absolute paths of somebody's home or work folder mean nothing elsewhere."""
    assert _lines_with(re.compile("bin/deltaworks"))
    assert not _lines_with(_HOMES)


def test_patterns_find_what_they_look_for() -> None:
    """The patterns above, tried on what they are to find and on what looks alike."""
    registry, home = "https://" + "py" + "pi.org/simple/x", "cd " + "/ho" + "me/ada/deltaworks"

    assert _REGISTRIES.search(registry)
    assert _HOMES.search(home)
    assert _STATE.fullmatch("applyInPandasWithState")
    assert not _HOMES.search("ROOT/work/x https://host/home/page {data}/root/x")
    assert not _REGISTRIES.search("127.0.0.1 apache-airflow maven-artifact-3.9.15.jar python.org")


def test_no_file_is_large() -> None:
    """Data, jars and builds do not belong here; the pins are the largest files."""
    sizes = {path: (ROOT / path).stat().st_size for path in files()}
    large = [f"{path}: {size:,} bytes" for path, size in sizes.items() if size > _BYTES_MAX]

    assert max(sizes.values()) > 0
    assert not large


def test_no_program_of_the_bench_hides_a_package() -> None:
    """What is run as bench/whole.py finds the modules beside it before all others."""
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} | {"shop", "spark_apps", "tables", "dags"}

    assert sorted(packages & {path.stem for path in (ROOT / "bench").glob("*.py")}) == []


def test_only_settings_and_programs_read_the_environment() -> None:
    """os.environ is named in settings.py and in bin/, where the mapping is handed in; tests may set it for a child."""
    readers = {path for path in python_files() if "os.environ" in _attributes(path) or "os.getenv" in _attributes(path)}

    others = {path for path in readers if path.parts[0] not in ("bin", "tests")}

    assert others == {Path("deltaworks/settings.py")}


def test_no_part_of_the_engine_keeps_state_in_spark() -> None:
    """Lateness is stored with the row: no watermark, no state beside a table, one stream that is read and written."""
    code = [path for path in files("deltaworks/**", "spark_apps/**", "tables/**") if path.suffix == ".py"]
    named = {path: {name.rpartition(".")[2] for name in _attributes(path)} for path in code}

    keepers = [f"{path} {name}" for path, names in named.items() for name in sorted(names) if _STATE.fullmatch(name)]

    assert not keepers
    assert {path for path, names in named.items() if "readStream" in names} == {Path("deltaworks/engine/source.py")}
    assert {path for path, names in named.items() if "writeStream" in names} == {Path("deltaworks/engine/driver.py")}


def test_files_of_a_table_are_opened_without_python() -> None:
    """delta-rs's own way to a dataset, which others of its calls take too, can wait for ever: `dataset_of` does not."""
    ways = {"to_pyarrow_dataset", "to_pyarrow_table", "to_pandas"}
    code = [path for path in files("deltaworks/**", "spark_apps/**", "shop/**") if path.suffix == ".py"]

    takers = {path for path in code if ways & {name.rpartition(".")[2] for name in _attributes(path)}}

    assert takers == {Path("deltaworks/engine/datasets.py")}


def test_every_lint_rule_that_is_off_has_its_reason() -> None:
    """Each line in Ruff's lists of ignored rules ends in a comment."""
    text = (ROOT / "pyproject.toml").read_text()
    off = tomllib.loads(text)["tool"]["ruff"]["lint"]
    section = text[text.index("[tool.ruff.lint]") : text.index("[tool.ruff.lint.pydocstyle]")]
    rules = [line for line in section.splitlines() if re.match(r'^\s*"(?!ALL)[A-Z]+\d*"', line)]

    silent = [line for line in rules if not re.search(r"# \w", line)]

    assert off["select"] == ["ALL"]
    assert len(rules) > 10
    assert not silent


def test_pins_are_hashed_and_of_one_version_each() -> None:
    """Every line of a pinned file is a version with hashes, and says which requirement asked for it."""
    pinned = files("requirements/*.txt")
    for path in pinned:
        blocks = re.split(r"\n(?=\S)", (ROOT / path).read_text().strip())
        loose = [block.splitlines()[0] for block in blocks if "==" not in block or "--hash=sha256:" not in block]

        assert blocks, path
        assert not loose, path

    assert {path.stem for path in pinned} == {path.stem for path in files("requirements/*.in")}


def _lines_with(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in files():
        if path.name in _CREDITS or path == Path("tests/tidy/test_repository.py"):
            continue
        try:
            lines = (ROOT / path).read_text().splitlines()
        except UnicodeDecodeError:
            continue  # a picture
        found += [
            f"{path}:{number} {line.strip()[:80]}" for number, line in enumerate(lines, 1) if pattern.search(line)
        ]
    return found


@functools.cache
def _attributes(path: Path) -> frozenset[str]:
    """`name.attribute` where it is one of a name, else the attribute alone."""
    found = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.Attribute)]
    return frozenset(f"{one.value.id}.{one.attr}" if isinstance(one.value, ast.Name) else one.attr for one in found)
