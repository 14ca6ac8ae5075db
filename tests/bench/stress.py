#!/usr/bin/env python3
"""Is every reply under stress the one that the same image gets alone? A server, and deepencoder-stress against it.

    DEEPENCODER_BIN=BUNDLE stress.py --seconds 420 --out FILE      on a GPU, with a bundle made by deploy/bundle.sh --with-tests
    stress.py --device cpu --small --seconds 60                    a small model on the CPU, with the programs of build/

Clients mix modes, sizes, types, broken files, cancelled calls, near deadlines and streams, half of them through shared memory; each
good reply is compared, by hash, with the one that came alone. Afterwards nothing may be under way in the server, and it must end with status 0. Exit status 1 if any of
this is not so.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from service_tools import PROGRAMS, ROOT, Server, cpu_name, gpu_names, provenance, synthesize, total

UNDER_WAY = ("deepencoder_in_flight", "deepencoder_in_flight_bytes", "deepencoder_queue_items", "deepencoder_calls_active")


def program():
    """A bundle has it beside the server, a build folder among the tests."""
    beside = PROGRAMS / "deepencoder-stress"
    return beside if beside.exists() else PROGRAMS.parent / "tests" / "deepencoder-stress"


def idle(server, seconds=60):
    """Whether nothing is under way any more, and what is left else."""
    end = time.monotonic() + seconds
    while True:
        metrics = server.metrics()
        left = {name: total(metrics, name) for name in UNDER_WAY if total(metrics, name)}
        if not left or time.monotonic() > end:
            return metrics, left
        time.sleep(0.2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--small", action="store_true", help="a checkpoint of depth 3 and 2, not 12 and 24")
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--sharing", type=int, default=32, help="so many of the clients share memory with the server")
    parser.add_argument("--images", type=pathlib.Path, default=ROOT / "tests/data/images", help="folder")
    parser.add_argument("--server-flag", action="append", default=[], help="more flags of the server")
    parser.add_argument("--out")
    options = parser.parse_args()
    images = sorted(path for path in options.images.iterdir() if path.is_file())
    with tempfile.TemporaryDirectory() as folder:
        model = synthesize(f"{folder}/model", *((3, 2) if options.small else (12, 24)))
        server = Server(model, folder, f"--device={options.device}", "--shared-memory", "--shared-memory-bytes=4GiB", *options.server_flag)
        with server:
            run = subprocess.run([program(), server.address, str(options.seconds), str(options.clients),
                                  str(options.sharing), *images],
                                 stdout=subprocess.PIPE, text=True)
            if not run.stdout:
                sys.exit(f"deepencoder-stress failed with {run.returncode}; the server's log:\n{server.log_path.read_text()}")
            metrics, left = idle(server)
            status = server.stop()
    result = {"what": "replies under stress against replies alone; see tests/bench/stress.py", "clients": options.clients,
              "sharing": options.sharing, "seconds": options.seconds, "small_model": options.small, "images": len(images),
              **json.loads(run.stdout),
              "left_under_way": left, "server_status": status,
              "images_encoded": total(metrics, "deepencoder_images_total"), "dropped": total(metrics, "deepencoder_dropped_total"),
              "load_average": round(os.getloadavg()[0], 1), **provenance(cpu_name() if options.device == "cpu" else gpu_names()[0])}
    text = json.dumps(result, indent=1) + "\n"
    print(text, end="")
    if options.out:
        pathlib.Path(options.out).write_text(text)
    return int(bool(run.returncode or left or status))


if __name__ == "__main__":
    sys.exit(main())
