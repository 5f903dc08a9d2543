"""Kafka logs as Spark DataFrames: `register(spark)`, then `spark.read.format("magicbyte").load(path)`.

Needs `pip install magicbyte[spark]` and a Java runtime.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from magicbyte.engine.errors import MagicbyteError
from magicbyte.engine.extras import require
from magicbyte.spark.workers import settle as settle

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


_TRACE = "Traceback (most recent call last):"


class SparkUnavailableError(MagicbyteError):
    """Raised if Spark cannot run here. The message names the missing part and how to install it."""


def register(spark: SparkSession) -> None:
    """Register `spark.read.format("magicbyte")` with a session, and configure the session for it.

    Enables filter push-down to sources written in Python. On a local master, workers run in this interpreter, unless
    PYSPARK_PYTHON names another, so they can import magicbyte. On a cluster, install magicbyte on the workers.
    """
    from magicbyte.spark.source import MagicbyteSource

    use_this_python(spark.sparkContext)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(MagicbyteSource)


def local_session(
    master: str = "local[*]", *, name: str = "magicbyte", conf: dict[str, str] | None = None
) -> SparkSession:
    """Start a Spark session on this machine, loopback only, with the source registered.

    `conf` overrides any setting. Raises SparkUnavailableError, in one line, if Java or PySpark is missing or Spark does
    not start.
    """
    check_installed()
    from py4j.protocol import Py4JError
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName(name)
    for key, value in (local_settings() | (conf or {})).items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except (Py4JError, RuntimeError) as error:
        raise not_started(error, master) from error
    register(spark)
    return spark


def use_this_python(context: SparkContext) -> None:
    """Run workers on this machine with this interpreter, unless PYSPARK_PYTHON names another.

    Raises SparkUnavailableError if PYSPARK_PYTHON is not an executable.
    """
    master = context.master or ""
    chosen = os.environ.get("PYSPARK_PYTHON")
    if chosen and master.startswith("local") and not shutil.which(chosen):
        raise SparkUnavailableError(f"PYSPARK_PYTHON names {chosen}, expected a Python that workers can run")
    if master.startswith(("local", "spark://127.")) and not chosen:
        context.pythonExec = sys.executable  # the default is python3 of PATH, where magicbyte may not be installed
        above = str(Path(__file__).parents[2])
        known = context.environment.get("PYTHONPATH", "")
        context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, [above, known]))


def check_installed() -> None:
    """Raise SparkUnavailableError, in one line, if Java or PySpark is missing."""
    home = os.environ.get("JAVA_HOME")
    if home and not shutil.which("java", path=f"{home}/bin"):
        raise SparkUnavailableError(f"Spark needs Java 17 or later, but JAVA_HOME, {home}, contains no bin/java")
    if not home and not shutil.which("java"):
        raise SparkUnavailableError(
            "Spark needs Java 17 or later, but there is no `java` in PATH: install it (Debian: apt-get install "
            "default-jre-headless) or set JAVA_HOME"
        )
    require("spark", "Spark")


def not_started(error: Exception, master: str) -> SparkUnavailableError:
    """Return the error for a failed start of Spark."""
    why = first_line(error)
    if "JAVA_GATEWAY_EXITED" in why:
        why = "Java ended at its start; its output above has the reason. Java 17 or later is needed"
    return SparkUnavailableError(f"Spark did not start at {master}: {why}")


def first_line(error: Exception) -> str:
    """Return the message of a Spark error in one line, without the Java or Python stack trace."""
    java = getattr(error, "java_exception", None)
    text = str(error) if java is None else str(java.getMessage())
    raised = text.partition(_TRACE)[2].splitlines()[1:]
    if found := next((line for line in raised if line and not line.startswith(" ")), None):
        return f"in a worker's Python, {found}"
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)


def local_settings() -> dict[str, str]:
    """Return the settings of a local session with errors-only logging that listens on the loopback interface alone."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    quiet = Path(__file__).resolve().with_name("log4j2.properties")  # errors only, from start-up on
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -Dlog4j2.configurationFile={quiet.as_uri()}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
    }
