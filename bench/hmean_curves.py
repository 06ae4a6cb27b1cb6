#!/usr/bin/env python3
"""H-mean over training, a line a run, from the folders that invar validate leaves.

  hmean_curves.py RUNS OUT.svg      RUNS: the folder of a validation, with fp32_seed0 and the like in it
"""
import json
import pathlib
import sys

COLOURS = {"fp32": "#888888", "16-mixed": "#d95f02", "bf16-mixed": "#1b6ca8"}
LEFT, TOP, WIDTH, HEIGHT = 60, 20, 560, 280


def curve(path):
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [(row["step"], row["val_hmean"]) for row in rows if "val_hmean" in row]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    runs = {path.name: curve(path) for path in sorted(pathlib.Path(sys.argv[1]).iterdir()) if (path / "metrics.jsonl").exists()}
    runs = {name: points for name, points in runs.items() if points}
    last = max(step for points in runs.values() for step, _ in points)
    low = min(value for points in runs.values() for _, value in points) // 0.1 * 0.1

    def at(step, value):
        return f"{LEFT + WIDTH * step / last:.1f},{TOP + HEIGHT * (1 - (value - low) / (1 - low)):.1f}"

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {TOP + HEIGHT + 50}" '
           'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>']
    tenths = range(round(low * 10), 11)
    for tenth in tenths:
        y = at(0, tenth / 10).split(",")[1]
        out.append(f'<path d="M{LEFT} {y}H{LEFT + WIDTH}" stroke="#dddddd"/><text x="{LEFT - 8}" y="{y}" text-anchor="end" '
                   f'dominant-baseline="middle">{tenth * 10}%</text>')
    for step in sorted({step for points in runs.values() for step, _ in points}):
        out.append(f'<text x="{at(step, low).split(",")[0]}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{step}</text>')
    for name, points in runs.items():
        kind = name.rsplit("_seed", 1)[0]
        line = " ".join(at(*point) for point in points)
        out.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS.get(kind, "black")}" stroke-width="2" opacity="0.8"/>')
    for i, kind in enumerate(dict.fromkeys(name.rsplit("_seed", 1)[0] for name in runs)):
        x, y = LEFT + 20 + 130 * i, TOP + HEIGHT + 40
        out.append(f'<path d="M{x} {y - 4}h24" stroke="{COLOURS.get(kind, "black")}" stroke-width="3"/>'
                   f'<text x="{x + 30}" y="{y}">{kind}</text>')
    out.append("</svg>")
    pathlib.Path(sys.argv[2]).write_text("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
