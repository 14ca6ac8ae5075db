#!/usr/bin/env python3
"""What metrics, and traces at the default ratio, cost a server in CPU time a request: with against without, by turns.

    metrics_cost.py BENCH [--rate 5000] [--rounds 30] [--seconds 1] [--out metrics_cost.json]

BENCH is the program metrics_cost_bench (configure with -DDEEPENCODER_BENCHMARKS=ON). Its engine answers at once with one
row, so that a request costs the server as little as can be and the share of the metrics is as large as can be. The load
comes from another process over loopback. CPU time and not throughput is compared, since it is what limits throughput and
other work on the machine disturbs it less. Medians of the rounds; who begins changes with each.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess

from service_tools import cpu_name

ROOT = pathlib.Path(__file__).parents[2]
NAMES = ("none", "metrics", "traces")


class Servers:
    """All in one process, so that they have the same threads in the same state."""

    def __init__(self, bench):
        self.process = subprocess.Popen([bench, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addresses = dict(zip(NAMES, self.process.stdout.readline().split()))

    def cpu_seconds(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bench")
    parser.add_argument("--rate", type=float, default=5000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--out")
    options = parser.parse_args()
    servers = Servers(options.bench)
    costs = {name: [] for name in NAMES}  # microseconds of CPU time a request
    rates = {name: [] for name in NAMES}  # requests a second that were answered
    for round_ in range(options.rounds + 1):
        for name in NAMES[round_ % 3:] + NAMES[:round_ % 3]:
            before = servers.cpu_seconds()
            done = subprocess.run([options.bench, "load", servers.addresses[name], str(options.rate), str(options.seconds)],
                                  stdout=subprocess.PIPE, text=True, check=True)
            answered, seconds = done.stdout.split()
            if round_:  # the first one warms up
                costs[name].append((servers.cpu_seconds() - before) / int(answered) * 1e6)
                rates[name].append(int(answered) / float(seconds))
    servers.end()
    # Few enough traces that the queue takes them all.
    alone = {name: float(subprocess.run([options.bench, *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout)
             for name, arguments in (("metrics", ("calls", "2", "500000")), ("traces", ("traces", "40000")))}

    common = {"device": f"{cpu_name()}, {os.cpu_count()} cores for client and server",
              "load_average": round(os.getloadavg()[0], 1),
              "commit": subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True,
                                       text=True).stdout.strip(),
              "command": f"python3 tests/bench/metrics_cost.py BENCH --rate {options.rate:g} --rounds {options.rounds} "
                         f"--seconds {options.seconds:g}",
              "date": datetime.date.today().isoformat()}
    results = []
    peer = statistics.median(costs["none"])
    for name, label in (("metrics", "metrics"), ("traces", "traces at the default ratio")):
        ours = statistics.median(costs[name])
        results.append({"name": f"server with {label}", "unit": "us of CPU a request", "ours": round(ours, 2),
                        "peer": round(peer, 2), "peer_name": "the same server without", "ratio": round(ours / peer, 4),
                        "higher_is_better": False, "answered_per_second": round(statistics.median(rates[name])),
                        "ours_rounds": [round(cost, 2) for cost in costs[name]],
                        "peer_rounds": [round(cost, 2) for cost in costs["none"]], **common})
        results.append({"name": f"{label}, the calls alone", "unit": "us of CPU a request",
                        "ours": round(alone[name] / 1000, 3), "peer": round(peer, 2),
                        "peer_name": "all that the server without spends on a request",
                        "ratio": round(alone[name] / 1000 / peer, 5), "higher_is_better": False,
                        "share_of_a_core_at_the_rate": round(alone[name] * 1e-9 * options.rate, 5), **common})
    for row in results:
        print(json.dumps({key: row[key] for key in ("name", "ours", "peer", "ratio")}), flush=True)
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
