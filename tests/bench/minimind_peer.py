#!/usr/bin/env python3
"""Runs one rank of MiniMind's own trainer (trainer/train_full_sft.py or train_dpo.py of a copy of its
repository) on a CPU, for compare_minimind.py.

usage: minimind_peer.py COPY train_full_sft.py|train_dpo.py --out FILE [--bf16] -- FLAGS OF THE TRAINER
       minimind_peer.py COPY weights --hidden N --layers N --out FILE.pth

The script runs unchanged, with these exceptions. At its end it reports its work: tokens without padding and
the clock at each update, and the losses. Random changes of a row (an added system prompt, a removed empty
thought) are off, so both sides read the same rows. With RANK in the environment it runs under DDP, which the
script supports only with CUDA, so NCCL becomes gloo and its device the CPU. --bf16 adds autocast, which the
script does not have on a CPU.
"""
import argparse
import json
import os
import sys
import time

import torch
import torch.distributed

ON_CPU = {'args.device = f"cuda:{local_rank}"': 'args.device = "cpu"', ", device_ids=[local_rank])": ")"}
AUTOCAST = {'nullcontext() if device_type == "cpu"': 'torch.autocast("cpu", dtype=torch.bfloat16) if device_type == "cpu"'}


def use_gloo():
    start = torch.distributed.init_process_group
    torch.distributed.init_process_group = lambda backend: start(backend="gloo")
    torch.cuda.set_device = lambda device: None


def without_draws():
    from dataset import lm_dataset
    lm_dataset.pre_processing_chat.__defaults__ = (0.0,)
    lm_dataset.post_processing_chat.__defaults__ = (1.0,)


def watch(record):
    """Fills `record` during training: for each update this rank's tokens and the clocks after
    it; for sft also the sum of its loss and its targets."""
    from model.model_minimind import MiniMindForCausalLM
    forward, step = MiniMindForCausalLM.forward, torch.optim.AdamW.step

    def counted_forward(model, input_ids, *args, **kwargs):
        result = forward(model, input_ids, *args, **kwargs)
        if torch.is_grad_enabled():
            record["tokens"].append(int((input_ids != 0).sum()))
            record["positions"].append(input_ids.numel())
            if "labels" in kwargs:
                targets = int((kwargs["labels"][:, 1:] != -100).sum())
                record["targets"].append(targets)
                record["loss_sum"].append(float(result.loss) * targets)
        return result

    def timed_step(optimizer, *args, **kwargs):
        result = step(optimizer, *args, **kwargs)
        record["clock"].append(time.perf_counter())
        record["cpu"].append(time.process_time())
        return result

    MiniMindForCausalLM.forward, torch.optim.AdamW.step = counted_forward, timed_step


def train(args, flags):
    with open(args.what, encoding="utf-8") as file:
        source = file.read()
    ranks = "RANK" in os.environ
    for old, new in {**(ON_CPU if ranks else {}), **(AUTOCAST if args.bf16 else {})}.items():
        if source.count(old) != 1:
            raise SystemExit(f"{args.what} has {source.count(old)} places with `{old}`, not 1: another version than d65ef2c?")
        source = source.replace(old, new)
    if ranks:
        use_gloo()
    without_draws()
    record = {name: [] for name in ("tokens", "positions", "targets", "loss_sum", "clock", "cpu")}
    watch(record)
    sys.argv = [args.what, *flags]
    exec(compile(source, args.what, "exec"), {"__name__": "__main__", "__file__": os.path.abspath(args.what)})
    with open(f"{args.out}.{os.environ.get('RANK', 0)}", "w", encoding="utf-8") as file:
        json.dump(record, file)


def write_weights(args):
    from model.model_minimind import MiniMindConfig, MiniMindForCausalLM
    torch.manual_seed(1)
    model = MiniMindForCausalLM(MiniMindConfig(hidden_size=args.hidden, num_hidden_layers=args.layers))
    torch.save(model.state_dict(), args.out)


def main():
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser()
    parser.add_argument("copy")
    parser.add_argument("what")
    parser.add_argument("--out", required=True)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--hidden", type=int)
    parser.add_argument("--layers", type=int)
    args = parser.parse_args(sys.argv[1:cut])
    args.out = os.path.abspath(args.out)
    os.chdir(os.path.join(args.copy, "trainer"))
    sys.path.insert(0, os.path.dirname(os.getcwd()))
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if args.what == "weights":
        write_weights(args)
    else:
        train(args, sys.argv[cut + 1:])


if __name__ == "__main__":
    main()
