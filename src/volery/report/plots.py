"""Pictures as SVG text: the same input gives the same bytes.

Text stays text, so that a page can choose the font and a reader can search it. Colours are Okabe and Ito's, told apart
by colour-blind readers, and three dark ones; line styles and markers tell ten lines apart where there is no colour.
"""

from __future__ import annotations

import io
import re
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np

from volery.look.text import LINE_MAX, broken_label, duration, shortened, straight
from volery.metrics import ConstraintLoad
from volery.metrics.arrays import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from volery.report.parquet import ConflictTable

PALETTE: Final = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#7f7f7f",
    "#4b2e83",
    "#8c510a",
    "#01665e",
)
DASHES: Final = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (7, 2, 1.5, 2)))
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "<", "*", ">")
FEW = 4
"""The number of lines that colour and dashes alone tell apart; more lines get markers, or a strip each."""
INK: Final = "#1f2328"
GRID: Final = "#d0d7de"
PAGE: Final = "#fefefe"
"""Stands for the colour of the page behind a picture."""
WIDTH_INCHES, HEIGHT_INCHES = 6.2, 3.8
LEGEND_LINE_INCHES, LEGEND_HANDLE_INCHES, LEGEND_LETTER_INCHES = 0.22, 0.8, 0.082
LEGEND_LETTERS = 54
"""A longer label takes several lines of the legend; a legend wider than the picture would leave no room for that."""
STRIP_INCHES = 0.85
STRIPS_POINTS = 10_000
"""The number of points of all strips of a picture together: as many as ten runs keep."""
UNDATED: Final[Mapping[str, dict[str, Any]]] = {
    ".svg": {"Date": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""Endings of pictures, with what keeps a date and a version out of the file."""
PRINT_DPI: Final = 300
PAGE_FONT: Final = 11.5
LEGEND_FONT: Final = 0.87
"""Size of letters in legends, of that of others."""
CURVE_POINTS = 300
"""A curve is thinned to about so many points; a screen shows no more."""
_STYLE_LOCK: Final = threading.RLock()


class Size(NamedTuple):
    """Width and height of a picture without its legend in inches, and the size of its letters in points."""

    width: float = WIDTH_INCHES
    height: float = HEIGHT_INCHES
    font: float = PAGE_FONT

    @property
    def scale(self) -> float:
        """Letters and lines, of those on a page."""
        return self.font / PAGE_FONT


SCREEN: Final = Size()


class Series(msgspec.Struct, frozen=True, eq=False):
    """The values of a group of runs in a picture: one array per seed (delays in seconds), or x and y per seed."""

    label: str
    per_seed: tuple[Floats, ...]


class SeedCurves(msgspec.Struct, frozen=True, eq=False):
    """A quantity over time for a group of runs; times in seconds, per seed."""

    label: str
    times_s: tuple[Floats, ...]
    values: tuple[Floats, ...]


def delay_cdf(series: Sequence[Series], *, title: str = "") -> str:
    """Cumulative fractions of jobs by delay: a bold line over all seeds, a thin one per seed."""
    with style():
        return svg_text(delay_figure(series, title), 0)


def delay_figure(series: Sequence[Series], title: str = "", size: Size = SCREEN) -> Figure:
    """The picture of `delay_cdf`; it is made, and written, within `style`."""
    columns, lines = legend_size([drawn_series.label for drawn_series in series], size)
    figure, axes = new_figure(lines, title, size)
    pooled = [
        np.sort(np.concatenate(drawn_series.per_seed)) if drawn_series.per_seed else np.zeros(0)
        for drawn_series in series
    ]
    _delay_axis(axes, [delays for delays in pooled if delays.size], 8 if size.width > WIDTH_INCHES / 1.5 else 4)

    for place, (drawn_series, delays) in enumerate(zip(series, pooled, strict=True)):
        if len(drawn_series.per_seed) > 1:
            for seed in drawn_series.per_seed:
                axes.step(
                    *_cdf(np.sort(seed)), where="post", color=colour(place), linewidth=0.6 * size.scale, alpha=0.45
                )

        x, y = _cdf(delays)
        axes.step(
            x,
            y,
            where="post",
            color=colour(place),
            linestyle=dash(place),
            linewidth=1.9 * size.scale,
            label=in_legend(drawn_series.label),
            **(_marks(place, size) if len(series) > FEW else {}),
        )

    axes.set_ylim(0, 1.02)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 0.9, 1], ["0", "25 %", "50 %", "75 %", "90 %", "100 %"])
    axes.set_ylabel("share of jobs")
    axes.set_xlabel("delay of a job is at most (log scale)")
    add_legend(axes, columns)
    return figure


def utilisation_curves(curves: Sequence[SeedCurves], *, title: str = "") -> str:
    """Utilisation over time: the mean over seeds as a line, the range over seeds as a band."""
    with style():
        last = max((float(times[-1]) for curve in curves for times in curve.times_s if times.size), default=1.0)
        divisor, unit = time_unit(last)
        if len(curves) > FEW:
            return _strips(curves, divisor, unit, title)

        columns, lines = legend_size([curve.label for curve in curves])
        figure, axes = new_figure(lines, title)
        for place, curve in enumerate(curves):
            _draw_curve(axes, curve, divisor, color=colour(place), linestyle=dash(place), label=in_legend(curve.label))

        _share_axes(axes)
        axes.set_xlabel(f"time since the first job was submitted ({unit})")
        axes.set_ylabel("busy slots / slots")
        return svg_text(figure, columns)


def time_unit(last_s: float) -> tuple[float, str]:
    """The unit of an axis of time that ends there: its seconds, and its sign."""
    return (1.0, "s") if last_s < 600 else (60.0, "min") if last_s < 36_000 else (3600.0, "h")


def _strips(curves: Sequence[SeedCurves], divisor: float, unit: str, title: str) -> str:
    """Many curves hide each other: a strip for each, with the first in grey behind it."""
    figure = blank_figure(0.6 + STRIP_INCHES * len(curves), title)
    strips = figure.subplots(len(curves), 1, sharex=True, sharey=True)
    points_per_strip = max(1, STRIPS_POINTS // len(curves))

    for place, (axes, curve) in enumerate(zip(strips, curves, strict=True)):
        axes.patch.set_visible(False)
        if place:
            # All strips share their axes, so that a strip shows a curve against the first one at the same height.
            _draw_curve(
                axes, curves[0], divisor, points_per_strip, color=PALETTE[6], linestyle="-", linewidth=0.9, alpha=0.7
            )
        _draw_curve(axes, curve, divisor, points_per_strip, color=PALETTE[0], linestyle="-")
        grey_note = f" (grey: {shortened(curves[0].label, LINE_MAX)})" if place == 1 else ""
        axes.set_title(literal(shortened(curve.label, LINE_MAX) + grey_note), loc="left", fontsize=10, pad=2)

    _share_axes(strips[0])
    strips[-1].set_xlabel(f"time since the first job was submitted ({unit})")
    figure.supylabel("busy slots / slots", fontsize=11.5)
    return svg_text(figure, 0)


def _draw_curve(axes: Axes, curve: SeedCurves, divisor: float, points_max: int = STRIPS_POINTS, **style: Any) -> None:
    """The mean over seeds, and the range over seeds as a band; of at most so many points, each for its neighbours."""
    times, low, mean, high = over_seeds(curve)
    if not times.size:
        return

    if times.size > points_max:
        # Neighbours become one point: their mean, and for the band the least and the largest of them.
        first = np.arange(0, times.size, -(-times.size // points_max))
        mean = np.add.reduceat(mean, first) / np.diff(first, append=times.size)
        times, low, high = times[first], np.minimum.reduceat(low, first), np.maximum.reduceat(high, first)

    if len(curve.values) > 1:
        axes.fill_between(times / divisor, low, high, color=style["color"], alpha=0.18, linewidth=0)
    axes.plot(times / divisor, mean, **({"linewidth": 1.5} | style))


def _share_axes(axes: Axes) -> None:
    """An axis of shares from zero, in percent, over time from zero."""
    top = axes.get_ylim()[1]
    axes.set_ylim(0, min(1.02, max(top, 0.05)) if top <= 1.2 else top)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
    axes.set_xlim(left=0)


def constraint_load_bars(loads: Sequence[ConstraintLoad], *, title: str = "") -> str:
    """Load per constraint: the mean as a bar, median, 95th and 99th percentile as marks."""
    with style():
        figure, axes = new_figure(2, title)

        places = np.arange(len(loads))
        axes.bar(places, [load.mean for load in loads], color=PALETTE[5], width=0.7, label="mean")
        for name, marker, place, values in (
            ("median", "_", 6, [load.median for load in loads]),
            ("95th percentile", "o", 0, [load.p95 for load in loads]),
            ("99th percentile", "^", 1, [load.p99 for load in loads]),
        ):
            face = INK if marker == "_" else PALETTE[place]
            axes.plot(
                places, values, linestyle="", marker=marker, color=face, markersize=6, markeredgewidth=1.8, label=name
            )

        axes.set_xticks(places, [str(load.constraint) for load in loads], fontsize=9)
        axes.grid(visible=False, axis="x")
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("placement constraint")
        axes.set_ylabel("slots needed / slots that have it")
        add_legend(axes, columns=2, handlelength=1.6)
        return svg_text(figure, 0)


def conflict_curves(conflicts: ConflictTable, *, title: str = "") -> str:
    """Conflicts per second over time: means as lines, and bands up to the largest of each interval."""
    with style():
        divisor, unit = time_unit(float(conflicts.end_s[-1]))
        figure, axes = new_figure(1, title)

        times = np.append(conflicts.begin_s, conflicts.end_s[-1]) / divisor
        for place, kind in enumerate(conflicts.mean):
            mean, largest = (
                np.append(values[kind], values[kind][-1]) for values in (conflicts.mean, conflicts.largest)
            )
            axes.fill_between(times, mean, largest, step="post", color=PALETTE[place], alpha=0.18, linewidth=0)
            axes.step(times, mean, where="post", color=PALETTE[place], linewidth=1.4, label=kind)

        axes.set_xlim(float(times[0]), float(times[-1]))
        axes.set_ylim(bottom=0)
        axes.set_xlabel(f"time since the run began ({unit})")
        axes.set_ylabel("tasks")
        add_legend(axes, columns=2, handlelength=1.6)
        return svg_text(figure, 0)


def allocation_bars(parts: Mapping[str, Sequence[float]], labels: Sequence[str], *, title: str = "") -> str:
    """Mean allocation time per task by label, split into its parts.

    Args:
        parts: name of the part -> its mean in seconds, per label.
    """
    with style():
        figure, axes = new_figure(1, title, Size(height=0.9 + 0.68 * len(labels)))
        places = np.arange(len(labels))
        totals_s = np.sum([np.asarray(values) for values in parts.values()], axis=0)

        # Shares, not seconds: a bar of a slow design would press those of the others to nothing.
        left_end = np.zeros(len(labels))
        for place, (name, values) in enumerate(parts.items()):
            share = np.divide(values, totals_s, out=np.zeros(len(labels)), where=totals_s > 0)
            axes.barh(places, share, left=left_end, height=0.45, color=PALETTE[place], label=name)
            left_end += share

        for place, (label, total) in enumerate(zip(labels, totals_s, strict=True)):
            axes.text(
                0,
                place - 0.32,
                literal(f"{shortened(label, LINE_MAX)}: {duration(float(total))}"),
                va="bottom",
                ha="left",
                fontsize=10,
            )

        axes.set_yticks([])
        axes.set_ylim(len(labels) - 0.6, -0.75)
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        axes.set_xlabel("share of the mean allocation time of a task")
        axes.grid(visible=False)
        add_legend(axes, columns=2, handlelength=1.6)
        return svg_text(figure, 0)


def colour(place: int) -> str:
    """The colour of the line at a place in the legend."""
    return PALETTE[place % len(PALETTE)]


def dash(place: int) -> Any:
    """The line style at a place in the legend."""
    return DASHES[place % len(DASHES)]


def _marks(place: int, size: Size) -> dict[str, Any]:
    """A marker at even distances along the line at a place in the legend, shifted so that they do not coincide."""
    return {
        "marker": MARKERS[place % len(MARKERS)],
        "markersize": 5.5 * size.scale,
        "markevery": (0.02 * (place + 1), 0.22),
    }


def legend_size(labels: Sequence[str], size: Size = SCREEN) -> tuple[int, int]:
    """Columns, as many as the labels leave room for, at most five; and lines, those of broken labels included."""
    broken = [broken_label(shortened(label), LEGEND_LETTERS) for label in labels]

    letters = max((len(line) for label_lines in broken for line in label_lines), default=0)
    inches = size.scale * (LEGEND_HANDLE_INCHES + LEGEND_LETTER_INCHES * letters)
    columns = max(1, min(5, len(labels), int((size.width - 0.7 * size.scale) / inches)))
    return columns, -(-sum(map(len, broken)) // columns)


def in_legend(label: str) -> str:
    """A label as legends show it, in lines that fit."""
    return literal("\n".join(line.rstrip() for line in broken_label(shortened(label), LEGEND_LETTERS)))


def _cdf(ordered: Floats) -> tuple[Floats, Floats]:
    """Steps of the empirical distribution function, thinned evenly in share and finely in the tail."""
    count = ordered.size
    if not count:
        return np.zeros(0), np.zeros(0)
    ranks = np.arange(1, count + 1)
    if count > CURVE_POINTS:
        body = np.linspace(1, count, CURVE_POINTS // 2)
        tail = count + 1 - np.geomspace(1, count, CURVE_POINTS // 2)
        ranks = np.unique(np.rint(np.concatenate((body, tail))).astype(np.int64))
    return np.insert(ordered[ranks - 1], 0, ordered[0]), np.insert(ranks / count, 0, 0.0)


def _delay_axis(axes: Axes, samples: Iterable[Floats], ticks_max: int) -> None:
    """A logarithmic axis of durations; a linear stretch below the smallest delay makes room for zero."""
    samples = list(samples)

    positive = [float(sample[sample > 0].min()) for sample in samples if (sample > 0).any()]
    if not positive:
        axes.set_xlim(-0.05, 1)
        axes.set_xticks([0], ["0"])
        return

    low, high = min(positive), max(float(sample.max()) for sample in samples)
    floor = 10.0 ** np.floor(np.log10(low))
    decades = np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high * 1.0001)) + 1)
    stride = -(-len(decades) // ticks_max)
    ticks = [float(10.0**decade) for decade in decades[::stride]]

    if any(float(sample[0]) <= 0 for sample in samples):
        # A logarithmic axis has no zero: the linear stretch shows it.
        axes.set_xscale("symlog", linthresh=floor, linscale=0.5)
        axes.set_xlim(-floor * 0.1, high * 1.3)
        ticks = [0.0, *ticks]
    else:
        axes.set_xscale("log")
        axes.set_xlim(floor if low < 3 * floor else low / 1.3, max(high * 1.3, low * 10))

    left_end, right = axes.get_xlim()
    axes.set_xticks([tick for tick in ticks if left_end <= tick <= right])
    axes.set_xticks([], minor=True)
    axes.xaxis.set_major_formatter(lambda value, _: tick(value))


def tick(seconds: float) -> str:
    """A power of ten of seconds, short: 1 ms, 10 s, 1,000 s."""
    if seconds == 0:
        return "0"
    for unit_s, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= unit_s * 0.999:
            return f"{seconds / unit_s:,.4g} {unit}".replace("1e+04", "10,000").replace("1e+05", "100,000")
    return f"{seconds / 1e-6:.3g} µs"


def over_seeds(curve: SeedCurves) -> tuple[Floats, Floats, Floats, Floats]:
    """Times, and lowest, mean and highest value over the seeds; a run that has ended counts as zero.

    Values are averages of intervals, of those of the longest run here: what was the sum over time remains it.
    """
    runs = [(times, values) for times, values in zip(curve.times_s, curve.values, strict=True) if times.size]
    if not runs:
        return (np.zeros(0),) * 4
    if len(runs) == 1:
        times, values = runs[0]
        return times, values, values, values
    longest = max((times for times, _ in runs), key=lambda times: float(times[-1]))
    table = np.stack([_averages(_edges(longest), _edges(times), values) for times, values in runs])
    return longest, table.min(axis=0), table.mean(axis=0), table.max(axis=0)


def _edges(begins: Floats) -> Floats:
    """Bounds of intervals that follow each other; the last is as long as the one before."""
    return np.append(begins, 2 * begins[-1] - begins[-2] if begins.size > 1 else begins[-1] + 1)


def _averages(edges: Floats, own_edges: Floats, values: Floats) -> Floats:
    """The averages of other intervals of what has these averages over its own, and is zero outside."""
    total = np.append(0.0, np.cumsum(values * np.diff(own_edges)))
    return np.asarray(np.diff(np.interp(edges, own_edges, total)) / np.diff(edges))


@contextmanager
def style(size: Size = SCREEN) -> Iterator[None]:
    """The look of every picture, while the context lasts; other threads wait, since matplotlib has one look for all."""
    import matplotlib as mpl

    with (
        _STYLE_LOCK,
        mpl.rc_context(
            {
                "svg.hashsalt": "volery",
                "svg.fonttype": "none",
                "font.family": "DejaVu Sans",
                "font.size": size.font,
                "pdf.fonttype": 42,
                "axes.edgecolor": GRID,
                "axes.labelcolor": INK,
                "axes.spines.right": False,
                "axes.spines.top": False,
                "axes.grid": True,
                "axes.axisbelow": True,
                "grid.color": GRID,
                "grid.linewidth": 0.7 * size.scale,
                "axes.linewidth": 0.8 * size.scale,
                "xtick.major.size": 3.5 * size.scale,
                "ytick.major.size": 3.5 * size.scale,
                "text.color": INK,
                "xtick.color": GRID,
                "ytick.color": GRID,
                "xtick.labelcolor": INK,
                "ytick.labelcolor": INK,
                "legend.frameon": False,
            }
        ),
    ):
        yield


def blank_figure(height: float, title: str, size: Size = SCREEN) -> Figure:
    """A transparent figure with a title, as wide as `size`, so many inches high."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(size.width, height), layout="constrained")
    figure.patch.set_visible(False)
    if title:
        figure.suptitle(literal(title), x=0.01, ha="left", fontsize=size.font, fontweight="bold")
    return figure


def new_figure(legend_lines: int, title: str, size: Size = SCREEN) -> tuple[Figure, Axes]:
    """A figure with room for its legend above the axes."""
    figure = blank_figure(size.height + LEGEND_LINE_INCHES * size.scale * legend_lines, title, size)
    axes = figure.add_subplot()
    axes.patch.set_visible(False)
    return figure, axes


def add_legend(axes: Axes, columns: int, handlelength: float = 3.2) -> None:
    """A legend above the axes, in so many columns."""
    import matplotlib as mpl

    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles,
        labels,
        loc="lower left",
        bbox_to_anchor=(-0.01, 1.0),
        ncols=columns,
        fontsize=LEGEND_FONT * mpl.rcParams["font.size"],
        handlelength=handlelength,
        borderaxespad=0.2,
        alignment="left",
    )


def svg_text(figure: Figure, legend_columns: int) -> str:
    """The figure as SVG text without date or version; its legend stands above the axes, in the order of the table.

    Args:
        legend_columns: number of columns of the legend that is still to be made; 0 makes none.
    """
    if legend_columns and figure.axes[0].get_legend_handles_labels()[0]:
        add_legend(figure.axes[0], legend_columns)
    buffer = io.StringIO()
    with warnings.catch_warnings():
        # The font that measures the text may lack a sign of a user's label; the one that shows it need not.
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = buffer.getvalue()
    return _COORDINATES.sub(_rounded, text[text.index("<svg") :])


def figure_bytes(figure: Figure, suffix: str) -> bytes:
    """The figure as a file of this ending (".pdf", ".png" or ".svg"), without date or version."""
    if suffix == ".svg":
        return svg_text(figure, 0).encode()
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix[1:], dpi=PRINT_DPI, metadata=UNDATED[suffix])
    return buffer.getvalue()


_COORDINATES: Final = re.compile(r' d="[^"]*"')
_EXCESS_DIGITS: Final = re.compile(r"(\.\d\d)\d+")


def _rounded(path: re.Match[str]) -> str:
    """A path to a hundredth of a point, in half the bytes."""
    return _EXCESS_DIGITS.sub(r"\1", path.group())


def literal(label: str) -> str:
    """A label as matplotlib shows it unchanged: no dollar starts a formula, no underscore in front hides it."""
    label = straight(label)
    return ("\u200b" if label.startswith("_") else "") + label.replace("$", r"\$")
