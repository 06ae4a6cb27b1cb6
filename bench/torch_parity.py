#!/usr/bin/env python3
"""PyTorch's half of torch_parity.sh: trains from the same weights on the same batches, and compares with Invar's runs.

  torch_parity.py losses WEIGHTS RUN ...        losses of the first steps against those of Invar runs, the first in FP32
  torch_parity.py judge DISTANCES ...           what `losses` noted there, over seeds
  torch_parity.py accuracy WEIGHTS RUN ...      one epoch, its accuracy against those of Invar runs
"""
import argparse
import gzip
import json
import os
import struct
import sys

import numpy as np
import torch
from torch import nn

from torch_cpu_peer import ConvNet
from torch_transformers import Transformer, train

ROUNDING = {"16-mixed": 2.0**-11, "bf16-mixed": 2.0**-8}
MIXED = 16  # how many of them the losses of such a run may be away from f64's
DTYPES = {"F32": np.float32, "F64": np.float64, "I64": np.int64}


def read_safetensors(path):
    """Name to tensor. The format: length of a JSON header (8 bytes, little endian), the header, the bytes."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            values = np.frombuffer(data[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
            tensors[name] = torch.from_numpy(values.copy())
    return tensors


def read_idx(folder, name):
    path = os.path.join(folder, name + ".gz")
    with gzip.open(path) if os.path.exists(path) else open(path[:-3], "rb") as file:
        data = file.read()
    rank = data[3]
    shape = struct.unpack(f">{rank}I", data[4 : 4 + 4 * rank])
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


def load_split(folder, split):
    images = torch.from_numpy(read_idx(folder, f"{split}-images-idx3-ubyte").astype(np.float32))
    labels = torch.from_numpy(read_idx(folder, f"{split}-labels-idx1-ubyte").astype(np.int64))
    return ((images / 255 - 0.5) / 0.5).unsqueeze(1), labels


def load_text(path, length):
    """Windows of the file's bytes, and those one further on."""
    tokens = torch.from_numpy(np.fromfile(path, np.uint8).astype(np.int64))
    count = (len(tokens) - 1) // length
    return tokens[: count * length].view(count, length), tokens[1 : count * length + 1].view(count, length)


def make_model(weights, dropout, heads=0):
    if heads > 0:
        return Transformer(weights, heads)
    if "conv1.weight" in weights:
        model = ConvNet()
        if not dropout:
            model.dropout1.p = model.dropout2.p = 0.0
    else:
        widths = [weights[name].shape for name in sorted(weights, key=lambda n: int(n.split(".")[0])) if name.endswith("weight")]
        layers = [nn.Flatten()]
        for out, size in widths:
            layers += [nn.Linear(size, out), nn.ReLU()]
        model = nn.Sequential(*layers[:-1])
    model.load_state_dict(weights)
    return model


def make_rule(optimizer, model, lr):
    if optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    if optimizer == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
    return torch.optim.Adam(model.parameters(), lr=lr)


def in_order(x, y, batch):
    """The batches in the order of the file, as data.shuffle=false has it."""
    return [(x[begin : begin + batch], y[begin : begin + batch]) for begin in range(0, len(x), batch)]


def accuracy(model, images, labels):
    model.eval()
    with torch.no_grad():
        right = sum((model(images[i : i + 500]).argmax(1) == labels[i : i + 500]).sum().item() for i in range(0, len(images), 500))
    return right / len(images)


def losses_of(run, steps):
    return [row["loss"] for row in map(json.loads, open(os.path.join(run, "metrics.jsonl"))) if "loss" in row][:steps]


def compare_losses(arguments):
    """How far Invar and PyTorch in FP32 are from PyTorch in f64, which is close to exact; then Invar in 16 bits."""
    ours = losses_of(arguments.against[0], arguments.steps)
    x, y = load_text(arguments.text, arguments.length) if arguments.text else load_split(arguments.data, "train")
    x, y = x[: arguments.steps * arguments.batch], y[: arguments.steps * arguments.batch]
    weights = read_safetensors(arguments.weights)

    def run(dtype):
        model = make_model(weights, False, arguments.heads).to(dtype).train()
        batches = in_order(x.to(dtype) if x.is_floating_point() else x, y, arguments.batch)
        return train(model, batches, make_rule(arguments.optimizer, model, arguments.lr), arguments.clip)

    theirs, exact = run(torch.float32), run(torch.float64)

    def far(losses):
        if len(losses) != len(exact):
            sys.exit(f"{len(losses)} losses of Invar, {len(exact)} of PyTorch: was every step logged?")
        return max(abs(a - c) if a == a else float("inf") for a, c in zip(losses, exact))

    for step, (a, b, c) in enumerate(zip(ours, theirs, exact), 1):
        print(f"  step {step:3}  invar {a:.7f}  torch {b:.7f}  difference {abs(a - b):.1e}  "
              f"from f64: invar {abs(a - c):.1e}, torch {abs(b - c):.1e}")
    print(f"{arguments.title}: largest difference {max(abs(a - b) for a, b in zip(ours, theirs)):.1e} over {len(ours)} steps; "
          f"from PyTorch in f64: invar {far(ours):.1e}, PyTorch FP32 {far(theirs):.1e}")
    mixed = {}
    for run_folder in arguments.against[1:]:
        precision = json.load(open(os.path.join(run_folder, "summary.json")))["precision"]
        mixed[precision] = far(losses_of(run_folder, arguments.steps))
        print(f"{arguments.title}, {precision}: {mixed[precision]:.1e} from PyTorch in f64, "
              f"{mixed[precision] / ROUNDING[precision]:.2f} roundings of the format")
    with open(arguments.distances, "a") as file:
        print(json.dumps({"invar": far(ours), "torch": far(theirs), **mixed}), file=file)
    return True


def judge(arguments):
    """Over the seeds: a rounding that turns one decision of a ReLU or a max pool, or the sign of a step of Adam's where there is hardly a
    gradient, moves a single run by as much as it likes."""
    rows = [json.loads(line) for line in open(arguments.weights)]
    column = {key: sorted(row[key] for row in rows) for key in rows[0]}
    good = True

    def say(what, met):
        nonlocal good
        good = good and met
        print(f"{arguments.title}: {what}: {'yes' if met else 'NO'}")

    for name, pick in (("median", lambda values: values[len(values) // 2]), ("worst", max)):
        ours, theirs = pick(column["invar"]), pick(column["torch"])
        say(f"{name} distance from f64 over {len(rows)} seeds: invar {ours:.1e}, PyTorch FP32 {theirs:.1e}; at most 3 times that", ours <= 3 * theirs)
        for precision in (p for p in ROUNDING if p in column):
            distance, rounding = pick(column[precision]), ROUNDING[precision]
            if name == "median":
                say(f"{precision}, median {distance:.1e}; at most {MIXED} roundings of the format, {MIXED * rounding:.1e}", distance <= MIXED * rounding)
            else:
                allowed = 3 * theirs * rounding / 2.0**-24
                say(f"{precision}, worst {distance:.1e}; at most 3 times PyTorch's FP32, as much coarser as the format is, {allowed:.1e}", distance <= allowed)
    return good


def compare_accuracy(arguments):
    images, labels = load_split(arguments.data, "train")
    model = make_model(read_safetensors(arguments.weights), arguments.dropout)
    torch.manual_seed(0)
    train(model.train(), in_order(images, labels, arguments.batch), make_rule("adam", model, arguments.lr), arguments.clip)
    theirs = 100 * accuracy(model, *load_split(arguments.data, "t10k"))
    print(f"{arguments.title}: PyTorch FP32 {theirs:.2f}%")
    good = True
    for run in arguments.against:
        summary = json.load(open(os.path.join(run, "summary.json")))
        ours = 100 * summary["val_accuracy"]
        met = abs(ours - theirs) <= arguments.tolerance
        good = good and met
        print(f"  invar {summary['precision']:<11} {ours:.2f}%  {ours - theirs:+.2f} points, allowed {arguments.tolerance:g}: {'yes' if met else 'NO'}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["losses", "judge", "accuracy"])
    parser.add_argument("weights")
    parser.add_argument("against", nargs="*")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--text", help="train on this text instead, a token a byte")
    parser.add_argument("--length", type=int, default=64, help="tokens in a sample of it")
    parser.add_argument("--heads", type=int, default=0, help="of a transformer's attention")
    parser.add_argument("--title", default="comparison")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--tolerance", type=float, default=0.5)
    parser.add_argument("--optimizer", choices=["adam", "adamw", "sgd"], default="adam")
    parser.add_argument("--distances", default=os.devnull)
    parser.add_argument("--dropout", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    good = {"losses": compare_losses, "judge": judge, "accuracy": compare_accuracy}[arguments.what](arguments)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
