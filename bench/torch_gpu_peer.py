#!/usr/bin/env python3
"""The other side of `invar bench --device cuda`: the same training steps in PyTorch, as its users write them (eager), under
torch.compile, and with the whole step captured by hand in a CUDA graph; its unscale + clip + fused AdamW over the shapes of
GPT-2 large; and causal attention by itself, as gpu_attention measures ours. AdamW, clip by norm 1.0, GradScaler for FP16, benchmark mode.

Prints one line a figure: work, precision, way, milliseconds.
"""
import argparse
import time

import torch
from torch import nn

from torch_cpu_peer import ConvNet

LOW = {"fp16": torch.float16, "bf16": torch.bfloat16}


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))


WORKS = {"convnet b128": (ConvNet, 128, 200), "convnet b4096": (ConvNet, 4096, 50), "mlp b32": (mlp, 32, 200)}


def milliseconds(step, steps, warm_up=10):
    for _ in range(warm_up):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / steps * 1e3


class Step:
    def __init__(self, work, precision, way):
        torch.manual_seed(0)
        make, batch, self.steps = WORKS[work]
        self.model = make().cuda().train()
        self.x = torch.randn(batch, 1, 28, 28, device="cuda")
        self.y = torch.randint(0, 10, (batch,), device="cuda")
        self.captured = way == "graph"
        self.parameters = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-4, fused=True, capturable=self.captured)
        self.scaler = torch.amp.GradScaler("cuda", enabled=precision == "fp16")
        self.low = LOW.get(precision)
        self.loss = torch.compile(self.forward, mode="reduce-overhead") if way == "compile" else self.forward

    def forward(self, x, y):
        with torch.autocast("cuda", dtype=self.low, enabled=self.low is not None, cache_enabled=not self.captured):
            return nn.functional.cross_entropy(self.model(x), y)

    def __call__(self):
        self.optimizer.zero_grad(set_to_none=not self.captured)
        self.scaler.scale(self.loss(self.x, self.y)).backward()
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def measure(self):
        if not self.captured:
            return milliseconds(self, self.steps)
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(3):
                self()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self()
        return milliseconds(graph.replay, self.steps)


def gpt2_large():
    c = 1280
    block = [(3 * c, c), (3 * c,), (c, c), (c,), (4 * c, c), (4 * c,), (c, 4 * c), (c,)] + [(c,)] * 4
    return [(50304, c), (1024, c)] + block * 36


def optimizer_step():
    parameters = [nn.Parameter(0.02 * torch.randn(shape, device="cuda")) for shape in gpt2_large()]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer = torch.optim.AdamW(parameters, lr=1e-5, fused=True)
    scaler = torch.amp.GradScaler("cuda", init_scale=1.0)
    scaler.scale(torch.ones((), device="cuda"))

    def step():
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(parameters, 1.0)
        scaler.step(optimizer)
        scaler.update()

    return milliseconds(step, 20)


def attention(length, width, batch, heads):
    """cuDNN's scaled_dot_product_attention, forward and backward: TFLOP/s of the pairs that are looked at."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def draw():
        return torch.randn(batch, heads, length, width, device="cuda", dtype=torch.bfloat16)

    q, k, v = (draw().requires_grad_() for _ in range(3))
    gradient = draw()

    def forward():
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        once = sorted(milliseconds(forward, 10) for _ in range(5))[2]
        both = sorted(milliseconds(lambda: torch.autograd.grad(forward(), (q, k, v), gradient), 10) for _ in range(5))[2]
    flops = 2.0 * batch * heads * length * length * width
    print(f"attention T {length} D {width}: forward {flops / once * 1e-9:.1f} TFLOP/s, with backward {3.5 * flops / both * 1e-9:.1f}"
          f" TFLOP/s, {both:.3f} ms", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", default="eager,compile,graph")
    parser.add_argument("--precisions", default="fp32,fp16,bf16")
    parser.add_argument("--attention", action="store_true", help="attention alone")
    arguments = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}", flush=True)
    attention(1024, 64, 32, 12)
    attention(4096, 128, 4, 16)
    if arguments.attention:
        return
    for way in arguments.ways.split(","):
        for work in WORKS:
            for precision in arguments.precisions.split(","):
                torch._dynamo.reset()
                try:
                    figure = f"{Step(work, precision, way).measure():.4f} ms"
                except Exception as error:
                    figure = "failed: " + str(error).splitlines()[0][:120]
                print(f"{work:14} {precision:5} {way:8} {figure}", flush=True)
    print(f"{'unscale + clip + AdamW, 774M parameters':28} {optimizer_step():.2f} ms", flush=True)


if __name__ == "__main__":
    main()
