#!/usr/bin/env python3
"""Compares `trireme rl` on layouts that divide the model with one rank.

usage: rl_layouts.py TRIREME TRIREME_DATA MPIEXEC [--all] [--keep DIR]

All runs compute in fp64. Every layout must generate the same tokens as one rank. Losses, gradient norms, rewards (rules, a program, a
reward model), log-probabilities and values of the critic must agree within 1e-10. A run with tensor parallelism that was killed must resume bitwise. --all tries more
layouts and kills within an update, too. Exits with 1 and prints every value that is out of bounds.
"""
import argparse
import os
import random
import sys
import tempfile

import rl
from post_training import OPTIM, SHAPE, T, call, keys_of, sentence
from rl_sets import make_start, pack, prompts_of

MOE = {"model.num_experts": 4, "model.num_experts_per_tok": 2, "model.moe_intermediate_size": 16}
GRPO = {"rl.max_gap": 1e-9, "rl.correction": "token_truncate", "rl.correction_cap": 1.1, "rl.rewards": "length=1,repetition=0.5,model=0.7,command=0.3"}
PROGRAM = """import json, sys
for line in sys.stdin:
    print(sum(json.loads(line)["ids"]) % 11, flush=True)
"""
PPO = {"rl.objective": "ppo", "ppo.critic_lr": 3e-3, "rl.updates": 2, "rl.mini_batch": 3, "ppo.early_stop_kl": 0.5, "rl.kl": "reward"}
TP, PP, CP, EP, ZERO = {"parallel.tp": 2}, {"parallel.pp": 2}, {"parallel.cp": 2}, {"parallel.ep": 2}, {"parallel.zero": 3}
SEQUENCE = {"parallel.sequence_parallel": "true"}
# start, keys of the task, and the layouts with their ranks; those of the last list need --all
CASES = [
    ("start", GRPO, [(2, TP | SEQUENCE), (2, PP), (2, CP), (4, TP)],
     [(4, TP | CP | SEQUENCE), (4, TP | PP), (4, CP | PP), (4, PP | ZERO), (4, TP | ZERO), (2, PP | {"parallel.schedule": "zb-h1"}),
      (2, CP | {"parallel.cp_form": "all_gather"})]),
    ("start", {**GRPO, "lora.rank": 2}, [], [(2, TP), (2, PP), (2, CP)]),
    ("start", PPO, [(3, ZERO), (2, TP)], [(2, CP), (2, PP), (4, TP | PP)]),
    ("experts", GRPO, [(2, EP)], [(2, TP | EP | {"parallel.etp": 1}), (4, EP | TP), (4, EP | PP), (2, CP | EP)]),
]
METRICS = ("loss", "grad_norm", "reward", "reward_std", "zero_std_groups", "completion_tokens_mean", "truncated_fraction", "entropy", "ratio_mean",
           "ratio_max", "clip_fraction")
ANSWERS = ("rollout_logprobs", "old_logprobs", "ref_logprobs", "train_logprobs", "values")


class Layouts:
    def __init__(self, args, work):
        self.args, self.work = args, work
        self.comparison = rl.Comparison(args.trireme, work, None, None, os.path.join(work, "prompts"))

    def path(self, name):
        return os.path.join(self.work, name)

    def train(self, start, keys, ranks):
        name = f"{start} {ranks} " + " ".join(f"{key} {value}" for key, value in keys.items())
        if "model=" in keys.get("rl.rewards", ""):
            keys = {**keys, "rl.reward_model": self.path("rewards"), "rl.reward_command": f"{sys.executable} '{self.path('reward.py')}'"}
        command = [self.args.mpiexec, "--oversubscribe", "--bind-to", "none", "-n", ranks, self.args.trireme, "rl", "--init", self.path(start),
                   "--data", self.path("prompts"), "--run", self.path(name)]
        call(command + keys_of(OPTIM, {**rl.RL, "train.steps": 3, "train.micro_batch": 1, **keys}))
        return rl.read_run(self.path(name))

    def compare(self, start, task, layouts):
        metrics, answers = self.train(start, task, 1)
        assert len(metrics) == 3 and len({tuple(a["completion_ids"]) for a in answers}) > len(answers) // 2
        for ranks, layout in layouts:
            where = f"{start}, {task.get('rl.objective', 'grpo')}, {ranks} ranks, {layout}"
            others, other_answers = self.train(start, {**task, **layout}, ranks)
            if [a["completion_ids"] for a in answers] != [a["completion_ids"] for a in other_answers]:
                self.comparison.wrong += 1
                print(f"{where}: other tokens than on one rank")
                continue
            for key in METRICS + (("value_loss", "approx_kl") if task is PPO else ("rollout_gap_mean",)):
                self.comparison.expect(f"{where}: {key}", [line[key] for line in others], [line[key] for line in metrics])
            self.comparison.expect(f"{where}: rewards", *([value for a in some for value in a["rewards"].values()] for some in (other_answers, answers)))
            for key in ANSWERS:
                for one, other in zip(answers, other_answers):
                    self.comparison.expect(f"{where}: {key}", other.get(key, []), one.get(key, []))
            self.comparison.expect(f"{where}: advantage", [a["advantage"] for a in other_answers], [a["advantage"] for a in answers])

    def compare_validation(self):
        """The result of a validation does not depend on the layout, also if a rank has no prompt."""
        keys = {"train.steps": 1, "train.eval_every": 1, "data.valid_path": self.path("valid"), "rl.kl": "off"}
        found = []
        for ranks, layout in ((1, {}), (2, TP)):
            run = self.path(f"validated {ranks}")
            call([self.args.mpiexec, "--oversubscribe", "--bind-to", "none", "-n", ranks, self.args.trireme, "rl", "--init", self.path("start"),
                  "--data", self.path("prompts"), "--run", run] + keys_of(OPTIM, {**rl.RL, **keys, **layout}))
            with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
                lines = [rl.json.loads(line) for line in file]
            found.append(next([line["valid_reward"], line["valid_pass_at_k"]] for line in lines if "valid_reward" in line))
        self.comparison.expect("validation", found[1], found[0])

    def kill_and_resume(self, points):
        """Kills rank 0 of two ranks of tp at each of the failpoints, and resumes."""
        launch = [self.args.mpiexec, "--oversubscribe", "--bind-to", "none", "-n", 2, self.args.trireme]
        self.comparison.start = self.path("start")
        rl.kill_and_resume(self.comparison, "tp ", {**PPO, **TP, "train.micro_batch": 1, "train.steps": 5}, points, launch)


def main():
    parser = argparse.ArgumentParser()
    for name in ("trireme", "trireme_data", "mpiexec"):
        parser.add_argument(name)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--keep")
    args = parser.parse_args()
    rng = random.Random(7)
    with tempfile.TemporaryDirectory() as scratch:
        work = args.keep or scratch
        os.makedirs(work, exist_ok=True)
        make_start(args, work, rng, 12, rl.IDS, rl.ROWS)
        pack(args.trireme_data, work, "rl", "valid", prompts_of(rng, 1))
        call([args.trireme, "pretrain", "--data", os.path.join(work, "texts"), "--run", os.path.join(work, "experts"), "--train.steps", 2,
              "--train.precision", "fp32"] + keys_of({**SHAPE, **MOE, "model.vocab_size": rl.ROWS}, OPTIM))
        pack(args.trireme_data, work, "dpo", "pairs", [{"prompt": sentence(rng, 2, 6), "chosen": sentence(rng, 2, 6), "rejected": sentence(rng, 1, 2)}
                                                       for _ in range(8)])
        call([args.trireme, "reward", "--init", os.path.join(work, "start"), "--data", os.path.join(work, "pairs"), "--run",
              os.path.join(work, "rewards"), "--train.precision", "fp32"] + keys_of(OPTIM, {"train.steps": 2, "train.seq_len": T}))
        with open(os.path.join(work, "reward.py"), "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        layouts = Layouts(args, work)
        for start, task, few, more in CASES:
            if few or args.all:
                layouts.compare(start, task, few + (more if args.all else []))
        layouts.compare_validation()
        layouts.kill_and_resume(("rl.published", "train.step") if args.all else ("rl.published",))
        print(f"largest relative difference {layouts.comparison.worst:.1e}")
    sys.exit(1 if layouts.comparison.wrong else 0)


if __name__ == "__main__":
    main()
