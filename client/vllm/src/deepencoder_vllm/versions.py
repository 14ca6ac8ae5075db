"""Which releases of vLLM this package was checked with."""

from __future__ import annotations

CHECKED_VLLM = ("0.33.0",)
"""Releases whose own classes the tests in tests/client/vllm ran against."""


def version_note(installed: str) -> str | None:
    """What a log should say of another release than the checked ones; None: nothing."""
    if installed in CHECKED_VLLM:
        return None
    return (
        f"vLLM {installed} was not checked with deepencoder-vllm (checked: "
        f"{', '.join(CHECKED_VLLM)}): its connector interface or its placeholder counts may differ"
    )
