# Prints the numbers that gpt_test.cpp holds: GPT-2 in PyTorch, with Hugging Face's names and layouts, from weights and
# tokens made by formula, in f64.
import math

import numpy as np
import torch
import torch.nn.functional as F

VOCABULARY, LENGTH, LAYERS, HEADS, WIDTH = 37, 9, 2, 4, 32


def values(count, key, amplitude):
    i = np.arange(count, dtype=np.int64)
    return (amplitude * np.sin((i * i % 10007 + key).astype(np.float64))).astype(np.float32)


def shapes():
    yield "wte.weight", (VOCABULARY, WIDTH)
    yield "wpe.weight", (LENGTH, WIDTH)
    for i in range(LAYERS):
        b = "h.%d." % i
        yield from ((b + "ln_1.weight", (WIDTH,)), (b + "ln_1.bias", (WIDTH,)))
        yield from ((b + "attn.c_attn.weight", (WIDTH, 3 * WIDTH)), (b + "attn.c_attn.bias", (3 * WIDTH,)))
        yield from ((b + "attn.c_proj.weight", (WIDTH, WIDTH)), (b + "attn.c_proj.bias", (WIDTH,)))
        yield from ((b + "ln_2.weight", (WIDTH,)), (b + "ln_2.bias", (WIDTH,)))
        yield from ((b + "mlp.c_fc.weight", (WIDTH, 4 * WIDTH)), (b + "mlp.c_fc.bias", (4 * WIDTH,)))
        yield from ((b + "mlp.c_proj.weight", (4 * WIDTH, WIDTH)), (b + "mlp.c_proj.bias", (WIDTH,)))
    yield from (("ln_f.weight", (WIDTH,)), ("ln_f.bias", (WIDTH,)))


w = {}
for key, (name, shape) in enumerate(shapes()):
    fan = int(np.prod(shape[1:])) if len(shape) > 1 else 64
    w[name] = torch.from_numpy(values(int(np.prod(shape)), key, fan**-0.5)).view(shape).double().requires_grad_()


def logits(tokens):
    b, t = tokens.shape
    x = w["wte.weight"][tokens] + w["wpe.weight"][:t]
    for i in range(LAYERS):
        p = lambda name: w["h.%d.%s" % (i, name)]
        norm = lambda x, name: F.layer_norm(x, (WIDTH,), p(name + ".weight"), p(name + ".bias"))
        lin = lambda x, name: x @ p(name + ".weight") + p(name + ".bias")
        q, k, v = lin(norm(x, "ln_1"), "attn.c_attn").view(b, t, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)
        scores = scores.masked_fill(torch.ones(t, t).triu(1).bool(), -math.inf)
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, WIDTH)
        x = x + lin(y, "attn.c_proj")
        z = lin(norm(x, "ln_2"), "mlp.c_fc")
        z = 0.5 * z * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
        x = x + lin(z, "mlp.c_proj")
    return F.layer_norm(x, (WIDTH,), w["ln_f.weight"], w["ln_f.bias"]) @ w["wte.weight"].T


tokens = (torch.arange(2 * LENGTH) * 7 % VOCABULARY).view(2, LENGTH)
targets = (torch.arange(2 * LENGTH) * 5 % VOCABULARY + 1).clamp(max=VOCABULARY - 1).view(2, LENGTH)
out = logits(tokens)
loss = F.cross_entropy(out.view(-1, VOCABULARY), targets.view(-1))
loss.backward()
print("loss %.12g" % loss.item())
print("logits", ", ".join("%.9g" % v for v in out[1, -1, :8].tolist()))
for name, p in w.items():
    g = p.grad.flatten()
    i = torch.arange(g.numel())
    print('{"%s", %.9g, %.9g},' % (name, g.norm(), (g * torch.sin((i * i % 10007).double())).sum()))
