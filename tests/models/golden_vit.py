# Prints the numbers that vit_test.cpp holds: the Vision Transformer of bench/torch_transformers.py, with timm's names and
# layouts, from weights, images and labels made by formula, in f64.
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench"))
from torch_transformers import vit, vit_shapes

torch.set_num_threads(1)
LAYERS, HEADS, WIDTH, PATCH, CHANNELS, HEIGHT, IMAGE_WIDTH, CLASSES = 2, 4, 32, 4, 3, 8, 12, 10
TOKENS = 1 + HEIGHT // PATCH * (IMAGE_WIDTH // PATCH)


def values(count, key, amplitude):
    i = np.arange(count, dtype=np.int64)
    return (amplitude * np.sin((i * i % 10007 + key).astype(np.float64))).astype(np.float32)


def run(pool):
    w = {}
    for key, (name, shape) in enumerate(vit_shapes(LAYERS, WIDTH, PATCH, CHANNELS, TOKENS, CLASSES)):
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 64
        own = ("fc_" if pool == "mean" and name.startswith("norm.") else "") + name
        w[own] = torch.from_numpy(values(int(np.prod(shape)), key, fan**-0.5)).view(shape).double().requires_grad_()
    i = np.arange(3 * HEIGHT * IMAGE_WIDTH * CHANNELS, dtype=np.int64)
    x = torch.from_numpy(np.sin(0.01 * (i * i % 1013).astype(np.float64)).astype(np.float32))
    out = vit(w, x.view(3, HEIGHT, IMAGE_WIDTH, CHANNELS).permute(0, 3, 1, 2).double(), HEADS)
    loss = F.cross_entropy(out, torch.arange(3) * 3 % 10)
    loss.backward()
    print("pool %s loss %.12g" % (pool, loss.item()))
    print("logits", ", ".join("%.9g" % v for v in out[2].tolist()))
    for name, p in w.items():
        g = p.grad.flatten()
        i = torch.arange(g.numel())
        print('{"%s", %.9g, %.9g},' % (name, g.norm(), (g * torch.sin((i * i % 10007).double())).sum()))


run("cls")
run("mean")
