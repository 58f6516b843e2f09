"""The first session of a JVM, without what Spark ML does at the start of each.

ML adds two functions, for which Scala's reflection starts and Spark reads its catalogue of errors: nearly a second in
which nothing else can be done, of a start that takes some ten. They are added when a name of ML is first looked up
(`engine/jvm_names.py`).
"""

import logging

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j has no types
from pyspark import SparkContext

from deltaworks.engine.spark.internals import scala_object

log = logging.getLogger("deltaworks.session")
_SESSION = "org.apache.spark.sql.classic.SparkSession"
_APPLY_EXTENSIONS = "org$apache$spark$sql$classic$SparkSession$$applyExtensions"


def open_first_session(context: SparkContext) -> None:
    """Make the session that PySpark's builder then takes, if there is none; where that fails, the builder makes one."""
    try:
        _open(context)
    except (AttributeError, TypeError, Py4JError) as error:  # what a name that Spark lacks is met by
        log.warning("the first session is opened with all that Spark starts by itself: %s", error)


def _open(context: SparkContext) -> None:
    jvm = context._jvm  # noqa: SLF001  # there is no public name for it
    assert jvm is not None
    sessions = scala_object(jvm, _SESSION)
    known = sessions.getDefaultSession()
    if known.isDefined() and not known.get().sparkContext().isStopped():
        return
    scala, extensions = context._jsc.sc(), jvm.org.apache.spark.sql.SparkSessionExtensions()  # noqa: SLF001  # the same
    getattr(sessions, _APPLY_EXTENSIONS)(scala, extensions)
    none, no_options = scala_object(jvm, "scala.None"), scala_object(jvm, "scala.collection.immutable.Map").empty()
    session = jvm.org.apache.spark.sql.classic.SparkSession(scala, none, none, extensions, no_options, no_options)
    sessions.setDefaultSession(session)
