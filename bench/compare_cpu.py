#!/usr/bin/env python3
"""The table at the end of cpu_vs_torch.sh: medians over the rounds, ratios, and the bars they are held to."""
import json
import platform
import statistics
import sys
from collections import defaultdict

FP32_BAR = {"convnet": 1.6, "mlp": 1.4, "gpt": 1.2}  # of PyTorch's best FP32
LOW_BAR = {"convnet": 0.85, "mlp": 0.85, "gpt": 0.8}  # of our own FP32, in samples/s
BF16_BAR = {"gpt": 1.2}  # of PyTorch's BF16, where the CPU has it
ACTIVATIONS_BAR = 0.6  # of our own FP32, in bytes
TITLES = {"convnet": "ConvNet, batch 128", "mlp": "MLP 784-2048-2048-10, batch 512",
          "gpt": "GPT, 6 layers of 384, 8 x 256 tokens"}


def cpu_model():
    with open("/proc/cpuinfo") as info:
        for line in info:
            if line.startswith("model name"):
                return line.split(": ", 1)[1].strip()
    return platform.processor()


def has_native_bf16():
    with open("/proc/cpuinfo") as info:
        return any(flag in info.read().split() for flag in ("avx512_bf16", "amx_bf16"))


def main():
    times, activations, threads, version = defaultdict(list), {}, 0, ""
    for line in open(sys.argv[1]):
        row = json.loads(line)
        key = (row["work"], row["side"], row["precision"], row.get("layout", ""))
        times[key].append(row["ms_per_step"])
        threads = row["threads"]
        version = row.get("torch", version)
        if row["side"] == "invar":
            activations[row["work"], row["precision"]] = row["peak_bytes"]["activations"]
    ms = {key: statistics.median(values) for key, values in times.items()}
    print(f"\n{cpu_model()}, {threads} threads, PyTorch {version}; medians of {max(map(len, times.values()))} round(s)\n")

    rows, missed = [], 0

    def judge(ratio, bar, most=False):
        nonlocal missed
        good = ratio <= bar if most else ratio >= bar
        missed += not good
        return f"{ratio:.2f}", f"{'<=' if most else '>='} {bar}", "yes" if good else "NO"

    for work, title in TITLES.items():
        if not any(key[0] == work for key in ms):
            continue
        ours = {p: ms[work, "invar", p, ""] for p in ("32-true", "16-mixed", "bf16-mixed")}
        best = min(value for (w, side, p, _), value in ms.items() if (w, side, p) == (work, "torch", "fp32"))
        for (w, side, precision, layout), value in ms.items():
            if (w, side) == (work, "torch"):
                rows.append((title, f"torch {precision} {layout}", f"{value:.1f}", "torch best FP32", f"{best / value:.2f}", "", ""))
        rows.append((title, "invar 32-true", f"{ours['32-true']:.1f}", "torch best FP32",
                     *judge(best / ours["32-true"], FP32_BAR[work])))
        for precision in ("16-mixed", "bf16-mixed"):
            rows.append((title, f"invar {precision}", f"{ours[precision]:.1f}", "invar 32-true",
                         *judge(ours["32-true"] / ours[precision], LOW_BAR[work])))
        theirs = ms.get((work, "torch", "bf16", "default"))
        if theirs and work in BF16_BAR and has_native_bf16():
            rows.append((title, "invar bf16-mixed", f"{ours['bf16-mixed']:.1f}", "torch bf16",
                         *judge(theirs / ours["bf16-mixed"], BF16_BAR[work])))
        share = activations[work, "16-mixed"] / activations[work, "32-true"]
        rows.append((title, "16-mixed peak activations", f"{activations[work, '16-mixed'] / 2**20:.1f} MiB", "invar 32-true",
                     *judge(share, ACTIVATIONS_BAR, most=True)))

    header = ("work", "what", "ms/step", "against", "ratio", "bar", "met")
    widths = [max(len(str(row[i])) for row in [header] + rows) for i in range(len(header))]
    for row in [header] + rows:
        print("  ".join(str(cell).ljust(width) for cell, width in zip(row, widths)).rstrip())
    print(f"\n{'every bar is met' if missed == 0 else f'{missed} bar(s) missed'}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
