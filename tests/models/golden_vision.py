# Prints the numbers that resnet_test.cpp and dbnet_test.cpp hold: the networks of bench/torch_vision.py, from weights,
# images and labels made by formula, in f64; a training pass, then one in evaluation with the statistics of the first.
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench"))
from torch_vision import DbNet, ResNet, db_loss, hard_negative_bce

torch.set_num_threads(1)


def values(count, key, amplitude):
    i = np.arange(count, dtype=np.int64)
    return (amplitude * np.sin((i * i % 10007 + key).astype(np.float64))).astype(np.float32)


def filled(model):
    with torch.no_grad():
        for key, p in enumerate(model.parameters()):
            fan = p[0].numel() if p.dim() > 1 else 64
            p.copy_(torch.from_numpy(values(p.numel(), key, fan**-0.5)).view(p.shape))
            if p.dim() == 1:
                p += 0.5
    return model.double().train()


def images(batch, h, w):
    i = np.arange(batch * 3 * h * w, dtype=np.int64)
    x = np.sin(0.01 * (i * i % 1013).astype(np.float64)).astype(np.float32)
    return torch.from_numpy(x).view(batch, h, w, 3).permute(0, 3, 1, 2).double()


def weighted(x):
    i = torch.arange(x.numel())
    return (x.flatten() * torch.sin((i * i % 10007).double())).sum().item()


def gradients(model, names):
    every = dict(model.named_parameters())
    print("all %.9g" % torch.sqrt(sum((p.grad**2).sum() for p in every.values())).item())
    for name in names:
        print('{"%s", %.9g, %.9g},' % (name, every[name].grad.norm(), weighted(every[name].grad)))


def resnet(depth, stem, h, w, last):
    model = filled(ResNet(depth, stem, 8, 3, 10))
    x = images(4, h, w)
    out = model(x)
    loss = F.cross_entropy(out, torch.arange(4) * 3 % 10)
    loss.backward()
    print(f"resnet {depth} {stem} loss {loss.item():.12g}")
    print("logits", ", ".join("%.9g" % v for v in out[-1].tolist()))
    gradients(model, ["conv1.weight", "bn1.weight", "layer1.0.conv1.weight", "layer2.0.downsample.0.weight", "layer2.0.downsample.1.bias",
                      f"layer4.1.conv{last}.weight", f"layer4.1.bn{last}.weight", "fc.weight", "fc.bias"])
    print("in evaluation", ", ".join("%.9g" % v for v in model.eval()(x)[-1].tolist()))


def maps(batch, h, w):
    i = np.arange(batch * h * w, dtype=np.int64)
    y, x = i // w % h, i % w
    shrink = ((y // 8 + x // 16) % 5 == 0).astype(np.float32)
    mask = ((y // 4 + 3 * (x // 8)) % 7 != 0).astype(np.float32)
    threshold = (0.3 + 0.1 * ((x + y) % 5)).astype(np.float32)
    near = ((y // 8 + x // 8) % 3 == 0).astype(np.float32)
    return [torch.from_numpy(m).view(batch, h, w).double() for m in (shrink, mask, threshold, near)]


def dbnet():
    model = filled(DbNet(18, 8, 16))
    x, labels = images(2, 64, 96), maps(2, 64, 96)
    p, t = model(x)
    loss = db_loss((p, t), labels)
    loss.backward()
    print("dbnet probability %.9g, %.9g threshold %.9g, %.9g" % (p.norm(), weighted(p), t.norm(), weighted(t)))
    print("loss %.12g of bce %.12g" % (loss.item(), hard_negative_bce(p, labels[0], labels[1]).item()))
    gradients(model, ["backbone.conv1.weight", "backbone.layer4.1.bn2.bias", "decoder.in5.weight", "decoder.in2.weight", "decoder.out5.0.weight",
                      "decoder.out2.weight", "decoder.binarize.0.weight", "decoder.binarize.1.bias", "decoder.binarize.3.weight",
                      "decoder.binarize.6.weight", "decoder.binarize.6.bias", "decoder.thresh.3.weight", "decoder.thresh.6.weight"])
    p, t = model.eval()(x)
    print("in evaluation %.9g, %.9g threshold %.9g, %.9g" % (p.norm(), weighted(p), t.norm(), weighted(t)))


if __name__ == "__main__":
    resnet(18, "imagenet", 48, 40, 2)
    resnet(18, "cifar", 16, 12, 2)
    resnet(50, "imagenet", 48, 40, 3)
    dbnet()
