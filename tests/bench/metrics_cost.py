#!/usr/bin/env python3
"""What metrics, and traces at the default ratio, cost a server in CPU time a request: with against without, by turns.

    metrics_cost.py BENCH [--rate 5000] [--rounds 9] [--seconds 3] [--out metrics_cost.json]

BENCH is the program metrics_cost_bench (configure with -DDEEPENCODER_BENCHMARKS=ON). Its engine answers at once with one
row, so that a request costs the server as little as can be and the share of the metrics is as large as can be. The load
comes from another process over loopback. CPU time and not throughput is compared, since it is what limits throughput and
other work on the machine disturbs it less. Medians of the rounds; the order turns round after each.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess

ROOT = pathlib.Path(__file__).parents[2]


class Server:
    def __init__(self, bench, what):
        self.process = subprocess.Popen([bench, "serve", what], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip()

    def cpu_seconds(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def cpu_name():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown CPU"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bench")
    parser.add_argument("--rate", type=float, default=5000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--out")
    options = parser.parse_args()
    names = ("none", "metrics", "traces")
    servers = {name: Server(options.bench, name) for name in names}
    costs = {name: [] for name in names}  # microseconds of CPU time a request
    rates = {name: [] for name in names}  # requests a second that were answered
    for round_ in range(options.rounds + 1):
        for name in names if round_ % 2 else reversed(names):
            before = servers[name].cpu_seconds()
            done = subprocess.run([options.bench, "load", servers[name].address, str(options.rate), str(options.seconds)],
                                  stdout=subprocess.PIPE, text=True, check=True)
            answered, seconds = done.stdout.split()
            if round_:  # the first one warms up
                costs[name].append((servers[name].cpu_seconds() - before) / int(answered) * 1e6)
                rates[name].append(int(answered) / float(seconds))
    for server in servers.values():
        server.end()
    alone = [float(subprocess.run([options.bench, "calls", str(threads), "500000"], stdout=subprocess.PIPE, text=True,
                                  check=True).stdout) for threads in (1, 2)]

    common = {"device": f"{cpu_name()}, {os.cpu_count()} cores for client and server",
              "load_average": round(os.getloadavg()[0], 1),
              "commit": subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True,
                                       text=True).stdout.strip(),
              "command": f"python3 tests/bench/metrics_cost.py BENCH --rate {options.rate:g} --rounds {options.rounds} "
                         f"--seconds {options.seconds:g}",
              "date": datetime.date.today().isoformat()}
    results = []
    for name, label in (("metrics", "metrics"), ("traces", "traces at the default ratio")):
        ours, peer = statistics.median(costs[name]), statistics.median(costs["none"])
        # Each round against its own neighbour: the machine's other work changes slowly.
        ratio = statistics.median(a / b for a, b in zip(costs[name], costs["none"]))
        results.append({"name": f"server with {label}", "unit": "us of CPU a request", "ours": round(ours, 2),
                        "peer": round(peer, 2), "peer_name": "the same server without", "ratio": round(ratio, 4),
                        "higher_is_better": False, "answered_per_second": round(statistics.median(rates[name])),
                        "ours_rounds": [round(cost, 2) for cost in costs[name]],
                        "peer_rounds": [round(cost, 2) for cost in costs["none"]], **common})
    budget = 1e9 / options.rate
    results.append({"name": "all calls of metrics of a request, alone", "unit": "ns of CPU a request",
                    "ours": alone[0], "ours_two_threads": alone[1], "peer": round(budget),
                    "peer_name": f"one core's time for a request at {options.rate:g} a second",
                    "ratio": round(alone[0] / budget, 5), "higher_is_better": False, **common})
    for row in results:
        print(json.dumps({key: row[key] for key in ("name", "ours", "peer", "ratio")}), flush=True)
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
