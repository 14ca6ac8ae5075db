#!/usr/bin/env python3
"""Draws the dashboard's panels as an SVG file from what a Prometheus holds, for those who have no Grafana at hand.

    dashboard_picture.py PROMETHEUS_URL OUT.svg [--minutes 5] [--title TEXT]
    dashboard_picture.py --run OUT.svg [--minutes 5]

Every panel is where the dashboard puts it, with its title, its queries as Grafana would send them, axes in its unit, its
thresholds, and a legend of the series that reach highest. --run starts a Prometheus, a server on the CPU and one with stand-ins
for a GPU and its driver, sends both images at a changing pace, now and then too many or with too little time, and draws what was
scraped.
"""
import argparse
import glob
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
import panel_drawing as drawing  # noqa: E402
import processes  # noqa: E402

DASHBOARD = os.path.join(processes.SOURCE, "deploy", "grafana", "dashboards", "deepencoder.json")
CELL_WIDTH, CELL_HEIGHT = 48, 20  # of Grafana's grid of 24 columns, in pixels
POINTS = 60  # of a line
MAX_IN_FLIGHT = 12  # images, of the servers of --run
GAP = 1.5 / POINTS  # of a line that has stopped, as a share of the time shown


def is_right(panel, legend):
    """Whether the dashboard gives the series of this name the right axis."""
    return any(override["matcher"] == {"id": "byName", "options": legend}
               and {"id": "custom.axisPlacement", "value": "right"} in override["properties"]
               for override in panel["fieldConfig"]["overrides"])


def stacked(series):
    """The series that are not all zero, each on top of those before it; the first if all are."""
    height, result = {}, []
    for one in [one for one in series if one.most() > 0] or series[:1]:
        for at, value in one.points:
            height[at] = height.get(at, 0) + value
        result.append(drawing.Series(one.legend, [(at, height[at]) for at, _ in one.points]))
    return result


def differences(series):
    """Rows of a heat map from a histogram's cumulative buckets: the label is the bucket's upper bound."""
    buckets = sorted((float(one.legend.replace("+Inf", "inf")), one) for one in series)
    below, rows = {}, []
    for _, one in buckets:
        rows.append((one.legend, [(at, value - below.get(at, 0)) for at, value in one.points]))
        below = dict(one.points)
    return rows


class Picture:
    def __init__(self, prometheus, minutes):
        self.prometheus, self.end, self.seconds = prometheus, time.time(), 60 * minutes

    def series(self, panel):
        """What a panel shows."""
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
                points = [(round((float(when) - self.end + self.seconds) / self.seconds, 6), float(value))
                          for when, value in result["values"] if math.isfinite(float(value))]
                if points:
                    found.append(drawing.Series(legend, points, is_right(panel, legend)))
        return found

    def draw(self, to, panel):
        place = panel["gridPos"]
        x, y = place["x"] * CELL_WIDTH + 2, place["y"] * CELL_HEIGHT + 32
        width, height = place["w"] * CELL_WIDTH - 4, place["h"] * CELL_HEIGHT - 4
        if panel["type"] == "row":
            to.text(x + 4, y + 13, panel["title"], 12, "#ffffff", font_weight="bold")
            return
        to.frame(x, y, width, height, panel["title"])
        series = self.series(panel)
        if not series:
            to.nothing(x, y, width, height)
        elif panel["type"] == "stat":
            self.stat(to, panel, series[0], (x, y, width, height))
        else:
            draw = self.heat_map if panel["type"] == "heatmap" else self.lines
            draw(to, panel, series, (x + 50, y + 22, width - 58, height - 72))

    def stat(self, to, panel, series, place):
        value, defaults = series.points[-1][1], panel["fieldConfig"]["defaults"]
        reached = [step["color"] for step in defaults["thresholds"]["steps"] if step["value"] is None or value >= step["value"]]
        by_name = panel["options"]["textMode"] == "name"
        to.single(series.legend if by_name else drawing.shown(value, defaults["unit"]), drawing.NAMED[reached[-1]], *place)

    def heat_map(self, to, panel, series, place):
        to.heat(differences(series), *place, 1 / POINTS)
        to.times(self.seconds / 60, *place)

    def lines(self, to, panel, series, place):
        defaults = panel["fieldConfig"]["defaults"]
        series.sort(key=drawing.Series.most, reverse=True)
        legend = [(one.legend + (" (right)" if one.right else ""), drawing.COLOURS[i % len(drawing.COLOURS)])
                  for i, one in enumerate(series)]
        left, right = ([one for one in series if one.right is side] for side in (False, True))
        if right:
            place = (*place[:2], place[2] - 34, place[3])
        if defaults["custom"]["stacking"]["mode"] == "normal":
            left = series = stacked(series)
        for side, lines in (("left", left), ("right", right)):
            if not lines:
                continue
            axis = drawing.Axis(max(one.most() for one in lines), defaults["unit"], defaults.get("max"))
            to.axis(axis, *place, right=side == "right")
            if side == "left" and "line" in defaults["custom"]["thresholdsStyle"]["mode"]:
                for step in defaults["thresholds"]["steps"]:
                    to.threshold(step["value"], axis, drawing.NAMED[step["color"]], *place)
            for one in reversed(lines):  # the first of the legend on top
                to.line(one.points, axis, legend[series.index(one)][1], *place, GAP, dashed=side == "right")
        to.times(self.seconds / 60, *place)
        to.legend(legend, place[0] - 44, place[1] + place[3] + 24, place[2] + 44)

    def write(self, path, title):
        with open(DASHBOARD, encoding="utf-8") as file:
            panels = json.load(file)["panels"]
        rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
        to = drawing.Drawing(24 * CELL_WIDTH, rows * CELL_HEIGHT + 36)
        to.text(6, 20, title, 12, "#ffffff")
        for panel in panels:
            self.draw(to, panel)
        to.write(path)


class Remote(processes.Prometheus):
    """A Prometheus that is there already."""

    def __init__(self, url):  # pylint: disable=super-init-not-called
        self.url = url


def drive(address, modes, stop):
    """Sends images at a pace that changes until `stop` is set: now and then one that cannot be decoded, more than the server
    takes at a time, or some that have too little time."""
    random.seed(1)
    images = sorted(glob.glob(os.path.join(processes.IMAGES, "*.png")) + glob.glob(os.path.join(processes.IMAGES, "*.jpg")))
    while not stop.is_set():
        chosen = random.choices(images, k=random.choice((1, 2, 8)))
        flags = ["--concurrency=6"]
        if random.random() < 0.1:
            chosen[0] = DASHBOARD  # no image
        if random.random() < 0.05:
            chosen, flags = 3 * chosen, [f"--concurrency={2 * MAX_IN_FLIGHT}"]
        if random.random() < 0.05:
            chosen, flags = 4 * chosen, ["--concurrency=8", "--timeout=200ms"]
        subprocess.run([processes.CLIENT, "encode", *chosen, *flags, f"--server={address}", f"--mode={random.choice(modes)}",
                        "--json"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        stop.wait(random.choice((0, 0, 0.5, 2)))


def run(path, minutes):
    with tempfile.TemporaryDirectory() as folder:
        model = processes.synthesize(os.path.join(folder, "model"))
        bound = f"--max-images-in-flight={MAX_IN_FLIGHT}"
        servers = [processes.Server(model, folder, "--modes=tiny,small,base", "--cache-bytes=4MiB", bound, name="cpu"),
                   processes.Server(model, folder, "--device=cuda", "--modes=tiny,base", bound, name="gpu",
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
