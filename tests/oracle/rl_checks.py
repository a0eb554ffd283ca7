"""Checks of `trireme rl` that rl_values.py runs: validation with generated answers, refused requests, steps of an epoch."""
import json
import os
import sys

import torch

import loaded_program
from post_training import OPTIM, call, keys_of, load_model, logits_of
from rl import IDS, NEW, RL, read_run

CRITIC_LR = 3e-3
ENDS = (0, 2)  # end tokens: that of the tokenizer and that of the chat template
PPO = {"rl.objective": "ppo", "ppo.critic_lr": CRITIC_LR, "ppo.gamma": 1, "ppo.lam": 0.95, "ppo.value_clip": 0.2, "ppo.value_weight": 0.5,
       "ppo.early_stop_kl": 0}
SPO = {"rl.objective": "spo"}
UPDATES = {"rl.updates": 2, "rl.mini_batch": 3, "train.micro_batch": 1}


def compare_validation(comparison, trireme_data, mpiexec):
    """The mean reward of greedy answers must be that of PyTorch. The share of prompts that pass depends on rl.pass_reward, not on the ranks."""
    with open(os.path.join(comparison.work, "reward.py"), "w", encoding="utf-8") as file:
        file.write("import json, sys\nfor line in sys.stdin:\n    ids = json.loads(line)['ids']\n"
                   "    print(sum(i % 7 for i in ids) / max(len(ids), 1), flush=True)\n")
    keys = {**RL, **SPO, "optim.lr": 1e-12, "rl.kl": "off", "rl.rewards": "command=1", "train.micro_batch": 1, "train.steps": 1, "train.eval_every": 1,
            "rl.reward_command": f"{sys.executable} '{os.path.join(comparison.work, 'reward.py')}'",
            "data.valid_path": os.path.join(comparison.work, "valid")}
    found = []
    for ranks, limit in ((1, 3.2), (3, 3.2), (1, -1), (1, 7)):
        run = os.path.join(comparison.work, f"validated by {ranks} {limit}")
        call([mpiexec, "--oversubscribe", "--bind-to", "none", "-n", ranks, comparison.trireme, "rl", "--init", comparison.start, "--data",
              comparison.data, "--run", run] + keys_of({**OPTIM, **keys, "rl.pass_reward": limit}))
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
            found.append(next((line["valid_reward"], line["valid_pass_at_k"], line["valid_loss"]) for line in map(json.loads, file) if "valid_reward" in line))
    net, rewards = load_model(comparison.exported), []
    for number in range(5):
        sample = json.loads(call([trireme_data, "inspect", os.path.join(comparison.work, "valid"), "--sample", number, "--json"]))
        ids, answer = list(sample["ids"]), []
        while len(answer) < NEW and (not answer or answer[-1] not in ENDS):
            with torch.no_grad():
                answer.append(int(logits_of(net, torch.tensor([ids + answer]))[-1, :IDS].argmax()))
        answer = [i for i in answer if i not in ENDS]
        rewards.append(sum(i % 7 for i in answer) / max(len(answer), 1))
    for one in found:
        comparison.expect("valid_reward", [one[0], -one[2]], [sum(rewards) / len(rewards)] * 2)
    if found[0][1] != found[1][1] or not 0 < found[0][1] < 1 or found[2][1] != 1 or found[3][1] != 0:
        comparison.wrong += 1
        print(f"valid_pass_at_k has wrong values: {found}")


def compare_refusals(comparison):
    """Wrong requests end with one error and its exit code. A gap is not the fault of the learning rate."""
    path = lambda name: os.path.join(comparison.work, name)
    replay = {"rl.replay": path("replay")}
    for code, words, keys in ((6, "rl.max_gap = 0.01", {**replay, "rl.max_gap": 0.01}),
                              (2, "rl.mini_batch is 4", {"rl.mini_batch": 4}),
                              (2, "rl.mini_batch is 3", {"rl.mini_batch": 3, "train.micro_batch": 2}),
                              (2, "train.precision is fp16", {**PPO, "train.precision": "fp16"}),
                              (2, "has no reward head", {"rl.rewards": "model=1", "rl.reward_model": path("start")}),
                              (2, "ppo.critic_init", {**PPO, "ppo.critic_init": path("other")}),
                              (2, "train.eval_every is 1", {**replay, "train.eval_every": 1, "data.valid_path": path("valid")})):
        command = [comparison.trireme, "rl", "--init", comparison.start, "--data", comparison.data, "--run", path(f"refused {words}")]
        ended, output = loaded_program.run(command + keys_of(OPTIM, {**RL, **keys}))
        if ended != code or words not in output or "learning rate" in output:
            comparison.wrong += 1
            print(f"exit {ended} instead of {code} for {keys}:\n{output}")
    run = path("epochs")
    call([comparison.trireme, "rl", "--init", comparison.start, "--data", comparison.data, "--run", run] +
         keys_of(OPTIM, {**{key: value for key, value in RL.items() if key != "train.steps"}, **UPDATES, "train.epochs": 1}))
    if len(read_run(run)[0]) != 8:  # two rollouts of 9 prompts, with two passes over two mini-batches
        comparison.wrong += 1
        print(f"an epoch has {len(read_run(run)[0])} steps instead of 8")
