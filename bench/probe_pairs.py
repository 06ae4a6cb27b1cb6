"""How often `invar diagnose A B` is wrong about two runs of one model, FP32 against autocast in BF16, on a CPU.

    python3 bench/probe_pairs.py build/bin/invar [--seeds 20] [--first-seed 1]

Healthy pairs have the same weights and batches and should not part; into the others one difference is planted, and they
should. Needs torch (1.13 or later).
"""
import argparse
import collections
import os
import subprocess
import sys
import tempfile

import torch
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools", "pytorch"))
from invar_probe import InvarProbe  # noqa: E402


class InFp32(nn.Module):
    """A norm that takes what it is given as FP32, which old versions of PyTorch do not do on a CPU."""

    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, x):
        return self.norm(x.float())


class Experts(nn.Module):
    """A router that gives each row to one of three layers."""

    def __init__(self):
        super().__init__()
        self.router, self.experts = nn.Linear(20, 3), nn.ModuleList(nn.Linear(20, 4) for _ in range(3))

    def forward(self, x):
        weights = self.router(x).softmax(-1)
        return torch.stack([self.experts[int(w.argmax())](row) * w.max() for row, w in zip(x, weights)])


def perceptron(width=64, layers=1):
    parts = [nn.Linear(20, width), nn.ReLU()]
    for _ in range(layers - 1):
        parts += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(width, 4))


def convolutions():
    parts = []
    for channels, wider in ((3, 8), (8, 16), (16, 16)):
        parts += [nn.Conv2d(channels, wider, 3, padding=1), nn.BatchNorm2d(wider), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(64, 4))


def normed(activation=nn.GELU, scale=1.0, bias=True, eps=1e-5):
    model = nn.Sequential(nn.Linear(20, 64), InFp32(nn.LayerNorm(64, eps=eps)), nn.GELU(), nn.Linear(64, 64),
                          nn.ReLU(), nn.Linear(64, 4))  # the same random numbers whatever is planted
    model[2] = activation()
    if not bias:
        model[3].bias = None
    model[3].register_forward_hook(lambda module, inputs, result: result * scale)
    return model


def table(rows):
    return lambda: (torch.randn(rows, 20), torch.randint(0, 4, (rows,)))


HEALTHY = {
    "perceptron, batch 16": (perceptron, table(16)),
    "perceptron, batch 64": (perceptron, table(64)),
    "perceptron 256 wide, batch 256": (lambda: perceptron(256), table(256)),
    "six layers, batch 32": (lambda: perceptron(64, 6), table(32)),
    "convolutions with batch norm and max pooling": (
        convolutions, lambda: (torch.randn(16, 3, 16, 16), torch.randint(0, 4, (16,)))),
    "GELU and layer norm": (normed, table(16)),
    "a router and three experts": (Experts, table(16)),
}
PLANTED = {
    "SiLU for GELU": lambda: normed(activation=nn.SiLU),
    "a result 10% too large": lambda: normed(scale=1.1),
    "a bias left out": lambda: normed(bias=False),
    "eps of 0.1": lambda: normed(eps=0.1),
}


def probed(folder, make, data, seed, low, steps=10):
    torch.manual_seed(seed)
    model = make()
    torch.manual_seed(seed + 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with InvarProbe(model, folder, optimizer=optimizer, every=1) as probe:
        for _ in range(steps):
            x, y = data()
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
                result = model(x)
            loss = nn.functional.cross_entropy(result.float(), y)
            loss.backward()
            probe.step(loss)
            optimizer.step()
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("invar")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    parted = collections.Counter()

    def part(make_a, make_b, data, seed):
        with tempfile.TemporaryDirectory() as folder:
            a = probed(os.path.join(folder, "a"), make_a, data, seed, low=False)
            b = probed(os.path.join(folder, "b"), make_b, data, seed, low=True)
            code = subprocess.run([arguments.invar, "diagnose", a, b], stdout=subprocess.DEVNULL).returncode
            if code not in (0, 1):
                sys.exit(f"{arguments.invar} diagnose ended with {code}")
            return code

    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    for name, (make, data) in HEALTHY.items():
        parted[name] = sum(part(make, make, data, seed) for seed in seeds)
        print(f"healthy, {name}: {parted[name]} of {arguments.seeds} part", flush=True)
    print(f"healthy, all: {sum(parted.values())} of {arguments.seeds * len(HEALTHY)} part")
    for name, make in PLANTED.items():
        count = sum(part(normed, make, table(16), seed) for seed in seeds)
        print(f"planted, {name}: {count} of {arguments.seeds} part", flush=True)


if __name__ == "__main__":
    main()
