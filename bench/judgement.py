#!/usr/bin/env python3
"""Faults that are planted by settings against what `invar diagnose` and `invar train` name, over architectures, batches,
rates and optimizers that a seed draws. Usage: judgement.py INVAR [--faulty 40] [--healthy 200] [--seed 1]"""
import argparse
import collections
import json
import pathlib
import random
import subprocess
import tempfile

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("invar")
arguments.add_argument("--faulty", type=int, default=40, help="runs of each fault")
arguments.add_argument("--healthy", type=int, default=200)
arguments.add_argument("--seed", type=int, default=1)
a = arguments.parse_args()
invar = str(pathlib.Path(a.invar).resolve())
draw = random.Random(a.seed)


def run_of(number):
    """Words of a run that is well."""
    model = draw.choice([["model=mlp", "model.hidden=[48]"], ["model=mlp", "model.hidden=[32,32,32]"],
                         ["model=mlp", "model.hidden=[256]"], ["model=convnet"], ["model=resnet", "model.depth=18"]])
    side = draw.choice([16, 28]) if model[0] != "model=resnet" else 16
    if model[0] == "model=convnet":
        side = 28
    optimizer, rates = draw.choice([("sgd", (0.003, 0.01, 0.03)), ("adam", (1e-4, 1e-3)), ("adamw", (1e-4, 1e-3))])
    batch = draw.choice([4, 16, 64]) if model[0] == "model=mlp" else draw.choice([8, 16])
    return model + ["data=synthetic", f"data.size={batch * 12}", f"data.height={side}", f"data.width={side}",
                    f"data.batch_size={batch}", f"optimizer={optimizer}", f"optimizer.lr={draw.choice(rates)}",
                    f"seed={number}", "trainer.device=cpu", "trainer.threads=1"]


def named_by_diagnose(folder, words):
    done = subprocess.run([invar, "diagnose", "--json", "--steps", "4"] + words, cwd=folder, capture_output=True, text=True)
    if done.returncode > 1:
        return "error: " + done.stderr.strip()[:60]
    found = json.loads(done.stdout.splitlines()[-1])
    if found["finding"]["found"]:
        return found["finding"]["blame"]
    return found["concerns"][0]["kind"] if found["concerns"] else "nothing"


def named_by_train(folder, words):
    subprocess.run([invar, "train", "--quiet", "trainer.on_instability=stop", "trainer.max_epochs=6", "exp_name=run",
                    "trainer.limit_val_batches=1"] + words, cwd=folder, capture_output=True)
    summary = json.loads((pathlib.Path(folder) / "runs/run/summary.json").read_text())
    if summary["status"] == "finished":
        return "nothing"
    return "not the precision" if "no precision is to blame" in summary["failure"] else "the precision or another"


PRECISIONS = ["trainer.precision=16-mixed", "trainer.precision=bf16-mixed"]
FAULTS = [
    ("none, diagnose", a.healthy, named_by_diagnose, lambda: [draw.choice(PRECISIONS)]),
    ("none, train", a.faulty, named_by_train, lambda: [draw.choice(PRECISIONS + ["trainer.precision=32-true"])]),
    ("a static loss scale of 2^-20 to 2^-30", a.faulty, named_by_diagnose,
     lambda: [PRECISIONS[0], "scaler.dynamic=false", f"scaler.init_scale={2.0 ** -draw.randint(20, 30)}"]),
    ("a static loss scale of 2^30 to 2^40", a.faulty, named_by_diagnose,
     lambda: [PRECISIONS[0], "scaler.dynamic=false", f"scaler.init_scale={2.0 ** draw.randint(30, 40)}"]),
    ("inputs beyond FP16", a.faulty, named_by_diagnose,
     lambda: [PRECISIONS[0], f"data.std={10.0 ** -draw.randint(6, 9)}"]),
    ("weights in bf16 alone, a rate of 1e-6", a.faulty, named_by_diagnose,
     lambda: ["trainer.precision=bf16-true", "optimizer=sgd", "optimizer.lr=1e-6"]),
    ("a rate of 30 to 3000, in FP16, BF16 and FP32", a.faulty, named_by_train,
     lambda: [draw.choice(PRECISIONS + ["trainer.precision=32-true"]), "optimizer=sgd",
              f"optimizer.lr={draw.choice([30, 300, 3000])}"]),
]
for fault, count, judge, words in FAULTS:
    named = collections.Counter()
    for number in range(count):
        with tempfile.TemporaryDirectory() as folder:
            named[judge(folder, run_of(number) + words())] += 1
    print(f"{fault}: " + ", ".join(f"{name} {times}" for name, times in named.most_common()), flush=True)
