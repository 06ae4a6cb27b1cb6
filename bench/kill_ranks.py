#!/usr/bin/env python3
"""Kills a random rank of a run under mpirun at a random moment, again and again, and resumes on 1 to 4 ranks.

    bench/kill_ranks.py INVAR [--kills 50] [--seed 0] [--folder kills]

Each kill must end all ranks with a non-zero status within the time-out, leave checkpoints that are whole, and let the
run be resumed to its end. Resumed on as many ranks, the last checkpoint must be that of a run that nobody disturbed, to
the byte; on another number, its loss must agree to rounding. Prints a line for each kill and the number that failed.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

STEPS = ["trainer.device=cpu", "trainer.max_epochs=16", "trainer.checkpoint_every_n_steps=3", "trainer.threads=1",
         "trainer.rank_timeout=10", "trainer.bucket_mb=0.02", "data=synthetic", "data.size=2048", "data.batch_size=64",
         "data.num_workers=1", "model=mlp", "model.dropout=0", "model.hidden=[256,256]"]
OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_plm": "isolated",
            "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none"}


def start(arguments, ranks, words):
    script = 'echo $$ > pid.$OMPI_COMM_WORLD_RANK; exec "$@"'
    command = ["mpirun.openmpi", "-n", str(ranks), "sh", "-c", script, "sh", arguments.invar, "train"] + words
    for file in arguments.folder.glob("pid.*"):
        file.unlink()
    return subprocess.Popen(command, cwd=arguments.folder, env={**os.environ, **OPEN_MPI}, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def finish(process, limit):
    try:
        return process.wait(limit), process.stdout.read()
    except subprocess.TimeoutExpired:
        process.kill()
        return None, "did not end within %d s" % limit


def checkpoint_of(folder, name):
    return sorted((folder / "runs" / name / "checkpoints").glob("*.safetensors"))[-1].read_bytes()


def loss_of(folder, name):
    return json.loads((folder / "runs" / name / "summary.json").read_text())["val_loss"]


def undisturbed(arguments, ranks, strategy, precision, known):
    key = (ranks, strategy, precision)
    if key not in known:
        name = "calm_%d_%s_%s" % key
        code, text = finish(start(arguments, ranks, words_for(name, strategy, precision)), 300)
        assert code == 0, text
        known[key] = checkpoint_of(arguments.folder, name), loss_of(arguments.folder, name)
    return known[key]


def words_for(name, strategy, precision):
    return STEPS + ["exp_name=" + name, "trainer.strategy=" + strategy, "trainer.precision=" + precision]


def tensors_of(data):
    """The values of a checkpoint; its header says when it was made."""
    size = int.from_bytes(data[:8], "little")
    return data[8 + size:]


def kill_once(arguments, number, rng, known):
    ranks, strategy = rng.randint(2, 4), rng.choice(["ddp", "zero1", "zero2"])
    precision, again = rng.choice(["32-true", "bf16-mixed"]), rng.randint(1, 4)
    name = "kill_%d" % number
    process = start(arguments, ranks, words_for(name, strategy, precision))
    log = arguments.folder / "runs" / name / "metrics.jsonl"
    waited_until = time.time() + 60
    while not (log.exists() and log.stat().st_size) and process.poll() is None and time.time() < waited_until:
        time.sleep(0.01)
    time.sleep(rng.uniform(0, arguments.spread))
    struck = rng.randrange(ranks)
    began = time.time()
    if process.poll() is not None:
        shutil.rmtree(arguments.folder / "runs" / name)
        return kill_once(arguments, number, rng, known)  # it was done before
    os.kill(int((arguments.folder / ("pid.%d" % struck)).read_text()), signal.SIGKILL)
    code, text = finish(process, 60)
    told = time.time() - began
    problems = []
    if code is None:
        problems.append(text)
    if code == 0 and '"finished"' not in (arguments.folder / "runs" / name / "summary.json").read_text():
        problems.append("status 0 after a kill")
    code, text = finish(start(arguments, again, ["--resume", "runs/" + name]), 300)
    if code != 0:
        problems.append("resume on %d: %s: %s" % (again, code, text[-500:]))
    else:
        calm, loss = undisturbed(arguments, ranks, strategy, precision, known)
        if again == ranks and tensors_of(checkpoint_of(arguments.folder, name)) != tensors_of(calm):
            problems.append("other bytes than an undisturbed run")
        limit = 1e-3 if precision == "32-true" else 2e-2
        if abs(loss_of(arguments.folder, name) - loss) > limit * max(1.0, loss):
            problems.append("loss %g, undisturbed %g" % (loss_of(arguments.folder, name), loss))
    print("%3d  %s %-10s %d ranks, rank %d killed, ended after %4.1f s; resumed on %d: %s" %
          (number, strategy, precision, ranks, struck, told, again, "; ".join(problems) or "ok"), flush=True)
    if not problems:
        shutil.rmtree(arguments.folder / "runs" / name)
    return not problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("invar", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--spread", type=float, default=3.0, help="seconds after the first step within which is killed")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("kills"))
    arguments = parser.parse_args()
    arguments.folder.mkdir(exist_ok=True)
    rng, known = random.Random(arguments.seed), {}
    bad = sum(not kill_once(arguments, i, rng, known) for i in range(arguments.kills))
    print("%d kills, %d bad" % (arguments.kills, bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
