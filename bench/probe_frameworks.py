#!/usr/bin/env python3
"""The probe's callbacks inside the real trainers of Lightning and of Transformers, under torch.compile, and runs that the real
loggers wrote, judged by `invar`. What is not installed is said and left out.

    bench/probe_frameworks.py path/to/invar
"""
import json
import math
import os
import subprocess
import sys
import tempfile
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools", "pytorch"))
warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import invar_probe  # noqa: E402

invar = os.path.abspath(sys.argv[1])
cuda = torch.cuda.is_available()
device = "cuda" if cuda else "cpu"
low = torch.float16 if cuda else torch.bfloat16
failures = []


def expect(good, what):
    print(f"  {'ok  ' if good else 'FAIL'} {what}", flush=True)
    if not good:
        failures.append(what)


def call(*words):
    done = subprocess.run([invar, *words], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def diagnosis(folder):
    code, out, err = call("diagnose", folder, "--json")
    if code == 2:
        print(err)
        return code, {}
    return code, json.loads(out)


def net(spoil=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    if spoil:
        with torch.no_grad():
            model[2].weight.mul_(1e6)
    return model


def batches(count, size=64):
    torch.manual_seed(1)
    return [(torch.randn(size, 20), torch.randint(0, 10, (size,))) for _ in range(count)]


def lightning():
    try:
        import lightning.pytorch as pl
    except ImportError:
        try:
            import pytorch_lightning as pl
        except ImportError:
            return print("Lightning: not installed")
    print(f"Lightning {pl.__version__}")

    class Module(pl.LightningModule):
        def __init__(self, spoil):
            super().__init__()
            self.net = net(spoil)

        def training_step(self, batch, _):
            loss = F.cross_entropy(self.net(batch[0]).float(), batch[1])
            self.log("train_loss", loss)
            return loss

        def validation_step(self, batch, _):
            self.log("val_acc", (self.net(batch[0]).argmax(1) == batch[1]).float().mean())

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.05)

    precision = "16-mixed" if cuda else "bf16-mixed"
    for name, spoil in (("healthy", False), ("overflow", True)):
        module = Module(spoil)
        logger = pl.loggers.CSVLogger("lightning_logs", name)
        trainer = pl.Trainer(max_epochs=2, precision=precision, accelerator="gpu" if cuda else "cpu", devices=1,
                             callbacks=[invar_probe.LightningProbe(f"lightning_{name}", every=5)], logger=logger,
                             enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=1)
        data = torch.utils.data.DataLoader([(x, y) for xs, ys in batches(8) for x, y in zip(xs, ys)], batch_size=64)
        trainer.fit(module, data, data)
        code, found = diagnosis(f"lightning_{name}")
        steps = found.get("steps", [])
        expect(set(range(5, 16, 5)) | {1} <= set(steps), f"{name}: steps 1, 5, 10, 15 were probed: {steps}")
        expect(found.get("ran_in") == ("autocast f16" if cuda else "autocast bf16"), f"{name}: ran in {found.get('ran_in')}")
        if not spoil:
            expect(code == 0 and found.get("healthy"), f"healthy: {found.get('concerns')}")
        elif cuda:
            bad = found.get("finding") or {}
            expect(code == 1 and bad.get("module") == "net.2" and bad.get("blame") == "precision", f"overflow: {bad}")
    code, out, err = call("compare", "lightning_logs/healthy/version_0/metrics.csv", "lightning_logs/overflow/version_0/metrics.csv",
                          "--metric", "val_acc", "--any-length")
    expect(code != 2 and "val_acc" in out, f"compare reads Lightning's metrics.csv (exit {code}) {err.strip()}")


def transformers():
    try:
        import transformers as hf
    except ImportError:
        return print("Transformers: not installed")
    print(f"Transformers {hf.__version__}")
    hf.logging.set_verbosity_error()
    config = hf.GPT2Config(n_layer=2, n_head=2, n_embd=64, vocab_size=100, n_positions=32)
    data = [{"input_ids": ids, "labels": ids} for ids in torch.randint(0, 100, (64, 32), generator=torch.Generator().manual_seed(0))]
    arguments = hf.TrainingArguments("hf_run", max_steps=12, per_device_train_batch_size=8, fp16=cuda, bf16=not cuda,
                                     use_cpu=not cuda, report_to=[], logging_steps=1, save_steps=12, disable_tqdm=True)
    trainer = hf.Trainer(hf.GPT2LMHeadModel(config), arguments, train_dataset=data,
                         callbacks=[invar_probe.HuggingFaceProbe("hf_probe", every=4)])
    trainer.train()
    code, found = diagnosis("hf_probe")
    expect(code == 0 and found.get("steps") == [1, 4, 8, 12], f"GPT-2's steps: {found.get('steps')}, {found.get('concerns')}")
    expect(found.get("ran_in") == ("autocast f16" if cuda else "autocast bf16"), f"ran in {found.get('ran_in')}")
    with open("hf_run/checkpoint-12/trainer_state.json") as file:
        state = json.load(file)
    for line in state["log_history"]:
        line["loss"] = line.get("loss", 0) * 1.001
    os.makedirs("hf_run2/checkpoint-12")
    with open("hf_run2/checkpoint-12/trainer_state.json", "w") as file:
        json.dump(state, file)
    code, out, err = call("compare", "hf_run", "hf_run2", "--metric", "loss", "--direction", "lower")
    expect(code != 2 and "loss" in out, f"compare reads its trainer_state.json (exit {code}) {err.strip()}")


def compiled():
    if not hasattr(torch, "compile"):
        return print("torch.compile: this PyTorch has none")
    print("torch.compile")
    for name, wrap in (("module", lambda m: torch.compile(m)), ("in_place", lambda m: (m.compile(), m)[1])):
        model = net().to(device)
        run, optimizer = wrap(model), torch.optim.SGD(model.parameters(), 0.05)
        frames = torch._dynamo.utils.counters["frames"]
        with invar_probe.InvarProbe(run, f"compiled_{name}", optimizer=optimizer, steps=[3, 5]) as probe:
            for number, (x, y) in enumerate(batches(8), 1):
                optimizer.zero_grad()
                with torch.autocast(device, dtype=torch.bfloat16):
                    loss = F.cross_entropy(run(x.to(device)).float(), y.to(device))
                loss.backward()
                probe.step(loss)
                optimizer.step()
                if number == 2:
                    before = frames["total"]
        code, found = diagnosis(f"compiled_{name}")
        rows = {row["module"] for row in found.get("rows", [])}
        expect(code == 0 and found.get("steps") == [3, 5] and rows == {"0", "1", "2", "3", "4"},
               f"{name}: steps {found.get('steps')}, modules {sorted(rows)}")
        expect(frames["total"] == before, f"{name}: nothing was compiled again ({before} to {frames['total']} frames)")


def scaler_and_ranks():
    if not cuda:
        return
    print("GradScaler, an overflow that it deals with, NaN that is replayed")
    for name, start in (("scaled", 65536.0), ("overflowing", 2.0 ** 40)):
        model = net().to(device)
        optimizer, scaler = torch.optim.SGD(model.parameters(), 0.05), torch.amp.GradScaler("cuda", init_scale=start)
        with invar_probe.InvarProbe(model, name, optimizer=optimizer, scaler=scaler, every=1) as probe:
            for x, y in batches(30):
                optimizer.zero_grad()
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = F.cross_entropy(model(x.cuda()), y.cuda())
                scaler.scale(loss).backward()
                probe.step(loss)
                scaler.step(optimizer)
                scaler.update()
        code, found = diagnosis(name)
        expect(code == 0 and not found["finding"]["found"], f"{name}: {found['finding']}")
        with open(os.path.join(name, "index.jsonl")) as file:
            lines = [json.loads(line) for line in file][1:]
        skipped = sum(line["skipped"] for line in lines)
        expect(skipped == (0 if name == "scaled" else lines[-1]["skips"]), f"{name}: {skipped} skips were seen, {lines[-1]['skips']} counted")


def loggers():
    try:
        from torch.utils.tensorboard import SummaryWriter
    except Exception as error:
        return print(f"TensorBoard: {error}")
    import tensorboard
    print(f"TensorBoard {tensorboard.__version__}")
    for run, lift in (("fp32", 0.0), ("fp16", 0.001)):
        writer = SummaryWriter(f"tb/{run}")
        for step in range(1, 101):
            writer.add_scalar("train/loss", 2.3 * math.exp(-step / 30), step)
            if step % 20 == 0:
                writer.add_scalar("val/accuracy", 0.9 - math.exp(-step / 15) + lift, step)
                writer.add_histogram("weights", torch.randn(100), step)
        writer.add_hparams({"lr": 0.1}, {"hparam/x": 1.0})
        writer.close()
    code, out, err = call("compare", "tb/fp32", "tb/fp16", "--metric", "val/accuracy")
    expect(code in (0, 3) and "89.87%" in out + err, f"compare reads folders of SummaryWriter's (exit {code}): {(out + err).strip()[-200:]}")
    for name in ("wandb", "mlflow"):
        try:
            module = __import__(name)
            print(f"{name} {module.__version__}: installed")
        except ImportError:
            print(f"{name}: not installed")


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for task in (lightning, transformers, compiled, scaler_and_ranks, loggers):
        try:
            task()
        except Exception as error:  # the next one may go well
            import traceback
            traceback.print_exc()
            failures.append(f"{task.__name__}: {error}")
    os.chdir("/")
print(f"{len(failures)} failed" if failures else "all went well")
sys.exit(bool(failures))
