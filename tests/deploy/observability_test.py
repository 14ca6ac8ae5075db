#!/usr/bin/env python3
"""deploy/prometheus and deploy/grafana against a real server that a real Prometheus scrapes under load: the counters
equal what the client counted, every panel and rule has data, every alert has its runbook."""
import glob
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import unittest

if shutil.which("prometheus") is None or shutil.which("promtool") is None:
    print("skipped: prometheus is not installed")
    sys.exit(77)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import processes  # noqa: E402

DEPLOY = os.path.join(processes.SOURCE, "deploy")
DASHBOARD = os.path.join(DEPLOY, "grafana", "dashboards", "deepencoder.json")
# Upper bounds of the histograms in seconds.
BOUNDS = (0.001, 0.0015, 0.0022, 0.0033, 0.005, 0.0075, 0.011, 0.017, 0.025, 0.038, 0.057, 0.085, 0.13, 0.19, 0.29,
          0.43, 0.65, 1, 1.5, 2.2, 3.3, 5, 7.5, 10, math.inf)


def dashboard():
    with open(DASHBOARD, encoding="utf-8") as file:
        return json.load(file)


def panels():
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def resolved(expression):
    """A panel's query as Grafana sends it with every variable at All."""
    for name, value in (("$instance", ".*"), ("$device", ".*"), ("$__rate_interval", "10m")):
        expression = expression.replace(name, value)
    return expression


class Load:
    """Drives a server with the command-line client and keeps what that counted."""

    def __init__(self, address):
        self.address = address
        self.unary, self.streamed = [], []  # the client's JSON lines
        self.streams = 0

    def encode(self, images, mode):
        done = subprocess.run([processes.CLIENT, "encode", *images, "--server", self.address, "--mode", mode, "--json",
                               "--concurrency", "6"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              check=False)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(lines) == len(images), done.stderr
        if len(images) == 1:
            self.unary += lines
        else:
            self.streams += 1
            self.streamed += lines

    @staticmethod
    def count(lines, code):
        return sum(line.get("code", "OK") == code for line in lines)


class ObservabilityTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="deepencoder-observability-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        model = processes.synthesize(os.path.join(cls.folder, "model"))
        cls.server = processes.Server(model, cls.folder, "--modes=tiny,small", "--cache-bytes=1MiB",
                                      "--batch-buckets=1,2,4")
        cls.addClassCleanup(cls.server.kill)
        cls.server.wait_until_serving()
        # A second one with what only a GPU has: libraries that stand in for the CUDA backend and the driver's.
        cls.gpu_server = processes.Server(model, cls.folder, "--device=cuda", "--modes=tiny", name="gpu_server",
                                          environment=processes.FAKE_GPU)
        cls.addClassCleanup(cls.gpu_server.kill)
        cls.gpu_server.wait_until_serving()

        config = processes.prometheus_config(cls.folder,
                                             [cls.server.metrics_address, cls.gpu_server.metrics_address])
        cls.prometheus = processes.Prometheus(config, cls.folder)
        cls.addClassCleanup(cls.prometheus.kill)
        # Two scrapes before the load, so that a rate sees it all.
        processes.wait_for("both targets scraped twice", lambda: len(
            cls.prometheus.query("count_over_time(up[1m]) >= 2 and up == 1")) == 2)
        cls.load = Load(cls.server.address)
        gpu_load = Load(cls.gpu_server.address)
        # Series that begin with the first batch must have been scraped before the load, or their rates see none of it.
        for mode in ("tiny", "small"):
            cls.load.encode([os.path.join(processes.IMAGES, "rgba.png")], mode)
        processes.wait_for("the first batches scraped", lambda: len(
            cls.prometheus.query(cls.of_server("deepencoder_batch_compute_seconds_count") + " > 0")) == 2)
        gpu_load.encode([os.path.join(processes.IMAGES, "rgba.png")], "tiny")
        cls.drive()
        # What Prometheus has is what the server has once a scrape began after the load; rules follow a second later.
        answered = len(cls.load.unary) + len(cls.load.streamed)
        requests = cls.of_server('deepencoder_requests_total{method="EncodeImage"}')
        images = cls.of_server("deepencoder_stream_images_total")
        processes.wait_for("the load in Prometheus", lambda: cls.prometheus.value(
            f"sum({requests}) + sum({images})") == answered)
        processes.wait_for("the load in the rules", lambda: len(cls.prometheus.query(
            cls.of_server("instance_side:deepencoder_batch_fill:ratio_rate5m"))) == 2)  # the sides of tiny and small
        cls.prometheus.await_query("instance:deepencoder_graph_hits:ratio_rate5m")  # the GPU's

    @classmethod
    def of_server(cls, selector):
        """The selector, of the server on the CPU alone."""
        name, _, labels = selector.rstrip("}").partition("{")
        instance = f'instance="{cls.server.metrics_address}"'
        return f"{name}{{{labels}{',' if labels else ''}{instance}}}"

    @classmethod
    def drive(cls):
        truncated = os.path.join(cls.folder, "truncated.png")
        with open(os.path.join(processes.IMAGES, "page_gray.png"), "rb") as image, open(truncated, "wb") as cut:
            cut.write(image.read(1000))
        page, photo, small = (os.path.join(processes.IMAGES, name)
                              for name in ("page_gray.png", "photo_scene.jpg", "small_page.png"))
        jpegs = sorted(glob.glob(os.path.join(processes.IMAGES, "exif_*.jpg")))
        for image in (page, photo, small, page):  # the last from the cache
            cls.load.encode([image], "tiny")
        cls.load.encode([small], "small")
        cls.load.encode([truncated], "tiny")
        cls.load.encode([page], "base")  # not served
        cls.load.encode([*jpegs, truncated], "tiny")
        cls.load.encode([page, photo, truncated, small], "small")

    def series(self, name, label):
        """{value of the label: value of the metric} without zeros, summed over other labels."""
        return {labels[label]: value
                for labels, value in self.prometheus.await_query(f"sum by ({label}) ({self.of_server(name)}) > 0")}

    def test_requests_images_errors_and_tokens_equal_the_clients(self):
        load = self.load
        self.assertEqual(self.series('deepencoder_requests_total{method="EncodeImage"}', "code"),
                         {"OK": load.count(load.unary, "OK"),
                          "INVALID_ARGUMENT": load.count(load.unary, "INVALID_ARGUMENT")})
        self.assertEqual(self.series('deepencoder_requests_total{method="EncodeImages"}', "code"),
                         {"OK": load.streams})
        self.assertEqual(self.series("deepencoder_stream_images_total", "code"),
                         {"OK": load.count(load.streamed, "OK"),
                          "INVALID_ARGUMENT": load.count(load.streamed, "INVALID_ARGUMENT")})
        done = [line for line in load.unary + load.streamed if line["ok"]]
        self.assertEqual(load.count(load.unary, "INVALID_ARGUMENT"), 2)
        self.assertEqual(self.series("deepencoder_images_total", "mode"),
                         {mode: sum(line["mode"] == mode for line in done) for mode in ("tiny", "small")})
        self.assertEqual(self.prometheus.await_value(self.of_server("deepencoder_tokens_total")),
                         sum(line["shape"][0] for line in done))

    def test_median_is_within_a_bucket_of_the_clients(self):
        for method, lines in (("EncodeImage", self.load.unary), ("EncodeImages", self.load.streamed)):
            # A refused image has no times; it is quicker than any other.
            median = statistics.median_low([line["seconds"]["total"] if line["ok"] else 0 for line in lines])
            at = next(i for i, bound in enumerate(BOUNDS) if median <= bound)
            buckets = self.of_server(f'deepencoder_request_duration_seconds_bucket{{method="{method}"}}')
            found = self.prometheus.await_value(f"histogram_quantile(0.5, sum by (le) ({buckets}))")
            with self.subTest(method=method, median=median, found=found):
                self.assertGreaterEqual(found, BOUNDS[at - 2] if at > 1 else 0)
                self.assertLessEqual(found, BOUNDS[min(at + 1, len(BOUNDS) - 1)])

    def test_stages_are_counted_once_an_image(self):
        # Decoded: every image but the one the mode of which is not served. Computed: every image that is not a copy.
        computed = self.prometheus.await_value(
            f"""sum({self.of_server('deepencoder_stage_duration_seconds_count{stage="compute"}')})""")
        hits = self.prometheus.await_value(self.of_server('deepencoder_cache_requests_total{result="hit"}'))
        done = sum(line["ok"] for line in self.load.unary + self.load.streamed)
        self.assertGreater(hits, 0)
        self.assertEqual(computed + hits, done)

    def test_only_the_gpu_has_the_drivers_metrics_and_graphs(self):
        for name in ("deepencoder_gpu_utilization_ratio", "deepencoder_gpu_power_watts",
                     "instance:deepencoder_graph_hits:ratio_rate5m"):
            with self.subTest(name=name):
                self.assertEqual([labels["instance"] for labels, _ in self.prometheus.await_query(name)],
                                 [self.gpu_server.metrics_address])
        self.assertEqual(self.prometheus.await_value("instance:deepencoder_graph_hits:ratio_rate5m"), 1)

    def test_every_panel_has_data(self):
        for panel in panels():
            for target in panel["targets"]:
                with self.subTest(panel=panel["title"], query=target["expr"]):
                    # A rate needs two scrapes of a series, and some series begin with the load. A quantile of nothing
                    # is NaN, and a stage may have had nothing; all of them may not.
                    processes.wait_for("data that is a number", lambda query=resolved(target["expr"]): any(
                        math.isfinite(value) for _, value in self.prometheus.query(query)))

    def test_variables_have_values(self):
        for variable in dashboard()["templating"]["list"]:
            if variable["type"] != "query":
                continue
            selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()
            with self.subTest(variable=variable["name"]):
                samples = self.prometheus.await_query(resolved(selector))
                self.assertTrue(all(label in labels for labels, _ in samples), samples)

    def test_every_rule_is_evaluated_and_has_data(self):
        rules = [rule for group in self.prometheus.api("rules")["groups"] for rule in group["rules"]]
        self.assertTrue(rules)
        for rule in rules:
            with self.subTest(rule=rule["name"]):
                self.assertEqual(rule["health"], "ok", rule.get("lastError"))
                if rule["type"] == "recording":
                    self.prometheus.await_query(rule["name"])

    def test_nothing_is_named_that_the_server_does_not_have(self):
        table = subprocess.run([processes.SERVER, "--dump-metrics-docs"], stdout=subprocess.PIPE, text=True, check=True)
        known = set(re.findall(r"^\| `(\w+)`", table.stdout, re.M))
        used = set()
        for path in (DASHBOARD, *glob.glob(os.path.join(DEPLOY, "prometheus", "rules", "*.yml"))):
            with open(path, encoding="utf-8") as file:
                used |= set(re.findall(r"(?<![\w:])(?:deepencoder|process)_[a-z_]+_?[a-z]+(?=[{\[])", file.read()))
        self.assertTrue(used)
        self.assertEqual({re.sub(r"_(bucket|sum|count)$", "", name) for name in used} - known, set())


class DashboardTest(unittest.TestCase):
    def test_panels_say_what_they_show(self):
        for panel in panels():
            with self.subTest(panel=panel["title"]):
                defaults = panel["fieldConfig"]["defaults"]
                self.assertTrue(panel["description"].endswith("."))
                self.assertTrue(defaults["unit"])
                self.assertTrue(defaults["thresholds"]["steps"])
                self.assertEqual(panel["datasource"]["uid"], "${datasource}")
                for target in panel["targets"]:
                    self.assertTrue(target["legendFormat"])

    def test_panels_do_not_overlap(self):
        taken = set()
        for panel in dashboard()["panels"]:
            place = panel["gridPos"]
            self.assertLessEqual(place["x"] + place["w"], 24)
            cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                     for y in range(place["y"], place["y"] + place["h"])}
            self.assertFalse(taken & cells, panel["title"])
            taken |= cells

    def test_ids_are_unique_and_rows_are_there(self):
        ids = [panel["id"] for panel in dashboard()["panels"]]
        self.assertEqual(len(ids), len(set(ids)))
        rows = [panel["title"].split(":")[0].split(" ")[0] for panel in dashboard()["panels"] if panel["type"] == "row"]
        self.assertEqual(rows, ["Users", "Batcher", "GPU", "Saturation"])


class RulesTest(unittest.TestCase):
    def test_promtool_accepts_the_configuration(self):
        subprocess.run(["promtool", "check", "config", os.path.join(DEPLOY, "prometheus", "prometheus.yml")],
                       check=True, stdout=subprocess.DEVNULL)

    def test_alerts_fire_when_they_should(self):
        done = subprocess.run(["promtool", "test", "rules", "alerts_test.yml"], cwd=os.path.dirname(__file__) or ".",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_every_alert_is_tested_and_has_a_runbook(self):
        def read(*path):
            with open(os.path.join(*path), encoding="utf-8") as file:
                return file.read()
        names = re.findall(r"- alert: (\w+)", read(DEPLOY, "prometheus", "rules", "alerts.yml"))
        tests = read(os.path.dirname(os.path.abspath(__file__)), "alerts_test.yml")
        headings = {re.sub(r"[^\w -]", "", line).strip().lower().replace(" ", "-")
                    for line in re.findall(r"^#+ (.*)$", read(DEPLOY, "README.md"), re.M)}
        runbooks = re.findall(r"runbook: deploy/README.md#(\S+)", read(DEPLOY, "prometheus", "rules", "alerts.yml"))
        self.assertEqual(len(names), len(runbooks))
        self.assertEqual(set(runbooks) - headings, set())
        for name in names:
            with self.subTest(alert=name):
                self.assertRegex(tests, rf"alertname: {name}\n(?s:.*?)exp_labels")


if __name__ == "__main__":
    unittest.main(verbosity=2)
