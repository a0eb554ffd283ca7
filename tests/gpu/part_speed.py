"""The measuring parts: step time, throughput, MFU and peak memory, compared with eager and compiled PyTorch.

Both sides start from the same weights, read the same batches (parity_driver writes both) and must agree on the first loss before the
comparison. Their runs alternate. A step time is the median after the warm-up steps. Trireme's step lasts from the end of one step to the
end of the next, so data loading is part of it. MFU uses Trireme's operations per token and peak for both sides.

PyTorch's side may use kernels that are not deterministic. It is therefore compared with Trireme with train.deterministic false ("ours").
The default of training, train.deterministic true, is measured beside it ("ours_deterministic").
"""
import json
import os
import shutil
import statistics
import subprocess
import time

import inputs
import places
from part import Failed, end_line, keys, metrics
from part_machine import plain_environment

LOSS_BOUND = 1e-3  # bf16 rounds each of about 100 operations by up to 2^-9; the mean over thousands of targets cancels most of it
GRAPH_BOUND = 1e-2  # padded documents change the order of sums in bf16, and training amplifies the difference; a wrong input changes the loss by far more
COMPILE_LIMIT_S = 120
COMPILE_LEAST_S = 45  # torch.compile of a small model, with a warm file cache
FAULT_EXIT_CODE = 4  # an injected error ends the program with it (docs/exit-codes.md)
# The line of step s is complete in step s + 3: with train.late_results, step s + 1 reads the results, and step s + 2 reduces them.
STEPS_TO_FAULT = 5
GRAPHS_OFF = ("CUDA graphs of micro-batches are off", "run without CUDA graphs", "run without a CUDA graph")
COMPILERS = ("cc", "gcc", "clang")
ROUNDS = 2
HERE = os.path.dirname(os.path.abspath(__file__))


def common(part, seq_len, micro_batch, micro_steps):
    return {"model.max_seq_len": seq_len, "train.seq_len": seq_len, "train.micro_batch": micro_batch, "train.global_batch": micro_batch * micro_steps,
            "train.precision": "bf16", "train.log_every": 0, "optim.lr": 3e-4, "optim.schedule": "constant", "optim.warmup_steps": 0,
            "train.steps": 6 if part.small else 40}


def warmup(part):
    return 2 if part.small else 15


def minimind(part):
    """Measures MiniMind's largest published shape, 1024 x 16, with rows of 512 tokens."""
    sizes = {"model.hidden_size": 64, "model.num_layers": 2} if part.small else {}
    compare(part, {"model.preset": "minimind-1024x16", **sizes, "model.vocab_size": 6400, **(common(part, 128, 2, 1) if part.small else common(part, 512, 32, 1))})


def gpt2(part):
    """Measures a model of GPT-2's size, 768 x 12 with a vocabulary of 50304 and rows of 1024
    tokens. Its blocks are those of this project (RMSNorm, rotary embedding, gated MLP with the
    same number of weights as GPT-2's)."""
    sizes = {"model.hidden_size": 64, "model.num_layers": 2, "model.num_heads": 4, "model.num_kv_heads": 4, "model.intermediate_size": 128,
             "model.vocab_size": 1024} if part.small else {
        "model.hidden_size": 768, "model.num_layers": 12, "model.num_heads": 12, "model.num_kv_heads": 12, "model.intermediate_size": 2048,
        "model.vocab_size": 50304}
    compare(part, {**sizes, "model.tie_embeddings": "true", **(common(part, 128, 2, 1) if part.small else common(part, 1024, 16, 1))})


def graphs(part):
    """Trains a small model on packed documents with CUDA graphs of micro-batches and without, two
    rounds of each. The losses must agree, graphs must be launched, and no graph may be given up."""
    sizes = {"model.hidden_size": 64, "model.num_layers": 2, "model.num_heads": 4, "model.num_kv_heads": 2} if part.small else {}
    values = {"model.preset": "minimind-3", **sizes, **common(part, inputs.SEQ_LEN, 2 if part.small else 4, 4)}
    packed, tokens, curves = inputs.pretrain_set(part), values["train.global_batch"] * values["train.seq_len"], {}
    part.note(keys=values, tokens_per_step=tokens, steps=values["train.steps"], warmup_steps=warmup(part), loss_bound=GRAPH_BOUND, rounds=[])
    for _ in range(ROUNDS):
        pair = {}
        for mode in ("true", "false"):
            result = ours(part, packed, {**values, "train.cuda_graph": mode}, to_the_end=True)
            if mode == "true" and part.device == "cuda":
                check_launches(part, result["graph_launches"])
            curves[mode] = result["losses"]
            pair[f"cuda_graph_{mode}"] = figures_of(result, tokens, result["mfu_per_token_rate"])
        pair["speedup"] = pair["cuda_graph_false"]["step_time_s"] / pair["cuda_graph_true"]["step_time_s"]
        apart = max(abs(a - b) / abs(b) for a, b in zip(curves["true"], curves["false"]))
        part.note(rounds=[*part.figures["rounds"], {**pair, "largest_loss_difference": apart}], losses=curves)
        part.check(apart <= GRAPH_BOUND, f"losses with CUDA graphs differ by {apart:.1e} from those without, at most {GRAPH_BOUND}: {curves}")


def check_launches(part, launches):
    """Checks that the last run launched micro-batches as graphs and gave up none of the graphs."""
    off = [line for line in part.log.splitlines() if any(text in line for text in GRAPHS_OFF)]
    part.check(not off, f"graphs were given up or were not possible: {off}")
    part.check(launches, f"no micro-batch was launched as a CUDA graph: {part.log[-800:]}")


def ours(part, packed, values, to_the_end=False):
    """Trains with Trireme. Returns losses, step times, peak memory, operations per token over the peak, and launches of CUDA graphs."""
    run, steps = part.path("run"), values["train.steps"]
    shutil.rmtree(run, ignore_errors=True)
    # A rehearsal reads results as late as a GPU does, so that it also shows whether all lines are written.
    values = {**values, "checkpoint.every": 0, **({"train.late_results": "true"} if part.device == "cpu" else {})}
    ending = {}
    if not to_the_end:
        # A run saves at its last step, here unused gigabytes. So an error ends it some steps after the measured ones. In contrast to a kill, an
        # error ends the run only after the lines that are complete have been written.
        values["train.steps"] = steps + STEPS_TO_FAULT + 1
        ending = {"codes": (FAULT_EXIT_CODE,), "TRIREME_ALLOW_FAULTS": "1", "TRIREME_FAULT": f"train.step:0:{steps + STEPS_TO_FAULT}:throw"}
    part.trireme("pretrain", "--data", packed, "--run", run, "--train.device", part.device, *keys(values), **ending)
    by_step = metrics(run)
    lines = [by_step[step] for step in range(1, steps + 1) if step in by_step]
    part.check(len(lines) == steps, f"{run}/metrics.jsonl has the steps {sorted(by_step)}, must have 1 to {steps}")
    timed = lines[warmup(part):]
    return {"losses": [line["loss"] for line in lines], "step_time_s": [line["step_time_s"] for line in timed],
            "peak_memory_bytes": max(line["mem_peak_bytes"] for line in lines),
            "mfu_per_token_rate": statistics.median(line["mfu"] / line["tokens_per_s"] for line in timed),
            "graph_launches": end_line(run).get("graph_launches")}


def peer(part, python, dump, mode, limit_s=None):
    """Trains with PyTorch in a process of its own."""
    out = part.path(f"{mode}.json")
    words = [python, os.path.join(HERE, "peer.py"), "--dump", dump, "--out", out, "--device", part.device, "--warmup", str(warmup(part)),
             *(["--compile"] if mode == "compiled" else [])]
    print("+", *words, flush=True)
    try:
        done = subprocess.run(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, timeout=limit_s, check=False,
                              env={**os.environ, **plain_environment(), **part.threads()})
    except subprocess.TimeoutExpired as error:
        raise Failed(f"PyTorch {mode} took over {limit_s} s") from error
    if done.returncode != 0:
        raise Failed(f"PyTorch {mode} ended with {done.returncode}: {done.stderr.decode(errors='replace')[-1500:]}")
    with open(out, encoding="utf-8") as file:
        return json.load(file)


def figures_of(result, tokens, rate):
    """`tokens` of a step; `rate`: MFU of one token a second."""
    step_s = statistics.median(result["step_time_s"])
    deciles = statistics.quantiles(result["step_time_s"], n=10, method="inclusive") if len(result["step_time_s"]) > 1 else [step_s] * 9
    return {"step_time_s": step_s, "p10_s": deciles[0], "p90_s": deciles[-1], "tokens_per_s": tokens / step_s, "mfu": rate * tokens / step_s,
            **{name: result[name] for name in ("peak_memory_bytes", "peak_allocated_bytes", "first_step_s") if result.get(name) is not None}}


def check_loss(part, mode, losses, reference):
    apart = abs(losses[0] - reference[0]) / abs(reference[0])
    part.note(**{f"first_loss_{mode}": losses[0], "first_loss_ours": reference[0], "loss_bound": LOSS_BOUND})
    part.check(apart <= LOSS_BOUND, f"first loss: ours {reference[0]}, {mode} {losses[0]}: relative difference {apart:.1e}, at most {LOSS_BOUND}")


def measured(part, packed, values, tokens):
    """Trains with deterministic kernels and without, and notes both. Returns the result without, which is the one to compare, and the seconds
    that one run took."""
    begin = time.monotonic()
    results = {name: ours(part, packed, {**values, "train.deterministic": mode}) for name, mode in (("ours_deterministic", "true"), ("ours", "false"))}
    part.note(**{name: figures_of(result, tokens, result["mfu_per_token_rate"]) for name, result in results.items()}, losses=results["ours"]["losses"])
    check_loss(part, "deterministic", results["ours_deterministic"]["losses"], results["ours"]["losses"])
    part.note(deterministic_slowdown=part.figures["ours_deterministic"]["step_time_s"] / part.figures["ours"]["step_time_s"])
    return results["ours"], (time.monotonic() - begin) / len(results)


def compare(part, values):
    seq_len = values["train.seq_len"]
    tokens = values["train.global_batch"] * seq_len
    packed, dump = inputs.one_document_set(part, seq_len), part.path("dump")
    part.note(keys=values, tokens_per_step=tokens, steps=values["train.steps"], warmup_steps=warmup(part), rounds=[],
              compared_with_pytorch="ours: train.deterministic false, because PyTorch's side is not deterministic")
    result, run_s = measured(part, packed, values, tokens)
    rate = result["mfu_per_token_rate"]
    python, _ = places.python_with_torch()
    if python is None:
        part.reason = "PyTorch was not measured: no python3 with the module torch is here"
        return
    part.run([places.program("tests/parity_driver"), "train", "--data", packed, "--out", dump, "--batches-only", "--train.device", "cpu", *keys(values)])
    for number in range(ROUNDS):
        eager = peer(part, python, dump, "eager")
        check_loss(part, "eager", eager["losses"], result["losses"])
        if number > 0:
            result, _ = measured(part, packed, values, tokens)
        add_round(part, figures_of(result, tokens, rate), figures_of(eager, tokens, rate), "eager")
    compare_compiled(part, values, python, run_s)


def compare_compiled(part, values, python, run_s):
    """Compares with compiled PyTorch if there is a compiler and enough time. `run_s`: seconds of one run of Trireme."""
    if not any(map(shutil.which, COMPILERS)):
        part.reason = f"compiled PyTorch was not measured: it needs a C compiler ({', '.join(COMPILERS)}), and none is in PATH"
        return
    left_s = part.left_s() - 1.5 * run_s  # a run of Trireme comes after it
    if left_s < COMPILE_LEAST_S:
        part.reason = f"compiled PyTorch was not measured: {max(left_s, 0):.0f} s are left for it, and it needs {COMPILE_LEAST_S} s or more"
        return
    packed, tokens, rate = inputs.one_document_set(part, values["train.seq_len"]), part.figures["tokens_per_step"], part.figures["ours"]["mfu"] / part.figures[
        "ours"]["tokens_per_s"]
    try:
        compiled = peer(part, python, part.path("dump"), "compiled", min(COMPILE_LIMIT_S, left_s))
    except Failed as failed:  # a failure of the peer does not fail the part; the reason shows it
        part.reason = f"compiled PyTorch was not measured: {failed}"
        return
    check_loss(part, "compiled", compiled["losses"], part.figures["losses"])
    result = ours(part, packed, {**values, "train.deterministic": "false"})
    add_round(part, figures_of(result, tokens, rate), figures_of(compiled, tokens, rate), "compiled")


def add_round(part, mine, other, mode):
    """Notes one pair of runs and the ratio of their throughput."""
    pair = {"peer": mode, "ours": mine, mode: other, "ratio": mine["tokens_per_s"] / other["tokens_per_s"]}
    part.note(rounds=[*part.figures["rounds"], pair], ours=mine, **{f"pytorch_{mode}": other})
