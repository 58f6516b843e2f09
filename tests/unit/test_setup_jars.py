"""The jars: where each one goes, and that a wrong one never goes unnoticed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from deltaworks.errors import StackError
from deltaworks.local import jars
from deltaworks.settings import ROOT

_LISTED = jars.read_list(ROOT / "requirements/jars.sha256")


def test_jars_of_this_checkout_are_the_listed_ones() -> None:
    """What set-up put into .jars is what the list names, byte for byte."""
    assert len(_LISTED) > 100
    assert list(jars.findings(ROOT / ".jars", _LISTED)) == []


def test_list_has_what_each_part_needs() -> None:
    """The connector is apart from Connect, both Kafkas keep their own client, and nobody logs into the void."""
    by_folder: dict[str, set[str]] = {}
    for name in _LISTED:
        folder, _, file = name.rpartition("/")
        by_folder.setdefault(folder, set()).add(file)

    assert set(by_folder) == {"spark", "broker", "connect/lib", "connect/plugins/debezium-postgres"}
    assert "kafka-clients-3.9.2.jar" in by_folder["spark"]
    assert "kafka-clients-4.3.1.jar" in by_folder["broker"] & by_folder["connect/lib"]
    assert {name.split("-")[0] for name in by_folder["connect/plugins/debezium-postgres"]} == {
        "debezium",
        "postgresql",
        "protobuf",
    }
    for folder in ("broker", "connect/lib"):
        assert len([name for name in by_folder[folder] if name.startswith("slf4j-api-2.")]) == 1
        assert len([name for name in by_folder[folder] if name.startswith("log4j-slf4j2-impl-")]) == 1


def test_resolved_jars_are_laid_out_per_part(tmp_path: Path) -> None:
    """Second copies of what Spark has are left out, old loggers are replaced by Spark's, the connector stands apart."""
    resolved, spark_jars, to = tmp_path / "resolved", tmp_path / "pyspark", tmp_path / "made"
    _files(resolved, "spark/delta-storage-4.4.0.jar", "spark/scala-library-2.13.18.jar")
    _files(resolved, "broker/kafka_2.13-4.3.1.jar", "broker/slf4j-api-1.7.36.jar", "broker/log4j-core-2.1.0.jar")
    _files(
        resolved,
        "connect/connect-api-4.3.1.jar",
        "connect/debezium-api-3.6.3.Final.jar",
        "connect/slf4j-api-1.7.36.jar",
    )
    _files(spark_jars, "slf4j-api-2.0.17.jar", "log4j-core-2.25.4.jar", "janino-3.1.9.jar")

    jars.lay_out(resolved=resolved, spark_jars=spark_jars, to=to)

    assert sorted(str(file.relative_to(to)) for file in to.rglob("*.jar")) == [
        "broker/kafka_2.13-4.3.1.jar",
        "broker/log4j-core-2.25.4.jar",
        "broker/slf4j-api-2.0.17.jar",
        "connect/lib/connect-api-4.3.1.jar",
        "connect/lib/log4j-core-2.25.4.jar",
        "connect/lib/slf4j-api-2.0.17.jar",
        "connect/plugins/debezium-postgres/debezium-api-3.6.3.Final.jar",
        "spark/delta-storage-4.4.0.jar",
    ]


def _flip(folder: Path) -> None:
    file = folder / "spark/a-1.jar"
    file.write_bytes(file.read_bytes()[:-1] + b"?")


def _lose(folder: Path) -> None:
    (folder / "broker/b-1.jar").unlink()


def _add(folder: Path) -> None:
    _files(folder, "connect/lib/evil-1.jar")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_flip, "spark/a-1.jar: is not the file that requirements/jars.sha256 names. Do this."),
        (_lose, "broker/b-1.jar: is missing. Do this."),
        (_add, "connect/lib/evil-1.jar: does not belong here. Do this."),
    ],
    ids=["one wrong byte", "a missing jar", "an extra jar"],
)
def test_damage_is_found_and_named(tmp_path: Path, damage: Callable[[Path], None], said: str) -> None:
    """The error names the jar, what is wrong with it, and the next step."""
    _files(tmp_path, "spark/a-1.jar", "broker/b-1.jar", "connect/lib/c-1.jar")
    jars.write_list(tmp_path / "list", tmp_path)
    listed = jars.read_list(tmp_path / "list")
    jars.verify(tmp_path, listed, next_step="Not needed")

    damage(tmp_path)

    with pytest.raises(StackError) as caught:
        jars.verify(tmp_path, listed, next_step="Do this")
    assert str(caught.value) == f"{tmp_path}/{said}"


def test_removing_a_link_leaves_what_it_leads_to(tmp_path: Path) -> None:
    """Somebody's own folder, linked into .jars, is not emptied."""
    _files(tmp_path, "mine/a-1.jar")
    (tmp_path / "spark").symlink_to(tmp_path / "mine")

    jars.remove(tmp_path / "spark")

    assert not (tmp_path / "spark").exists()
    assert (tmp_path / "mine/a-1.jar").is_file()


def test_failed_download_says_what_ivy_said(tmp_path: Path) -> None:
    """The reason stands in the error, the whole log in a file that the error names."""
    ivy = tmp_path / "ivy"
    ivy.write_text("#!/bin/sh\necho 'Server access error at url: no route'\nexit 1\n")
    ivy.chmod(0o755)

    with (
        (tmp_path / "lock").open("w") as lock,
        pytest.raises(StackError, match=r"jars of \w+: Ivy could not fetch them: Server access error.*Read .*ivy\.log"),
    ):
        jars.resolve(
            command=[str(ivy)],
            ivy_file=tmp_path / "ivy.xml",
            cache=tmp_path / "cache",
            to=tmp_path / "to",
            environment={"PATH": "/usr/bin:/bin"},
            lock=lock.fileno(),
        )

    assert "no route" in (tmp_path / "cache/spark/ivy.log").read_text()


def _files(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"contents of {name}")
