"""The results as a chart: SVG, written by hand so that it needs no library and stays small."""

from __future__ import annotations

from benchmarks.measure import Figures

_PANELS = (
    ("record", "record, durable: seconds"),
    ("load_train", "load into samples: seconds"),
    ("load_batch", "load as a batch of tensors: seconds"),
    ("bytes", "on disk: MB"),
)
_WIDTH, _LABEL, _BAR, _GAP = 760, 190, 16, 6


def chart(title: str, figures: Figures) -> str:
    """Return one workload's figures as bars, slime_store's in another colour; shorter is better everywhere."""
    names = list(figures)
    height_of_panel = 30 + len(names) * (_BAR + _GAP)
    height = 34 + len(_PANELS) * height_of_panel
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="10" y="22" font-size="15" font-weight="bold">{_escaped(title)}</text>',
    ]
    for number, (column, heading) in enumerate(_PANELS):
        top = 34 + number * height_of_panel
        parts.append(f'<text x="10" y="{top + 18}" font-weight="bold">{heading}</text>')
        values = [figures[name][column] / (1e6 if column == "bytes" else 1) for name in names]
        scale = (_WIDTH - _LABEL - 70) / max(*values, 1e-9)
        for i, (name, value) in enumerate(zip(names, values, strict=True)):
            y, length = top + 26 + i * (_BAR + _GAP), max(1.0, value * scale)
            colour = "#1f77b4" if name.startswith("slime_store") else "#b8bec6"
            parts.append(f'<text x="{_LABEL - 6}" y="{y + 12}" text-anchor="end">{_escaped(name)}</text>')
            parts.append(f'<rect x="{_LABEL}" y="{y}" width="{length:.1f}" height="{_BAR}" fill="{colour}"/>')
            parts.append(f'<text x="{_LABEL + length + 5:.1f}" y="{y + 12}">{value:.3g}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
