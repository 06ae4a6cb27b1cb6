# Prints the numbers that llama_test.cpp holds: Llama in PyTorch, with Hugging Face's names, from weights and tokens made
# by formula, in f64. Rotary positions are written as products of complex numbers.
import math

import numpy as np
import torch
import torch.nn.functional as F

VOCABULARY, LENGTH, LAYERS, HEADS, KV_HEADS, WIDTH, HIDDEN, EPS = 37, 9, 2, 4, 2, 32, 48, 1e-5
HEAD = WIDTH // HEADS


def values(count, key, amplitude):
    i = np.arange(count, dtype=np.int64)
    return (amplitude * np.sin((i * i % 10007 + key).astype(np.float64))).astype(np.float32)


def shapes(tied, bias):
    yield "model.embed_tokens.weight", (VOCABULARY, WIDTH)
    for i in range(LAYERS):
        b = "model.layers.%d." % i
        yield b + "input_layernorm.weight", (WIDTH,)
        for name, out in (("q", HEADS * HEAD), ("k", KV_HEADS * HEAD), ("v", KV_HEADS * HEAD)):
            yield b + "self_attn.%s_proj.weight" % name, (out, WIDTH)
            if bias:
                yield b + "self_attn.%s_proj.bias" % name, (out,)
        yield b + "self_attn.o_proj.weight", (WIDTH, HEADS * HEAD)
        yield b + "post_attention_layernorm.weight", (WIDTH,)
        yield b + "mlp.gate_proj.weight", (HIDDEN, WIDTH)
        yield b + "mlp.up_proj.weight", (HIDDEN, WIDTH)
        yield b + "mlp.down_proj.weight", (WIDTH, HIDDEN)
    yield "model.norm.weight", (WIDTH,)
    if not tied:
        yield "lm_head.weight", (VOCABULARY, WIDTH)


def rotated(x):  # [batch, heads, length, HEAD]; pairs are (i, i + half)
    half = HEAD // 2
    speed = 10000.0 ** (-torch.arange(half, dtype=torch.float64) * 2 / HEAD)
    angle = torch.outer(torch.arange(x.shape[2], dtype=torch.float64), speed)
    z = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([z.real, z.imag], -1)


def run(tied, bias):
    w = {}
    for key, (name, shape) in enumerate(shapes(tied, bias)):
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 64
        w[name] = torch.from_numpy(values(int(np.prod(shape)), key, fan**-0.5)).view(shape).double().requires_grad_()
    norm = lambda x, name: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS) * w[name + ".weight"]
    tokens = (torch.arange(2 * LENGTH) * 7 % VOCABULARY).view(2, LENGTH)
    targets = (torch.arange(2 * LENGTH) * 5 % VOCABULARY + 1).clamp(max=VOCABULARY - 1).view(2, LENGTH)
    x = w["model.embed_tokens.weight"][tokens]
    for i in range(LAYERS):
        b = "model.layers.%d." % i
        lin = lambda x, name: x @ w[b + name + ".weight"].T + (w[b + name + ".bias"] if b + name + ".bias" in w else 0)
        heads = lambda x, n: x.view(2, LENGTH, n, HEAD).transpose(1, 2)
        h = norm(x, b + "input_layernorm")
        q, k = rotated(heads(lin(h, "self_attn.q_proj"), HEADS)), rotated(heads(lin(h, "self_attn.k_proj"), KV_HEADS))
        v = heads(lin(h, "self_attn.v_proj"), KV_HEADS)
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (k, v))
        scores = (q @ k.transpose(-1, -2) / math.sqrt(HEAD)).masked_fill(torch.ones(LENGTH, LENGTH).triu(1).bool(), -math.inf)
        x = x + lin((scores.softmax(-1) @ v).transpose(1, 2).reshape(2, LENGTH, -1), "self_attn.o_proj")
        h = norm(x, b + "post_attention_layernorm")
        x = x + lin(F.silu(lin(h, "mlp.gate_proj")) * lin(h, "mlp.up_proj"), "mlp.down_proj")
    head = w["model.embed_tokens.weight"] if tied else w["lm_head.weight"]
    loss = F.cross_entropy((norm(x, "model.norm") @ head.T).view(-1, VOCABULARY), targets.view(-1))
    loss.backward()
    print("tied %s bias %s loss %.12g" % (tied, bias, loss.item()))
    for name, p in w.items():
        g = p.grad.flatten()
        i = torch.arange(g.numel())
        print('{"%s", %.9g, %.9g},' % (name, g.norm(), (g * torch.sin((i * i % 10007).double())).sum()))


run(True, True)
run(False, False)
