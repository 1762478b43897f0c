"""Files that Spark reads, wherever they are."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from veilmap.errors import BadInput, UnreadableInput, need

TEXT = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz")


class Engine(StrEnum):
    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


def goes_to_spark(engine: Engine, inputs: list[str], master: str | None) -> bool:
    """Addresses like s3://bucket/file do, unless someone says otherwise."""
    if engine is Engine.LOCAL and master is not None:
        raise BadInput("--master goes with --engine spark: leave one of them out.")
    return engine is Engine.SPARK or (engine is Engine.AUTO and (master is not None or any("://" in i for i in inputs)))


@contextmanager
def spark_points(inputs: list[str], axes: tuple[str, ...], master: str | None) -> Iterator[Any]:
    """A frame of all inputs, and the session that it needs."""
    need("pyspark", "spark", "The engine spark")
    from pyspark.sql import SparkSession

    warnings.filterwarnings("ignore", module="pyspark")  # it thinks aloud of pandas, which takes no part in this
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # which has veilmap, if executors have the same
    build = SparkSession.builder.appName("veilmap").config("spark.ui.showConsoleProgress", "false")
    # so that a line with too few or too many fields is dropped, whichever of them are needed
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
        where = "" if master is None else f" at {master}"
        raise BadInput(
            f"No Spark session could be started{where}: it needs Java 17 or later (JAVA_HOME), and a --master that "
            "is there, like spark://host:7077, yarn or local[*]."
        ) from None


def _read(session: Any, inputs: list[str], axes: tuple[str, ...]) -> Any:
    text = {path.lower().endswith(TEXT) for path in inputs}
    if len(text) > 1:
        raise BadInput("Spark reads inputs of one kind at a time: give text files (.csv, .tsv, .txt) or Parquet alone.")
    try:
        return _read_text(session, inputs, axes) if True in text else session.read.parquet(*inputs)
    except Exception:
        raise UnreadableInput(
            f"Spark cannot read {', '.join(inputs)}: give Parquet, or text with a header that is named .csv, "
            "where the cluster can reach it."
        ) from None


def _read_text(session: Any, inputs: list[str], axes: tuple[str, ...]) -> Any:
    """A record with too few or too many fields is dropped, and what is no number is missing.

    A quoted field may have several lines: as rows of their own they would count as often as its author likes.
    """
    rules = {"header": True, "mode": "DROPMALFORMED", "escape": '"', "enforceSchema": False, "multiLine": True}
    separator = "\t" if all(".tsv" in path.lower() for path in inputs) else ","
    frame = session.read.csv(inputs, sep=separator, **rules)
    known = [name for name in axes if frame.columns.count(name) == 1]
    return frame.withColumns({name: frame[f"`{name.replace('`', '``')}`"].try_cast("double") for name in known})
