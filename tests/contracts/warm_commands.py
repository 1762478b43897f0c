"""``veilmap`` without its start-up time: one process imports everything once, and each command is a fork of it.

The pages run some two hundred commands. A fork differs from a new process only in what is imported already: it has the
caller's files, folder and environment. That commands start on their own is tested in ``tests/unit/cli``.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import signal
import socket
import sys
import warnings
from pathlib import Path

COMMAND = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
call = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [len(call).to_bytes(8, "big")], [0, 1, 2])
server.sendall(call)
sys.exit((server.recv(1) or b"\\xff")[0])
"""


def write_command(folder: Path, address: str) -> None:
    """Write an executable file ``veilmap`` that sends its call to the server."""
    command = folder / "veilmap"
    command.write_text(COMMAND.format(python=sys.executable, address=address))
    command.chmod(0o755)


def serve(address: str) -> None:
    """Answer calls until the process is ended."""
    import veilmap.cli

    for package in (veilmap.cli, veilmap):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not module.name.startswith(("veilmap.engines.spark", "veilmap.reproduce")):
                importlib.import_module(module.name)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended forks are not waited for
    print("ready", flush=True)
    while True:
        caller, _ = listener.accept()
        with warnings.catch_warnings(action="ignore"):
            forked = os.fork()
        if forked == 0:
            listener.close()
            _answer(caller)
        caller.close()


def _answer(caller: socket.socket) -> None:
    status = 255
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        size, files, _, _ = socket.recv_fds(caller, 8, 3)
        call = b""
        while len(call) < int.from_bytes(size, "big"):
            call += caller.recv(1 << 16)
        for place, file in enumerate(files):
            os.dup2(file, place)
            os.close(file)
        sys.argv, folder, environment = json.loads(call)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        from veilmap.cli import main

        main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        caller.sendall(bytes([status]))
        os._exit(status)


if __name__ == "__main__":
    serve(sys.argv[1])
