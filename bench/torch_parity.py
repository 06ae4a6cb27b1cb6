#!/usr/bin/env python3
"""PyTorch's half of torch_parity.sh: trains from the same weights on the same batches, and compares with Invar's runs.

  torch_parity.py losses WEIGHTS METRICS ...    losses of the first steps against those of an Invar run
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


def make_model(weights, dropout):
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


def train(model, images, labels, batch, steps, clip, lr, optimizer="adam"):
    """The batches in the order of the file, as data.shuffle=false has it; the losses before each update."""
    rule = torch.optim.Adam(model.parameters(), lr=lr) if optimizer == "adam" else torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    model.train()
    losses = []
    for begin in range(0, min(steps * batch, len(images)), batch):
        rule.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(images[begin : begin + batch]), labels[begin : begin + batch])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        rule.step()
        losses.append(loss.item())
    return losses


def accuracy(model, images, labels):
    model.eval()
    with torch.no_grad():
        right = sum((model(images[i : i + 500]).argmax(1) == labels[i : i + 500]).sum().item() for i in range(0, len(images), 500))
    return right / len(images)


def compare_losses(arguments):
    """How far Invar and PyTorch in FP32 are from PyTorch in f64, which is close to exact."""
    ours = [row["loss"] for row in map(json.loads, open(arguments.against[0])) if "loss" in row][: arguments.steps]
    images, labels = load_split(arguments.data, "train")
    images = images[: arguments.steps * arguments.batch]
    weights = read_safetensors(arguments.weights)

    def run(dtype):
        model = make_model(weights, dropout=False).to(dtype)
        return train(model, images.to(dtype), labels, arguments.batch, arguments.steps, arguments.clip, arguments.lr,
                     arguments.optimizer)

    theirs, exact = run(torch.float32), run(torch.float64)
    if len(ours) != len(theirs):
        sys.exit(f"{len(ours)} losses of Invar, {len(theirs)} of PyTorch: was every step logged?")
    for step, (a, b, c) in enumerate(zip(ours, theirs, exact), 1):
        print(f"  step {step:3}  invar {a:.7f}  torch {b:.7f}  difference {abs(a - b):.1e}  "
              f"from f64: invar {abs(a - c):.1e}, torch {abs(b - c):.1e}")
    distances = [max(abs(a - c) for a, c in zip(losses, exact)) for losses in (ours, theirs)]
    print(f"{arguments.title}: largest difference {max(abs(a - b) for a, b in zip(ours, theirs)):.1e} over {len(ours)} steps; "
          f"from PyTorch in f64: invar {distances[0]:.1e}, PyTorch FP32 {distances[1]:.1e}")
    with open(arguments.distances, "a") as file:
        print(*distances, file=file)
    return True


def judge(arguments):
    """Over the seeds: a rounding that turns one decision of a ReLU or a max pool moves a single run by as much as it likes."""
    ours, theirs = (sorted(column) for column in zip(*(map(float, line.split()) for line in open(arguments.weights))))
    good = True
    for name, pick in (("median", lambda values: values[len(values) // 2]), ("worst", max)):
        met = pick(ours) <= 3 * pick(theirs)
        good = good and met
        print(f"{arguments.title}: {name} distance from f64 over {len(ours)} seeds: invar {pick(ours):.1e}, PyTorch FP32 "
              f"{pick(theirs):.1e}; at most 3 times that: {'yes' if met else 'NO'}")
    return good


def compare_accuracy(arguments):
    images, labels = load_split(arguments.data, "train")
    model = make_model(read_safetensors(arguments.weights), arguments.dropout)
    torch.manual_seed(0)
    train(model, images, labels, arguments.batch, len(images), arguments.clip, arguments.lr)
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
    parser.add_argument("--title", default="comparison")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--tolerance", type=float, default=0.5)
    parser.add_argument("--optimizer", choices=["adam", "sgd"], default="adam")
    parser.add_argument("--distances", default=os.devnull)
    parser.add_argument("--dropout", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    good = {"losses": compare_losses, "judge": judge, "accuracy": compare_accuracy}[arguments.what](arguments)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
