"""What a wheel needs beside Python files: the page of `veilmap explore`, which web/make.py builds.

With VEILMAP_WEB=skip the wheel has no page; with VEILMAP_WEB=require the build fails if the page cannot be built.
Otherwise the page is built if Node and the npm packages are available. A wheel without it explains how to get it.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PageHook(BuildHookInterface):
    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Node as a package, where the machine has none."""
        page = self._page()
        return [] if self._skipped() or page.is_built() or page.has_node() else [page.NODE_PACKAGE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        page = self._page()
        if version == "editable" or self._skipped() or page.is_built():
            return
        try:
            page.build()
        except page.NoNode as problem:
            if os.environ.get("VEILMAP_WEB") == "require":
                raise
            self.app.display_warning(f"This wheel is without the page of veilmap explore. {problem}")

    def _skipped(self) -> bool:
        return os.environ.get("VEILMAP_WEB") == "skip"

    def _page(self) -> ModuleType:
        spec = importlib.util.spec_from_file_location("make_page", Path(self.root) / "web" / "make.py")
        assert spec is not None and spec.loader is not None  # noqa: PT018, S101
        page = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(page)
        return page
