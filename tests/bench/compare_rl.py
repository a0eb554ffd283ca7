#!/usr/bin/env python3
"""Compares the speed of `trireme rl` on a CPU with MiniMind's GRPO and with transformers, in interleaved rounds of one run.

usage: compare_rl.py BUILD_DIR --minimind DIR [--rounds 3] [--steps 3] [--warmup 1] [--prompts 2] [--micro-batch 1]
       [--group 6] [--new 128]
       [--engine continuous|generate] [--work DIR]

DIR is a checkout of jingyaogong/minimind (d65ef2c). It is copied and not changed. Python needs torch and transformers.

All sides use one thread, fp32, the same initial weights (hidden 512, 8 layers, 2 key heads, MLP 1408, vocabulary 6400: 26 M), the same
prompts in the same order, temperature 0.8 and `new` tokens at most. Only MiniMind's sampler has its own defaults (top-k 50, top-p
0.85). MiniMind's rollout is `TorchRolloutEngine` within its unchanged train_grpo.py (rl_peer.py lists the exceptions). A step of MiniMind
and of Trireme has rewards, a reference model, the loss cispo and an update. MiniMind updates with
all prompts at once, Trireme with `micro-batch` prompts at a time. Tokens/s are the generated tokens up to the end token,
divided by the time of the rollout, after `warmup` steps. Both rollouts of training compute log-probabilities.

Prints Markdown: every figure, the load at the start of each round, and median and spread of the ratios.
"""
import argparse
import datetime
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

from compare_ddp import call, cpu_model, load

HERE = os.path.dirname(os.path.abspath(__file__))
HIDDEN, LAYERS, KV_HEADS, WIDTH = 512, 8, 2, 1408
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
WORDS = "the a river stone market teacher reads writes quick slow green small large bread light house answer question number".split()


def peer(*words):
    call([sys.executable, os.path.join(HERE, "rl_peer.py"), *words], env=ENVIRONMENT, stderr=subprocess.DEVNULL)


class Comparison:
    def __init__(self, args, work):
        self.args, self.work = args, work
        self.copy, self.program = self.path("minimind"), f"{args.build}/bin/trireme"
        for folder in ("trainer", "model", "dataset"):
            shutil.copytree(os.path.join(args.minimind, folder), os.path.join(self.copy, folder))
        os.mkdir(os.path.join(self.copy, "out"))
        weights = os.path.join(self.copy, "out", f"full_sft_{HIDDEN}.pth")
        peer("weights", self.copy, "--hidden", HIDDEN, "--layers", LAYERS, "--kv-heads", KV_HEADS, "--width", WIDTH, "--out", weights)
        call([self.program, "import", "--minimind", weights, "--tokenizer", f"{self.copy}/model", "--output", self.path("base"), "--model.preset",
              "minimind-3", "--model.hidden_size", HIDDEN, "--model.num_layers", LAYERS, "--model.head_dim", HIDDEN // 8, "--model.num_kv_heads", KV_HEADS,
              "--model.intermediate_size", WIDTH], stderr=subprocess.DEVNULL)
        call([self.program, "export", "--checkpoint", self.path("base"), "--output", self.path("hf")], stderr=subprocess.DEVNULL)
        draws = random.Random(1)
        with open(self.path("prompts.jsonl"), "w", encoding="utf-8") as file:
            for _ in range(args.steps * args.prompts):
                text = " ".join(draws.choices(WORDS, k=draws.randint(20, 60)))
                file.write(json.dumps({"conversations": [{"role": "user", "content": text}, {"role": "assistant", "content": ""}]}) + "\n")
        call([f"{args.build}/bin/trireme-data", "pack", "--kind", "rl", "--template", "minimind-v3", "--tokenizer", f"{self.copy}/model", "--input",
              self.path("prompts.jsonl"), "--output", self.path("set")], stderr=subprocess.DEVNULL)

    def path(self, name):
        return os.path.join(self.work, name)

    def ours(self):
        run, args = self.path("run"), self.args
        shutil.rmtree(run, ignore_errors=True)
        call([self.program, "rl", "--init", self.path("base"), "--data", self.path("set"), "--run", run, "--train.steps", args.steps,
              "--train.global_batch", args.prompts, "--train.micro_batch", args.micro_batch, "--train.precision", "fp32", "--train.threads", 1,
              "--train.device", "cpu", "--train.seq_len", 128 + args.new, "--rl.group", args.group, "--rl.max_new_tokens", args.new, "--rl.objective",
              "cispo", "--rl.rewards", "length=1,thinking=1,repetition=1"], env=ENVIRONMENT, stderr=subprocess.DEVNULL)
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
            lines = [line for line in map(json.loads, file) if "rollout_s" in line]
        prompts = []
        for step in range(1, args.steps + 1):  # the order of the prompts is that of the run
            with open(os.path.join(run, "rollouts", f"step-{step:09}.jsonl"), encoding="utf-8") as file:
                prompts.append([answer["prompt_ids"] for answer in map(json.loads, file) if answer["sample"] == 0])
        with open(self.path("prompts.json"), "w", encoding="utf-8") as file:
            json.dump(prompts, file)
        return {"tokens": [line["rollout_tokens_per_s"] * line["rollout_s"] for line in lines], "rollout_s": [line["rollout_s"] for line in lines],
                "step_s": [line["step_time_s"] for line in lines]}

    def of_peer(self, *words):
        peer(*words[:2], "--out", self.path("peer.json"), *words[2:])
        with open(self.path("peer.json"), encoding="utf-8") as file:
            return json.load(file)

    def minimind(self):
        args = self.args
        return self.of_peer("minimind", self.copy, "--kv-heads", KV_HEADS, "--width", WIDTH, "--", "--device", "cpu", "--hidden_size", HIDDEN,
                            "--num_hidden_layers", LAYERS, "--batch_size", args.prompts, "--num_generations", args.group, "--max_gen_len", args.new,
                            "--data_path", self.path("prompts.jsonl"), "--num_workers", 0, "--save_interval", 1000000, "--thinking_ratio", 0)

    def transformers(self):
        return self.of_peer("transformers", self.path("hf"), "--prompts", self.path("prompts.json"), "--group", self.args.group, "--new", self.args.new,
                            "--engine", self.args.engine)


def measure(comparison, args):
    skip = args.warmup
    print("| round | ours tokens/s | MiniMind | ratio | transformers | ratio | our step s | MiniMind's | ratio | load before |\n|" + "---|" * 10, flush=True)
    ratios = {"rollout of MiniMind": [], "transformers": [], "step of MiniMind": []}
    for number in range(args.rounds):
        before, found = load(), {}
        sides = {"ours": comparison.ours, "minimind": comparison.minimind, "transformers": comparison.transformers}
        for name in (list(sides) if number % 2 == 0 else reversed(list(sides))):
            found[name] = sides[name]()
        speed = {name: sum(one["tokens"][skip:]) / sum(one["rollout_s"][skip:]) for name, one in found.items()}
        step = {name: statistics.mean(one["step_s"][skip:]) for name, one in found.items() if "step_s" in one}
        values = speed["ours"] / speed["minimind"], speed["ours"] / speed["transformers"], step["minimind"] / step["ours"]
        for key, value in zip(ratios, values):
            ratios[key].append(value)
        print(f"| {number + 1} | {speed['ours']:.1f} | {speed['minimind']:.1f} | {values[0]:.2f} | {speed['transformers']:.1f} | {values[1]:.2f} | "
              f"{step['ours']:.2f} | {step['minimind']:.2f} | {values[2]:.2f} | {before:.2f} |", flush=True)
    print()
    for key, values in ratios.items():
        print(f"Against the {key}: median {statistics.median(values):.2f}, from {min(values):.2f} to {max(values):.2f}, {args.rounds} rounds.", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--minimind", required=True)
    for name, value in (("rounds", 3), ("steps", 3), ("warmup", 1), ("prompts", 2), ("micro-batch", 1), ("group", 6), ("new", 128)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--engine", choices=("continuous", "generate"), default="continuous")
    parser.add_argument("--work")
    args = parser.parse_args()
    args.build, args.minimind = os.path.abspath(args.build), os.path.abspath(args.minimind)
    print(f"{datetime.date.today()}, {cpu_model()}, one thread, fp32, 26 M ({HIDDEN} x {LAYERS}); {args.prompts} prompts of {args.group} answers with up to "
          f"{args.new} tokens a step; {args.steps} steps, the first {args.warmup} not counted; transformers: {args.engine}.\n", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        work = args.work or scratch
        os.makedirs(work, exist_ok=True)
        measure(Comparison(args, work), args)


if __name__ == "__main__":
    main()
