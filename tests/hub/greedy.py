# A model of Hugging Face's formats in numpy alone, in f64, read by that library's documentation and not by our code:
# prints the likeliest tokens behind a prompt, a token a byte. Usage: greedy.py FOLDER PROMPT TOKENS
import json
import math
import struct
import sys
from pathlib import Path

import numpy as np


def tensors(folder):
    index = folder / "model.safetensors.index.json"
    names = sorted(set(json.loads(index.read_text())["weight_map"].values())) if index.exists() else ["model.safetensors"]
    for name in names:
        data = (folder / name).read_bytes()
        (size,) = struct.unpack("<Q", data[:8])
        for key, entry in json.loads(data[8 : 8 + size]).items():
            if key == "__metadata__":
                assert entry["format"] == "pt"
                continue
            begin, end = entry["data_offsets"]
            raw = data[8 + size + begin : 8 + size + end]
            if entry["dtype"] == "BF16":
                values = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
            else:
                values = np.frombuffer(raw, {"F32": np.float32, "F16": np.float16}[entry["dtype"]])
            yield key, values.reshape(entry["shape"]).astype(np.float64)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attend(q, k, v):  # [heads, length, width]
    scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
    scores[:, ~np.tri(q.shape[1], dtype=bool)] = -np.inf
    y = softmax(scores) @ v
    return y.transpose(1, 0, 2).reshape(y.shape[1], -1)


def split(x, heads):
    return x.reshape(len(x), heads, -1).transpose(1, 0, 2)


def gpt2(c, w, ids):
    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        scaled = x / np.sqrt((x * x).mean(-1, keepdims=True) + c["layer_norm_epsilon"])
        return scaled * w[name + ".weight"] + w[name + ".bias"]

    def conv1d(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][: len(ids)]
    for i in range(c["n_layer"]):
        b = "transformer.h.%d." % i
        parts = np.split(conv1d(norm(x, b + "ln_1"), b + "attn.c_attn"), 3, -1)
        x = x + conv1d(attend(*(split(part, c["n_head"]) for part in parts)), b + "attn.c_proj")
        h = conv1d(norm(x, b + "ln_2"), b + "mlp.c_fc")
        h = 0.5 * h * (1 + np.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))
        x = x + conv1d(h, b + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ w["transformer.wte.weight"].T


def speeds(c):
    freq = c["rope_theta"] ** (-np.arange(0, c["head_dim"], 2) / c["head_dim"])
    scaling = c.get("rope_scaling") or {"rope_type": "default"}
    if scaling["rope_type"] == "linear":
        return freq / scaling["factor"]
    if scaling["rope_type"] == "default":
        return freq
    length = scaling["original_max_position_embeddings"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    result = []
    for f in freq:
        wavelength = 2 * math.pi / f
        if wavelength < length / high:
            result.append(f)
        elif wavelength > length / low:
            result.append(f / scaling["factor"])
        else:
            smooth = (length / wavelength - low) / (high - low)
            result.append((1 - smooth) * f / scaling["factor"] + smooth * f)
    return np.array(result)


def llama(c, w, ids):
    def norm(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + c["rms_norm_eps"]) * w[name + ".weight"]

    def linear(x, name):
        return x @ w[name + ".weight"].T + w.get(name + ".bias", 0)

    angle = np.outer(np.arange(len(ids)), speeds(c))
    cos, sin = np.cos(np.hstack([angle, angle])), np.sin(np.hstack([angle, angle]))

    def turn(x):
        half = x.shape[-1] // 2
        return x * cos + np.concatenate([-x[..., half:], x[..., :half]], -1) * sin

    group = c["num_attention_heads"] // c["num_key_value_heads"]
    x = w["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        b = "model.layers.%d." % i
        h = norm(x, b + "input_layernorm")
        q = turn(split(linear(h, b + "self_attn.q_proj"), c["num_attention_heads"]))
        k = turn(split(linear(h, b + "self_attn.k_proj"), c["num_key_value_heads"])).repeat(group, 0)
        v = split(linear(h, b + "self_attn.v_proj"), c["num_key_value_heads"]).repeat(group, 0)
        x = x + linear(attend(q, k, v), b + "self_attn.o_proj")
        h = norm(x, b + "post_attention_layernorm")
        gate = linear(h, b + "mlp.gate_proj")
        x = x + linear(gate / (1 + np.exp(-gate)) * linear(h, b + "mlp.up_proj"), b + "mlp.down_proj")
    head = "model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"
    return norm(x, "model.norm") @ w[head].T


folder = Path(sys.argv[1])
config = json.loads((folder / "config.json").read_text())
weights = dict(tensors(folder))
model = gpt2 if config["model_type"] == "gpt2" else llama
ids = list(sys.argv[2].encode())
for _ in range(int(sys.argv[3])):
    ids.append(int(model(config, weights, ids)[-1].argmax()))
print(json.dumps(ids[len(sys.argv[2].encode()) :]))
