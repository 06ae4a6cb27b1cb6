#!/usr/bin/env python3
"""The other side of cpu_vs_torch.sh: a training step of the same networks in PyTorch, on the CPU.

Prints one JSON object a line: work, precision, layout, ms_per_step (median), samples_per_s, threads, torch.
"""
import argparse
import json
import statistics
import time

import torch
from torch import nn


class ConvNet(nn.Module):
    """conv 1-32, conv 32-64, pool, dropout .25, fc 9216-128, dropout .5, fc 128-10: Invar's `convnet`."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = torch.relu(self.conv1(x))
        x = torch.relu(self.conv2(x))
        x = self.dropout1(nn.functional.max_pool2d(x, 2))
        x = torch.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc2(self.dropout2(x))


def make_mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(),
                         nn.Linear(2048, 10))


VOCABULARY, LENGTH, WIDTH, HEADS, LAYERS = 257, 256, 384, 6, 6


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.register_buffer("hidden", torch.ones(LENGTH, LENGTH).triu(1).bool())

    def attention(self, x):
        q, k, v = (t.view(*t.shape[:2], HEADS, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        scores = (q @ k.transpose(-1, -2)) * (WIDTH // HEADS) ** -0.5
        weights = scores.masked_fill(self.hidden, float("-inf")).softmax(-1)
        return self.out((weights.to(v.dtype) @ v).transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.down(nn.functional.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """Invar's `gpt` of six layers: learned positions, pre-norm blocks, a head that is the embedding."""

    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks, self.ln_f = nn.Sequential(*(Block() for _ in range(LAYERS))), nn.LayerNorm(WIDTH)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight
        return nn.functional.linear(self.ln_f(self.blocks(x)), self.wte.weight).flatten(0, 1)


WORKS = {"convnet": (ConvNet, 128), "mlp": (make_mlp, 512), "gpt": (Gpt, 8)}


class Step:
    """A training step as people write it: autocast, clip by norm 1.0, Adam at 1e-3."""

    def __init__(self, work, precision, channels_last):
        torch.manual_seed(0)
        make, self.batch = WORKS[work]
        self.model = make().train()
        if work == "gpt":
            self.x = torch.randint(0, VOCABULARY, (self.batch, LENGTH))
            self.y = torch.randint(0, VOCABULARY, (self.batch * LENGTH,))
        else:
            self.x = torch.randn(self.batch, 1, 28, 28)
            self.y = torch.randint(0, 10, (self.batch,))
        if channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)
            self.x = self.x.contiguous(memory_format=torch.channels_last)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.low = precision == "bf16"

    def __call__(self):
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.low):
            loss = nn.functional.cross_entropy(self.model(self.x), self.y)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", choices=WORKS, required=True)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    layouts = [("default", False)] + ([("channels_last", True)] if arguments.work == "convnet" else [])
    steps = {name: Step(arguments.work, arguments.precision, last) for name, last in layouts}
    times = {name: [] for name in steps}
    for i in range(arguments.warmup + arguments.steps):
        for name, step in steps.items():  # in turn, so that noise meets both layouts alike
            seconds = step()
            if i >= arguments.warmup:
                times[name].append(seconds)
    for name, step in steps.items():
        median = statistics.median(times[name])
        print(json.dumps({"work": arguments.work, "precision": arguments.precision, "layout": name,
                          "ms_per_step": 1e3 * median, "samples_per_s": step.batch / median,
                          "threads": torch.get_num_threads(), "torch": torch.__version__}), flush=True)


if __name__ == "__main__":
    main()
