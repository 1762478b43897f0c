"""Measure the server of `veilmap explore` under load: many requests per second, each with many boxes.

    python -m benchmarks.explore_load [--rate 200] [--seconds 30]

The server is a separate process, as in normal use. Requests are due at fixed times, whether or not earlier ones were
answered, and the time of a request is measured from when it was due, so that pauses of the server are counted in full.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.request import urlopen

import numpy as np

import veilmap as vm
from benchmarks.bars import Report, random_boxes
from benchmarks.data import roads
from veilmap.reproduce.data import PAPER_BOX

BOXES_PER_REQUEST = 100
CONNECTIONS = 32
MAX_P99_SECONDS = 0.1  # limit on the 99th percentile of request times
SERVER_COMMAND = "from veilmap.cli import main; main()"


def bodies(domain: vm.Domain, n: int = 50) -> list[bytes]:
    """Return requests with different boxes."""
    boxes = random_boxes(domain, n * BOXES_PER_REQUEST).reshape(n, BOXES_PER_REQUEST, -1)
    out = []
    for some in boxes:
        body = json.dumps({"boxes": some.round(4).tolist()}).encode()
        head = f"POST /api/count HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
        out.append(head.encode() + body)
    return out


async def load(port: int, requests: list[bytes], rate: float, seconds: float) -> tuple[np.ndarray, int]:
    """Return the times of all requests, and the number of requests not answered with status 200."""
    times: list[float] = []
    faults = 0
    due: asyncio.Queue[float | None] = asyncio.Queue()

    async def worker() -> None:
        nonlocal faults
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (at := await due.get()) is not None:
            try:
                writer.write(requests[len(times) % len(requests)])
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split()[0])
                await reader.readexactly(length)
                faults += not head.startswith(b"HTTP/1.1 200")
            except (OSError, ValueError, IndexError, asyncio.IncompleteReadError):
                faults += 1
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            times.append(time.perf_counter() - at)
        writer.close()

    workers = [asyncio.create_task(worker()) for _ in range(CONNECTIONS)]
    start = time.perf_counter() + 0.2
    for k in range(int(rate * seconds)):
        at = start + k / rate
        if (wait := at - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        due.put_nowait(at)
    for _ in workers:
        due.put_nowait(None)
    await asyncio.gather(*workers)
    return np.array(times), faults


def busy(process: int) -> float:
    """Return the processor seconds that a process has used so far, or NaN if the system does not tell."""
    stat = Path(f"/proc/{process}/stat")
    if not stat.exists():
        return np.nan
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(report: Report, name: str, release: vm.Release, rate: float, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "roads.parquet"
        release.save(path)
        command = [sys.executable, "-c", SERVER_COMMAND, "explore", str(path), "--no-open"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            port = int(server.stdout.readline().split("://127.0.0.1:")[1].partition("/")[0])
            asked = bodies(release.domain)
            urlopen(f"http://127.0.0.1:{port}/api/info").read()  # builds the map ...
            asyncio.run(load(port, asked, 20, 3))  # ... and the tables
            before = busy(server.pid)
            times, faults = asyncio.run(load(port, asked, rate, seconds))
            work = 1e3 * (busy(server.pid) - before) / len(times)
            server.send_signal(2)
    half, most, worst = 1e3 * np.quantile(times, [0.5, 0.99, 1])
    size = release.estimates.tree.size
    what = f"{name}, {size:,} nodes: {rate:g} requests per second of {BOXES_PER_REQUEST} boxes, p99"
    report.row(what, f"{most:.0f} ms", f"< {1e3 * MAX_P99_SECONDS:.0f} ms", most < 1e3 * MAX_P99_SECONDS)
    report.row("  errors", f"{faults} of {len(times):,}", "0", faults == 0)
    print(f"  median {half:.1f} ms, maximum {worst:.0f} ms; {work:.1f} ms of processor time per request")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.explore_load", description=__doc__)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--seconds", type=float, default=30)
    asked = parser.parse_args()
    points, source = roads()
    print(f"{len(points):,} points ({source}), {os.cpu_count()} cores, {asked.seconds:g} s on loopback\n")
    report = Report()
    for method, height in (("quad-opt", 10), ("best", None)):
        release = vm.release(points, PAPER_BOX, epsilon=0.5, method=method, height=height)
        measure(report, method, release, asked.rate, asked.seconds)
    if report.missed:
        sys.exit(f"{report.missed} limits missed")


if __name__ == "__main__":
    main()
