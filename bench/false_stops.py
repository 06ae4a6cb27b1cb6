#!/usr/bin/env python3
"""Runs at batches of 4 that are left alone, and the same ones with trainer.on_instability=stop: who is stopped that
would have got there. Usage: false_stops.py INVAR [--seeds 10] [--rates sgd=0.03,0.1 adam=0.001]"""
import argparse
import json
import pathlib
import subprocess
import tempfile

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("invar")
arguments.add_argument("--seeds", type=int, default=10)
arguments.add_argument("--rates", nargs="+", default=[
    "sgd=0.03,0.1,0.12,0.14,0.16,0.2", "adam=0.001,0.003,0.01,0.02,0.05,0.1", "adamw=0.001,0.003,0.01,0.02,0.05,0.1"])
a = arguments.parse_args()
invar = str(pathlib.Path(a.invar).resolve())


def summary_of(folder, optimizer, rate, seed, on_instability):
    words = ["train", "model=mlp", "model.hidden=[64]", "data=synthetic", "data.size=1600", "data.height=8",
             "data.width=8", "data.batch_size=4", "trainer.max_epochs=3", "trainer.device=cpu", "trainer.threads=1",
             f"optimizer={optimizer}", f"optimizer.lr={rate}", f"seed={seed}", "--quiet",
             f"exp_name={on_instability}_{optimizer}_{rate}_{seed}", f"trainer.on_instability={on_instability}"]
    subprocess.run([invar] + words, cwd=folder, capture_output=True)
    return json.loads((pathlib.Path(folder) / "runs" / words[-2].split("=")[1] / "summary.json").read_text())


print(f"{'optimizer':9}  {'rate':>6}  {'reach 90%':>9}  {'of them stopped':>15}  {'others':>6}  {'stopped':>7}  val_loss of those stopped")
with tempfile.TemporaryDirectory() as folder:
    for word in a.rates:
        optimizer, rates = word.split("=")
        for rate in rates.split(","):
            good = wrong = bad = right = 0
            losses = []
            for seed in range(a.seeds):
                alone = summary_of(folder, optimizer, rate, seed, "skip")
                stopped = summary_of(folder, optimizer, rate, seed, "stop")["status"] == "unstable"
                fine = (alone.get("val_accuracy") or 0) >= 0.9
                good, bad = good + fine, bad + (not fine)
                wrong, right = wrong + (fine and stopped), right + (not fine and stopped)
                if stopped:
                    losses.append(float(alone.get("val_loss") or "nan"))
            span = f"{min(losses):.3g} to {max(losses):.3g}" if losses else ""
            print(f"{optimizer:9}  {rate:>6}  {good:9}  {wrong:15}  {bad:6}  {right:7}  {span}", flush=True)
