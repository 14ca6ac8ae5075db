"""Real programs for the tests: a checkpoint, servers, Prometheus, each stopped when its test is done."""
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
IMAGES = os.path.join(SOURCE, "tests", "data", "images")
# CTest says where the programs are; by hand they are looked for in build/.
SERVER = os.environ.get("DEEPENCODER_SERVER_PROGRAM", os.path.join(SOURCE, "build", "bin", "deepencoder-server"))
CLIENT = os.environ.get("DEEPENCODER_CLIENT_PROGRAM", os.path.join(SOURCE, "build", "bin", "deepencoder"))
# A server with these and --device=cuda has a GPU, or so it seems (tests/encoder/backend, tests/server/metrics).
TESTS = os.environ.get("DEEPENCODER_TESTS_FOLDER", os.path.join(SOURCE, "build", "tests"))
FAKE_GPU = {"DEEPENCODER_CUDA_LIBRARY": os.path.join(TESTS, "deepencoder_fake_cuda_new.so"),
            "LD_LIBRARY_PATH": os.path.join(TESTS, "nvml_new")}


def wait_for(what, condition, seconds=60):
    """Returns what `condition` gives once that is true. `what` names it if it never is."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.05)


def synthesize(folder):
    """A small checkpoint: real names and shapes, few layers."""
    subprocess.run([CLIENT, "checkpoint", "synthesize", folder, "--sam-depth", "1", "--clip-layers", "1"],
                   check=True, stdout=subprocess.DEVNULL)
    return folder


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(url):
    with urllib.request.urlopen(url, timeout=20) as reply:
        return reply.read().decode()


class Process:
    """A program with its output in a file. Killed at the end if it still runs."""

    def __init__(self, command, folder, name, environment=None):
        self.log_path = os.path.join(folder, name + ".log")
        with open(self.log_path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT,
                                            env={**os.environ, **(environment or {})})

    def log(self):
        with open(self.log_path, encoding="utf-8") as log:
            return log.read()

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, seconds=60):
        return self.process.wait(seconds)

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(20)


class Server(Process):
    """deepencoder-server, on the CPU unless an option says otherwise; ask wait_until_serving() before its addresses."""

    def __init__(self, model, folder, *options, name="server", listen="127.0.0.1:0", environment=None):
        self.name, self.ready = name, tempfile.mktemp(dir=folder, prefix=name, suffix=".ready")
        super().__init__([SERVER, f"--model={model}", "--device=cpu", "--threads=1", f"--listen={listen}",
                          "--metrics-listen=127.0.0.1:0", f"--ready-file={self.ready}", *options], folder, name, environment)

    def wait_until_serving(self):
        wait_for(f"{self.name} ready", lambda: os.path.exists(self.ready) or self.process.poll() is not None)
        if self.process.poll() is not None:
            raise AssertionError(f"{self.name} ended at its start:\n{self.log()}")
        with open(self.ready, encoding="utf-8") as file:
            lines = dict(line.strip().split("=", 1) for line in file)
        self.address, self.metrics_address = lines["grpc"], lines["metrics"]
        return self

    def metric(self, name, **labels):
        """The sum of a metric's samples that carry these labels, read from the server itself."""
        total = 0.0
        for line in get(f"http://{self.metrics_address}/metrics").splitlines():
            series, _, value = line.rpartition(" ")
            if series.partition("{")[0] == name and all(f'{k}="{v}"' in series for k, v in labels.items()):
                total += float(value)
        return total


def prometheus_config(folder, addresses):
    """A copy of deploy/prometheus in `folder`, as it is shipped but for its targets and its pace."""
    config = os.path.join(folder, "prometheus")
    shutil.copytree(os.path.join(SOURCE, "deploy", "prometheus"), config)
    with open(os.path.join(config, "targets", "deepencoder.yml"), "w", encoding="utf-8") as file:
        json.dump([{"targets": addresses}], file)
    path = os.path.join(config, "prometheus.yml")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert text.count(": 15s") == 2, "the paces of prometheus.yml are not where they were"
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace(": 15s", ": 1s"))
    return config


class Prometheus(Process):
    """A Prometheus server with a folder like deploy/prometheus, reachable when the constructor returns."""

    def __init__(self, config_folder, folder):
        while True:
            port = free_port()
            self.url = f"http://127.0.0.1:{port}"
            super().__init__(["prometheus", f"--config.file={config_folder}/prometheus.yml",
                              f"--storage.tsdb.path={folder}/tsdb", f"--web.listen-address=127.0.0.1:{port}"],
                             folder, "prometheus")
            wait_for("Prometheus ready or ended", lambda: self.process.poll() is not None or self.is_ready())
            if self.process.poll() is None:
                return
            if "address already in use" not in self.log():  # another program has taken the port in between
                raise AssertionError("Prometheus ended:\n" + self.log())

    def is_ready(self):
        try:
            return get(self.url + "/-/ready")
        except (OSError, http.client.HTTPException):  # nobody there yet, or somebody else
            return None

    def api(self, path, **arguments):
        try:
            reply = json.loads(get(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"))
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path} {arguments}: {error.read().decode()}") from None
        return reply["data"]

    def query(self, expression):
        """An instant query's samples: [(labels, value)]."""
        data = self.api("query", query=expression)
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(sample["metric"], float(sample["value"][1])) for sample in data["result"]]

    def await_query(self, expression):
        """As query(), once there is something: a scrape of more than a second leaves its target without samples until the
        next one."""
        return wait_for(f"samples of {expression}", lambda: self.query(expression))

    def value(self, expression):
        """The only sample of a query, or None if there is none."""
        samples = self.query(expression)
        assert len(samples) <= 1, (expression, samples)
        return samples[0][1] if samples else None

    def await_value(self, expression):
        """As value(), once there is one."""
        (_, value), = self.await_query(expression)
        return value
