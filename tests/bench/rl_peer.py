#!/usr/bin/env python3
"""Runs the peers of compare_rl.py on a CPU: MiniMind's own trainer of GRPO, and transformers.

usage: rl_peer.py minimind COPY --out FILE -- FLAGS OF train_grpo.py
       rl_peer.py weights COPY --hidden N --layers N --kv-heads N --width N --out FILE.pth
       rl_peer.py transformers MODEL --prompts FILE.json --group G --new N --out FILE

The trainer (trainer/train_grpo.py of a checkout of MiniMind) runs unchanged, with these exceptions: the model gets the shape of the flags
of `weights`, the reward model gives 0, prompts get no random system text, and a reader of JSON lines replaces the package `datasets`.
The number of its tokens excludes those after the end token. transformers continues each prompt with continuous batching or with
`generate`. OMP_NUM_THREADS sets the threads.
"""
import argparse
import json
import os
import sys
import time
import types

import torch

END = 2  # end token of MiniMind's tokenizer


def lengths(completions):
    """Returns the number of tokens of each completion up to its first end token."""
    return [ids.index(END) + 1 if END in ids else len(ids) for ids in completions]


def enter(copy):
    os.chdir(os.path.join(copy, "trainer"))
    sys.path.insert(0, os.path.dirname(os.getcwd()))


def use_shape(args):
    from model import model_minimind
    start = model_minimind.MiniMindConfig.__init__

    def with_shape(config, *given, **more):
        start(config, *given, **{**more, "num_key_value_heads": args.kv_heads, "intermediate_size": args.width})
    model_minimind.MiniMindConfig.__init__ = with_shape
    return model_minimind


def write_weights(args):
    shape = use_shape(args)
    torch.manual_seed(1)
    model = shape.MiniMindForCausalLM(shape.MiniMindConfig(hidden_size=args.hidden, num_hidden_layers=args.layers))
    torch.save(model.state_dict(), args.out)


def read_lines(_, data_files, split):
    with open(data_files, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


class NoReward:
    def __init__(self, *args, **kwargs):
        pass

    def get_score(self, messages, answer):
        return 0.0


def train(args, flags):
    sys.modules["datasets"] = types.SimpleNamespace(load_dataset=read_lines, Features=None, Sequence=None, Value=None)
    use_shape(args)
    from dataset import lm_dataset
    from trainer import rollout_engine, trainer_utils
    lm_dataset.pre_processing_chat.__defaults__ = (0.0,)
    trainer_utils.LMForRewardModel = NoReward
    record = {"tokens": [], "rollout_s": [], "clock": []}
    rollout, step = rollout_engine.TorchRolloutEngine.rollout, torch.optim.AdamW.step

    def timed_rollout(engine, *given, **more):
        begin = time.perf_counter()
        record["clock"] = record["clock"] or [begin]  # the clock before the first step
        result = rollout(engine, *given, **more)
        record["rollout_s"].append(time.perf_counter() - begin)
        record["tokens"].append(sum(lengths(result.completion_ids.tolist())))
        return result

    def timed_step(optimizer, *given, **more):
        result = step(optimizer, *given, **more)
        record["clock"].append(time.perf_counter())
        return result

    rollout_engine.TorchRolloutEngine.rollout, torch.optim.AdamW.step = timed_rollout, timed_step
    with open("train_grpo.py", encoding="utf-8") as file:
        source = file.read()
    sys.argv = ["train_grpo.py", *flags]
    exec(compile(source, "train_grpo.py", "exec"), {"__name__": "__main__", "__file__": os.path.abspath("train_grpo.py")})
    return {**record, "step_s": [end - begin for begin, end in zip(record["clock"], record["clock"][1:])]}


def generate(args):
    from transformers import AutoModelForCausalLM, GenerationConfig
    with open(args.prompts, encoding="utf-8") as file:
        steps = [[prompt for prompt in step for _ in range(args.group)] for step in json.load(file)]
    net = AutoModelForCausalLM.from_pretrained(args.copy, dtype=torch.float32).eval()
    torch.manual_seed(1)
    config = GenerationConfig(max_new_tokens=args.new, do_sample=True, temperature=0.8, top_k=0, top_p=1.0, eos_token_id=END, pad_token_id=0)

    def continuous(prompts):
        return [result.generated_tokens for result in net.generate_batch(inputs=prompts, generation_config=config).values()]

    def padded(prompts):
        longest = max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        with torch.inference_mode():
            return net.generate(ids, attention_mask=mask, generation_config=config)[:, longest:].tolist()

    record = {"tokens": [], "rollout_s": [], "engine": args.engine}
    run = continuous if args.engine == "continuous" else padded
    for prompts in steps:
        begin = time.perf_counter()
        completions = run(prompts)
        record["rollout_s"].append(time.perf_counter() - begin)
        record["tokens"].append(sum(lengths(completions)))
        assert len(completions) == len(prompts) and record["tokens"][-1] > 0
    return record


def main():
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("minimind", "weights", "transformers"))
    parser.add_argument("copy")
    parser.add_argument("--out", required=True)
    parser.add_argument("--prompts")
    parser.add_argument("--engine", choices=("continuous", "generate"), default="continuous")
    for name, value in (("hidden", 512), ("layers", 8), ("kv-heads", 2), ("width", 1408), ("group", 6), ("new", 128)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args(sys.argv[1:cut])
    args.out = os.path.abspath(args.out)
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if args.what == "transformers":
        record = generate(args)
    else:
        enter(args.copy)
        record = write_weights(args) if args.what == "weights" else train(args, sys.argv[cut + 1:])
    if record:
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump(record, file)


if __name__ == "__main__":
    main()
