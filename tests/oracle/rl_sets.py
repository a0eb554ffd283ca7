"""The start model, the sets of prompts and the changed answers of the oracles of trireme rl."""
import os

from post_training import OPTIM, SHAPE, T, call, keys_of, sentence, write_lines


def prompts_of(rng, count):
    return [{"conversations": [{"role": "user", "content": sentence(rng, 2, 6)}, {"role": "assistant", "content": "x"}]} for _ in range(count)]


def pack(trireme_data, work, kind, name, records):
    """Packs the set `name` from records of this kind, with the tokenizer in `work`."""
    path = lambda file: os.path.join(work, file)
    write_lines(path(f"{name}.jsonl"), records)
    call([trireme_data, "pack", "--kind", kind, "--tokenizer", path("tokenizer"), "--input", path(f"{name}.jsonl"), "--seq-len", T, "--output",
          path(name)] + ([] if kind == "pretrain" else ["--template", "minimind-v3"]))


def make_start(args, work, rng, num_prompts, ids, rows, change_tokenizer=None):
    """Writes a tokenizer with `ids` ids, the sets texts and prompts, and the run start: a model with `rows` rows in its embedding."""
    path = lambda file: os.path.join(work, file)
    texts = [{"text": sentence(rng, 20, 40)} for _ in range(40)]
    prompts = prompts_of(rng, num_prompts)
    write_lines(path("texts.jsonl"), texts)
    call([args.trireme_data, "tokenizer", "train", "--input", path("texts.jsonl"), "--vocab-size", ids, "--output", path("tokenizer")])
    if change_tokenizer:
        change_tokenizer(path("tokenizer"))
    pack(args.trireme_data, work, "pretrain", "texts", texts)
    pack(args.trireme_data, work, "rl", "prompts", prompts)
    call([args.trireme, "pretrain", "--data", path("texts"), "--run", path("start"), "--train.steps", 2, "--train.precision", "fp32"] +
         keys_of({**SHAPE, "model.vocab_size": rows}, OPTIM))


def write_replay(directory, step, lines, rng, largest):
    """Writes answers for a replay, with other rollout log-probabilities, masks and ends, and rewards up to `largest`. Returns the rewards."""
    os.makedirs(directory, exist_ok=True)
    for number, line in enumerate(lines):
        line["rollout_logprobs"] = [min(value + rng.uniform(-0.5, 0.5), 0) for value in line["rollout_logprobs"]]
        line["reward"] = rng.uniform(-largest, largest)
        line["finish"] = "length" if number % 5 == 0 else "stop"
        if len(line["mask"]) > 2:
            line["mask"][1] = 0
    keep = ("prompt_ids", "completion_ids", "mask", "rollout_logprobs", "reward", "finish")
    write_lines(os.path.join(directory, f"step-{step:09}.jsonl"), [{key: line[key] for key in keep} for line in lines])
    return [line["reward"] for line in lines]
