"""What the benchmarks of the whole service share: programs, servers, load, results. Needs nothing but Python.

The programs are those in $DEEPENCODER_BIN (a bundle's folder, or build/bin), else in build/bin.
"""
import datetime
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = pathlib.Path(os.environ.get("DEEPENCODER_BIN", ROOT / "build" / "bin"))


def synthesize(folder, sam_depth=12, clip_layers=24, seed=0):
    """A synthetic checkpoint in `folder`."""
    subprocess.run([PROGRAMS / "deepencoder", "checkpoint", "synthesize", folder, "--sam-depth", str(sam_depth),
                    "--clip-layers", str(clip_layers), "--seed", str(seed)], check=True, stdout=subprocess.DEVNULL)
    return folder


def processes():
    """(pid, parent's pid, ticks of CPU time) of every process, by pid."""
    for pid in sorted(int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
        try:
            words = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        yield pid, int(words[1]), int(words[11]) + int(words[12])


class Process:
    """A program with its output in a file; ended at the end of the `with` block."""

    def __init__(self, command, log, environment=None, processors=None):
        self.log_path = pathlib.Path(log)
        with open(log, "w", encoding="utf-8") as out:
            self.process = subprocess.Popen([str(word) for word in command], stdout=out, stderr=subprocess.STDOUT,
                                            env=os.environ | (environment or {}),
                                            preexec_fn=processors and (lambda: os.sched_setaffinity(0, processors)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self, seconds=60):
        """SIGTERM, and the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def cpu_seconds(self):
        """CPU time of the program and of the processes that it started and that still run (the server's decode workers)."""
        family, spent = {self.process.pid}, 0
        for pid, parent, ticks in processes():  # ascending: parents come first
            if pid in family or parent in family:
                family.add(pid)
                spent += ticks
        return spent / os.sysconf("SC_CLK_TCK")

    def wait_for_file(self, path, seconds):
        """Waits until the program has written `path` (complete or not at all), and returns its text."""
        end = time.monotonic() + seconds
        while not pathlib.Path(path).exists():
            if self.process.poll() is not None or time.monotonic() > end:
                sys.exit(f"not ready:\n{self.log_path.read_text()}")
            time.sleep(0.05)
        return pathlib.Path(path).read_text()


class Server(Process):
    """deepencoder-server, or another `program` with its options, ready when the constructor returns.

    `unix`: it listens on a unix socket, too.
    """

    def __init__(self, model, folder, *options, name="server", environment=None, processors=None, seconds=300, program=None,
                 unix=False):
        ready = pathlib.Path(folder) / (name + ".ready")
        ready.unlink(missing_ok=True)  # of a server of this name before
        self.unix_address = f"unix:{folder}/{name}.socket" if unix else None
        super().__init__([program or PROGRAMS / "deepencoder-server", f"--model={model}",
                          f"--listen={','.join(filter(None, ('127.0.0.1:0', self.unix_address)))}",
                          "--metrics-listen=127.0.0.1:0", f"--ready-file={ready}", *options],
                         pathlib.Path(folder) / (name + ".log"), environment, processors)
        lines = [line.split("=", 1) for line in self.wait_for_file(ready, seconds).splitlines()]
        self.address = next(value for key, value in lines if key == "grpc")  # in the order of --listen
        self.metrics_address = dict(lines).get("metrics")

    def metrics(self):
        """{series: value} of a scrape."""
        with urllib.request.urlopen(f"http://{self.metrics_address}/metrics", timeout=30) as reply:
            lines = reply.read().decode().splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def total(metrics, name, **labels):
    """The sum of the series of `name` with these labels."""
    return sum(value for series, value in metrics.items() if series.partition("{")[0] == name
               and all(f'{key}="{label}"' in series for key, label in labels.items()))


def bench(address, *arguments):
    """The points of `deepencoder bench`."""
    run = subprocess.run([PROGRAMS / "deepencoder", "bench", f"--server={address}", "--json=-", "--connect-timeout=1m",
                          *map(str, arguments)], stdout=subprocess.PIPE, text=True)
    if run.returncode != 0:
        sys.exit(f"deepencoder bench {arguments} failed with {run.returncode}")
    return json.loads(run.stdout)["points"]


def output_of(*command):
    """What a program prints, without the ends; "" if there is none of this name or it fails."""
    try:
        run = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return ""
    return run.stdout.strip() if run.returncode == 0 else ""


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown CPU"


def gpu_names():
    """As nvidia-smi has them; empty where there is none."""
    return output_of("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines()


def provenance(device):
    """What every row of a results file ends with: where, of what, how and when it was measured."""
    commit = os.environ.get("DEEPENCODER_COMMIT") or output_of("git", "-C", ROOT, "rev-parse", "--short", "HEAD")
    if not commit:  # a bundle, without the history: "deepencoder 0.1.0 (0123456789ab)"
        commit = output_of(PROGRAMS / "deepencoder", "--version").partition("(")[2][:7]
    return {"device": device, "commit": commit,
            "command": shlex.join(["python3", f"tests/bench/{pathlib.Path(sys.argv[0]).name}", *sys.argv[1:]]),
            "date": datetime.date.today().isoformat()}


class Results:
    """Rows of {name, unit, ours, peer, peer_name, ratio, higher_is_better, ...}, written after each.

    `keep`: rows of other names that the file already has stay.
    """

    def __init__(self, out, device, keep=False):
        self.out, self.common = out, provenance(device)
        self.rows = json.loads(pathlib.Path(out).read_text()) if keep and out and pathlib.Path(out).exists() else []

    def add(self, name, unit, ours, peer, peer_name, higher_is_better, **more):
        """A figure beside what it is measured by."""
        ratio = round(ours / peer, 4) if peer else None
        self.rows = [row for row in self.rows if row["name"] != name]
        self.rows.append({"name": name, "unit": unit, "ours": round(ours, 4), "peer": peer and round(peer, 4),
                          "peer_name": peer_name, "ratio": ratio, "higher_is_better": higher_is_better, **more,
                          "load_average": round(os.getloadavg()[0], 1), **self.common})
        if self.out:  # after every figure: a run that is cut short leaves what it has
            pathlib.Path(self.out).write_text(json.dumps(self.rows, indent=1) + "\n")
        print(f"{name:58} ours {ours:10.3f} {unit:9} {peer_name} {peer if peer else '-'}  ratio {ratio}", flush=True)
