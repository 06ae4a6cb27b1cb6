#!/usr/bin/env python3
"""GPT-2, Llama and the Vision Transformer in plain PyTorch, from weights by name: what Invar's are held against.

Run by itself it prints tests/train/torch_losses.inc: twenty steps of AdamW in f64 from weights and batches made by
formula, the same as in tests/train/parity_test.cpp, and how far PyTorch's own FP32 is from them.
"""
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def attention(q, k, v, causal):  # [batch, heads, length, width] each; gives [batch, length, heads * width]
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def split_heads(x, heads):
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def layer_norm(w, name, x, eps):
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], eps)


def count(w, name):
    """How many blocks there are of which `name % i` is a weight."""
    return next(i for i in range(len(w) + 1) if name % i not in w)


def gpt(w, tokens, heads):
    linear = lambda name, x: x @ w[name + ".weight"] + w[name + ".bias"]
    x = w["wte.weight"][tokens] + w["wpe.weight"][: tokens.shape[1]]
    for i in range(count(w, "h.%d.ln_1.weight")):
        b = f"h.{i}."
        q, k, v = linear(b + "attn.c_attn", layer_norm(w, b + "ln_1", x, 1e-5)).chunk(3, -1)
        y = attention(*(split_heads(t, heads) for t in (q, k, v)), causal=True)
        x = x + linear(b + "attn.c_proj", y)
        z = linear(b + "mlp.c_fc", layer_norm(w, b + "ln_2", x, 1e-5))
        x = x + linear(b + "mlp.c_proj", F.gelu(z, approximate="tanh"))
    return layer_norm(w, "ln_f", x, 1e-5) @ w["wte.weight"].T


def rotated(x, theta=10000.0):  # pairs are (i, i + half); the table is made in f64, whatever x is
    half = x.shape[-1] // 2
    speeds = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.outer(torch.arange(x.shape[-2], dtype=torch.float64), speeds)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def llama(w, tokens, heads, eps=1e-6):
    norm = lambda name, x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * w[name + ".weight"]
    linear = lambda name, x: F.linear(x, w[name + ".weight"], w.get(name + ".bias"))
    x = w["model.embed_tokens.weight"][tokens]
    for i in range(count(w, "model.layers.%d.input_layernorm.weight")):
        b = f"model.layers.{i}."
        h = norm(b + "input_layernorm", x)
        q, k, v = (linear(b + f"self_attn.{name}_proj", h) for name in "qkv")
        kv_heads = k.shape[-1] // (q.shape[-1] // heads)
        k, v = (split_heads(t, kv_heads) for t in (k, v))
        k = rotated(k)
        k, v = (t.repeat_interleave(heads // kv_heads, 1) for t in (k, v))
        x = x + linear(b + "self_attn.o_proj", attention(rotated(split_heads(q, heads)), k, v, causal=True))
        h = norm(b + "post_attention_layernorm", x)
        x = x + linear(b + "mlp.down_proj", F.silu(linear(b + "mlp.gate_proj", h)) * linear(b + "mlp.up_proj", h))
    return F.linear(norm("model.norm", x), w.get("lm_head.weight", w["model.embed_tokens.weight"]))


def vit(w, images, heads):  # images [batch, channels, height, width]
    linear = lambda name, x: F.linear(x, w[name + ".weight"], w[name + ".bias"])
    kernel = w["patch_embed.proj.weight"]
    patches = F.conv2d(images, kernel, w["patch_embed.proj.bias"], stride=kernel.shape[-1]).flatten(2).transpose(1, 2)
    x = torch.cat([w["cls_token"].expand(len(images), -1, -1), patches], 1) + w["pos_embed"]
    for i in range(count(w, "blocks.%d.norm1.weight")):
        b = f"blocks.{i}."
        q, k, v = linear(b + "attn.qkv", layer_norm(w, b + "norm1", x, 1e-6)).chunk(3, -1)
        y = attention(*(split_heads(t, heads) for t in (q, k, v)), causal=False)
        x = x + linear(b + "attn.proj", y)
        x = x + linear(b + "mlp.fc2", F.gelu(linear(b + "mlp.fc1", layer_norm(w, b + "norm2", x, 1e-6))))
    if "fc_norm.weight" in w:
        return linear("head", layer_norm(w, "fc_norm", x[:, 1:].mean(1), 1e-6))
    return linear("head", layer_norm(w, "norm", x, 1e-6)[:, 0])


class Transformer(nn.Module):
    """The one that these weights are of."""

    def __init__(self, weights, heads):
        super().__init__()
        self.names, self.heads = list(weights), heads
        self.weights = nn.ParameterList([nn.Parameter(w.clone()) for w in weights.values()])
        self.logits = gpt if "wte.weight" in weights else vit if "cls_token" in weights else llama

    def forward(self, x):
        return self.logits(dict(zip(self.names, self.weights)), x, self.heads)


def train(model, batches, rule, clip):
    """The losses before each update."""
    losses = []
    for x, y in batches:
        rule.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        rule.step()
        losses.append(loss.item())
    return losses


# --- the numbers of the test ---

SEEDS, STEPS = range(1, 6), 20


def hashed(i, key):
    """32 well mixed bits of each index and a key, by murmur3's last step."""
    h = (np.asarray(i, np.uint64) + key * 0x9E3779B9 & 0xFFFFFFFF).astype(np.uint32)
    h ^= h >> 16
    h *= np.uint32(0x85EBCA6B)
    h ^= h >> 13
    h *= np.uint32(0xC2B2AE35)
    return h ^ (h >> 16)


def even(i, key):
    """Evenly distributed over [-1, 1)."""
    return hashed(i, key) / 2.0**31 - 1


def made(shapes, seed):
    """Norms begin at one, biases small, and the rest as wide as its inputs are many."""
    weights = {}
    for n, (name, shape) in enumerate(shapes):
        size = int(np.prod(shape))
        deviation = 0.5 * math.sqrt(3) / math.sqrt(size // shape[0]) if len(shape) > 1 else 0.02
        values = deviation * even(np.arange(size), 1000 * seed + n)
        if len(shape) == 1 and name.endswith("weight"):
            values = np.ones(size)
        weights[name] = torch.from_numpy(values.astype(np.float32)).view(shape)
    return weights


def gpt_shapes(layers, width, vocabulary, length):
    yield from (("wte.weight", (vocabulary, width)), ("wpe.weight", (length, width)))
    for i in range(layers):
        for name, shape in (("ln_1", (width,)), ("attn.c_attn", (width, 3 * width)), ("attn.c_proj", (width, width)),
                            ("ln_2", (width,)), ("mlp.c_fc", (width, 4 * width)), ("mlp.c_proj", (4 * width, width))):
            yield from ((f"h.{i}.{name}.weight", shape), (f"h.{i}.{name}.bias", shape[-1:]))
    yield from (("ln_f.weight", (width,)), ("ln_f.bias", (width,)))


def llama_shapes(layers, width, keys, hidden, vocabulary):
    yield "model.embed_tokens.weight", (vocabulary, width)
    for i in range(layers):
        for name, shape in (("input_layernorm", (width,)), ("self_attn.q_proj", (width, width)),
                            ("self_attn.k_proj", (keys, width)), ("self_attn.v_proj", (keys, width)),
                            ("self_attn.o_proj", (width, width)), ("post_attention_layernorm", (width,)),
                            ("mlp.gate_proj", (hidden, width)), ("mlp.up_proj", (hidden, width)),
                            ("mlp.down_proj", (width, hidden))):
            yield f"model.layers.{i}.{name}.weight", shape
    yield "model.norm.weight", (width,)


def vit_shapes(layers, width, patch, channels, tokens, classes):
    yield from (("cls_token", (1, 1, width)), ("pos_embed", (1, tokens, width)))
    yield from (("patch_embed.proj.weight", (width, channels, patch, patch)), ("patch_embed.proj.bias", (width,)))
    for i in range(layers):
        for name, shape in (("norm1", (width,)), ("attn.qkv", (3 * width, width)), ("attn.proj", (width, width)),
                            ("norm2", (width,)), ("mlp.fc1", (4 * width, width)), ("mlp.fc2", (width, 4 * width))):
            yield from ((f"blocks.{i}.{name}.weight", shape), (f"blocks.{i}.{name}.bias", shape[:1]))
    yield from (("norm.weight", (width,)), ("norm.bias", (width,)))
    yield from (("head.weight", (classes, width)), ("head.bias", (classes,)))


def token_batch(step, rows, length, vocabulary):
    """Behind each token comes, more often than not, the one that a rule names."""
    tokens = np.empty((rows, length + 1), np.int64)
    for r in range(rows):
        row = step * rows + r
        drawn = hashed(row * 1000 + np.arange(length + 1), 77).astype(np.int64)
        tokens[r, 0] = drawn[0] % vocabulary
        for t in range(1, length + 1):
            tokens[r, t] = (tokens[r, t - 1] * 5 + 3 if drawn[t] % 8 < 6 else drawn[t] // 8) % vocabulary
    tokens = torch.from_numpy(tokens)
    return tokens[:, :-1], tokens[:, 1:]


def image_batch(step, rows, side, channels, classes):
    """A pattern for each class, in squares of 4x4, under as much noise."""
    labels = hashed(step * rows + np.arange(rows), 78).astype(np.int64) % classes
    pixel = np.arange(side * side * channels)
    y, x, c = pixel // (side * channels), pixel // channels % side, pixel % channels
    square = (y // 4 * (side // 4) + x // 4) * channels + c
    images = np.stack([even(labels[r] * 100000 + square, 79) + even((step * rows + r) * 100000 + pixel, 80) for r in range(rows)])
    images = torch.from_numpy(images.astype(np.float32)).view(rows, side, side, channels)
    return images.permute(0, 3, 1, 2), torch.from_numpy(labels)


CASES = {
    "gpt": (4, lambda: gpt_shapes(6, 96, 64, 64), lambda step: token_batch(step, 4, 64, 64)),
    "llama": (6, lambda: llama_shapes(4, 96, 32, 256, 64), lambda step: token_batch(step, 4, 64, 64)),
    "vit": (3, lambda: vit_shapes(6, 192, 4, 3, 65, 10), lambda step: image_batch(step, 2, 32, 3, 10)),
}


def main():
    print("// Printed by bench/torch_transformers.py with PyTorch " + torch.__version__ + ".")
    print("// model, seed, the largest distance of PyTorch's FP32 losses from these, which are its losses in f64")
    for name, (heads, shapes, batch) in CASES.items():
        for seed in SEEDS:
            weights = made(shapes(), seed)

            def run(dtype):
                model = Transformer(weights, heads).to(dtype)
                batches = [(x.to(dtype) if x.is_floating_point() else x, y) for x, y in map(batch, range(STEPS))]
                return train(model, batches, torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01), 1.0)

            exact = run(torch.float64)
            distance = max(abs(a - b) for a, b in zip(run(torch.float32), exact))
            print('{"%s", %d, %.3g, {%s}},' % (name, seed, distance, ", ".join("%.9f" % v for v in exact)), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)  # small products: more threads only wait for each other
    main()
