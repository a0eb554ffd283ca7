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


def compare_gap_of_rank(comparison, mpiexec):
    """A too large gap of one rank is one error, also if it is not rank 0."""
    path = os.path.join(comparison.work, "gap.jsonl")
    lines = read_run(os.path.join(comparison.work, "epochs"))[1]
    lines = lines[:RL["rl.group"] * RL["train.global_batch"]]
    lines[-1]["rollout_logprobs"][0] -= 1
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    ended, output = loaded_program.run([mpiexec, "--oversubscribe", "--bind-to", "none", "-n", 2, comparison.trireme, "rl", "--init", comparison.start,
                                        "--data", comparison.data, "--run", os.path.join(comparison.work, "gap")] +
                                       keys_of(OPTIM, {**RL, "train.micro_batch": 1, "rl.replay": path, "rl.max_gap": 0.5}))
    if ended != 6 or output.count("trireme: error") != 1 or "rl.max_gap = 0.5" not in output or "learning rate" in output:
        comparison.wrong += 1
        print(f"a gap of rank 1 ends with exit code {ended}:\n{output}")


def compare_planned_memory(comparison):
    """`trireme submit` counts the reference (half of it on two ranks of tp) and the copy of the whole model that generates answers."""
    cluster = os.path.join(comparison.work, "cluster")
    os.makedirs(cluster)
    with open(os.path.join(cluster, "sinfo"), "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\necho 'all|all*|2|64000|(null)|infinite|idle'\n")
    os.chmod(file.name, 0o755)
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    environment = {**os.environ, "PATH": f"{cluster}:{os.environ['PATH']}", "TRIREME_HOME": home}

    def memory(keys):
        command = [comparison.trireme, "submit", "--dry-run", "--json", "--nodes", 2, "--", "rl", "--init", comparison.start, "--data", comparison.data,
                   "--run", os.path.join(comparison.work, "planned")] + keys_of(OPTIM, {**RL, "train.precision": "fp32", "parallel.tp": 2, **keys})
        return json.loads(loaded_program.run(command, environment)[1].splitlines()[-1])["memory_bytes_per_rank"]

    without = {"rl.kl": "off"}
    reference = memory({}) - memory(without)
    copy = memory(without) - memory({**without, "rl.replay": os.path.join(comparison.work, "gap.jsonl")})
    if not copy == 2 * reference > 0:
        comparison.wrong += 1
        print(f"trireme submit counts {reference} bytes for the reference and {copy} bytes for the copy of the model")


def compare_refusals(comparison, mpiexec):
    """Wrong requests end with one error and its exit code. A gap is not the fault of the learning rate."""
    path = lambda name: os.path.join(comparison.work, name)
    replay = {"rl.replay": path("replay")}
    for code, words, keys in ((6, "rl.max_gap = 0.01", {**replay, "rl.max_gap": 0.01}),
                              (2, "rl.mini_batch is 4", {"rl.mini_batch": 4}),
                              (2, "rl.mini_batch is 3", {"rl.mini_batch": 3, "train.micro_batch": 2}),
                              (2, "train.precision is fp16", {**PPO, "train.precision": "fp16"}),
                              (2, "has no reward head", {"rl.rewards": "model=1", "rl.reward_model": path("start")}),
                              (3, "rl.reward_model = ", {"rl.rewards": "model=1", "rl.reward_model": path("nowhere")}),
                              (3, "rl.replay is ", {"rl.replay": path("nowhere")}),
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
    compare_gap_of_rank(comparison, mpiexec)
    compare_planned_memory(comparison)
