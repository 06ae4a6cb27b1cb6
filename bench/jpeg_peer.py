#!/usr/bin/env python3
"""The peer of bench_jpeg: the same work by torchvision's transforms, or without it by Pillow with the same rule.

    taskset -c 0 python3 bench/jpeg_peer.py FOLDER      # FOLDER: the one that bench_jpeg names
"""
import glob
import io
import math
import random
import sys
import time

import PIL
from PIL import Image

try:
    import torch
    import torchvision

    torch.set_num_threads(1)
except ImportError:
    torchvision = None


def measure(what, files, work):
    best = 0
    for _ in range(5):
        count, begin = 0, time.process_time()  # of the core, since others may be on the machine
        while time.process_time() - begin < 0.5:
            work(files[count % len(files)])
            count += 1
        best = max(best, count / (time.process_time() - begin))
    print(f"{what:<52} {best:8.0f} img/s  {1e3 / best:6.3f} ms")


def opened(data):
    return Image.open(io.BytesIO(data)).convert("RGB")


def random_box(width, height):
    """RandomResizedCrop's rule: ten attempts, then the whole."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = random.randint(0, width - w), random.randint(0, height - h)
            return left, top, left + w, top + h
    return 0, 0, width, height


def crop_and_flip(data):
    image = opened(data)
    image = image.crop(random_box(*image.size)).resize((224, 224), Image.BILINEAR)
    return image.transpose(Image.FLIP_LEFT_RIGHT) if random.random() < 0.5 else image


def main():
    files = [open(path, "rb").read() for path in sorted(glob.glob(sys.argv[1] + "/*.jpg"))]
    if torchvision is not None:
        from torchvision import transforms as T

        print(f"torchvision {torchvision.__version__}, Pillow {PIL.__version__}")
        crop = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()])
        jitter = T.Compose([crop, T.ColorJitter(0.4, 0.4, 0.4, 0.1)])
        view = T.Compose([T.Resize(256), T.CenterCrop(224)])
        measure("random resized crop to 224, flip", files, lambda data: crop(opened(data)))
        measure("the same with colour jitter", files, lambda data: jitter(opened(data)))
        measure("centre view: shorter side 256, middle 224", files, lambda data: view(opened(data)))
    else:
        print(f"Pillow {PIL.__version__}, without torchvision")
        measure("random resized crop to 224, flip", files, crop_and_flip)
    measure("decode alone, whole", files, opened)
    whole = opened(files[0])
    measure("resize alone, whole to 224", files, lambda data: whole.resize((224, 224), Image.BILINEAR))


if __name__ == "__main__":
    main()
