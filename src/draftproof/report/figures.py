"""One look for all figures, drawn without a display and saved as PNG and SVG. matplotlib is the
extra `plot`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftproof.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLACK, ORANGE, SKY, GREEN, BLUE = "#222222", "#E69F00", "#56B4E9", "#009E73", "#0072B2"
RED, PINK = "#D55E00", "#CC79A7"
COLORS = (BLUE, RED, GREEN, PINK, ORANGE, SKY)
"""Okabe and Ito's palette, told apart by colour-blind eyes."""
MARKERS = "osDvPX"

STYLE: dict[Any, Any] = {
    "font.size": 13,
    "axes.titlesize": 14,
    "axes.labelsize": 13,
    "legend.fontsize": 11.5,
    "legend.frameon": False,
    "lines.linewidth": 2.2,
    "lines.markersize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "svg.hashsalt": "draftproof",
}
WIDTH, HEIGHT, DOTS_PER_INCH = 9.0, 5.4, 150


def save_figure(draw: Callable[[Figure], None], directory: Path, name: str) -> list[Path]:
    """Draw once and write `name`.png and `name`.svg into `directory`, which is made if absent.
    Equal input, equal bytes."""
    check_plotting()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write figures to {directory}: {error.strerror}") from None
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        draw(figure)
        png, svg = directory / f"{name}.png", directory / f"{name}.svg"
        figure.savefig(png, dpi=DOTS_PER_INCH, metadata={"Software": None})
        figure.savefig(svg, metadata={"Date": None})
    return [png, svg]


def check_plotting() -> None:
    """Refuse with the install line when matplotlib is absent."""
    if find_spec("matplotlib") is None:
        raise MissingExtraError("matplotlib", "plot")


def styles(count: int) -> list[dict[str, Any]]:
    """Colour and marker of each of `count` series, no pair twice among the first 36."""
    colors, markers = len(COLORS), len(MARKERS)
    return [
        {"color": COLORS[i % colors], "marker": MARKERS[(i + i // colors) % markers]}
        for i in range(count)
    ]


def looks(count: int) -> list[dict[str, Any]]:
    """How `count` lines of one chart are drawn: styles of their own, the first wide and the later
    ones narrower on top of it, so that lines which coincide are all seen."""
    widths = [
        {"linewidth": max(1.6, 4.8 - 1.3 * i), "markersize": max(5.0, 11.0 - 2.0 * i)}
        for i in range(count)
    ]
    return [style | width for style, width in zip(styles(count), widths, strict=True)]


def heighten(figure: Figure, rows: int) -> None:
    """Make a figure with so many labelled rows as high as their labels need."""
    figure.set_figheight(max(HEIGHT, 1.4 + 0.3 * rows))


def top_of(speeds: Iterable[Mapping[str, float]], others: Iterable[float] = ()) -> float:
    """Where an axis of speedups ends: above every point and 1, and above intervals and `others` up
    to twice the highest of these."""
    known = list(speeds)
    highest = max([1.0, *(speed["point"] for speed in known)])
    return 1.08 * max(
        [
            highest,
            *(min(reach, 2 * highest) for reach in (*(speed["high"] for speed in known), *others)),
        ]
    )


def panels(figure: Figure, columns: int) -> list[Axes]:
    """Axes side by side."""
    return list(figure.subplots(1, columns, squeeze=False)[0])
