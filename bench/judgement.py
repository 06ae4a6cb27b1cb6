#!/usr/bin/env python3
"""Faults against what `invar diagnose` and `invar train` name, over architectures, batches, rates and optimizers that a
seed draws: those that settings can plant, and with --plugin build/lib/libplanted.so (planted.cpp) those of code and data.
Usage: judgement.py INVAR [--plugin LIBRARY] [--faulty 40] [--healthy 200] [--seed 1] [--only WORD]"""
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
arguments.add_argument("--plugin", help="libplanted.so: faults of code and data instead of those of settings")
arguments.add_argument("--only", default="", help="faults whose name has this in it")
arguments.add_argument("--verbose", action="store_true", help="the words of each run that is named otherwise")
a = arguments.parse_args()
invar = str(pathlib.Path(a.invar).resolve())
draw = random.Random(a.seed)
program = [invar] + (["--plugin", str(pathlib.Path(a.plugin).resolve())] if a.plugin else [])


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
    found = diagnosed(folder, words)
    return found if isinstance(found, str) else found[0]


def diagnosed(folder, words):
    """What is named first, and where; or what went wrong."""
    done = subprocess.run(program + ["diagnose", "--json", "--steps", "4"] + words, cwd=folder, capture_output=True,
                          text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        return f"error {done.returncode}: " + done.stderr.strip()[:60]
    found = json.loads(done.stdout.splitlines()[-1])
    if found["finding"]["found"]:
        return found["finding"]["blame"], found["finding"]["module"]
    if found["concerns"]:
        return found["concerns"][0]["kind"], found["concerns"][0]["module"]
    return "nothing", ""


def named_by_train(folder, words):
    subprocess.run([invar, "train", "--quiet", "trainer.on_instability=stop", "trainer.max_epochs=6", "exp_name=run",
                    "trainer.limit_val_batches=1"] + words, cwd=folder, capture_output=True)
    summary = json.loads((pathlib.Path(folder) / "runs/run/summary.json").read_text())
    if summary["status"] == "finished":
        return "nothing"
    astray_in_fp32 = summary.get("failure_in_fp32") in ("thrown_off", "fails")
    return "not the precision" if astray_in_fp32 else "the precision or another"


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


def planted_run(number):
    """Words of a run that is well, of one of planted.cpp's networks, and the stage at which a fault may sit."""
    arch = draw.choice(["mlp", "convnet", "resnet", "transformer"])
    depth = draw.randint(2, 4)
    at = draw.randint(2, depth)
    batch = draw.choice([4, 8, 16, 32]) if arch == "mlp" else draw.choice([8, 16])
    side = draw.choice([12, 16])
    optimizer, rates = draw.choice([("sgd", (0.003, 0.01, 0.03)), ("adam", (1e-4, 1e-3)), ("adamw", (1e-4, 1e-3))])
    return [f"model.arch={arch}", f"model.width={draw.choice([8, 16, 32])}", f"model.depth={depth}", f"model.at={at}",
            "model=planted", "data=planted", "task=planted", f"data.size={batch * 12}", f"data.height={side}",
            f"data.width={side}", f"data.batch_size={batch}", f"optimizer={optimizer}",
            f"optimizer.lr={draw.choice(rates)}", f"trainer.gradient_clip_val={draw.choice([0, 0, 1])}",
            f"seed={number + 1000 * a.seed}", "trainer.device=cpu", "trainer.threads=1"], at


def site(fault, low, high):
    """A fault of the model, its strength drawn between two powers of ten."""
    return lambda: [f"model.fault={fault}", f"model.strength={10 ** draw.uniform(low, high):.4g}"]


def at_stage(at):
    return lambda module: module.startswith(f"stage{at}.")


FP16, BF16 = [PRECISIONS[0]], [PRECISIONS[1]]
any_low = lambda: [draw.choice(PRECISIONS)]
any_precision = lambda: [draw.choice(PRECISIONS + ["trainer.precision=32-true"])]
here = lambda name: lambda at: lambda module: module == name
anywhere = lambda at: lambda module: True
low_steps = ["precision", "overflow"]
# The fault, how its words are drawn, what names it, and where it is.
PLANTED = [
    ("nothing", any_precision, lambda: [
        "model.fault=none", f"trainer.accumulate_grad_batches={draw.choice([1, 1, 2, 4])}",
        f"optimizer.weight_decay={draw.choice([0, 0.01])}", f"scheduler.warmup_steps={draw.choice([0, 0, 5])}",
        f"trainer.ema_decay={draw.choice([0, 0, 0.99])}"], ["nothing"], anywhere),
    ("overflow in a product of sides, as of an IoU", lambda: FP16, site("area", 2.5, 4), low_steps, here("site")),
    ("overflow in the loss, a square", lambda: FP16,
     lambda: ["task.fault=penalty", f"task.factor={10 ** draw.uniform(2.6, 4):.4g}"], low_steps, here("loss")),
    ("a variance by hand, of large values", lambda: FP16, site("variance", 3, 4), low_steps, here("site")),
    ("digits lost by a large offset", lambda: BF16, site("offset", 3, 5), ["significance", "underflow"], here("site")),
    ("a sum of squares cast to FP16 by hand", any_precision, site("half_by_hand", 3.5, 4.5), low_steps, here("site")),
    ("gradients that vanish in FP16, a flat loss, no NaN", lambda: FP16, site("vanish", 14, 18), ["underflow"],
     here("site")),
    ("gradients that are 0 in any precision", any_precision, site("dead", 3, 5), ["no gradient"], here("site")),
    ("overflow in clipping by a norm, no NaN", lambda: FP16, site("norm_clip", 3, 4), low_steps, here("site")),
    ("a moving average kept in FP16", any_precision,
     lambda: ["model.fault=average_f16", f"model.strength={draw.choice([0.999, 0.9995, 0.9999])}"],
     ["moving average"], here("site")),
    ("a moving average kept in BF16", any_precision,
     lambda: ["model.fault=average_bf16", f"model.strength={draw.choice([0.99, 0.995, 0.999])}"],
     ["moving average"], here("site")),
    ("a loss that is a sum, or over a fixed number", any_precision,
     lambda: [f"task.fault={draw.choice(['sum', 'fixed'])}", "task.factor=64"], ["accumulation"], here("loss")),
    ("a loss times or over the batches of a step", any_precision, lambda: (lambda n: [
        "task.fault=factor", f"task.factor={draw.choice([n, 1 / n])}", f"trainer.accumulate_grad_batches={n}"])(
            draw.choice([2, 4, 8])), ["accumulation"], here("loss")),
    ("clipping before unscaling, in the model", lambda: FP16, site("hook_clip", 0, 1), ["clipping"], at_stage),
    ("clipping before unscaling, by its limit", lambda: FP16,
     lambda: [f"trainer.gradient_clip_val={2.0 ** -draw.randint(14, 18)}"], ["clipping"], anywhere),
    ("a frozen layer (requires_grad)", any_precision, lambda: ["model.fault=frozen"], ["frozen layer"], at_stage),
    ("a layer that is cut off (detach)", any_precision, lambda: ["model.fault=detach"], ["frozen layer"], at_stage),
    ("NaN in one of 10 to 40 samples", any_precision,
     lambda: ["data.fault=nan", f"data.every={draw.randint(10, 40)}"], ["data"], anywhere),
    ("constant labels", any_precision, lambda: ["data.fault=constant_labels", f"data.every={draw.randint(1, 9)}"],
     ["constant labels"], anywhere),
    ("a scheduler that stays at zero", any_precision, lambda: draw.choice([
        ["scheduler=planted_zero"], ["scheduler.warmup_steps=1000000"], ["optimizer.lr=0"]]), ["learning rate"],
     anywhere),
    ("dropout left on in evaluation", any_precision,
     lambda: ["model.fault=eval_dropout", f"model.strength={draw.uniform(0.05, 0.5):.3f}"], ["evaluation"],
     here("site")),
]


def report_planted():
    for fault, precision, words, right, place in PLANTED:
        if a.only not in fault:
            continue
        named, count, well_placed = collections.Counter(), a.healthy if fault == "nothing" else a.faulty, 0
        for number in range(count):
            run, at = planted_run(number)
            run += precision() + words()
            with tempfile.TemporaryDirectory() as folder:
                found = diagnosed(folder, run)
            kind, module = (found, "") if isinstance(found, str) else found
            named[kind] += 1
            well_placed += kind in right and place(at)(module)
            if a.verbose and not (kind in right and place(at)(module)):
                print("  ", kind, module, " ".join(run), flush=True)
        print(f"{fault}: " + ", ".join(f"{name} {times}" for name, times in named.most_common()) +
              f"; right and in the right place {well_placed} of {count}", flush=True)


if a.plugin:
    report_planted()
else:
    for fault, count, judge, words in FAULTS:
        if a.only not in fault:
            continue
        named = collections.Counter()
        for number in range(count):
            with tempfile.TemporaryDirectory() as folder:
                named[judge(folder, run_of(number) + words())] += 1
        print(f"{fault}: " + ", ".join(f"{name} {times}" for name, times in named.most_common()), flush=True)
