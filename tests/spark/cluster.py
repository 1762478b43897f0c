"""A Spark cluster on this machine for tests and benchmarks: a master and workers as separate processes on loopback."""

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

LOOPBACK_HOST = "127.0.0.1"
START_TIMEOUT_SECONDS = 120
FAST_START_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def why_not() -> str | None:
    """Return the reason why a cluster cannot run on this machine, or None if it can."""
    try:
        import pyspark  # noqa: F401 - checks whether it is installed
    except ImportError:
        return "pyspark is not installed"
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin")) if home else shutil.which("java")
    if java is None or subprocess.run([java, "-version"], capture_output=True, check=False).returncode:
        return "there is no Java on this machine" if not home else "there is no Java in JAVA_HOME"
    return None


@dataclass
class Cluster:
    """A running cluster: the address of its master, its folder and its worker processes."""

    master: str
    folder: Path
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @contextmanager
    def session(self, cores: int = 2) -> Iterator[Any]:
        """Open a Spark session with its driver in this process and executors of one core each. One at a time."""
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        options = {
            "spark.driver.host": LOOPBACK_HOST,
            "spark.driver.bindAddress": LOOPBACK_HOST,
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": FAST_START_JAVA_OPTIONS,
            "spark.executor.memory": "1g",
            "spark.executor.cores": "1",
            "spark.cores.max": str(cores),
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # wait for all executors before any task starts
            "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{START_TIMEOUT_SECONDS}s",
            "spark.sql.shuffle.partitions": "4",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
        }
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK_HOST)
        build = SparkSession.builder.master(self.master).appName("veilmap on loopback")
        for name, value in options.items():
            build = build.config(name, value)
        session = build.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        try:
            yield session
        finally:
            session.stop()
            if gateway := SparkContext._gateway:  # close its sockets and the driver's Java process
                gateway.shutdown()
                gateway.proc.stdin.close()
                gateway.proc.wait()
                SparkContext._gateway = SparkContext._jvm = None

    def add_worker(self, cores: int = 1) -> subprocess.Popen[bytes]:
        """Start one more worker and return its process."""
        options = ("--cores", str(cores), "--memory", "1g", "--host", LOOPBACK_HOST, "--webui-port", "0")
        place = self.folder / f"worker{len(self.workers)}"
        self.workers.append(
            _start("worker.Worker", *options, "--work-dir", str(place), self.master, folder=self.folder)
        )
        return self.workers[-1]

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        """Kill a worker and its executors at once, as a power failure would."""
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


@contextmanager
def loopback(workers: int = 2) -> Iterator[Cluster]:
    """Run a cluster of workers with one core each within a ``with`` block."""
    folder, port = Path(tempfile.mkdtemp(prefix="spark")), _free_port()
    options = ("--host", LOOPBACK_HOST, "--port", str(port), "--webui-port", "0")
    head = _start("master.Master", *options, folder=folder)
    cluster = Cluster(f"spark://{LOOPBACK_HOST}:{port}", folder)
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
    small = {
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": FAST_START_JAVA_OPTIONS,
        "SPARK_LOCAL_DIRS": str(folder),
    }
    with (folder / f"{role}.log").open("ab") as log:
        return subprocess.Popen(
            [home / "bin" / "spark-class", f"org.apache.spark.deploy.{role}", *options],
            env={**os.environ, **small, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": LOOPBACK_HOST},
            stdout=log,
            stderr=log,
            start_new_session=True,  # so that executors are killed with their worker
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK_HOST, 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int) -> None:
    end = time.monotonic() + START_TIMEOUT_SECONDS
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex((LOOPBACK_HOST, port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError("The master of the cluster did not start.")
