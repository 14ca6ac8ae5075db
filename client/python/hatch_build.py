"""Build hook: every wheel and sdist carries the contract of its checkout."""

import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ContractHook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs generate.py before files are collected."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling, once a target."""
        sys.path.insert(0, self.root)
        try:
            from generate import generate
        finally:
            sys.path.remove(self.root)
        generate()
