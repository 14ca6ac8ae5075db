"""The real server with a small synthetic checkpoint, for the tests of a process."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "tests" / "data"
PROGRAMS = Path(os.environ.get("DEEPENCODER_BIN", ROOT / "build" / "bin"))
START_SECONDS = 90

_server: RealServer | None = None


def shared() -> RealServer:
    """The one server; skips the test if the programs are not built."""
    global _server
    for program in ("deepencoder", "deepencoder-server"):
        if not (PROGRAMS / program).is_file():
            raise unittest.SkipTest(f"{PROGRAMS / program} is not built")
    if _server is None:
        _server = RealServer()
        atexit.register(_server.stop)
    return _server


class RealServer:
    """Listens on a free port and a unix socket; encodes in fp32 on one CPU thread."""

    def __init__(self, *flags: str) -> None:
        """flags: behind the usual ones."""
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        self.cli = PROGRAMS / "deepencoder"
        subprocess.run(
            [self.cli, "checkpoint", "synthesize", folder / "checkpoint",
             "--sam-depth", "3", "--clip-layers", "2"],
            check=True, capture_output=True,
        )  # fmt: skip
        ready, self.log = folder / "ready", folder / "log"
        self.socket = f"unix:{folder / 'socket'}"
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [PROGRAMS / "deepencoder-server", f"--model={folder / 'checkpoint'}",
                 "--device=cpu", "--compute-dtype=fp32", "--threads=1", "--modes=tiny,base,gundam",
                 "--batch-buckets=1", "--no-warm-up", "--metrics-listen=", "--cache-bytes=64MiB",
                 f"--listen=127.0.0.1:0,{self.socket}", f"--ready-file={ready}", *flags],
                stdout=log, stderr=log,
            )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS
        while not (ready.exists() and ready.read_text().count("\n") >= 2):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"the server did not start:\n{self.log.read_text()}")
            time.sleep(0.05)
        lines = ready.read_text().splitlines()
        self.address = next(
            line.removeprefix("grpc=") for line in lines if line.startswith("grpc=127.")
        )
        self._metrics = next(
            (line.removeprefix("metrics=") for line in lines if line.startswith("metrics=")), None
        )

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def metrics(self) -> dict[str, float]:
        """Samples of a scrape, by name{labels}; needs --metrics-listen among the flags."""
        with urllib.request.urlopen(f"http://{self._metrics}/metrics") as reply:
            lines = reply.read().decode().splitlines()
        samples = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in samples}

    def stop(self) -> None:
        """Ends the process and its files."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait()
        self._folder.cleanup()


def read_safetensors(path: os.PathLike[str] | str):
    """{name: array}, bf16 as uint16."""
    import json

    import numpy as np

    raw = Path(path).read_bytes()
    size = int.from_bytes(raw[:8], "little")
    types = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
    tensors = {}
    for name, entry in json.loads(raw[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        data = np.frombuffer(raw[8 + size + begin : 8 + size + end], types[entry["dtype"]])
        tensors[name] = data.reshape(entry["shape"])
    return tensors
