# Prints the numbers that the golden tests hold: the same nets in PyTorch, from weights and images made by formula.
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(2)


def values(count, key, amplitude):
    i = np.arange(count, dtype=np.int64)
    return (amplitude * np.sin((i * i % 10007 + key).astype(np.float64))).astype(np.float32)


def fill(model):
    with torch.no_grad():
        for key, p in enumerate(model.parameters()):
            fan = p[0].numel() if p.dim() > 1 else 64
            p.copy_(torch.from_numpy(values(p.numel(), key, fan**-0.5)).view(p.shape))
    return model


def images(batch, step, c, h, w):  # made in NHWC, as memory has them
    i = np.arange(batch * c * h * w, dtype=np.int64)
    x = np.sin(0.01 * ((i * i + 31 * step) % 1013).astype(np.float64)).astype(np.float32)
    return torch.from_numpy(x).view(batch, h, w, c).permute(0, 3, 1, 2).contiguous()


def labels(batch, step):
    return (torch.arange(batch) * 3 + step) % 10


class ConvNet(nn.Module):
    def __init__(self, c, h, w):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(c, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = nn.Linear(64 * ((h - 4) // 2) * ((w - 4) // 2), 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))


def mlp(c, h, w):
    return nn.Sequential(nn.Flatten(), nn.Linear(c * h * w, 48), nn.ReLU(), nn.Linear(48, 10))


class Rounded(torch.autograd.Function):
    """Rounds a result to a format, and its gradient too unless it is a weight's."""

    @staticmethod
    def forward(ctx, x, dtype, weight):
        ctx.dtype = torch.float32 if weight else dtype
        return x.to(dtype).float()

    @staticmethod
    def backward(ctx, g):
        return g.to(ctx.dtype).float(), None, None


def mixed(model, x, dtype):  # what autocast does, with FP32 sums
    x = Rounded.apply(x, dtype, False)
    layers = [m for m in model.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    for n, layer in enumerate(layers):
        if isinstance(layer, nn.Linear):
            x = torch.flatten(x, 1)
        w, b = (Rounded.apply(p, dtype, True) for p in (layer.weight, layer.bias))
        x = F.linear(x, w, b) if isinstance(layer, nn.Linear) else F.conv2d(x, w, b)
        x = Rounded.apply(x, dtype, False)
        if layer is not layers[-1]:
            x = F.relu(x)
        if isinstance(layer, nn.Conv2d) and isinstance(layers[n + 1], nn.Linear):
            x = F.max_pool2d(x, 2)
    return x


def prints(model, c, h, w, dtype):
    model = fill(model)
    x, y = images(3, 0, c, h, w), labels(3, 0)
    logits = model(x) if dtype == torch.float32 else mixed(model, x, dtype)
    (1024 * F.cross_entropy(logits, y)).backward()
    print("logits", dtype, ", ".join("%.8g" % v for v in logits.detach().flatten().tolist()))
    for name, p in model.named_parameters():
        g = p.grad.double().flatten() / 1024
        i = torch.arange(g.numel())
        weighted = (g * torch.sin((i * i % 10007).double())).sum()
        print('{"%s", %.8g, %.8g},' % (name, g.norm(), weighted))


for dtype in (torch.float32, torch.float16, torch.bfloat16):
    prints(ConvNet(2, 10, 12), 2, 10, 12, dtype)
    prints(mlp(3, 5, 4), 3, 5, 4, dtype)

model = fill(ConvNet(1, 28, 28))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
losses = []
for step in range(20):
    opt.zero_grad()
    loss = F.cross_entropy(model(images(8, step, 1, 28, 28)), labels(8, step))
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    losses.append(loss.item())
print("losses", ", ".join("%.9g" % v for v in losses))


def optimizer(name, make):
    w = [torch.nn.Parameter(torch.tensor([0.5, -1.25, 2.0])), torch.nn.Parameter(torch.tensor([[1.0, -0.75]]))]
    opt = make(w)
    for t in range(5):
        for k, p in enumerate(w):
            i = torch.arange(p.numel()).double()
            p.grad = torch.sin(i * 1.7 + t * 0.9 + k).float().view(p.shape)
        opt.step()
        print('{"%s", %d, {%s}},' % (name, t, ", ".join("%.9g" % v for p in w for v in p.detach().flatten().tolist())))


O = torch.optim
optimizer("sgd", lambda w: O.SGD(w, lr=0.1))
optimizer("momentum", lambda w: O.SGD(w, lr=0.1, momentum=0.9))
optimizer("nesterov", lambda w: O.SGD(w, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01))
optimizer("adam", lambda w: O.Adam(w, lr=0.1, weight_decay=0.01))
optimizer("adamw", lambda w: O.AdamW(w, lr=0.1, weight_decay=0.1, betas=(0.8, 0.95)))
optimizer("groups", lambda w: O.AdamW([{"params": w[:1], "lr": 0.2, "weight_decay": 0.0}, {"params": w[1:]}], lr=0.05, weight_decay=0.1))


def long_run(name, make, steps=300):  # weights, then moments, in f64 on the same gradients
    w = [torch.nn.Parameter(torch.tensor([0.5, -1.25, 2.0]).double()), torch.nn.Parameter(torch.tensor([[1.0, -0.75]]).double())]
    opt = make(w)
    for t in range(steps):
        for k, p in enumerate(w):
            i = torch.arange(p.numel()).double()
            p.grad = torch.sin(i * 1.7 + t * 0.9 + k).float().double().view(p.shape)
        opt.step()
    states = [w] + [[opt.state[p][key] for p in w] for key in ("momentum_buffer", "exp_avg", "exp_avg_sq") if opt.state[w[0]].get(key) is not None]
    rows = ["{%s}" % ", ".join("%.17g" % v for p in state for v in p.detach().flatten().tolist()) for state in states]
    print('{"%s", {%s}},' % (name, ", ".join(rows)))


long_run("sgd", lambda w: O.SGD(w, lr=0.003, weight_decay=0.01))
long_run("momentum", lambda w: O.SGD(w, lr=1e-3, momentum=0.99, weight_decay=0.01))
long_run("nesterov", lambda w: O.SGD(w, lr=1e-3, momentum=0.999, weight_decay=0.01, nesterov=True))
long_run("adam", lambda w: O.Adam(w, lr=1e-3, weight_decay=0.01))
long_run("adamw", lambda w: O.AdamW(w, lr=1e-3, weight_decay=0.1))
long_run("no first", lambda w: O.Adam(w, lr=1e-3, betas=(0.0, 0.99)))


def clipped(name, clip):
    w = torch.nn.Parameter(torch.tensor([0.5, -1.25, 2.0]))
    w.grad = torch.tensor([3.0, -4.0, 12.0])
    clip([w])
    print(name, w.grad.tolist())


clipped("norm", lambda w: nn.utils.clip_grad_norm_(w, 1.0))
clipped("value", lambda w: nn.utils.clip_grad_value_(w, 3.5))


def schedule(name, make, steps):
    p = torch.nn.Parameter(torch.zeros(1))
    p.grad = torch.zeros(1)
    opt = O.SGD([p], lr=0.1)
    s = make(opt)
    rates = []
    for _ in range(steps):
        rates.append(opt.param_groups[0]["lr"])
        opt.step()
        s.step()
    print(name, ", ".join("%.9g" % r for r in rates))


L = O.lr_scheduler
schedule("step", lambda o: L.StepLR(o, 3, gamma=0.5), 10)
schedule("cosine", lambda o: L.CosineAnnealingLR(o, 10, eta_min=0.01), 11)
schedule("onecycle", lambda o: L.OneCycleLR(o, 0.1, total_steps=20), 20)
schedule("onecycle2", lambda o: L.OneCycleLR(o, 0.1, total_steps=11, pct_start=0.4, div_factor=10, final_div_factor=100), 11)
