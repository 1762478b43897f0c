"""A real Spark cluster on this machine: a master and workers, each a process of its own, on loopback."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
SECONDS_TO_START = 120
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def why_not() -> str | None:
    """Why there can be no cluster here; None if there can."""
    try:
        import pyspark  # noqa: F401 - only whether it is there
    except ImportError:
        return "pyspark is not installed"
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin")) if home else shutil.which("java")
    if java is None or subprocess.run([java, "-version"], capture_output=True, check=False).returncode:
        return "there is no Java on this machine" if not home else "there is no Java in JAVA_HOME"
    return None


@dataclass
class Cluster:
    """Who runs, and where."""

    master: str
    folder: Path
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @contextmanager
    def session(self, cores: int = 2) -> Iterator[Any]:
        """A driver in this process, one at a time, and executors of one core each."""
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        plain = {
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": QUICK_START,
            "spark.executor.memory": "1g",
            "spark.executor.cores": "1",
            "spark.cores.max": str(cores),
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # all executors, before anything begins
            "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{SECONDS_TO_START}s",
            "spark.sql.shuffle.partitions": "4",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
        }
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", HOST)
        build = SparkSession.builder.master(self.master).appName("veilmap on loopback")
        for name, value in plain.items():
            build = build.config(name, value)
        session = build.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        try:
            yield session
        finally:
            session.stop()
            if gateway := SparkContext._gateway:  # its sockets, and the driver's Java with it
                gateway.shutdown()
                gateway.proc.stdin.close()
                gateway.proc.wait()
                SparkContext._gateway = SparkContext._jvm = None

    def add_worker(self, cores: int = 1) -> subprocess.Popen[bytes]:
        options = ("--cores", str(cores), "--memory", "1g", "--host", HOST, "--webui-port", "0")
        place = self.folder / f"worker{len(self.workers)}"
        self.workers.append(
            _start("worker.Worker", *options, "--work-dir", str(place), self.master, folder=self.folder)
        )
        return self.workers[-1]

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        """The worker and its executors at once, as if the machine had lost its power."""
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


@contextmanager
def loopback(workers: int = 2) -> Iterator[Cluster]:
    """A cluster of workers with one core each, for as long as it is needed."""
    folder, port = Path(tempfile.mkdtemp(prefix="spark")), _free_port()
    options = ("--host", HOST, "--port", str(port), "--webui-port", "0")
    head = _start("master.Master", *options, folder=folder)
    cluster = Cluster(f"spark://{HOST}:{port}", folder)
    try:
        _wait_for(port)
        for _ in range(workers):
            cluster.add_worker()
        yield cluster
    finally:
        for process in [*cluster.workers, head]:
            if process.poll() is None:
                cluster.kill(process)
        shutil.rmtree(folder, ignore_errors=True)


def _start(role: str, *options: str, folder: Path) -> subprocess.Popen[bytes]:
    import pyspark

    home = Path(pyspark.__file__).parent
    small = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": QUICK_START, "SPARK_LOCAL_DIRS": str(folder)}
    with (folder / f"{role}.log").open("ab") as log:
        return subprocess.Popen(
            [home / "bin" / "spark-class", f"org.apache.spark.deploy.{role}", *options],
            env={**os.environ, **small, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": HOST},
            stdout=log,
            stderr=log,
            start_new_session=True,  # so that executors are killed with their worker
        )


def _free_port() -> int:
    with socket.socket() as some:
        some.bind((HOST, 0))
        return int(some.getsockname()[1])


def _wait_for(port: int) -> None:
    end = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < end:
        with socket.socket() as some:
            if some.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError("The master of the cluster did not start.")
