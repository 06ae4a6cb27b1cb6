#!/usr/bin/env python3
"""Fashion-MNIST in colour, in the format of CIFAR-10: what networks for CIFAR learn where nothing is downloaded.

  fashion_in_colour.py FROM TO      FROM: the four IDX files of Fashion-MNIST, gzip or not; TO: a folder to be made

Each image lies in the middle of 32 x 32 pixels. Its brightness becomes a colour between one for the ground and one for
the cloth, both drawn at random (from a fixed seed) whatever the class: the colour tells nothing, and has to be seen
through.
"""
import gzip
import pathlib
import sys

import numpy as np


def idx(folder, name):
    for path in (folder / name, folder / (name + ".gz")):
        if path.exists():
            data = (gzip.open if path.suffix == ".gz" else open)(path, "rb").read()
            rank = data[3]
            sizes = np.frombuffer(data, ">u4", rank, 4)
            return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(sizes)
    sys.exit(f"{folder}: there is no {name}, nor {name}.gz")


def coloured(images, rng):
    grey = np.zeros((len(images), 1, 32, 32), np.float32)
    grey[:, 0, 2:30, 2:30] = images / np.float32(255)
    ground = rng.random((len(images), 3, 1, 1), np.float32) * np.float32(0.4)
    cloth = np.float32(0.5) + rng.random((len(images), 3, 1, 1), np.float32) * np.float32(0.5)
    return np.rint((ground + (cloth - ground) * grey) * 255).astype(np.uint8)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    source, target = map(pathlib.Path, sys.argv[1:])
    target.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    for split, files in (("train", [f"data_batch_{i}.bin" for i in range(1, 6)]), ("t10k", ["test_batch.bin"])):
        images, labels = idx(source, f"{split}-images-idx3-ubyte"), idx(source, f"{split}-labels-idx1-ubyte")
        records = np.concatenate([labels[:, None], coloured(images, rng).reshape(len(images), -1)], axis=1)
        for name, part in zip(files, np.array_split(records, len(files))):
            part.tofile(target / name)
    print(f"{target}: 60000 images to train on, 10000 to validate on; use data=cifar10 data.root={target}")


if __name__ == "__main__":
    main()
