#!/usr/bin/env python3
"""The whole encoder on the CPU: ours against PyTorch's CPU build, in alternating order in one run.

    cpu_encoder.py BENCH CHECKPOINT [--types bf16 fp32] [--side 1024] [--batch 1] [--threads 2] [--out cpu_encoder.json]

BENCH is the program cpu_encoder_bench (configure with -DDEEPENCODER_BENCHMARKS=ON), CHECKPOINT a folder with full-size weights
(deepencoder checkpoint synthesize). The peer is tests/bench/torch_encoder.py with dense bias, eager, in the same type with the
same number of threads; the model that is not being timed sleeps. Medians; the order turns round after each round.
Needs torch; pixels are ready in memory on both sides.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import torch

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests/bench")]
import torch_encoder  # noqa: E402
from service_tools import cpu_name  # noqa: E402

MEMORY_BAR_MIB = 1638.4
TYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


class Ours:
    def __init__(self, bench, checkpoint, type_name, side, batch, threads):
        # The program's threads sleep while PyTorch is timed; passive waiting costs it nothing measurable.
        environment = os.environ | {"OMP_WAIT_POLICY": "passive"}
        self.process = subprocess.Popen(
            [bench, checkpoint, "--type", type_name, "--side", str(side), "--batch", str(batch), "--threads", str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def milliseconds(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit("cpu_encoder_bench failed")
        return float(answer)

    def peak_bytes(self):
        self.process.stdin.close()
        return int(self.process.stdout.readline().split()[1])


class Peer:
    def __init__(self, type_name, side, batch):
        torch.manual_seed(0)
        kind = TYPES[type_name]
        self.net = torch_encoder.DeepEncoder(side, torch_encoder.dense).to(kind).eval()
        self.pixels = torch.randn(batch, 3, side, side).to(kind)

    def milliseconds(self):
        with torch.inference_mode():
            start = time.perf_counter()
            self.net(self.pixels)
            return (time.perf_counter() - start) * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bench")
    parser.add_argument("checkpoint")
    parser.add_argument("--types", nargs="+", default=["bf16", "fp32"], choices=TYPES)
    parser.add_argument("--side", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    common = {"device": f"{cpu_name()}, {options.threads} threads",
              "commit": subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True,
                                       text=True).stdout.strip(),
              "command": "python3 tests/bench/cpu_encoder.py BENCH CHECKPOINT " + " ".join(sys.argv[3:]),
              "date": datetime.date.today().isoformat()}
    results = []
    for type_name in options.types:
        sides = {"ours": Ours(options.bench, options.checkpoint, type_name, options.side, options.batch, options.threads),
                 "peer": Peer(type_name, options.side, options.batch)}
        times = {name: [] for name in sides}
        for round_ in range(options.rounds + 1):
            for name in sorted(sides, reverse=round_ % 2 == 1):
                milliseconds = sides[name].milliseconds()
                if round_:  # the first one warms up
                    times[name].append(milliseconds)
        ours, peer = (statistics.median(times[name]) for name in ("ours", "peer"))
        where = f"{options.side} batch {options.batch} {type_name}"
        results.append({"name": f"cpu encoder {where}", "unit": "ms", "ours": round(ours, 1), "peer": round(peer, 1),
                        "peer_name": f"PyTorch {torch.__version__} CPU, eager, dense bias", "ratio": round(ours / peer, 4),
                        "higher_is_better": False,
                        # The machine's other work: figures of a busy one are too high on both sides.
                        "load_average": round(os.getloadavg()[0], 1),
                        "spread_ms": {name: [round(min(t), 1), round(max(t), 1)] for name, t in times.items()}, **common})
        if type_name == "bf16":
            peak = sides["ours"].peak_bytes() / 2**20
            results.append({"name": f"cpu encoder {where}, peak resident memory", "unit": "MiB", "ours": round(peak, 1),
                            "peer": MEMORY_BAR_MIB, "peer_name": "the bar, 1.6 GiB", "ratio": round(peak / MEMORY_BAR_MIB, 4),
                            "higher_is_better": False, **common})
        for row in results:
            if where in row["name"]:
                print(json.dumps({key: row[key] for key in ("name", "ours", "peer", "ratio")}), flush=True)
        del sides
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
