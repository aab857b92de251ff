"""The picture of a load curve; matplotlib is loaded only when one is drawn."""

from __future__ import annotations

from pathlib import Path

from volery.core.errors import InputError
from volery.workload.description import LoadCurve

FORMATS = ("png", "svg", "pdf")
BLOCKS = " ▁▂▃▄▅▆▇█"


def draw_load_curve(curve: LoadCurve, title: str, path: Path) -> None:
    """Write the picture; the same curve gives the same bytes.

    Raises:
        InputError: the ending is not .png, .svg or .pdf, or the file cannot be written.
    """
    if path.suffix.removeprefix(".") not in FORMATS:
        raise InputError(str(path), "a picture's name must end in .png, .svg or .pdf")
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    hours = curve.time_s[-1] > 3 * 3600
    time = curve.time_s / 3600 if hours else curve.time_s
    with mpl.rc_context({"svg.hashsalt": "volery", "svg.fonttype": "none"}):
        figure = Figure(figsize=(9, 4), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        # a burst of work may be twenty times what the slots can run; it must not flatten what runs
        top = 130 * max(1.0, float(curve.running.max()))
        cut = " (cut off at the top)" if float(curve.arriving.max()) * 100 > top else ""
        axes.stairs(curve.arriving * 100, time, fill=True, color="#c8d8e8", label=f"arriving work{cut}")
        axes.stairs(curve.running * 100, time, color="#1f4e79", label="running, if every task started on arrival")
        axes.axhline(100, color="#b03030", linewidth=1, linestyle="--", label="all slots busy")
        axes.set_xlabel("time since the first arrival (h)" if hours else "time since the first arrival (s)")
        axes.set_ylabel("load (% of the slots)")
        axes.set_title(title)
        axes.set_xlim(0, time[-1])
        axes.set_ylim(0, top)
        figure.legend(loc="outside lower center", ncols=3, frameon=False)
        dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}
        try:
            figure.savefig(path, dpi=120, metadata=dated[path.suffix.removeprefix(".")])
        except OSError as error:
            raise InputError(
                str(path), f"cannot be written ({error.strerror or error}); choose another place"
            ) from None


def sparkline(curve: LoadCurve) -> str:
    """The running load as one row of blocks; the highest interval fills its block."""
    top = float(curve.running.max())
    if top <= 0:
        return BLOCKS[0] * len(curve.running)
    return "".join(BLOCKS[round(float(load) / top * (len(BLOCKS) - 1))] for load in curve.running)
