#!/usr/bin/env python3
"""Draws the dashboard's panels as an SVG file from what a Prometheus holds, for those who have no Grafana at hand.

    dashboard_picture.py PROMETHEUS_URL OUT.svg [--minutes 5] [--title TEXT]
    dashboard_picture.py --run OUT.svg [--minutes 5]

Every panel is where the dashboard puts it, with its title, its queries as Grafana would send them, the unit, and a legend of
the first series. --run starts a Prometheus, a server on the CPU and one with stand-ins for a GPU and its driver, sends both
images at a changing pace, and draws what was scraped.
"""
import argparse
import glob
import html
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import processes  # noqa: E402

DASHBOARD = os.path.join(processes.SOURCE, "deploy", "grafana", "dashboards", "deepencoder.json")
CELL_WIDTH, CELL_HEIGHT = 48, 20  # of Grafana's grid of 24 columns, in pixels
POINTS = 60  # of a line
COLOURS = ("#73bf69", "#f2cc0c", "#5794f2", "#ff780a", "#f2495c", "#b877d9", "#37872d", "#8ab8ff")
MAX_LEGEND = 3


def shown(value, unit):
    """A value as a panel's axis has it."""
    if value is None or not math.isfinite(value):
        return "–"
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    for step, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= step:
            return f"{value / step:.3g} {letter}"
    if unit in ("s", "dtdurations") and 0 < abs(value) < 1:
        return f"{1000 * value:.3g} ms"
    return f"{value:.3g}"


class Picture:
    def __init__(self, prometheus, minutes):
        self.prometheus, self.end, self.seconds = prometheus, time.time(), 60 * minutes
        self.parts = []

    def series(self, panel):
        """[(legend, [(x from 0 to 1, value)])] of a panel."""
        found = []
        step = self.seconds / POINTS
        for target in panel["targets"]:
            query = target["expr"]
            for name, value in (("$instance", ".*"), ("$device", ".*"), ("$__rate_interval", "30s")):
                query = query.replace(name, value)
            data = self.prometheus.api("query_range", query=query, start=self.end - self.seconds, end=self.end, step=step)
            for result in data["result"]:
                legend = target["legendFormat"]
                for label, text in result["metric"].items():
                    legend = legend.replace("{{" + label + "}}", text)
                points = [((float(when) - self.end + self.seconds) / self.seconds, float(value))
                          for when, value in result["values"] if math.isfinite(float(value))]
                if points:
                    found.append((legend, points))
        return found

    def text(self, x, y, text, size=9, colour="#ccccdc", **more):
        attributes = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
        self.parts.append(f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{colour}"{attributes}>'
                          f"{html.escape(text)}</text>")

    def draw(self, panel):
        place = panel["gridPos"]
        x, y = place["x"] * CELL_WIDTH + 2, place["y"] * CELL_HEIGHT + 32
        width, height = place["w"] * CELL_WIDTH - 4, place["h"] * CELL_HEIGHT - 4
        if panel["type"] == "row":
            self.text(x + 4, y + 13, panel["title"], 12, "#ffffff", font_weight="bold")
            return
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="#181b1f" stroke="#2c3235"/>')
        self.text(x + 6, y + 13, panel["title"], 10, "#ffffff")
        unit, series = panel["fieldConfig"]["defaults"]["unit"], self.series(panel)
        if not series:
            self.text(x + width / 2, y + height / 2, "No data", 10, "#8e8e8e", text_anchor="middle")
        elif panel["type"] == "stat":
            legend, points = series[0]
            value = legend if panel["title"] == "Running" else shown(points[-1][1], unit)
            size = 20 if len(value) < 12 else 8
            self.text(x + width / 2, y + height / 2 + 12, value[:44], size, COLOURS[0], text_anchor="middle")
        else:
            self.lines(series, unit, x + 42, y + 20, width - 50, height - 34 - 10 * min(len(series), MAX_LEGEND))

    def lines(self, series, unit, x, y, width, height):
        values = [value for _, points in series for _, value in points]
        low, high = min(0, *values), max(*values, 0) or 1
        for share in (0, 0.5, 1):
            at = y + height * (1 - share)
            self.parts.append(f'<path d="M{x} {at:.0f}h{width}" stroke="#2c3235"/>')
            self.text(x - 3, at + 3, shown(low + share * (high - low), unit), 8, "#8e8e8e", text_anchor="end")
        for i, (legend, points) in enumerate(series):
            colour = COLOURS[i % len(COLOURS)]
            line = " ".join(f"{x + width * at:.0f},{y + height * (1 - (value - low) / (high - low)):.0f}"
                            for at, value in points)
            self.parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}"/>')
            if i < MAX_LEGEND:
                more = f"  (+ {len(series) - MAX_LEGEND} more)" if i == MAX_LEGEND - 1 < len(series) - 1 else ""
                self.text(x, y + height + 13 + 10 * i, (legend + more)[:int(width / 4.6)], 8, colour)

    def write(self, path, title):
        with open(DASHBOARD, encoding="utf-8") as file:
            panels = json.load(file)["panels"]
        self.text(6, 20, title, 12, "#ffffff")
        for panel in panels:
            self.draw(panel)
        rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
        width, height = 24 * CELL_WIDTH, rows * CELL_HEIGHT + 36
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                       f'viewBox="0 0 {width} {height}" font-family="sans-serif">\n'
                       f'<rect width="{width}" height="{height}" fill="#111217"/>\n' + "\n".join(self.parts) + "\n</svg>\n")


class Remote(processes.Prometheus):
    """A Prometheus that is there already."""

    def __init__(self, url):  # pylint: disable=super-init-not-called
        self.url = url


def drive(address, modes, stop):
    """Sends images at a pace that changes, now and then one that cannot be decoded, until `stop` is set."""
    random.seed(1)
    images = sorted(glob.glob(os.path.join(processes.IMAGES, "*.png")) + glob.glob(os.path.join(processes.IMAGES, "*.jpg")))
    while not stop.is_set():
        chosen = random.choices(images, k=random.choice((1, 2, 8)))
        if random.random() < 0.1:
            chosen[0] = DASHBOARD  # no image
        subprocess.run([processes.CLIENT, "encode", *chosen, "--server", address, "--mode", random.choice(modes), "--json",
                        "--concurrency", "6"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        stop.wait(random.choice((0, 0, 0.5, 2)))


def run(path, minutes):
    with tempfile.TemporaryDirectory() as folder:
        model = processes.synthesize(os.path.join(folder, "model"))
        servers = [processes.Server(model, folder, "--modes=tiny,small,base", "--cache-bytes=4MiB", name="cpu"),
                   processes.Server(model, folder, "--device=cuda", "--modes=tiny,base", name="gpu",
                                    environment=processes.FAKE_GPU)]
        prometheus, stop, drivers = None, threading.Event(), []
        try:
            addresses = [server.wait_until_serving().metrics_address for server in servers]
            config = processes.prometheus_config(folder, addresses)
            prometheus = processes.Prometheus(config, folder)
            drivers = [threading.Thread(target=drive, args=(server.address, modes, stop))
                       for server, modes in zip(servers, (("tiny", "small", "base"), ("tiny", "base")))]
            for driver in drivers:
                driver.start()
            time.sleep(60 * minutes)
            Picture(prometheus, minutes).write(path, "deepencoder: a server on the CPU, and one with the tests' stand-ins for a "
                                                     "GPU and its driver (the GPU's values are made up)")
        finally:
            stop.set()
            for driver in drivers:
                driver.join()
            for process in (*servers, *([prometheus] if prometheus else [])):
                process.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("prometheus", nargs="?")
    parser.add_argument("out")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--title", default="deepencoder")
    options = parser.parse_args()
    if options.run:
        run(options.out, options.minutes)
    elif options.prometheus:
        Picture(Remote(options.prometheus), options.minutes).write(options.out, options.title)
    else:
        parser.error("either a Prometheus or --run")


if __name__ == "__main__":
    main()
