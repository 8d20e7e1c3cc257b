"""Charts of lines over two logarithmic axes, several to an SVG file.

The picture has a ground of its own, so that it can be read on a light page and on a dark one, and follows the reader's
choice where the viewer knows it. Lines differ in shape of their points, not in colour alone."""
import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT, COLUMNS = 520, 370, 2  # of one chart, and charts beside one another
LEFT, RIGHT, TOP, BOTTOM = 62, 18, 62, 46
# Lines 0 to 2 are the genuine server, ours over TCP, and ours over RDMA: benchmark_page.html has the same colours.
SHAPES = ("M0,-4.5L4.5,0L0,4.5L-4.5,0Z", "M-3.5,-3.5H3.5V3.5H-3.5Z", "M0,-4A4,4 0 1 1 0,4A4,4 0 1 1 0,-4Z",
          "M0,-4.5L4.2,3.5H-4.2Z")
LIGHT = {"ground": "#ffffff", "text": "#1f2328", "grid": "#d8dee4", "lines": ("#6e7781", "#0969da", "#cf4a0a",
                                                                              "#1a7f37")}
DARK = {"ground": "#0d1117", "text": "#e6edf3", "grid": "#30363d", "lines": ("#9aa4af", "#58a6ff", "#ff8a4c",
                                                                             "#3fb950")}


class Chart:
    def __init__(self, title, x_label, y_label, x_text, y_text):
        """x_text and y_text turn a number into the label of its grid line."""
        self.title, self.x_label, self.y_label = title, x_label, y_label
        self.x_text, self.y_text, self.lines = x_text, y_text, []

    def add(self, name, points):
        self.lines.append((name, [(x, y) for x, y in points if x > 0 and y > 0]))


def decades(low, high):
    """1, 2 and 5 of each power of ten within the limits, and the powers alone when that is too many."""
    ticks = [factor * 10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
             for factor in (1, 2, 5)]
    ticks = [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]
    return ticks if len(ticks) <= 7 else [tick for tick in ticks if abs(math.log10(tick) % 1) < 1e-6]


def limits(values):
    """The range of an axis: to the next of 1, 2, 5 outside the values."""
    steps = sorted(factor * 10.0**power for power in range(-9, 12) for factor in (1, 2, 5))
    return max(step for step in steps if step <= min(values) * 1.0001), min(step for step in steps
                                                                            if step >= max(values) * 0.9999)


class Scale:
    def __init__(self, low, high, start, end):
        self.low, self.ratio, self.start, self.end = math.log(low), math.log(high / low) or 1, start, end

    def __call__(self, value):
        return self.start + (math.log(value) - self.low) / self.ratio * (self.end - self.start)


def text(x, y, what, anchor="middle", kind="", turn=""):
    return '<text x="%.1f" y="%.1f" text-anchor="%s"%s%s>%s</text>' % (x, y, anchor, ' class="%s"' % kind if kind
                                                                       else "", turn, escape(what))


def draw(chart, left, top):
    xs = sorted({x for _, points in chart.lines for x, _ in points})
    low, high = limits([y for _, points in chart.lines for _, y in points])
    x_scale, y_scale = Scale(xs[0], xs[-1], left + LEFT, left + WIDTH - RIGHT), Scale(low, high, top + HEIGHT - BOTTOM,
                                                                                      top + TOP)
    out = [text(left + LEFT, top + 22, chart.title, "start", "title")]
    for tick in decades(low, high):
        y = y_scale(tick)
        out += ['<path class="grid" d="M%.1f,%.1fH%.1f"/>' % (left + LEFT, y, left + WIDTH - RIGHT),
                text(left + LEFT - 7, y + 4, chart.y_text(tick), "end")]
    shown = -100
    for x in xs:
        at = x_scale(x)
        out.append('<path class="grid" d="M%.1f,%.1fV%.1f"/>' % (at, top + TOP, top + HEIGHT - BOTTOM))
        if at - shown >= 30:
            out.append(text(at, top + HEIGHT - BOTTOM + 17, chart.x_text(x)))
            shown = at
    out.append(text(left + (LEFT + WIDTH - RIGHT) / 2, top + HEIGHT - 8, chart.x_label, kind="label"))
    middle = top + (TOP + HEIGHT - BOTTOM) / 2
    out.append(text(left + 13, middle, chart.y_label, kind="label", turn=' transform="rotate(-90 %.1f %.1f)"'
                    % (left + 13, middle)))
    legend = left + LEFT
    for number, (name, points) in enumerate(chart.lines):
        shape = '<path class="point%d" d="%s" transform="translate(%%.1f %%.1f)"/>' % (number,
                                                                                       SHAPES[number % len(SHAPES)])
        places = [(x_scale(x), y_scale(y)) for x, y in points]
        out.append('<path class="line%d" d="M%s"/>' % (number, "L".join("%.1f,%.1f" % place for place in places)))
        out += [shape % place for place in places]
        out += ['<path class="line%d" d="M%.1f,%.1fh18"/>' % (number, legend, top + 40), shape % (legend + 9, top + 40),
                text(legend + 23, top + 44, name, "start")]
        legend += 36 + 6.4 * len(name)
    return out


def style(colours):
    rules = [".ground{fill:%(ground)s}text{fill:%(text)s}.grid{stroke:%(grid)s}" % colours]
    for number, colour in enumerate(colours["lines"]):
        rules.append(".line%d{stroke:%s}.point%d{fill:%s}" % (number, colour, number, colour))
    return "".join(rules)


def write_svg(path, charts, note):
    rows = (len(charts) + COLUMNS - 1) // COLUMNS
    width, height = WIDTH * min(COLUMNS, len(charts)), HEIGHT * rows + 28
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" '
           'aria-label="%s">' % (
        width, height, width, height, escape(note, {'"': "&quot;"})),
        "<style>text{font:12px system-ui,-apple-system,'Segoe UI',"
        "sans-serif}.title{font-size:15px;font-weight:600}.note{font-size:11px}"
        ".grid{fill:none;stroke-width:1}[class^=line]{fill:none;stroke-width:2;stroke-linejoin:round}%s@media "
        "(prefers-color-scheme:dark){%s}</style>" % (style(LIGHT), style(DARK)),
        '<rect class="ground" width="%d" height="%d" rx="6"/>' % (width, height)]
    for number, chart in enumerate(charts):
        out += draw(chart, number % COLUMNS * WIDTH, number // COLUMNS * HEIGHT)
    out += [text(14, height - 12, note, "start", "note"), "</svg>"]
    with open(path, "w") as file:
        file.write("\n".join(out) + "\n")
