"""The Spark session of an app: every option that the engine relies on, each with its reason."""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from deltaworks.engine.jvm_log import no_query_log
from deltaworks.engine.jvm_names import remember_names
from deltaworks.errors import SettingsError
from deltaworks.java import CLASS_ARCHIVE, java_home
from deltaworks.settings import AppSettings, Settings

_CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_FEW_ROWS = {
    # Code that is made and compiled for each plan pays from some hundred thousand rows on.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Each shuffle is a job of its own and is followed by another round of planning.
    "spark.sql.adaptive.enabled": "false",
}
_MANY_ROWS = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.adaptive.enabled": "true",
}
_IS_BRIEF = "spark.deltaworks.brief"
_BRIEF = {"spark.buffer.pageSize": "1m", _IS_BRIEF: "true"}
_LOGGING = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"


def open_session(
    *, name: str, settings: Settings, app: AppSettings, brief: bool = False, few_rows: bool = False,
    archive_to: Path | None = None,
) -> SparkSession:  # fmt: skip
    """Start Spark in this process; raises SettingsError when the jars are missing.

    `few_rows`: it is asked for few rows at a time, so that code had better be ready soon than be fast. `brief`: that,
    and it lives for minutes. `archive_to`: at its end the JVM writes the classes that it has loaded there.
    """
    jars = sorted((settings.jars / "spark").glob("*.jar"))
    if not jars:
        raise SettingsError(str(settings.jars / "spark"), "no jars", 'Run "make setup"')
    settings.use_utc()
    settings.use_java(java_home(environment=settings.inherited(), spark_python=settings.spark_python))
    builder = SparkSession.builder.appName(name).master(f"local[{app.cores}]")
    options = _options(settings, app, jars, brief=brief, few_rows=few_rows)
    options["spark.driver.extraJavaOptions"] += f" {_archive(settings.jars / CLASS_ARCHIVE, archive_to)}"
    for option, value in options.items():
        builder = builder.config(option, value)
    spark = builder.getOrCreate()
    no_query_log()
    remember_names(spark.sparkContext._jvm)  # noqa: SLF001  # there is no public name for it
    spark.sparkContext.pythonExec = sys.executable  # workers: the default is whatever python3 is first on PATH
    return spark


def suit(spark: SparkSession | None, *, many_rows: bool) -> None:
    """Plan what this session is asked for from now on for many rows, or for few; a brief session is for few.

    An owner without Spark has none.
    """
    wanted = _MANY_ROWS if many_rows else _FEW_ROWS
    adaptive = "spark.sql.adaptive.enabled"
    if spark is None or spark.conf.get(adaptive) == wanted[adaptive] or spark.conf.get(_IS_BRIEF, "false") == "true":
        return
    for name, value in wanted.items():
        spark.conf.set(name, value)


def _archive(made: Path, to: Path | None) -> str:
    """What tells Java where its classes are, or are to be put; it says nothing where an archive does not fit."""
    if to is None and not made.is_file():
        return ""
    file = f"-XX:SharedArchiveFile={made}" if to is None else f"-XX:ArchiveClassesAtExit={to}"
    return f"{file} -Xlog:cds=off -Xlog:cds+dynamic=off"


def _options(settings: Settings, app: AppSettings, jars: list[Path], *, brief: bool, few_rows: bool) -> dict[str, str]:
    scratch = settings.data / "spark"
    # The second compiler takes a third of a driver's start and saves no CPU later (decision 43). With one compiler Java
    # reserves 48 MiB for its code, and compiles nothing any more once plans have filled those.
    compiling = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m " if brief or few_rows else ""
    # A collector that works in the background costs more than it saves where little lives long.
    compiling += "-XX:+UseSerialGC " if brief else ""
    return {
        # On the class path from the start: spark.jars would come too late for the file system below, and slower.
        "spark.driver.extraClassPath": ":".join(str(jar) for jar in jars),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        # What jars add to sessions by themselves: only ML's does, and takes a twentieth of a start (see jvm_names.py).
        "spark.sql.extensions.test.loadFromCp": "false",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # Loopback only, no web pages: several apps share a machine, Airflow shows their state.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.driver.memory": app.memory,
        # A JVM that ran out of memory must die: half of it goes on otherwise, and calls hang for ever.
        "spark.driver.extraJavaOptions": f"{compiling}-XX:+ExitOnOutOfMemoryError -Duser.timezone=UTC {_LOGGING}",
        # What the pages would show is kept without them too.
        "spark.ui.retainedJobs": "10",
        "spark.ui.retainedStages": "10",
        "spark.ui.retainedTasks": "100",
        "spark.ui.dagGraph.retainedRootRDDs": "10",
        "spark.sql.ui.retainedExecutions": "10",
        "spark.ui.showConsoleProgress": "false",
        # Each operator of a column would ask the JVM eight times more, to name its line of Python in errors.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # Bound of what is collected as Arrow: above it the batch takes the Spark path.
        "spark.driver.maxResultSize": str(settings.arrow_bytes_max),
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        # Default is INT96 in nanoseconds: Arrow cannot read what lies before 1677 or after 2262 back.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Change feeds go through Java's types, of which the old ones have no 10 October 1582.
        "spark.sql.datetime.java8API.enabled": "true",
        "spark.sql.ansi.enabled": "true",
        # This rule computes columns of rows in memory (where they are more than one task's) before it is seen that no
        # result has them: a row is refused for such a column then, and not where the same rows are few, or read from
        # files.
        "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation",
        # Read when the first class is made, and then for good. A turn of the shop makes more than the default of 100:
        # the compilers of Scala and Java would never come to rest.
        "spark.sql.codegen.cache.maxEntries": "10000",
        **_FEW_ROWS,
        "spark.sql.shuffle.partitions": str(app.cores),  # default 200 costs seconds in each small batch
        "spark.sql.adaptive.coalescePartitions.initialPartitionNum": str(app.cores),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Hadoop's own local file system forks a process per permission and link question.
        "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
        # Not atomic, and need not be: Spark commits to stages only (decision 18).
        "spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore",
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_FILES,
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.databricks.delta.delta.log.cacheSize": "50",
        # Spark skips a write whose txn it has seen: after a merge the setting must not linger.
        "spark.databricks.delta.write.txnVersion.autoReset.enabled": "true",
        "spark.sql.streaming.minBatchesToRetain": "20",
        "spark.sql.streaming.numRecentProgressUpdates": "5",
        "spark.sql.streaming.stopTimeout": "30000",
        # By default a sixteenth of the heap, zeroed by each sort and each aggregate of a few rows.
        "spark.buffer.pageSize": "4m",
        "spark.shutdown.timeout": "10s",
        **(_BRIEF if brief else {}),
    }
