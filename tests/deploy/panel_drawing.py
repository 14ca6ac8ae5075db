"""Panels of a dashboard as SVG: axes by the panel's unit, lines, stacks, heat maps, single values."""
import html
import math

COLOURS = ("#73bf69", "#f2cc0c", "#5794f2", "#ff780a", "#f2495c", "#b877d9", "#37872d", "#8ab8ff")
NAMED = {"green": "#73bf69", "orange": "#ff9830", "red": "#f2495c"}
DIM, GRID, TEXT = "#8e8e8e", "#2c3235", "#ccccdc"
MAX_LEGEND, TICKS = 3, 4
LETTER = 4.7  # width of one at the size of a legend, pixels

# Grafana's units that the dashboard uses: (from this value on, divided by, what is written behind it).
THOUSANDS = ((1e9, 1e9, " G"), (1e6, 1e6, " M"), (1e3, 1e3, " k"), (0, 1, ""))
SCALES = {
    "short": THOUSANDS,
    "reqps": ((1e3, 1e3, " k/s"), (0, 1, "/s")),
    "percentunit": ((0, 0.01, " %"),),
    "s": ((2 * 86400, 86400, " d"), (2 * 3600, 3600, " h"), (120, 60, " min"), (1, 1, " s"), (1e-3, 1e-3, " ms"), (0, 1e-6, " µs")),
    "bytes": ((2 ** 30, 2 ** 30, " GiB"), (2 ** 20, 2 ** 20, " MiB"), (2 ** 10, 2 ** 10, " KiB"), (0, 1, " B")),
    "watt": ((1e3, 1e3, " kW"), (0, 1, " W")),
    "hertz": ((1e9, 1e9, " GHz"), (1e6, 1e6, " MHz"), (0, 1, " Hz")),
    "celsius": ((0, 1, " °C"),),
}


def scale_of(value, unit):
    """(divisor, suffix) that values up to `value` are shown with."""
    return next((divisor, suffix) for least, divisor, suffix in SCALES[unit] if abs(value) >= least)


def shown(value, unit):
    divisor, suffix = scale_of(value, unit)
    if value == 0:
        divisor, suffix = SCALES[unit][-1][1:] if unit != "s" else (1, " s")
    return f"{value / divisor:.3g}{suffix}"


class Axis:
    """From 0 to a round number that `most` fits under, or to `limit` exactly. Nothing but zeros has an axis to 1 of the unit."""

    def __init__(self, most, unit, limit=None):
        most = limit or most or 1
        divisor, _ = scale_of(most, unit)
        step = most / divisor / TICKS
        if limit is None:
            power = 10.0 ** math.floor(math.log10(step))
            step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= step * (1 - 1e-9))
        self.count = min(TICKS, math.ceil(most / divisor / step - 1e-9))
        self.top = self.count * step * divisor
        divisor, self.suffix = scale_of(self.top, unit)  # the round number may have the next larger scale
        self.step = self.top / self.count / divisor

    def ticks(self):
        """[(share of the axis, text)]"""
        return [(i / self.count, f"{i * self.step:.6g}{self.suffix}" if i else "0") for i in range(self.count + 1)]

    def share(self, value):
        return min(value / self.top, 1)


class Series:
    """A line: points are (0 to 1 of the time shown, value); `right`: it has the right axis."""

    def __init__(self, legend, points, right=False):
        self.legend, self.points, self.right = legend, points, right

    def most(self):
        return max(value for _, value in self.points)


class Drawing:
    def __init__(self, width, height):
        self.width, self.height, self.parts = width, height, []

    def text(self, x, y, text, size=9, colour=TEXT, **more):
        attributes = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
        self.parts.append(f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{colour}"{attributes}>{html.escape(text)}</text>')

    def frame(self, x, y, width, height, title):
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="#181b1f" stroke="{GRID}"/>')
        self.text(x + 6, y + 13, title, 10, "#ffffff")

    def nothing(self, x, y, width, height):
        self.text(x + width / 2, y + height / 2, "No data", 10, DIM, text_anchor="middle")

    def single(self, text, colour, x, y, width, height):
        """A value in the middle of a panel; a long one in lines of words."""
        size = 20 if len(text) < 12 else 9
        lines, room = [""], width / (0.55 * size)
        for word in text.split():
            if len(lines[-1]) + len(word) < room:
                lines[-1] += f" {word}"
            else:
                lines.append(word)
        for i, line in enumerate(lines):
            self.text(x + width / 2, y + height / 2 + 12 + (i - (len(lines) - 1) / 2) * 1.3 * size, line.strip(), size, colour,
                      text_anchor="middle")

    def axis(self, axis, x, y, width, height, right=False):
        for share, label in axis.ticks():
            at = y + height * (1 - share)
            if right:
                self.text(x + width + 3, at + 3, label, 8, DIM)
            else:
                self.parts.append(f'<path d="M{x} {at:.1f}h{width}" stroke="{GRID}"/>')
                self.text(x - 3, at + 3, label, 8, DIM, text_anchor="end")

    def times(self, minutes, x, y, width, height):
        self.text(x, y + height + 11, f"-{minutes:g} min", 8, DIM)
        self.text(x + width, y + height + 11, "now", 8, DIM, text_anchor="end")

    def legend(self, entries, x, y, width):
        """entries: [(text, colour)]; what does not fit is counted."""
        for i, (text, colour) in enumerate(entries[:MAX_LEGEND]):
            more = f"  (+ {len(entries) - MAX_LEGEND} more)" if i == MAX_LEGEND - 1 < len(entries) - 1 else ""
            self.text(x, y + 10 * i, text[:int(width / LETTER) - len(more)] + more, 8, colour)

    def line(self, points, axis, colour, x, y, width, height, gap, dashed=False):
        """`gap`: points farther apart are not joined."""
        path, before = [], None
        for at, value in points:
            begins = before is None or at - before > gap
            path.append(f"{'M' if begins else 'L'}{x + width * at:.1f} {y + height * (1 - axis.share(value)):.1f}")
            before = at
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(f'<path d="{"".join(path)}" fill="none" stroke="{colour}"{dash}/>')

    def threshold(self, value, axis, colour, x, y, width, height):
        if value is not None and 0 < value <= axis.top:
            at = y + height * (1 - axis.share(value))
            self.parts.append(f'<path d="M{x} {at:.1f}h{width}" stroke="{colour}" stroke-dasharray="2 3"/>')

    def heat(self, rows, x, y, width, height, gap):
        """rows: [(label, [(time, value)])], the lowest first."""
        most = max((value for _, points in rows for _, value in points), default=0)
        cell = height / len(rows)
        for i, (label, points) in enumerate(rows):
            top = y + height - cell * (i + 1)
            self.text(x - 3, top + cell / 2 + 3, label, 8, DIM, text_anchor="end")
            for at, value in points:
                if value > 0:  # brightness as in the dashboard: the root of the share
                    self.parts.append(f'<rect x="{x + width * at:.1f}" y="{top:.1f}" width="{width * gap:.1f}" height="{cell - 1:.1f}" '
                                      f'fill="#ff9830" fill-opacity="{math.sqrt(value / most):.2f}"/>')

    def write(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
                       f'viewBox="0 0 {self.width} {self.height}" font-family="sans-serif">\n'
                       f'<rect width="{self.width}" height="{self.height}" fill="#111217"/>\n' + "\n".join(self.parts) + "\n</svg>\n")
