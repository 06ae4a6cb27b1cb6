#!/usr/bin/env python3
"""Uploads runs to Weights & Biases: wandb_upload.py RUN_FOLDER ...

They are runs that were trained with logger.wandb.enabled=true. Needs the package `wandb`, and `wandb login` before.
"""
import json
import sys

import wandb

for folder in sys.argv[1:] or sys.exit(__doc__):
    with open(f"{folder}/wandb.jsonl") as lines:
        about, *logged = [json.loads(line) for line in lines]
    steps = {}  # monitors report late, and W&B takes steps in order only
    for line in logged:
        steps.setdefault(line.pop("step"), {}).update((tag, float(value)) for tag, value in line.items())
    with open(f"{folder}/summary.json") as file:
        summary = json.load(file)
    run = wandb.init(project=about["project"], name=about["name"], config=about["config"])
    for step in sorted(steps):
        run.log(steps[step], step=step)
    run.summary.update(summary)
    run.finish()
