#!/usr/bin/env python3
"""Compares the speed of `trireme pretrain` on 2 ranks with PyTorch DDP, FSDP2 and pipelining over gloo, and
layouts with each other, in interleaved pairs of one run.

usage: compare_ddp.py BUILD_DIR [--only eager,plain,compile,fsdp,zero,cp,pp] [--pairs 5] [--steps 5] [--warmup 2] [--port 29571]
       [--precision bf16] [--preset NAME] [--cpu-time]

The model has 30 M parameters (Qwen3 shape, 512 x 8), or is a preset with a vocabulary of 6400. T = 512, bf16 (or
fp32, for a CPU without bf16 instructions), and one thread per rank. The data is the built-in corpus as one document,
so each row is one document. Both sides start from the same weights and read the same batches. Before timing, the losses of the
first step must agree within 1e-3 (relative: bf16 rounds each of about 100 operations by up to 2^-9, and the
mean over 8,000 targets cancels most of it).

Tokens/s are the tokens of the timed steps, after `warmup` steps, divided by their time. The peer's time is
measured on rank 0. Trireme's time is the wall time, including the time between two steps. --cpu-time is for a
machine that is never idle. It measures only one rank's CPU seconds of a gradient-accumulation step without
communication. For Trireme this is the difference of runs of 4 steps and of 1, divided by 3; for the peer the
median of steps 2 to 4.

Memory is the largest resident size of rank 0 since its start, as the kernel counts it, on both sides.

Prints Markdown: every figure, the load at the start of each run, median and spread of the ratios.
"""
import argparse
import datetime
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LOSS_BOUND = 1e-3
PEER_LIMIT_S = 600
LEAVE_S = 10
RANKS, T, MICRO, GLOBAL = 2, 512, 4, 16
SECTIONS = ("eager", "plain", "compile", "fsdp", "zero", "cp", "pp")
COMMUNICATION = []
SMALL = {"model.preset": "minimind-3", "model.hidden_size": 512, "model.num_layers": 8, "model.num_heads": 8, "model.num_kv_heads": 4,
         "model.head_dim": 64}
KEYS = {**SMALL, "model.vocab_size": 6400, "model.max_seq_len": T, "train.seq_len": T, "train.micro_batch": MICRO,
        "train.global_batch": GLOBAL, "train.precision": "bf16", "train.threads": 1, "train.device": "cpu", "optim.lr": 3e-4,
        "optim.schedule": "constant"}
PEAK_BYTES = {}


def call(command, **options):
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL, **options)


def keys_of(extra):
    return [word for key, value in {**KEYS, **extra}.items() for word in (f"--{key}", value)]


def load():
    return os.getloadavg()[0]


def make_inputs(args, work):
    data = f"{args.build}/bin/trireme-data"
    corpus, joined, tokenizer, packed, dump = (os.path.join(work, name) for name in ("corpus.jsonl", "one.jsonl", "tok", "set", "dump"))
    call([data, "synth", "--output", corpus, "--documents", 12000])
    with open(corpus, encoding="utf-8") as lines:
        text = "\n".join(json.loads(line)["text"] for line in lines)
    with open(joined, "w", encoding="utf-8") as out:
        out.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
    call([data, "tokenizer", "train", "--input", corpus, "--vocab-size", 600, "--output", tokenizer])
    call([data, "pack", "--tokenizer", tokenizer, "--input", joined, "--seq-len", T, "--output", packed])
    call([f"{args.build}/tests/parity_driver", "train", "--data", packed, "--out", dump, "--batches-only"] + keys_of({"train.steps": args.steps}))
    return packed, dump


def run_ours(args, work, packed, extra=None):
    run = os.path.join(work, "run")
    shutil.rmtree(run, ignore_errors=True)
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
    call(["mpirun", "-n", RANKS, "--oversubscribe", "--bind-to", "none", f"{args.build}/bin/trireme", "pretrain", "--data", packed, "--run", run,
          "--train.log_every", 0] + keys_of({"train.steps": args.steps, **(extra or {})}), env=environment, stderr=subprocess.DEVNULL)
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        lines = [line for line in map(json.loads, file) if "step" in line]
    timed = lines[args.warmup:]
    PEAK_BYTES["ours"] = lines[-1]["mem_peak_bytes"]
    COMMUNICATION.append(tuple(statistics.median(line[name] for line in timed) for name in ("comm_s", "comm_exposed_s")))
    return [line["loss"] for line in lines], [line["step_time_s"] for line in lines]


def print_hidden(title):
    """Returns the parts of this program's runs since the last call."""
    comm, exposed = (statistics.median(values) for values in zip(*COMMUNICATION))
    COMMUNICATION.clear()
    print(f"\n{title}: {comm:.4f} s of an update in communication, {exposed:.4f} s of it exposed: {1 - exposed / comm:.0%} hidden.", flush=True)


def end_together(ranks):
    """Returns exit codes. A failed process, or PEER_LIMIT_S, ends the others: gloo would wait for a lost rank for half an hour.
    Sometimes gloo keeps a rank alive after rank 0, which writes the result, has ended: after LEAVE_S this rank is ended, too."""
    end = time.monotonic() + PEER_LIMIT_S
    while any(rank.poll() is None for rank in ranks):
        if ranks[0].poll() == 0:
            end = min(end, time.monotonic() + LEAVE_S)
        if any(rank.poll() for rank in ranks) or time.monotonic() > end:
            for rank in ranks:
                rank.kill()
        time.sleep(0.05)
    return [rank.returncode for rank in ranks]


def run_peer(args, work, dump, flags=(), size=RANKS, program="ddp_peer.py"):
    args.port += 1
    out = os.path.join(work, "peer.json")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ranks = [subprocess.Popen([sys.executable, os.path.join(HERE, program), "--dump", dump, "--out", out, "--rank", str(rank), "--size",
                               str(size), "--port", str(args.port), "--precision", args.precision, *flags], env=environment) for rank in range(size)]
    codes = end_together(ranks)
    if codes[0]:  # it writes the result, and fails if another rank does
        raise SystemExit(f"the peer failed: exit codes of its ranks {codes} (negative: ended by that signal)")
    with open(out, encoding="utf-8") as file:
        result = json.load(file)
    PEAK_BYTES["other"] = result["peak_bytes"]
    return result["losses"], result["step_time_s"]


def tokens_per_s(args, times):
    timed = times[args.warmup:]
    return GLOBAL * T * len(timed) / sum(timed)


def check_losses(ours, theirs):
    apart = [abs(a - b) / abs(b) for a, b in zip(ours, theirs)]
    print(f"\nFirst-step loss: ours {ours[0]:.6f}, peer {theirs[0]:.6f}, relative difference {apart[0]:.1e} (bound {LOSS_BOUND}); "
          f"largest over {len(apart)} steps {max(apart):.1e}.\n", flush=True)
    if not apart[0] <= LOSS_BOUND:
        raise SystemExit("the two sides do not compute the same loss: nothing was timed")


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return next(line.split(":")[1].strip() for line in file if line.startswith("model name"))


def measure_pairs(args, title, run_left, run_right, pairs):
    """`run_left` runs Trireme; the order within a pair alternates."""
    print(f"\n### {title}\n\n| pair | ours tokens/s | other tokens/s | ratio | load before |\n|---|---|---|---|---|", flush=True)
    ratios = []
    for pair in range(pairs):
        before = load()
        speeds = {}
        for side in (("ours", "other") if pair % 2 == 0 else ("other", "ours")):
            speeds[side] = tokens_per_s(args, (run_left if side == "ours" else run_right)()[1])
        ratios.append(speeds["ours"] / speeds["other"])
        print(f"| {pair + 1} | {speeds['ours']:.0f} | {speeds['other']:.0f} | {ratios[-1]:.3f} | {before:.2f} |", flush=True)
    print(f"\nMedian ratio {statistics.median(ratios):.3f}, from {min(ratios):.3f} to {max(ratios):.3f}, {pairs} pairs.", flush=True)
    if "other" in PEAK_BYTES:
        left, right = PEAK_BYTES["ours"], PEAK_BYTES["other"]
        print(f"Peak memory of rank 0: {left / 1e6:.0f} and {right / 1e6:.0f} MB, ratio {left / right:.2f}.", flush=True)
    PEAK_BYTES.clear()
    return statistics.median(ratios)


def cpu_seconds(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    call(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def our_cpu_time(args, work, packed):
    """Returns the CPU seconds of one update: start-up and the writing of files cancel."""
    seconds = []
    for steps in (1, args.steps):
        out = tempfile.mkdtemp(dir=work)
        seconds.append(cpu_seconds([f"{args.build}/tests/parity_driver", "train", "--data", packed, "--out", out] + keys_of({"train.steps": steps})))
        shutil.rmtree(out)
    return (seconds[1] - seconds[0]) / (args.steps - 1)


def measure_cpu_time(args, work):
    KEYS["train.global_batch"], args.steps = MICRO, 4
    packed, dump = make_inputs(args, work)
    print(f"\n### CPU seconds of one rank, {MICRO * T} tokens an update\n\n| pair | ours | PyTorch eager | ratio | load before |\n|---|---|---|---|---|")
    for pair in range(args.pairs):
        before = load()
        ours = our_cpu_time(args, work, packed)
        theirs = statistics.median(run_peer(args, work, dump, ["--cpu-clock"], size=1)[1][1:])
        print(f"| {pair + 1} | {ours:.3f} | {theirs:.3f} | {theirs / ours:.3f} | {before:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    for name, value in (("pairs", 5), ("steps", 5), ("warmup", 2), ("port", 29571), ("other-pairs", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--only", default=",".join(SECTIONS))
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--precision", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--preset", help="another model than 512 x 8")
    args = parser.parse_args()
    KEYS["train.precision"] = args.precision
    if args.preset:
        for key in SMALL:
            del KEYS[key]
        KEYS["model.preset"] = args.preset
    args.build = os.path.abspath(args.build)
    sections = args.only.split(",")
    if unknown := set(sections) - set(SECTIONS):
        parser.error(f"--only {args.only}: no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    layout = "1 rank" if args.cpu_time else f"{RANKS} ranks, 1 thread each, global batch {GLOBAL}; {args.steps} steps a run, the first {args.warmup} not counted"
    print(f"{datetime.date.today()}, {cpu_model()}, {os.cpu_count()} cores; {args.preset or '512 x 8'}, vocabulary 6400, T {T}, micro-batch {MICRO}, {args.precision}; {layout}.", flush=True)
    with tempfile.TemporaryDirectory() as work:
        if args.cpu_time:
            measure_cpu_time(args, work)
            return
        measure_sections(args, sections, work)


def measure_sections(args, sections, work):
    packed, dump = make_inputs(args, work)

    def ours(**layout):
        return lambda: run_ours(args, work, packed, {f"parallel.{key}": value for key, value in layout.items()})

    def peer(*flags):
        return lambda: run_peer(args, work, dump, flags)

    check_losses(ours()()[0], peer()()[0])
    COMMUNICATION.clear()
    if "eager" in sections:
        measure_pairs(args, "PyTorch eager DDP", ours(), peer(), args.pairs)
        print_hidden("Ours")
    if "plain" in sections:
        measure_pairs(args, "Ours with train.fused_ops false", ours(), lambda: run_ours(args, work, packed, {"train.fused_ops": "false"}),
                      args.other_pairs)
    if "compile" in sections:
        measure_pairs(args, "PyTorch torch.compile DDP", ours(), peer("--compile"), args.other_pairs)
    if "fsdp" in sections:
        for when in ("each", "last"):
            print(f"\nFSDP2, gradients reduced {'after each micro-batch' if when == 'each' else 'once an update'}:")
            check_losses(ours(zero=3)()[0], peer("--fsdp", when)()[0])
            measure_pairs(args, f"ZeRO-3 beside FSDP2 ({when})", ours(zero=3), peer("--fsdp", when), args.pairs)
    if "zero" in sections:
        for stage in (1, 2, 3):
            COMMUNICATION.clear()
            ratio = measure_pairs(args, f"DDP beside ZeRO-{stage}", ours(), ours(zero=stage), args.pairs)
            print(f"\nStep time of ZeRO-{stage}: {ratio:.3f} of DDP's.")
            COMMUNICATION.clear()
            ours(zero=stage)()
            print_hidden(f"ZeRO-{stage}")
    if "cp" in sections:
        for form in ("all_gather", "ulysses"):
            measure_pairs(args, f"cp 2: ring beside {form}", ours(cp=2), ours(cp=2, cp_form=form), args.pairs)
    if "pp" in sections:
        staged = ours(pp=2, schedule="1f1b", stages="E4|4H")
        stages = lambda: run_peer(args, work, dump, ["--layers", "4,4"], program="pipeline_peer.py")
        check_losses(staged()[0], stages()[0])
        measure_pairs(args, "pp 2, 1f1b beside torch.distributed.pipelining", staged, stages, args.pairs)
        measure_pairs(args, "pp 2: zb-h1 beside 1f1b", ours(pp=2, schedule="zb-h1", stages="E4|4H"), staged, args.other_pairs)


if __name__ == "__main__":
    main()
