#!/usr/bin/env python3
"""Compares the step time during an asynchronous save with the same steps of runs without a save, in turns.

usage: save_beside_steps.py BUILD_DIR [--pairs 3] [--seconds 22]

The model has 30 M parameters (Qwen3 shape, 512 x 8; 360 MB of state in fp32), bf16, on 2 ranks of one thread.
Both runs do the same steps. One saves halfway with checkpoint.async, and its writer is limited to a speed
that takes `seconds`. The compared steps begin after the save does and end before it is committed. Their time
is the sum of step_time_s in metrics.jsonl, which includes the time that training waited for the save, divided
by their number. Prints a line per pair, then the median ratio, and the memory of the copy.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile

RANKS, T = 2, 256
WARM = 20  # steps before the measurement
KEYS = {"model.preset": "minimind-3", "model.hidden_size": 512, "model.num_layers": 8, "model.num_heads": 8, "model.num_kv_heads": 4,
        "model.head_dim": 64, "model.vocab_size": 6400, "model.max_seq_len": T, "train.seq_len": T, "train.micro_batch": 2,
        "train.global_batch": 4, "train.precision": "bf16", "train.threads": 1, "train.device": "cpu", "train.log_every": 0,
        "checkpoint.keep_last": 1}
SAVED = re.compile(r"saved .*: (\S+ \S+) behind training in (\S+) s, which waited (\S+) s; the copy keeps (\S+ \S+)")


def call(command):
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")
    done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{command}: exit {done.returncode}\n{done.stderr}")
    return done.stderr


def make_set(data, work, documents, seq_len):
    corpus, tokenizer, packed = (os.path.join(work, name) for name in ("corpus.jsonl", "tok", "set"))
    call([data, "synth", "--output", corpus, "--documents", documents])
    call([data, "tokenizer", "train", "--input", corpus, "--vocab-size", 600, "--output", tokenizer])
    call([data, "pack", "--tokenizer", tokenizer, "--input", corpus, "--seq-len", seq_len, "--output", packed])
    return packed


def train(args, packed, folder, steps, extra):
    keys = {**KEYS, "data.path": packed, "train.steps": steps, **extra}
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", RANKS, f"{args.build}/bin/trireme", "pretrain", "--run", folder]
    log = call(command + [word for key, value in keys.items() for word in (f"--{key}", value)])
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as lines:
        times = {line["step"]: line["step_time_s"] for line in map(json.loads, lines) if "step_time_s" in line}
    return times, log


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=22)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        packed = make_set(f"{args.build}/bin/trireme-data", work, 20000, T)
        times, log = train(args, packed, os.path.join(work, "probe"), WARM, {"checkpoint.async": "true"})
        step_s = statistics.median(list(times.values())[WARM // 2:])
        state_mb = float(re.search(SAVED, log).group(4).split()[0])
        beside = int(args.seconds / step_s) + 5
        half = max(beside, WARM)
        print(f"a step takes {step_s:.3f} s; a rank writes {state_mb} MB at {state_mb / args.seconds:.1f} MB/s")
        ratios = []
        for pair in range(args.pairs):
            plain, _ = train(args, packed, os.path.join(work, f"plain{pair}"), half + beside, {"checkpoint.every": 0})
            saving, log = train(args, packed, os.path.join(work, f"saving{pair}"), half + beside,
                                {"checkpoint.every": half, "checkpoint.async": "true", "checkpoint.write_mb_per_s": state_mb / args.seconds})
            size, behind_s, waited_s, copy = re.search(SAVED, log).groups()
            compared, passed = [], 0.0
            for step in range(half + 1, half + beside + 1):
                passed += saving[step]
                if passed < float(behind_s):
                    compared.append(step)
            with_save = sum(saving[step] for step in compared) / len(compared)
            without = sum(plain[step] for step in compared) / len(compared)
            ratios.append(with_save / without)
            print(f"pair {pair}: {size} behind {len(compared)} steps in {behind_s} s, waited {waited_s} s, copy keeps {copy} a rank: "
                  f"{with_save:.4f} s a step, without {without:.4f} s: {ratios[-1]:.3f}; load {os.getloadavg()[0]:.1f}", flush=True)
        print(f"median ratio {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
