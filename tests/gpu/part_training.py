"""The parts that train and generate: the same losses on CPU and GPU, bitwise resume, determinism, sft, dpo, text."""
import json
import math
import os
import signal

import inputs
from part import distance, keys, losses

STEPS = 30
# fp32 losses on two devices. Those of the first step differ by the rounding of one forward pass. Training then amplifies the difference,
# depending on the loss surface. Another rounding on the CPU (plain operations) measures this: a step may differ by FACTOR times the largest
# such distance so far.
FIRST_BOUND = 1e-5
FACTOR = 4
BF16_BOUND = 2e-2  # bf16 rounds by 2^-9; a wrong kernel differs by far more
DPO_BOUND = 1e-4
EXPERTS = {"model.num_experts": 4, "model.num_experts_per_tok": 2, "model.moe_intermediate_size": 64}


def shape(part):
    """Returns the model and the batches of these parts: 30 M parameters, or 60 thousand in a
    small rehearsal."""
    sizes = {"model.hidden_size": 64, "model.num_layers": 2, "model.num_heads": 4, "model.num_kv_heads": 2, "train.micro_batch": 4} if part.small else {
        "model.hidden_size": 512, "model.num_layers": 8, "model.num_heads": 8, "model.num_kv_heads": 4, "train.micro_batch": 8}
    return {"model.preset": "minimind-3", **sizes, "model.max_seq_len": 2 * inputs.SEQ_LEN, "train.global_batch": 2 * sizes["train.micro_batch"],
            "train.steps": STEPS, "train.log_every": 0, "optim.lr": 1e-3, "optim.warmup_steps": 5}


def hard(part):
    """Experts, dropout and attention dropout in the GPU's own precision: what is hardest to repeat bit for bit."""
    return {**shape(part), **EXPERTS, "model.dropout": 0.1, "train.precision": "bf16", "parallel.reproducible": "true", "train.device": part.device,
            "train.steps": 20, "checkpoint.every": 10, "checkpoint.keep_last": 0}


def pretrain(part, name, values, codes=(0,), **environment):
    """Trains the run `name` of this part, or resumes it; returns its directory."""
    run = part.path(name)
    part.trireme("pretrain", "--data", inputs.pretrain_set(part), "--run", run, *keys(values), codes=codes, **environment)
    return run


def hash_of(part, run):
    text = part.trireme("checkpoint", "hash", run).strip()
    part.check(text, f"trireme checkpoint hash {run} printed nothing")
    return text


def train_losses(part):
    """Compares 30 steps in fp32 on the CPU and on the device, and in bf16 on the device."""
    base = shape(part)
    variants = {"cpu": {"train.device": "cpu", "train.precision": "fp32"},
                "cpu_plain": {"train.device": "cpu", "train.precision": "fp32", "train.fused_ops": "false"},
                "device": {"train.device": part.device, "train.precision": "fp32"},
                "device_plain": {"train.device": part.device, "train.precision": "fp32", "train.fused_ops": "false"},
                "device_bf16": {"train.device": part.device, "train.precision": "bf16"}}
    curves = {}
    for name, values in variants.items():
        curves[name] = losses(pretrain(part, name, {**base, **values}), STEPS)
        part.note(losses=curves)
    noise = [distance(curves["cpu_plain"][:step], curves["cpu"][:step]) for step in range(1, STEPS + 1)]
    part.note(bounds=[max(FIRST_BOUND, FACTOR * value) for value in noise], bf16_bound=BF16_BOUND,
              distances={name: distance(curves[name], curves["cpu"]) for name in variants if name != "cpu"})
    part.check(curves["cpu"][-1] < 0.9 * curves["cpu"][0], f"the loss does not fall on the CPU: {curves['cpu'][0]} to {curves['cpu'][-1]}")
    for name in ("device", "device_plain"):
        for step in range(STEPS):
            apart = distance(curves[name][step:step + 1], curves["cpu"][step:step + 1])
            part.check(apart <= part.figures["bounds"][step], f"{name}: step {step + 1} has loss {curves[name][step]}, the CPU {curves['cpu'][step]}: relative "
                       f"difference {apart:.2e}, at most {part.figures['bounds'][step]:.2e}")
    apart = part.figures["distances"]["device_bf16"]
    part.check(apart <= BF16_BOUND, f"bf16 losses differ by {apart:.2e} from fp32 on the CPU, at most {BF16_BOUND}")


def resume(part):
    """Checks that a run that is killed at step 15 and started again ends with the same bits as
    an undisturbed run."""
    values = hard(part)
    whole = hash_of(part, pretrain(part, "whole", values))
    pretrain(part, "killed", values, codes=(-signal.SIGKILL,), TRIREME_ALLOW_FAULTS="1", TRIREME_FAULT="train.step:0:15:kill9")
    run = pretrain(part, "killed", values)
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        resumed = [line["resumed_from"] for line in map(json.loads, file) if "resumed_from" in line]
    again = hash_of(part, run)
    part.note(whole=whole, resumed=again, resumed_from=resumed)
    part.check(resumed == [10], f"the second start resumed from {resumed}, must resume from step 10")
    part.check(again == whole, f"the resumed run has the hash {again}, the undisturbed run {whole}")


def deterministic(part):
    """Checks that two runs with the same seed and deterministic kernels have equal losses and equal bits."""
    values = {**hard(part), "train.deterministic": "true"}
    runs = [pretrain(part, name, values) for name in ("first", "second")]
    curves, hashes = [losses(run, values["train.steps"]) for run in runs], [hash_of(part, run) for run in runs]
    part.note(losses=curves[0], hashes=hashes)
    part.check(curves[0] == curves[1], f"losses of two equal runs differ: {curves}")
    part.check(hashes[0] == hashes[1], f"weights of two equal runs differ: {hashes}")


def base_run(part):
    """Returns a pretrained run on the CPU in fp32, made once for the parts that need weights."""
    folder = os.path.join(part.work, "inputs", "base")
    with inputs.made_once(folder) as new:
        if new:
            part.trireme("pretrain", "--data", inputs.pretrain_set(part), "--run", f"{new}/run", *keys(
                {**shape(part), "train.device": "cpu", "train.precision": "fp32"}))
    return os.path.join(folder, "run")


def fine_tune(part, task, name, values):
    run = part.path(name)
    part.trireme(task, "--init", base_run(part), "--data", inputs.chat_set(part, task), "--run", run, "--train.steps", 20, "--train.log_every", 0,
                 "--train.micro_batch", 4, "--train.global_batch", 8, *keys(values))
    return run


def fine_tuned(part, task, lr):
    """Compares losses of the task on the CPU in fp32, and on the device in fp32 and in bf16. The
    first step's fp32 losses must agree."""
    curves = {}
    for name, device, precision in (("cpu", "cpu", "fp32"), ("device", part.device, "fp32"), ("device_bf16", part.device, "bf16")):
        plain = {"train.fused_ops": "false"} if name == "device" and device == "cpu" else {}
        curves[name] = losses(fine_tune(part, task, name, {"train.device": device, "train.precision": precision, "optim.lr": lr, **plain}), 20)
        part.note(losses=curves)
    apart = {name: distance(curves[name][:1], curves["cpu"][:1]) for name in ("device", "device_bf16")}
    part.note(first_step_distance=apart, bound=FIRST_BOUND, bf16_bound=BF16_BOUND)
    part.check(apart["device"] <= FIRST_BOUND, f"loss of step 1: {curves['device'][0]}, on the CPU {curves['cpu'][0]}")
    part.check(apart["device_bf16"] <= BF16_BOUND, f"bf16 loss of step 1: {curves['device_bf16'][0]}, in fp32 on the CPU {curves['cpu'][0]}")
    for name, curve in curves.items():
        first, last = sum(curve[:3]) / 3, sum(curve[-3:]) / 3
        part.check(last < first, f"{name}: the loss does not fall: {first} (mean of the first 3 steps) to {last} (of the last 3)")
    return curves


def sft(part):
    """Compares fine-tuning on chats."""
    fine_tuned(part, "sft", 1e-3)


def dpo(part):
    """Compares training on preference pairs. The first loss is log 2, because policy and
    reference are still the same model."""
    curves = fine_tuned(part, "dpo", 1e-4)
    for name in ("cpu", "device"):
        apart = abs(curves[name][0] - math.log(2))
        part.check(apart <= DPO_BOUND, f"{name}: the first loss is {curves[name][0]}, must be log 2 within {DPO_BOUND}")


def generated(part, *more):
    """Returns texts and token ids for three prompts in one batch."""
    prompts = part.path("prompts.jsonl")
    inputs.write_lines(prompts, [{"prompt": text} for text in ("Once upon a time", "The ", "1 + 1 = ")])
    out = part.trireme("generate", "--checkpoint", base_run(part), "--prompts", prompts, "--max-tokens", 48, "--ignore-eos", "--json", *more)
    rows = sorted((json.loads(line) for line in out.splitlines() if line.startswith("{")), key=lambda row: row["index"])
    part.check(len(rows) == 3 and all(len(row["ids"]) == 48 for row in rows), f"generate wrote {out[:500]}")
    return rows


def generate(part):
    """Checks that greedy text in fp32 is the same on CPU and device, that sampling with a seed
    repeats itself, and that bf16 and fp16 give text. Notes the speed."""
    greedy = ("--temperature", 0)
    on_cpu, on_device = (generated(part, "--device", device, "--precision", "fp32", *greedy) for device in ("cpu", part.device))
    part.note(text=on_device[0]["text"], same_ids=[a["ids"] == b["ids"] for a, b in zip(on_cpu, on_device)])
    part.check(all(part.figures["same_ids"]), f"greedy ids differ: {[row['ids'] for row in on_cpu]} on the CPU, {[row['ids'] for row in on_device]}")
    drawn = [[row["ids"] for row in generated(part, "--device", part.device, "--temperature", 0.8, "--seed", 3)] for _ in range(2)]
    part.check(drawn[0] == drawn[1], f"two draws with one seed differ: {drawn}")
    bf16 = generated(part, "--device", part.device, "--precision", "bf16", *greedy)
    part.note(bf16_text=bf16[0]["text"])
    for batch in (1, 8):
        speed = part.trireme("bench", "generate", "--checkpoint", base_run(part), "--device", part.device, "--precision", "bf16", "--batch", batch,
                             "--repeats", 2, "--json")
        part.note(**{f"bench_batch_{batch}": json.loads(speed)})

