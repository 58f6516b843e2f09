"""The Java archives: fetched with the Ivy inside pyspark, laid out per part, checked against requirements/jars.sha256.

    spark/                              beside Spark's own jars
    broker/                             Kafka
    connect/lib/                        Kafka Connect
    connect/plugins/debezium-postgres/  the connector, loaded apart

Standard library only: set-up needs it before anything else is there.
"""

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from deltaworks.errors import StackError

PARTS = ("spark", "broker", "connect")
_PLUGIN = "connect/plugins/debezium-postgres"
# What Spark does not bring itself. Everything else that Ivy resolves for it would be a second copy on the class path.
_SPARK = frozenset({
    "commons-pool2",
    "delta-kernel-api",
    "delta-kernel-defaults",
    "delta-kernel-unitycatalog",
    "delta-spark_4.2_2.13",
    "delta-storage",
    "hadoop-bare-naked-local-fs",
    "kafka-clients",
    "spark-sql-kafka-0-10_2.13",
    "spark-token-provider-kafka-0-10_2.13",
    "unitycatalog-client",
    "unitycatalog-hadoop",
})  # fmt: skip
# Kafka's and Connect's slf4j 1.7 finds no logger, so they would write no logs: they get the ones that Spark has.
_LOGGING = frozenset({"slf4j-api", "log4j-slf4j2-impl", "log4j-api", "log4j-core"})
_NAME = re.compile(r"(?P<artifact>.+)-\d.*\.jar")
_TRIES = 3  # of a download: registries hiccup, and Ivy keeps what it already has
_CHUNK_BYTES = 2**20


def read_list(path: Path) -> dict[str, str]:
    """Read jars.sha256 (as sha256sum writes it): file below .jars -> hash."""
    rows = [line.split(maxsplit=1) for line in path.read_text().splitlines() if line.strip()]
    if not rows:
        raise StackError(str(path), "names no jar", "Take it from the repository again")
    return {name.strip(): digest for digest, name in rows}


def write_list(path: Path, jars: Path) -> None:
    """Write jars.sha256 from the jars that are there."""
    names = sorted(str(file.relative_to(jars)) for file in _files(jars))
    path.write_text("".join(f"{_digest(jars / name)}  {name}\n" for name in names))


def findings(jars: Path, listed: Mapping[str, str]) -> Iterator[str]:
    """Say what is wrong with the jars: every missing, changed and unlisted file, one line each."""
    there = {str(file.relative_to(jars)) for file in _files(jars)}
    for name in sorted(listed.keys() - there):
        yield f"{name}: is missing"
    for name in sorted(there - listed.keys()):
        yield f"{name}: does not belong here"
    for name in sorted(there & listed.keys()):
        if _digest(jars / name) != listed[name]:
            yield f"{name}: is not the file that requirements/jars.sha256 names"


def verify(jars: Path, listed: Mapping[str, str], *, next_step: str) -> None:
    """Raise StackError with the first finding, if there is one."""
    found = list(findings(jars, listed))
    if found:
        place, _, finding = found[0].partition(": ")
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise StackError(f"{jars / place}", finding + more, next_step)


def resolve(
    *, command: list[str], ivy_file: Path, cache: Path, to: Path, environment: Mapping[str, str], lock: int
) -> None:
    """Let Ivy download what ivy.xml names to `to`, one folder per part.

    `command` starts Ivy; it inherits `lock`. The parts are fetched at the same time, each with a cache of its own.
    Raises StackError with what Ivy could not get.
    """

    def fetch(part: str) -> None:
        own = cache / part
        own.mkdir(parents=True, exist_ok=True)
        pattern = f"{to}/[conf]/[artifact]-[revision](-[classifier]).[ext]"
        arguments = ["-ivy", str(ivy_file), "-confs", part, "-cache", str(own), "-retrieve", pattern]
        log = own / "ivy.log"
        said = ""
        for _ in range(_TRIES):
            ran = subprocess.run(
                [*command, *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                cwd=own,
                pass_fds=(lock,),
            )
            said = ran.stdout + ran.stderr
            log.write_text(said)
            if ran.returncode == 0:
                return
        raise StackError(
            f"jars of {part}",
            f"Ivy could not fetch them: {_complaint(said)}",
            f'Is the network there? Read {log}, then run "make setup" again',
        )

    with ThreadPoolExecutor(len(PARTS)) as threads:
        list(threads.map(fetch, PARTS))


def _complaint(said: str) -> str:
    """The line of Ivy's output that says why."""
    wanted = ("Server access error", "UNRESOLVED DEPENDENCY", "FAILED DOWNLOAD", "Exception")
    lines = [line.strip() for line in said.splitlines()]
    return next((line for sign in wanted for line in lines if sign in line), "no reason given")


def lay_out(*, resolved: Path, spark_jars: Path, to: Path) -> None:
    """Copy what Ivy resolved to the folder where each part looks for it, with the loggers mended."""
    for file in sorted(resolved.glob("*/*.jar")):
        folder = _folder(file.parent.name, file.name)
        if folder is not None:
            _copy(file, to / folder)
    for file in sorted(spark_jars.glob("*.jar")):
        if _artifact(file.name) in _LOGGING:
            _copy(file, to / "broker")
            _copy(file, to / "connect/lib")


def install(made: Path, jars: Path) -> None:
    """Put the finished folders in the place of the old ones."""
    for part in PARTS:
        remove(jars / part)
        (made / part).rename(jars / part)


def remove(path: Path) -> None:
    """Remove a folder, a file or a link (never what the link leads to); nothing there is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _folder(part: str, name: str) -> str | None:
    """Where a resolved jar goes; None if it is not used."""
    artifact = _artifact(name)
    if part == "spark":
        return "spark" if artifact in _SPARK else None
    if artifact in _LOGGING:
        return None
    if part == "connect":
        return _PLUGIN if artifact.startswith(("debezium-", "postgresql", "protobuf-java")) else "connect/lib"
    return part


def _artifact(name: str) -> str:
    """Maven's name of the archive: file name without version."""
    found = _NAME.fullmatch(name)
    return found["artifact"] if found else name


def _copy(file: Path, folder: Path) -> None:
    """Copy into a folder that may not be there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, folder / file.name)


def _files(jars: Path) -> Iterator[Path]:
    for part in PARTS:
        for folder, _, names in os.walk(jars / part):
            yield from (Path(folder, name) for name in names)


def _digest(file: Path) -> str:
    counted = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            counted.update(chunk)
    return counted.hexdigest()
