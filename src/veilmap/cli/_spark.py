"""Read inputs with Spark, from wherever Spark can read them."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from veilmap.errors import BadInput, UnreadableInput, need

TEXT_FILE_ENDINGS = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz")


class Engine(StrEnum):
    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


def goes_to_spark(engine: Engine, inputs: list[str], master: str | None) -> bool:
    """Return whether Spark reads the inputs. By default it reads addresses such as s3://bucket/file."""
    if engine is Engine.LOCAL and master is not None:
        raise BadInput("--master needs --engine spark, but --engine local was given. Leave one of them out.")
    has_address = any("://" in path for path in inputs)
    return engine is Engine.SPARK or (engine is Engine.AUTO and (master is not None or has_address))


@contextmanager
def spark_points(inputs: list[str], axes: tuple[str, ...], master: str | None) -> Iterator[Any]:
    """Yield a data frame of all inputs. The Spark session lives as long as the context."""
    need("pyspark", "spark", "The engine spark")
    from pyspark.sql import SparkSession

    warnings.filterwarnings("ignore", module="pyspark")  # about pandas, which is not used here
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # executors need a Python that has veilmap
    build = SparkSession.builder.appName("veilmap").config("spark.ui.showConsoleProgress", "false")
    # Without pruning, Spark drops a line with too few or too many fields whichever columns are read.
    build = build.config("spark.sql.csv.parser.columnPruning.enabled", "false")
    session = _start(build if master is None else build.master(master), master)
    session.sparkContext.setLogLevel("OFF")  # Spark's messages may quote rows
    try:
        yield _read(session, inputs, axes)
    finally:
        session.stop()


def _start(build: Any, master: str | None) -> Any:
    try:
        return build.getOrCreate()
    except Exception:
        place = "" if master is None else f" at {master}"
        raise BadInput(
            f"No Spark session could be started{place}. Spark needs Java 17 or later (JAVA_HOME) and a reachable "
            "--master, for example spark://host:7077, yarn or local[*]."
        ) from None


def _read(session: Any, inputs: list[str], axes: tuple[str, ...]) -> Any:
    is_text = {path.lower().endswith(TEXT_FILE_ENDINGS) for path in inputs}
    if len(is_text) > 1:
        raise BadInput(
            "Spark reads one kind of input at a time. Give only text files (.csv, .tsv, .txt) or only Parquet."
        )
    try:
        return _read_text(session, inputs, axes) if True in is_text else session.read.parquet(*inputs)
    except Exception:
        raise UnreadableInput(
            f"Spark cannot read {', '.join(inputs)}. Give Parquet files, or text files with a header and a name that "
            "ends in .csv, in a place that the cluster can reach."
        ) from None


def _read_text(session: Any, inputs: list[str], axes: tuple[str, ...]) -> Any:
    """Read text files. Drop records with too few or too many fields; read coordinates that are no number as missing.

    A quoted field may span lines. Without ``multiLine``, each of them would be a row, and one person could add as many
    rows as they like.
    """
    rules = {"header": True, "mode": "DROPMALFORMED", "escape": '"', "enforceSchema": False, "multiLine": True}
    separator = "\t" if all(".tsv" in path.lower() for path in inputs) else ","
    frame = session.read.csv(inputs, sep=separator, **rules)
    known = [name for name in axes if frame.columns.count(name) == 1]
    return frame.withColumns({name: frame[f"`{name.replace('`', '``')}`"].try_cast("double") for name in known})
