#!/usr/bin/env python3
# Makes the measured part of docs/RESULTS.md and its curves from what bench/results_gpt.sh has left: every figure is read from those
# files, none is typed. What stands between the two marks of the page is replaced.
#
#   bench/results_table.py RESULTS [docs/RESULTS.md]
import html
import json
import math
import statistics
import sys
import tarfile
from pathlib import Path

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
ARMS = [("fp32", "32-true", "#8a8f98"), ("16-mixed", "16-mixed", "#d9730d"), ("bf16-mixed", "bf16-mixed", "#2f6fd0")]


def read_runs(path):
    """{(run, seed): {"metrics": [...], "summary": {...}}}, and what the validations say of their machine."""
    runs, facts = {}, {}
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            parts = member.name.split("/")  # runs/seed0/fp32/metrics.jsonl, runs/seed0/report.json
            if not member.isfile() or len(parts) < 3:
                continue
            seed = int(parts[1].removeprefix("seed"))
            text = lambda: archive.extractfile(member).read().decode()
            if parts[2] == "report.json":
                facts[seed] = json.loads(text())
            elif parts[-1] == "metrics.jsonl":
                runs.setdefault((parts[2], seed), {})["metrics"] = [json.loads(line) for line in text().splitlines()]
            elif parts[-1] == "summary.json":
                runs.setdefault((parts[2], seed), {})["summary"] = json.loads(text())
    return runs, facts


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)] + ["| " + " | ".join(row) + " |" for row in rows] + [""]


def signed_percent(share):
    return f"{100 * share:+.2f}%"


def results(report, runs):
    rows = []
    for name, precision, _ in ARMS:
        arm = report["baseline"] if name == "fp32" else next(a for a in report["candidates"] if a["name"] == precision)
        summaries = [run["summary"] for (run_name, _), run in sorted(runs.items()) if run_name == name]
        losses = [s["val_loss"] for s in summaries]
        low, high = arm.get("statistics", {}).get("interval_90", [None, None]) if arm.get("statistics") else (None, None)
        rows.append([precision, f"{arm['metric']:.4f}", f"{min(losses):.4f} to {max(losses):.4f}", f"{math.exp(arm['metric']):.1f}",
                     "" if name == "fp32" else signed_percent(arm["difference"]),
                     "" if low is None else f"{signed_percent(low)} to {signed_percent(high)}",
                     f"{statistics.mean(s['train_seconds'] for s in summaries):.1f} s", f"{statistics.mean(s['tokens_per_s'] for s in summaries):,.0f}",
                     f"{arm['peak_bytes']['total'] / 2**30:.2f} GiB", f"{sum(s['skipped'] for s in summaries):.0f}",
                     "baseline" if name == "fp32" else f"**{arm['verdict']}**"])
    return table(["precision", "val_loss, mean", "over the seeds", "perplexity", "difference", "90% interval", "time of a run", "tokens/s", "memory",
                  "skipped steps", "verdict"], rows)


def seed_by_seed(runs):
    seeds = sorted({seed for _, seed in runs})
    rows = []
    for seed in seeds:
        losses = [runs[name, seed]["summary"]["val_loss"] if (name, seed) in runs else None for name, _, _ in ARMS]
        rows.append([str(seed)] + ["did not finish" if loss is None else f"{loss:.5f}" for loss in losses])
    return table(["seed"] + [precision for _, precision, _ in ARMS], rows)


def sources(facts):
    rows = [[row["package"], facts["packages"][row["package"]]["version"], f"{row['documents']:,}", f"{row['bytes'] / 1e6:.2f}",
             f"{row['validation_documents']}", f"{row['validation_bytes'] / 1e3:.0f}"] for row in facts["sources"]]
    rows.append(["together", "", f"{facts['train']['files']:,}", f"{facts['train']['bytes'] / 1e6:.2f}", f"{facts['validation']['files']}",
                 f"{facts['validation']['bytes'] / 1e3:.0f}"])
    return table(["Debian package", "version", "documents", "MB", "held out", "KB"], rows)


def samples(path):
    lines, by_prompt = [], {}
    for line in path.read_text().splitlines():
        sample = json.loads(line)
        by_prompt.setdefault(sample["prompt"], {})[sample["run"]] = sample["text"]
    for prompt, texts in by_prompt.items():
        for name, precision, _ in ARMS:
            if name in texts:
                words = html.escape(" ".join(texts[name].split()), quote=False)
                for mark in "\\`*_[]|":
                    words = words.replace(mark, "\\" + mark)
                lines += [f"> {precision}: **{prompt}** {words}", ""]
    return lines


# The loss of every run, faint for a step's and strong for the held-out one, with what guessing by frequency gives as a line.
def curves(runs, unigram):
    width, height, left, bottom = 720, 400, 52, 40
    trained = {key: [(m["step"], m["loss"]) for m in run["metrics"] if isinstance(m.get("loss"), float)] for key, run in runs.items()}
    judged = {key: [(m["step"], m["val_loss"]) for m in run["metrics"] if isinstance(m.get("val_loss"), float)] for key, run in runs.items()}
    points = [p for series in (*trained.values(), *judged.values()) for p in series]
    last, top = max(p[0] for p in points), math.ceil(max(p[1] for p in points))
    floor = math.floor(min(p[1] for p in points))
    x = lambda step: left + (width - left - 20) * step / last
    y = lambda loss: 20 + (height - 20 - bottom) * (top - loss) / (top - floor)
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="#ffffff"/>']
    for loss in range(floor, top + 1):
        svg += [f'<line x1="{left}" x2="{width - 20}" y1="{y(loss):.1f}" y2="{y(loss):.1f}" stroke="#e4e6ea"/>',
                f'<text x="{left - 8}" y="{y(loss) + 4:.1f}" text-anchor="end" fill="#444">{loss}</text>']
    for quarter in range(5):
        step = round(last * quarter / 4)
        svg.append(f'<text x="{x(step):.1f}" y="{height - bottom + 18}" text-anchor="middle" fill="#444">{step}</text>')
    svg += [f'<text x="{(left + width) / 2:.0f}" y="{height - 6}" text-anchor="middle" fill="#444">step</text>',
            f'<text x="14" y="{height / 2:.0f}" text-anchor="middle" fill="#444" transform="rotate(-90 14 {height / 2:.0f})">loss</text>']
    if floor <= unigram <= top:
        svg += [f'<line x1="{left}" x2="{width - 20}" y1="{y(unigram):.1f}" y2="{y(unigram):.1f}" stroke="#444" stroke-dasharray="5 4"/>',
                f'<text x="{width - 24}" y="{y(unigram) - 5:.1f}" text-anchor="end" fill="#444">by frequency alone {unigram:.2f}</text>']
    line = lambda series: " ".join(f"{x(step):.1f},{y(loss):.1f}" for step, loss in series)
    for number, (name, precision, colour) in enumerate(ARMS):
        broad = 5 if name == "fp32" else 1.6  # where a candidate covers the baseline, they agree
        for (run, _), series in sorted(trained.items()):
            if run == name:
                svg.append(f'<polyline points="{line(series)}" fill="none" stroke="{colour}" stroke-opacity="0.3"/>')
        for (run, _), series in sorted(judged.items()):
            if run == name:
                svg.append(f'<polyline points="{line(series)}" fill="none" stroke="{colour}" stroke-width="{broad}"/>')
        svg += [f'<line x1="{width - 170}" x2="{width - 140}" y1="{40 + 18 * number}" y2="{40 + 18 * number}" stroke="{colour}" stroke-width="{broad}"/>',
                f'<text x="{width - 132}" y="{44 + 18 * number}" fill="#444">{precision}</text>']
    return "\n".join(svg + ["</svg>"]) + "\n"


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: results_table.py RESULTS [PAGE]")
    folder = Path(sys.argv[1])
    page = Path(sys.argv[2]) if len(sys.argv) == 3 else Path(__file__).resolve().parent.parent / "docs/RESULTS.md"
    report, facts = json.loads((folder / "report.json").read_text()), json.loads((folder / "facts.json").read_text())
    runs, validations = read_runs(folder / "runs.tar.gz")
    seeds = sorted(validations)
    machine = validations[seeds[0]]["facts"]
    unigram = facts["unigram_val_loss"]
    first = runs["fp32", seeds[0]]
    shown = validations[seeds[0]]["reproduce"].replace(f" seed={seeds[0]} exp_name=seed{seeds[0]}", "")
    picture = page.parent / "results_gpt.svg"
    lines = ["", f"{machine.get('Device') or machine.get('Machine', 'here')}, {machine['Date'].split(' ')[0]}, seeds {', '.join(map(str, seeds))}:", "",
             *results(report, runs),
             f"{report['verdict']}: {report['reason']}.", "",
             f"Guessing each token by how often it comes in training gives a loss of {unigram:.4f} on the same text, a perplexity of {math.exp(unigram):.0f}; "
             f"the FP32 model began at {first['metrics'][0]['loss']:.2f} and ended at {first['summary']['val_loss']:.2f} in {first['summary']['steps']:.0f} steps.", "",
             f"![Loss of every run]({picture.name})", "",
             "Thin lines are the losses of training, strong ones those on the held-out text. Grey is FP32.", "",
             "Validation loss seed by seed:", "", *seed_by_seed(runs),
             "Each seed was trained by (with its own `seed=`)", "", "```text", shown, "```", "",
             "### What they write", "", f"Seed {seeds[0]}, temperature 0.8, the 50 likeliest tokens, as it came:", "", *samples(folder / "samples.jsonl"),
             "### The text", "", *sources(facts),
             f"{facts['train']['tokens']:,} tokens to train on, {facts['validation']['tokens']:,} held out; a vocabulary of {facts['vocabulary']:,}; "
             f"{facts['train']['bytes_per_token']:.2f} bytes a token.", ""]
    text = page.read_text()
    if BEGIN not in text or END not in text:
        sys.exit(f"results_table.py: {page} has not both marks, {BEGIN} and {END}")
    page.write_text(text.split(BEGIN)[0] + BEGIN + "\n".join(lines) + END + text.split(END)[1])
    picture.write_text(curves(runs, unigram))
    print(f"{page} and {picture} were written")


if __name__ == "__main__":
    main()
