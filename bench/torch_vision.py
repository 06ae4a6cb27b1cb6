#!/usr/bin/env python3
"""PyTorch's half of what residual networks and DBNet are compared with: the same networks, loss and batches.

  torch_vision.py losses                 what tests/train/torch_vision_losses.inc holds
  torch_vision.py time [NAME[/PRECISION[/eager|/compile]] ...]
                                         training steps on a GPU; one JSON line a measurement
  torch_vision.py cpu                    ResNet-18 on 64 images of 32 x 32, in FP32, on the CPU, in both layouts
"""
import json
import math
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from torch_transformers import even, hashed, image_batch

# --- residual networks, with torchvision's names ---

BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


def conv(inputs, outputs, side, stride=1):
    return nn.Conv2d(inputs, outputs, side, stride, side // 2, bias=False)


def downsample(inputs, outputs, stride):
    return nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs)) if stride != 1 or inputs != outputs else None


class BasicBlock(nn.Module):
    def __init__(self, inputs, width, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(inputs, width, 3, stride), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, outputs, 3), nn.BatchNorm2d(outputs)
        self.downsample = downsample(inputs, outputs, stride)

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(inputs, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, outputs, 1), nn.BatchNorm2d(outputs)
        self.downsample = downsample(inputs, outputs, stride)

    def forward(self, x):
        y = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        return F.relu(self.bn3(self.conv3(y)) + (x if self.downsample is None else self.downsample(x)))


class Backbone(nn.Module):
    def __init__(self, depth=18, stem="imagenet", width=64, channels=3):
        super().__init__()
        self.stem = stem
        self.conv1 = conv(channels, width, 3) if stem == "cifar" else conv(channels, width, 7, 2)
        self.bn1 = nn.BatchNorm2d(width)
        block, growth = (Bottleneck, 4) if depth >= 50 else (BasicBlock, 1)
        inputs = width
        self.outputs = []
        for stage, count in enumerate(BLOCKS[depth]):
            inner, blocks = width << stage, []
            for i in range(count):
                blocks.append(block(inputs, inner, inner * growth, 2 if i == 0 and stage > 0 else 1))
                inputs = inner * growth
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
            self.outputs.append(inputs)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def stages(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        if self.stem != "cifar":
            x = F.max_pool2d(x, 3, 2, 1)
        c2 = self.layer1(x)
        c3 = self.layer2(c2)
        c4 = self.layer3(c3)
        return c2, c3, c4, self.layer4(c4)

    def forward(self, x):
        return self.stages(x)


class ResNet(Backbone):
    def __init__(self, depth=18, stem="imagenet", width=64, channels=3, classes=1000):
        super().__init__(depth, stem, width, channels)
        self.fc = nn.Linear(self.outputs[-1], classes)

    def forward(self, x):
        return self.fc(self.stages(x)[-1].mean((2, 3)))


# --- DBNet and its loss, after the authors' code ---


def head(inner):
    quarter = inner // 4
    return nn.Sequential(nn.Conv2d(inner, quarter, 3, padding=1, bias=False), nn.BatchNorm2d(quarter), nn.ReLU(),
                         nn.ConvTranspose2d(quarter, quarter, 2, 2), nn.BatchNorm2d(quarter), nn.ReLU(), nn.ConvTranspose2d(quarter, 1, 2, 2))


class Decoder(nn.Module):
    def __init__(self, inputs, inner):
        super().__init__()
        for n in (5, 4, 3, 2):
            setattr(self, f"in{n}", nn.Conv2d(inputs[n - 2], inner, 1, bias=False))
        for n, factor in ((5, 8), (4, 4), (3, 2)):
            setattr(self, f"out{n}", nn.Sequential(nn.Conv2d(inner, inner // 4, 3, padding=1, bias=False), nn.Upsample(scale_factor=factor)))
        self.out2 = nn.Conv2d(inner, inner // 4, 3, padding=1, bias=False)
        self.binarize, self.thresh = head(inner), head(inner)

    def forward(self, stages):
        c2, c3, c4, c5 = stages
        top = self.in5(c5)
        at16 = F.interpolate(top, scale_factor=2) + self.in4(c4)
        at8 = F.interpolate(at16, scale_factor=2) + self.in3(c3)
        at4 = F.interpolate(at8, scale_factor=2) + self.in2(c2)
        fused = torch.cat((self.out5(top), self.out4(at16), self.out3(at8), self.out2(at4)), 1)
        return self.binarize(fused)[:, 0], self.thresh(fused)[:, 0]


class DbNet(nn.Module):
    def __init__(self, depth=18, width=64, inner=256):
        super().__init__()
        self.backbone = Backbone(depth, "imagenet", width)
        self.decoder = Decoder(self.backbone.outputs, inner)

    def forward(self, x):
        return self.decoder(self.backbone(x))


def hard_negative_bce(logits, target, mask, negatives=3, eps=1e-6):
    positive, negative = target * mask, (1 - target) * mask
    positives = int(positive.sum())
    count = min(int(negative.sum()), positives * negatives)
    losses = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    hardest, _ = torch.topk((losses * negative).flatten(), count)
    return ((losses * positive).sum() + hardest.sum()) / (positives + count + eps)


def hard_negative_bce_on_device(logits, target, mask, negatives=3, eps=1e-6):
    """The same without asking the device for a number, so that a step can be compiled as one graph."""
    positive, negative = target * mask, (1 - target) * mask
    positives = positive.sum()
    count = torch.minimum(negative.sum(), positives * negatives)
    losses = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    hardest = torch.sort((losses * negative).flatten(), descending=True).values
    hardest = (hardest * (torch.arange(len(hardest), device=hardest.device) < count)).sum()
    return ((losses * positive).sum() + hardest) / (positives + count + eps)


def db_loss(maps, labels, bce=hard_negative_bce, k=50, eps=1e-6):
    p, t = maps[0] if maps[0].dtype == torch.float64 else maps[0].float(), maps[1] if maps[1].dtype == torch.float64 else maps[1].float()
    shrink, shrink_mask, threshold, threshold_mask = labels
    binary = torch.sigmoid(k * (torch.sigmoid(p) - torch.sigmoid(t))) * shrink_mask
    dice = 1 - 2 * (binary * shrink).sum() / (binary.sum() + (shrink * shrink_mask).sum() + eps)
    l1 = ((torch.sigmoid(t) - threshold).abs() * threshold_mask).sum() / threshold_mask.sum().clamp(min=eps)
    return 5 * bce(p, shrink, shrink_mask) + dice + 10 * l1


# --- the numbers of the test ---

SEEDS, STEPS, LR = range(1, 6), 20, 5e-4  # small: in larger steps a rounding soon turns decisions of ReLUs


def filled(model, seed):
    """Norms begin at one, biases small, and the rest as wide as its inputs are many."""
    with torch.no_grad():
        for n, (name, p) in enumerate(model.named_parameters()):
            width = 0.5 * math.sqrt(3) / math.sqrt(p[0].numel()) if p.dim() > 1 else 0.02
            values = width * even(np.arange(p.numel()), 1000 * seed + n)
            if p.dim() == 1 and name.endswith("weight"):
                values = np.ones(p.numel())
            p.copy_(torch.from_numpy(values.astype(np.float32)).view(p.shape))
    return model


def text_batch(step, rows, side, texts=3):
    """Bright rectangles in noise: shrunk by 3 pixels for the probability map, grown by 3 for the threshold's mask."""
    at = np.arange(side)
    y, x = at[:, None], at[None, :]
    images, maps = [], [[], [], [], []]
    for r in range(step * rows, (step + 1) * rows):
        shrink, mask, threshold, threshold_mask = np.zeros((side, side)), np.ones((side, side)), np.full((side, side), 0.3), np.zeros((side, side))
        image = even(r * 100000 + np.arange(side * side * 3), 81).reshape(side, side, 3)
        for i in range(texts):
            drawn = int(hashed(np.array([r * 10 + i]), 82)[0])
            top, left = drawn % (side - 16), drawn // 64 % (side - 24)
            inset = np.minimum(np.minimum(y - top, top + 11 - y), np.minimum(x - left, left + 19 - x))
            if i % 3 == 2:
                mask[inset >= 0] = 0
                continue
            image[inset >= 0] += 1
            shrink[inset >= 3] = 1
            threshold[inset >= -3] = 0.7 - 0.1 * np.abs(inset[inset >= -3]).clip(max=4)
            threshold_mask[inset >= -3] = 1
        images.append(image)
        for all_of, one in zip(maps, (shrink, mask, threshold, threshold_mask)):
            all_of.append(one)
    images = torch.from_numpy(np.stack(images).astype(np.float32)).permute(0, 3, 1, 2)
    return images, [torch.from_numpy(np.stack(m).astype(np.float32)) for m in maps]


CASES = {
    "resnet": (lambda: ResNet(18, "cifar", 16, 3, 10), lambda step: image_batch(step, 4, 32, 3, 10), F.cross_entropy),
    "dbnet": (lambda: DbNet(18, 16, 64), lambda step: text_batch(step, 4, 64), db_loss),
}


def trained(model, batches, loss_of):
    """By SGD: Adam's steps have the sign of gradients that are nothing but rounding, of which these networks have many."""
    rule = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)
    losses = []
    for x, y in batches:
        rule.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        rule.step()
        losses.append(loss.item())
    return losses


def as_dtype(what, dtype):
    if isinstance(what, list):
        return [as_dtype(one, dtype) for one in what]
    return what.to(dtype) if what.is_floating_point() else what


def print_losses():
    torch.set_num_threads(1)
    print("// Printed by bench/torch_vision.py with PyTorch " + torch.__version__ + ".")
    print("// model, seed, the largest distance of PyTorch's FP32 losses from these, which are its losses in f64")
    for name, (make, batch, loss_of) in CASES.items():
        for seed in SEEDS:

            def run(dtype):
                batches = [(as_dtype(x, dtype), as_dtype(y, dtype)) for x, y in map(batch, range(STEPS))]
                return trained(filled(make(), seed).to(dtype), batches, loss_of)

            exact = run(torch.float64)
            distance = max(abs(a - b) for a, b in zip(run(torch.float32), exact))
            print('{"%s", %d, %.3g, {%s}},' % (name, seed, distance, ", ".join("%.9f" % v for v in exact)), flush=True)


# --- speed ---


def images_of(count, side, classes):
    return lambda: (torch.randn(count, 3, side, side, device="cuda"), torch.randint(0, classes, (count,), device="cuda"))


def scenes_of(count, side):
    def make():
        x, maps = text_batch(0, count, side, 60)
        return x.cuda(), [m.cuda() for m in maps]

    return make


SPEED = {
    "resnet50_b256": (lambda: ResNet(50), images_of(256, 224, 1000), F.cross_entropy, 256),
    "resnet18_cifar_b512": (lambda: ResNet(18, "cifar", classes=10), images_of(512, 32, 10), F.cross_entropy, 512),
    "dbnet_r18_b16_topk": (lambda: DbNet(18), scenes_of(16, 640), db_loss, 16),
    "dbnet_r18_b16": (lambda: DbNet(18), scenes_of(16, 640), lambda maps, y: db_loss(maps, y, hard_negative_bce_on_device), 16),
}


def measure(name, precision, compiled, steps=30):
    make, batch, loss_of, images = SPEED[name]
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch._dynamo.reset()
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    model = make().cuda().to(memory_format=torch.channels_last)
    x, y = batch()
    x = x.contiguous(memory_format=torch.channels_last)
    low = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision)
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "fp16")
    rule = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    parameters = list(model.parameters())

    def loss(x, y):
        with torch.autocast("cuda", dtype=low, enabled=low is not None):
            return loss_of(model(x), y)

    forward = torch.compile(loss) if compiled else loss

    def step():
        rule.zero_grad(set_to_none=True)
        value = forward(x, y)
        scaler.scale(value).backward()
        scaler.unscale_(rule)
        nn.utils.clip_grad_norm_(parameters, 1.0)
        scaler.step(rule)
        scaler.update()
        return value

    row = {"bench": name, "prec": precision, "compile": compiled, "torch": torch.__version__}
    try:
        for _ in range(8):
            step()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(steps):
            value = step()
        torch.cuda.synchronize()
        ms = (time.perf_counter() - begin) / steps * 1e3
        row.update(ms=ms, per_s=images / ms * 1e3, unit="img", loss=value.item(), peak_gib=torch.cuda.max_memory_allocated() / 2**30)
    except Exception as error:
        row.update(error=str(error)[:200])
    print(json.dumps(row), flush=True)


def measure_on_cpu(layout, steps=8, images=64):
    torch.manual_seed(0)
    model = Backbone(18, "cifar").to(memory_format=layout)
    classifier = nn.Linear(512, 10)
    parameters = [*model.parameters(), *classifier.parameters()]
    rule = torch.optim.AdamW(parameters, lr=1e-4)
    x, y = torch.rand(images, 3, 32, 32).contiguous(memory_format=layout), torch.arange(images) % 10
    times = []
    for _ in range(steps + 2):
        begin = time.perf_counter()
        rule.zero_grad(set_to_none=True)
        F.cross_entropy(classifier(model.stages(x)[-1].mean((2, 3))), y).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        rule.step()
        times.append(time.perf_counter() - begin)
    ms = sorted(times[2:])[steps // 2] * 1e3
    print(json.dumps({"bench": "resnet18_cifar_b64", "device": "cpu", "layout": str(layout), "threads": torch.get_num_threads(), "torch": torch.__version__, "ms": ms, "per_s": images / ms * 1e3}))


def main():
    if sys.argv[1:2] == ["losses"]:
        print_losses()
    elif sys.argv[1:2] == ["cpu"]:
        for layout in (torch.contiguous_format, torch.channels_last):
            measure_on_cpu(layout)
    elif sys.argv[1:2] == ["time"]:
        for asked in sys.argv[2:] or SPEED:
            name, precision, how = (asked.split("/") + ["", ""])[:3]
            for precision in (precision,) if precision else ("fp32", "fp16", "bf16"):
                for compiled in (how == "compile",) if how else (False, True):
                    measure(name, precision, compiled)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
