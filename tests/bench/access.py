#!/usr/bin/env python3
"""What TLS, client certificates and tokens cost.

One small image, again and again in mode base: the server answers from its cache, so that what is measured is the way
of 699 KB replies (273 x 1280 bf16) over loopback. Four servers run at a time, of which one works; they take turns,
and each ratio is of neighbours in time. Besides the rate, the CPU time of the server and of the client for a reply:
that depends less on who else uses the machine.

    python3 tests/bench/access.py --out tests/bench/results/access.json

The programs are those in $DEEPENCODER_BIN, else in build/bin; openssl makes the certificates.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import tempfile
from pathlib import Path

from service_tools import ROOT, Server, bench, cpu_name, provenance, synthesize

IMAGE = ROOT / "tests" / "data" / "images" / "exif_1.jpg"  # 4 KB
MODE = "base"
TOKEN = "a-token-of-the-benchmark"


def openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def make_files(folder: Path) -> None:
    """ca.pem; server.pem and .key; client.pem and .key; tokens; token."""
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *new_key, "-days", 2, "-subj", "/CN=ca", "-keyout", folder / "ca.key", "-out",
            folder / "ca.pem")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("server", "client"):
        openssl("req", "-new", *new_key, "-subj", f"/CN={name}", "-keyout", folder / f"{name}.key", "-out",
                folder / f"{name}.csr")
        openssl("x509", "-req", "-in", folder / f"{name}.csr", "-CA", folder / "ca.pem", "-CAkey", folder / "ca.key",
                "-CAcreateserial", "-days", 2, "-extfile", folder / "names", "-out", folder / f"{name}.pem")
    for name, text in (("tokens", f"bench:{TOKEN}\n"), ("token", TOKEN)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)


class Side:
    """A server, and the client's flags for it."""

    def __init__(self, name: str, folder: Path, server: list[str], client: list[str]) -> None:
        self.name = name
        self._client = client
        self._server = Server(folder / "checkpoint", folder, "--device=cpu", f"--modes={MODE}", "--batch-buckets=1",
                              "--cache-bytes=64MiB", "--metrics-listen=", *server, name=name)

    def run(self, count: int, concurrency: int) -> dict[str, float]:
        before, children = self._server.cpu_seconds(), resource.getrusage(resource.RUSAGE_CHILDREN)
        point, = bench(self._server.address, IMAGE, f"--mode={MODE}", f"--count={count}",
                       f"--concurrency={concurrency}", "--warmup=0", *self._client)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert point["images"] == count and not point["errors"], point
        client = after.ru_utime + after.ru_stime - children.ru_utime - children.ru_stime
        return {"rate": point["images_per_second"], "server_ms": 1000 * (self._server.cpu_seconds() - before) / count,
                "client_ms": 1000 * client / count}

    def stop(self) -> None:
        self._server.stop()


def record(what: str, unit: str, ours: list[float], peer: list[float], higher: bool, common: dict) -> dict:
    ratios = [a / b for a, b in zip(ours, peer)]
    return {"name": what, "unit": unit, "ours": round(statistics.median(ours), 4),
            "peer": round(statistics.median(peer), 4), "peer_name": "plain text, no token",
            "ratio": round(statistics.median(ratios), 4), "ratio_least": round(min(ratios), 4),
            "ratio_most": round(max(ratios), 4), "higher_is_better": higher,
            "ours_rounds": [round(value, 4) for value in ours],
            "peer_rounds": [round(value, 4) for value in peer], **common}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_files(folder)
        synthesize(folder / "checkpoint", sam_depth=3, clip_layers=2)
        tls = [f"--tls-cert={folder}/server.pem", f"--tls-key={folder}/server.key"]
        trust = [f"--root-certificates={folder}/ca.pem"]
        tokens, token = [f"--token-file={folder}/tokens"], [f"--token-file={folder}/token"]
        sides = [
            Side("plain", folder, [], []),
            Side("token", folder, tokens, token),
            Side("TLS", folder, tls, trust),
            Side("TLS, client certificate and token", folder,
                 [*tls, f"--tls-client-ca={folder}/ca.pem", *tokens],
                 [*trust, f"--client-certificate={folder}/client.pem", f"--client-key={folder}/client.key", *token]),
        ]
        results: dict[str, list[dict[str, float]]] = {side.name: [] for side in sides}
        for side in sides:
            side.run(20, 1)
        for number in range(arguments.rounds):
            for side in sides if number % 2 == 0 else reversed(sides):
                results[side.name].append(side.run(arguments.count, arguments.concurrency))
        for side in sides:
            side.stop()
    common = provenance(f"{cpu_name()}, {os.cpu_count()} cores for client and server, load {os.getloadavg()[0]:.1f}")
    records = []
    for name, rounds in results.items():
        if name == "plain":
            continue
        for key, unit, higher in (("rate", "images/s", True), ("server_ms", "ms of the server's CPU a reply", False),
                                  ("client_ms", "ms of the client's CPU a reply", False)):
            records.append(record(f"{name}, replies of 699 KB", unit, [one[key] for one in rounds],
                                  [one[key] for one in results["plain"]], higher, common))
            print(f"{name:35} {unit:32} {records[-1]['ours']:10.3f} against {records[-1]['peer']:10.3f}: "
                  f"ratio {records[-1]['ratio']:.3f} ({records[-1]['ratio_least']:.3f} to "
                  f"{records[-1]['ratio_most']:.3f})")
    if arguments.out:
        arguments.out.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
