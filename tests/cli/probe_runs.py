"""Real PyTorch runs with planted faults, probed; called by probe_test.cpp as probe_runs.py TOOLS FOLDER TASK."""
import json
import os
import sys
import types

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
folder, task = sys.argv[2:]

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import invar_probe  # noqa: E402
from invar_probe import InvarProbe  # noqa: E402

torch.set_num_threads(1)


class HalfLinear(nn.Linear):
    """Operands and result in FP16 and sums in FP32, as a GPU's under autocast; CPUs may lack it."""

    def forward(self, x):
        return F.linear(x.half().float(), self.weight.half().float(), self.bias).half()


class HalfReLU(nn.Module):
    def forward(self, x):
        return F.relu(x.float()).to(x.dtype)


class Shift(nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = by

    def forward(self, x):
        return x + self.by


class ShiftInCode(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(20, 64), nn.Linear(64, 10)

    def forward(self, x):
        return self.second((F.relu(self.first(x)) + 3000.0) - 3000.0)


class Scaler:
    """As much of a GradScaler as a probe asks for; halves after the steps that it is told to skip."""

    def __init__(self, scale):
        self.scale = scale

    def get_scale(self):
        return self.scale

    def is_enabled(self):
        return True


def net(linear=nn.Linear, relu=nn.ReLU, between=()):
    torch.manual_seed(0)
    return nn.Sequential(linear(20, 64), relu(), *between, linear(64, 64), relu(), linear(64, 10))


def train(model, name, steps=4, autocast=False, scaler=None, spoil=None, factor=1.0, replay=False, every=2, skip=()):
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    xs, ys = torch.randn(steps, 64, 20), torch.randint(0, 10, (steps, 64))
    if spoil is not None:
        xs[spoil, 5, 3] = float("nan")
    with InvarProbe(model, os.path.join(folder, name), optimizer=optimizer, scaler=scaler, every=every) as probe:
        for number, (x, y) in enumerate(zip(xs, ys), 1):
            def forward_backward():
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                    loss = F.cross_entropy(model(x).float(), y) * factor
                (loss * (scaler.get_scale() if scaler else 1)).backward()
                return loss

            hooked = any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
            assert hooked == (probe._capture is not None), number
            with torch.no_grad():
                model(torch.full((4, 20), 1e30))  # an evaluation, which is none of the probe's business
            optimizer.zero_grad()
            loss = forward_backward()
            gradients = [p.grad for p in model.parameters()]
            probe.step(loss, replay=forward_backward if replay else None)
            assert all(p.grad is g for p, g in zip(model.parameters(), gradients))  # also after a replay
            if scaler is not None:
                for p in model.parameters():
                    p.grad /= scaler.scale
                scaler.scale /= 2 if number in skip else 1
            optimizer.step()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def large(model, by=1e6):
    with torch.no_grad():
        model[2].weight.mul_(by)
    return model


def shifted():
    return net(between=(Shift(3000.0), Shift(-3000.0)))


def scales():
    """Gradients are written unscaled, whether the scaler's unscale_ came before the probe or comes after it."""
    norms = []
    for scale, unscaled in ((1.0, False), (1024.0, False), (1024.0, True)):
        model, scaler = net(), Scaler(scale)
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        name = os.path.join(folder, f"scale{len(norms)}")
        with InvarProbe(model, name, optimizer=optimizer, scaler=scaler) as probe:
            (model(torch.ones(8, 20)).square().mean() * scale).backward()
            if unscaled:
                for p in model.parameters():
                    p.grad /= scale
                scaler._per_optimizer_states = {id(optimizer): {"stage": types.SimpleNamespace(value=1)}}
            probe.step(1.0)
        with open(os.path.join(name, "index.jsonl")) as file:
            norms.append(json.loads(file.readlines()[1])["grad_norm"])
    assert all(abs(norm - norms[0]) < 1e-5 * norms[0] for norm in norms), norms


def counts():
    """Rows and samples of tensors of any layout against what each is by itself."""
    torch.manual_seed(0)
    inf, nan, many = float("inf"), float("nan"), torch.randn(1000003)
    images = torch.randn(8, 64, 40, 40).to(memory_format=torch.channels_last)
    tensors = [torch.randn(64).double() * 1e-320, torch.randn(10).double() * 1e300, torch.randn(4, 5, 6, 7).half(),
               torch.randn(3) * 1e-39, torch.zeros(5), torch.tensor([1.0, nan, inf]), torch.tensor(3.0),
               torch.randn(300, 1000), torch.randn(100, 50).t()[::2], torch.randn(6, 1).expand(6, 7), images[:1], images,
               images.bfloat16(), torch.cat([torch.zeros(1000000), torch.tensor([7e4])]),
               torch.cat([many, torch.tensor([inf])]), torch.cat([many, torch.tensor([nan, -inf])])]
    counted = invar_probe._Counts(torch.device("cpu"), 1024)
    for _ in range(12):  # more than is counted at once
        rows = [counted.add(tensor, 0.5) for tensor in tensors]
    table = counted.table()
    for tensor, number in zip(tensors, rows):
        row, about = table[number], (tensor.dtype, tensor.shape)
        values = invar_probe._in_range(tensor).float() * 0.5
        finite, bad = values[values.isfinite()].abs(), int((~values.isfinite()).sum())
        largest, smallest = row[258:].abs().to(torch.int32).view(torch.float32).tolist()
        assert (row[255] > 0) == (bad > 0) and (row[257] > 0) == bool(values.isnan().any()), about
        assert bad or largest == finite.max(), about
        if tensor.numel() <= invar_probe.COUNTED:
            assert row[:256].sum() == tensor.numel() and row[255] == bad and row[256] == (values == 0).sum(), about
            assert not (finite > 0).any() or smallest == finite[finite > 0].min(), about
        else:  # reckoned
            assert abs(row[:256].sum() / tensor.numel() - 1) < 1e-3, about
        image = values.movedim(1, -1) if values.dim() >= 4 else values if values.dim() > 1 else values.reshape(-1, 1)
        image = image.reshape(-1, image.shape[-1])
        columns = min(image.shape[1], invar_probe.FEATURES)
        count = min(len(image), max(1, 1024 // columns))
        sample = image[[i * len(image) // count for i in range(count)]]
        sample = sample[:, [i * image.shape[1] // columns for i in range(columns)]]
        assert torch.equal(sample.nan_to_num(7.0), (counted.samples[number].float() * 0.5).nan_to_num(7.0)), about


def callbacks():
    """The two callbacks, driven in the order in which their trainers call them."""
    class Callback:
        pass

    lightning, pytorch, transformers = (types.ModuleType(n) for n in ("lightning", "lightning.pytorch", "transformers"))
    pytorch.Callback = transformers.TrainerCallback = Callback
    sys.modules.update({"lightning": lightning, "lightning.pytorch": pytorch, "transformers": transformers})
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    trainer = types.SimpleNamespace(global_step=0, optimizers=[optimizer], precision_plugin=object())
    callback = invar_probe.LightningProbe(os.path.join(folder, "lightning"), every=2)
    callback.on_train_start(trainer, model)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 20)).square().mean()
        callback.on_before_backward(trainer, model, loss)
        loss.backward()
        callback.on_before_optimizer_step(trainer, model, optimizer)
        optimizer.step()
    callback.on_train_end(trainer, model)

    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net()

        def forward(self, x):
            return {"loss": self.net(x).square().mean()}

    model = WithLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    state = types.SimpleNamespace(global_step=10)
    callback = invar_probe.HuggingFaceProbe(os.path.join(folder, "hugging_face"), every=2)
    callback.on_train_begin(None, state, None, model=model, optimizer=optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 20))["loss"].backward()
        callback.on_pre_optimizer_step(None, state, None)
        optimizer.step()
    callback.on_train_end(None, state, None)


def patched():
    """The patch of probe `digits`: its modules run in FP32 under autocast, the others as before."""
    sys.path.insert(0, os.path.join(folder, "digits"))
    import keep_fp32
    model, dtypes = shifted(), {}
    reference = shifted()(torch.ones(8, 20))
    for name, module in model.named_modules():
        module.register_forward_hook(lambda m, a, r, name=name: dtypes.__setitem__(name, r.dtype))
    keep_fp32.apply(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = model(torch.ones(8, 20))
    assert dtypes["0"] == torch.bfloat16 and dtypes["2"] == dtypes["3"] == torch.float32, dtypes
    assert (result.float() - reference).norm() < 0.05 * reference.norm()
    try:
        keep_fp32.apply(nn.Linear(2, 2))
    except KeyError as error:
        assert "no module '2'" in str(error), error
    else:
        raise AssertionError("another model was taken")


if task == "train":
    train(net(), "healthy")
    train(net(), "bf16", autocast=True)
    train(large(net()), "overflow_fp32", steps=1)
    train(large(net(HalfLinear, HalfReLU)), "overflow_fp16", steps=1)
    train(net(HalfLinear, HalfReLU), "vanish_fp16", factor=1e-4)
    train(net(HalfLinear, HalfReLU), "gone_fp16", factor=1e-7)
    train(net(HalfLinear, HalfReLU), "scaled_fp16", scaler=Scaler(65536.0))
    train(shifted(), "digits")
    train(shifted(), "digits_bf16", autocast=True)
    train(ShiftInCode(), "code")
    train(ShiftInCode(), "code_bf16", autocast=True)
    train(net(), "nan_data", spoil=2, every=1)
    train(net(), "nan_replayed", spoil=2, every=500, replay=True)
    train(net(), "nan_after", spoil=2, every=500)
    train(net(), "skips", steps=9, every=500, scaler=Scaler(1024.0), skip=(3,))
    scales()
    counts()
    callbacks()
elif task == "resume":  # goes on in the folder of `healthy`, and not in that of another model
    model = net()
    with InvarProbe(model, os.path.join(folder, "healthy"), first_step=4, steps=[4]) as probe:
        model(torch.randn(8, 20)).sum().backward()
        probe.step(1.0)
    try:
        InvarProbe(shifted(), os.path.join(folder, "healthy")).__enter__()
    except ValueError as error:
        assert "another model" in str(error)
    else:
        raise AssertionError("another model was taken")
elif task == "gone":  # a folder that cannot be written to ends the probe, and not the training
    import shutil
    import warnings
    model = net()
    with warnings.catch_warnings(record=True) as heard, InvarProbe(model, os.path.join(folder, "gone"), every=1) as probe:
        warnings.simplefilter("always")
        shutil.rmtree(os.path.join(folder, "gone"))
        for _ in range(3):
            model(torch.randn(8, 20)).sum().backward()
            probe.step(1.0)
    assert len(heard) == 1 and "probes no further steps" in str(heard[0].message), [str(w.message) for w in heard]
    assert not any(m._forward_hooks for m in model.modules())
else:
    patched()
