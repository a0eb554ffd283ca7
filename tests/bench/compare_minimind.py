#!/usr/bin/env python3
"""Compares the speed of `trireme sft` and `trireme dpo` on a CPU with MiniMind's own trainers, and of dpo with a
stored and a live reference, in interleaved rounds of one run.

usage: compare_minimind.py BUILD_DIR --minimind DIR --sft FILE.jsonl --dpo FILE.jsonl [--only sft,dpo,reference] [--rounds 3] [--steps 10]
       [--warmup 2] [--hidden 384] [--layers 4] [--sft-len 512] [--dpo-len 1024] [--sft-rows 8] [--dpo-pairs 2] [--threads] [--cpu-time]
       [--port 29671]

DIR is a checkout of jingyaogong/minimind (d65ef2c). It is copied and not changed. Python needs torch,
transformers and datasets. Both sides start from MiniMind's initial weights, use its tokenizer, and read the
same rows: the first rows of FILE (for pairs, the first that fit completely), as many as `steps` of its
updates take.

- MiniMind: 2 processes of one thread under DDP over gloo, with `sft-rows` rows or `dpo-pairs` pairs each per
  update, without accumulation. It uses fp32, the only precision of its scripts on a CPU, and bf16 by
  autocast, which adds one line. --threads: one process of 2 threads with twice the rows, with the unchanged
  script; minimind_peer.py lists the changes of the other case.
- Trireme: 2 ranks of one thread, about as many tokens per update, fp32 and bf16.

Tokens/s are the tokens without padding, including prompts, divided by the wall time between updates, after
`warmup` updates. --cpu-time is for a machine that is never idle: one rank of one thread on each side, tokens
divided by its CPU seconds (for Trireme those of a whole run less those of a run of `warmup` updates).

Before timing, both sides are compared: the tokens, targets and mean loss of all rows for sft (Trireme's by
`trireme eval`), the tokens and the first loss for dpo. Prints Markdown: every figure, the load at the start
of each round, median and spread of the ratios.
"""
import argparse
import datetime
import itertools
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile

from compare_ddp import call, cpu_model, load

HERE = os.path.dirname(os.path.abspath(__file__))
LOSS_BOUND = 1e-3
RANKS, LR = 2, 1e-8
SECTIONS = ("sft", "dpo", "reference")
SCRIPT = {"sft": "train_full_sft.py", "dpo": "train_dpo.py"}
FIRST = {"sft": "pretrain", "dpo": "full_sft"}  # each script searches its weights under this name


def output(command, **options):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, encoding="utf-8", **options).stdout


def environment(threads=1, **more):
    return {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": str(threads),
            "HF_HUB_OFFLINE": "1", **more}


def rows_of(args, task):
    """Returns the rows or pairs of one process in one of MiniMind's updates."""
    return (args.sft_rows if task == "sft" else args.dpo_pairs) * (RANKS if args.threads else 1)


def ranks(args):
    """Trireme."""
    return 1 if args.cpu_time else RANKS


def processes(args):
    """MiniMind."""
    return 1 if args.threads else ranks(args)


def length_of(args, task):
    return args.sft_len if task == "sft" else args.dpo_len


def that_fit(args, task, rows):
    """Returns the pairs that neither side has to cut, because each side cuts in its own way."""
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(os.path.join(args.minimind, "model"))
    for row in rows:
        texts = [tokenizer.apply_chat_template(row[side], tokenize=False) for side in ("chosen", "rejected")] if task == "dpo" else []
        if all(len(tokenizer(text).input_ids) < length_of(args, task) for text in texts):
            yield row


def take_rows(args, task, path):
    count = args.steps * rows_of(args, task) * processes(args)
    with open(getattr(args, task), encoding="utf-8") as lines, open(path, "w", encoding="utf-8") as out:
        taken = list(itertools.islice(that_fit(args, task, (json.loads(line) for line in lines if line.strip())), count))
        if len(taken) < count:
            raise SystemExit(f"{getattr(args, task)} has {len(taken)} rows that fit, {count} are wanted: fewer --steps")
        for row in taken:
            for message in row.get("conversations", []):
                # These are the columns of MiniMind's data set.
                for name in ("reasoning_content", "tools", "tool_calls"):
                    message.setdefault(name, "")
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


def make_inputs(args, work, tasks):
    copy, base, sets = os.path.join(work, "minimind"), os.path.join(work, "base"), {}
    for folder in ("trainer", "model", "dataset"):
        shutil.copytree(os.path.join(args.minimind, folder), os.path.join(copy, folder))
    os.mkdir(os.path.join(copy, "out"))
    first, *others = (os.path.join(copy, "out", f"{FIRST[task]}_{args.hidden}.pth") for task in SCRIPT)
    call([sys.executable, os.path.join(HERE, "minimind_peer.py"), copy, "weights", "--hidden", args.hidden, "--layers", args.layers, "--out", first],
         env=environment())
    for other in others:
        shutil.copy(first, other)
    call([f"{args.build}/bin/trireme", "import", "--minimind", first, "--tokenizer", f"{copy}/model", "--output", base, "--model.preset", "minimind-3",
          "--model.hidden_size", args.hidden, "--model.num_layers", args.layers, "--model.head_dim", args.hidden // 8], stderr=subprocess.DEVNULL)
    for task in tasks:
        rows, packed = (os.path.join(work, f"{task}{end}") for end in (".jsonl", "_set"))
        take_rows(args, task, rows)
        call([f"{args.build}/bin/trireme-data", "pack", "--kind", task, "--template", "minimind-v3", "--mask", "minimind", "--special-in-content", "allow",
              "--tokenizer", f"{copy}/model", "--input", rows, "--seq-len", length_of(args, task), "--output", packed], stderr=subprocess.DEVNULL)
        sets[task] = packed
    return base, sets


def inspect(args, packed):
    return json.loads(output([f"{args.build}/bin/trireme-data", "inspect", packed, "--json"]))


def run_theirs(args, work, task, bf16=False):
    """Runs a whole epoch. Returns the tokens of each update over all processes, its time, and
    the sums of all."""
    args.port += 1
    out, copy, size = os.path.join(work, "peer"), os.path.join(work, "minimind"), processes(args)
    cache = tempfile.mkdtemp(dir=work)
    command = [sys.executable, os.path.join(HERE, "minimind_peer.py"), copy, SCRIPT[task], "--out", out, *(["--bf16"] if bf16 else []), "--",
               "--epochs", 1, "--batch_size", rows_of(args, task), "--learning_rate", LR, "--num_workers", 0, "--log_interval", 1, "--device", "cpu",
               "--hidden_size", args.hidden, "--num_hidden_layers", args.layers, "--max_seq_len", length_of(args, task),
               "--data_path", os.path.join(work, f"{task}.jsonl")]
    peers = []
    for rank in range(size):
        place = {} if size == 1 else {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1",
                                      "MASTER_PORT": str(args.port)}
        peers.append(subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
                                      env=environment(RANKS if args.threads else 1, HF_DATASETS_CACHE=f"{cache}/{rank}", **place)))
    texts = [peer.communicate() for peer in peers]
    if any(peer.returncode for peer in peers):
        raise SystemExit("MiniMind's trainer failed:\n" + "\n".join(text[1][-2000:] for text in texts))
    records = []
    for rank in range(size):
        with open(f"{out}.{rank}", encoding="utf-8") as file:
            records.append(json.load(file))
    clock = records[0]["cpu" if args.cpu_time else "clock"]
    first_loss = next(line for line in texts[0][0].splitlines() if "loss: " in line).split("loss: ")[1].split(",")[0]
    return {"tokens": [sum(counts) for counts in zip(*(record["tokens"] for record in records))], "first_loss": float(first_loss),
            "time": [None] + [b - a for a, b in zip(clock, clock[1:])],
            **{name: sum(sum(record[name]) for record in records) for name in ("positions", "targets", "loss_sum")}}


def children_cpu():
    """Returns the CPU seconds of all processes that this process started and that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def our_batch(args, task, packed):
    """Returns the sequences (sft) or pairs of one rank in an update: as many as have about the
    tokens of one of MiniMind's."""
    if task == "dpo":
        return args.dpo_pairs
    return max(1, round(inspect(args, packed)["tokens"] / args.steps / ranks(args) / args.sft_len))


def run_ours(args, work, task, base, packed, precision, reference=None, steps=0):
    """Runs a whole epoch, or `steps` updates."""
    run, before = os.path.join(work, "run"), children_cpu()
    shutil.rmtree(run, ignore_errors=True)
    batch = our_batch(args, task, packed)
    start = ["mpirun", "-n", RANKS, "--oversubscribe", "--bind-to", "none"] if ranks(args) > 1 else []
    call([*start, f"{args.build}/bin/trireme", task, "--init", base, "--data", packed, "--run", run, "--train.epochs", 1, "--train.steps", steps,
          "--train.micro_batch", batch, "--train.global_batch", batch * ranks(args), "--train.precision", precision, "--train.threads", 1,
          "--train.device", "cpu", "--train.log_every", 0, "--optim.lr", LR, *(["--dpo.reference", reference] if reference else [])],
         env=environment(), stderr=subprocess.DEVNULL)
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        lines = [line for line in map(json.loads, file) if "step_time_s" in line]
    ends = [line["tokens"] for line in lines]
    share = 1 if task == "dpo" else 1 - inspect(args, packed)["padding"]
    return {"tokens": [share * (b - a) for a, b in zip([0] + ends, ends)], "time": [line["step_time_s"] for line in lines], "first_loss": lines[0]["loss"],
            "cpu": children_cpu() - before}


def our_speed(args, *what, **more):
    whole = run_ours(args, *what, **more)
    if not args.cpu_time:
        return tokens_per_s(args, whole)
    return sum(whole["tokens"][args.warmup:]) / (whole["cpu"] - run_ours(args, *what, **more, steps=args.warmup)["cpu"])


def tokens_per_s(args, result):
    return sum(result["tokens"][args.warmup:]) / sum(result["time"][args.warmup:])


def near(name, ours, theirs, bound):
    print(f"{name}: ours {ours:.6g}, theirs {theirs:.6g} (bound {bound:g}).", flush=True)
    if not abs(ours - theirs) <= bound * abs(theirs):
        raise SystemExit("the two sides do not compute the same: nothing was timed")


def check(args, work, task, base, packed):
    theirs, facts = run_theirs(args, work, task), inspect(args, packed)
    print(f"\n## {task}\n\nSame rows, {sum(theirs['tokens']) / theirs['positions']:.1%} of MiniMind's positions are not padding.\n")
    if task == "sft":
        ours = json.loads(output([f"{args.build}/bin/trireme", "eval", "--checkpoint", base, "--data", packed, "--json"], stderr=subprocess.DEVNULL))
        near("Tokens", facts["tokens"], sum(theirs["tokens"]), 0)
        near("Targets", facts["target_tokens"], theirs["targets"], 0)
        near("Mean loss of all targets", ours["loss"], theirs["loss_sum"] / theirs["targets"], LOSS_BOUND)
    else:
        ours = run_ours(args, work, task, base, packed, "fp32")
        near("Tokens", sum(ours["tokens"]), sum(theirs["tokens"]), 0)
        near("Loss of step 1", ours["first_loss"], theirs["first_loss"], LOSS_BOUND)


def measure(args, sides, ratios, rounds):
    """`sides`: name -> a function that returns its tokens/s; `ratios`: (over, under) names.
    Every second round has the reverse order."""
    pairs = [f"{over} / {under}" for over, under in ratios]
    print("\n| round | " + " | ".join([f"{name} tokens/s" for name in sides] + pairs) + " | load before |\n|" + "---|" * (len(sides) + len(pairs) + 2), flush=True)
    seen = {pair: [] for pair in pairs}
    for number in range(rounds):
        before, speeds = load(), {}
        for name in (list(sides) if number % 2 == 0 else reversed(list(sides))):
            speeds[name] = sides[name]()
        for pair, (over, under) in zip(pairs, ratios):
            seen[pair].append(speeds[over] / speeds[under])
        cells = [f"{speeds[name]:.0f}" for name in sides] + [f"{seen[pair][-1]:.2f}" for pair in pairs]
        print(f"| {number + 1} | " + " | ".join(cells) + f" | {before:.2f} |", flush=True)
    print()
    for pair, values in seen.items():
        print(f"{pair}: median {statistics.median(values):.2f}, from {min(values):.2f} to {max(values):.2f}, {rounds} rounds.", flush=True)


def measure_task(args, work, task, base, packed):
    check(args, work, task, base, packed)
    sides = {f"ours {precision}": lambda precision=precision: our_speed(args, work, task, base, packed, precision) for precision in ("fp32", "bf16")}
    sides["theirs fp32"] = lambda: tokens_per_s(args, run_theirs(args, work, task))
    sides["theirs bf16"] = lambda: tokens_per_s(args, run_theirs(args, work, task, bf16=True))
    measure(args, sides, [("ours fp32", "theirs fp32"), ("ours bf16", "theirs fp32"), ("ours bf16", "theirs bf16")], args.rounds)


def measure_reference(args, work, base, packed):
    print("\n## dpo: a stored reference beside a live one")
    for precision in ("fp32", "bf16"):
        stored = os.path.join(work, f"reference_{precision}")
        call(["mpirun", "-n", RANKS, "--oversubscribe", "--bind-to", "none", f"{args.build}/bin/trireme", "dpo-reference", "--init", base, "--data", packed,
              "--output", stored, "--precision", precision, "--device", "cpu"], env=environment(), stderr=subprocess.DEVNULL)
        sides = {f"{name} {precision}": lambda reference=reference, precision=precision: our_speed(args, work, "dpo", base, packed, precision, reference)
                 for name, reference in (("stored", stored), ("live", None))}
        measure(args, sides, [tuple(sides)], args.rounds)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    for name in ("minimind", "sft", "dpo"):
        parser.add_argument(f"--{name}", required=True)
    for name, value in (("rounds", 3), ("steps", 10), ("warmup", 2), ("hidden", 384), ("layers", 4), ("sft-len", 512), ("dpo-len", 1024), ("sft-rows", 8),
                        ("dpo-pairs", 2), ("port", 29671)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--only", default=",".join(SECTIONS))
    parser.add_argument("--threads", action="store_true")
    parser.add_argument("--cpu-time", action="store_true")
    args = parser.parse_args()
    args.build, args.minimind = os.path.abspath(args.build), os.path.abspath(args.minimind)
    if args.threads and args.cpu_time:
        parser.error("--threads and --cpu-time: one of them")
    if unknown := set(args.only.split(",")) - set(SECTIONS):
        parser.error(f"--only {args.only}: no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    return args


def main():
    args = parse()
    sections = args.only.split(",")
    theirs = "one process of 2 threads" if args.threads else "one process of one thread, CPU seconds" if args.cpu_time else "2 processes of one thread"
    print(f"{datetime.date.today()}, {cpu_model()}, {os.cpu_count()} cores; {args.hidden} x {args.layers}, vocabulary 6400; MiniMind: {theirs}, "
          f"{rows_of(args, 'sft') * processes(args)} rows of {args.sft_len} or {rows_of(args, 'dpo') * processes(args)} pairs of {args.dpo_len} an update; "
          f"{args.steps} updates, the first {args.warmup} not counted.", flush=True)
    with tempfile.TemporaryDirectory() as work:
        base, sets = make_inputs(args, work, [task for task in SCRIPT if task in sections or (task == "dpo" and "reference" in sections)])
        for task in SCRIPT:
            if task in sections:
                measure_task(args, work, task, base, sets[task])
        if "reference" in sections:
            measure_reference(args, work, base, sets["dpo"])


if __name__ == "__main__":
    main()
