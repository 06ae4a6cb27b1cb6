#!/usr/bin/env python3
"""What tools/pytorch/invar_probe.py costs a real run of PyTorch, on the GPU where there is one.

    bench/probe_cost.py [gpt2|resnet50|mlp ...]

For each model: a step without the probe, what a probed step takes beyond it, and the share of one in 500; then 500 steps with
and without the probe, in turns, as they are timed by the clock on the wall.
"""
import os
import shutil
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "tools", "pytorch"))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from invar_probe import InvarProbe  # noqa: E402

cuda = torch.cuda.is_available()
device = "cuda" if cuda else "cpu"


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.gelu, self.mlp_proj = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.c_attn(self.ln_1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp_proj(self.gelu(self.c_fc(self.ln_2(x))))


class GPT2(nn.Module):
    def __init__(self, layers=12, heads=12, width=768, vocabulary=50304, length=512):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, x):
        return self.head(self.ln_f(self.blocks(self.wte(x) + self.wpe.weight[:x.shape[1]])))


def gpt2():
    x = torch.randint(0, 50257, (8, 512), device=device)
    return GPT2().to(device), x, lambda out: F.cross_entropy(out.view(-1, out.shape[-1]), x.view(-1))


def resnet50():
    import torchvision
    x = torch.randn(64, 3, 224, 224, device=device).to(memory_format=torch.channels_last)
    y = torch.randint(0, 1000, (64,), device=device)
    model = torchvision.models.resnet50().to(device, memory_format=torch.channels_last)
    return model, x, lambda out: F.cross_entropy(out, y)


def mlp():
    x, y = torch.randn(512, 784, device=device), torch.randint(0, 10, (512,), device=device)
    model = nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))
    return model.to(device), x, lambda out: F.cross_entropy(out, y)


def now():
    if cuda:
        torch.cuda.synchronize()
    return time.perf_counter()


def train(model, x, criterion, steps, folder, probed=(), each=False):
    """Seconds a step; with `each`, of every one of them, waited for."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, **({"fused": True} if cuda else {}))
    scaler = torch.amp.GradScaler(device) if cuda else None
    shutil.rmtree(folder, ignore_errors=True)
    times, begin = [], now()
    with InvarProbe(model, folder, optimizer=optimizer, scaler=scaler, steps=probed) as probe:
        for _ in range(steps):
            start = now() if each else 0.0
            optimizer.zero_grad()
            with torch.autocast(device, dtype=torch.float16 if cuda else torch.bfloat16, enabled=cuda):
                loss = criterion(model(x))
            (scaler.scale(loss) if scaler else loss).backward()
            probe.step(loss)
            if scaler:
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()
            if each:
                times.append(now() - start)
    return times if each else (now() - begin) / steps


def main():
    name = torch.cuda.get_device_name() if cuda else f"CPU, {torch.get_num_threads()} threads"
    print(f"PyTorch {torch.__version__}, {name}, {'FP16 with a GradScaler' if cuda else 'FP32'}")
    long = 500 if cuda else 50
    with tempfile.TemporaryDirectory() as folder:
        folder = os.path.join(folder, "probe")
        for kind in sys.argv[1:] or (["gpt2", "resnet50", "mlp"] if cuda else ["mlp"]):
            model, x, criterion = {"gpt2": gpt2, "resnet50": resnet50, "mlp": mlp}[kind]()
            train(model, x, criterion, 10, folder)
            plain = train(model, x, criterion, 40 if cuda else 10, folder)
            probed = sorted(train(model, x, criterion, 9, folder, range(1, 10), True))[4]
            size = max(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder)) / 1024
            more = probed - plain
            print(f"{kind}: a step {1e3 * plain:.2f} ms, a probed one {1e3 * more:.1f} ms more, one in 500 costs "
                  f"{more / plain / 5:.2f}%; a file of {size:.0f} KiB", flush=True)
            turns = [(train(model, x, criterion, long, folder), train(model, x, criterion, long, folder, [long // 2]))
                     for _ in range(3 if cuda else 1)]
            print("  " + "; ".join(f"{long} steps {1e3 * a:.3f} ms each, with the probe {1e3 * b:.3f}: {100 * (b / a - 1):+.2f}%"
                                   for a, b in turns), flush=True)


main()
