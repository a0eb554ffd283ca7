"""The parts about the fast paths of a GPU: kernels, training steps without synchronization, the ladder, fp8."""
import json
import os
import statistics
import subprocess

import inputs
import places
from part import Skipped, distance, keys
from part_machine import KERNEL_TESTS, SYNC_TESTS, run_google_test
from part_speed import ours

REHEARSED_ARCH = "sm_80"
FP8_MODES = ("tensorwise", "rowwise", "delayed")
# Codes of e4m3 and e5m2 have relative errors of at most 2^-4 and 2^-3, which mostly cancel in the mean over thousands of targets.
FP8_BOUND = 1e-2
# Both devices have the same codes and scales. bf16 activations differ by 2^-9, which changes some codes.
FP8_FIRST_BOUND = 5e-3
FP8_CAPABILITY = 8.9
LADDER_BOUND = 2e-2  # bf16 on two paths; the bound of the part `losses`


def needs_command(part, *words):
    """Raises Failed if the program does not have this command."""
    done = subprocess.run([places.program("bin/trireme"), *words, "--help"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, check=False, env=places.environment())
    part.check(done.returncode == 0, f"this trireme has no command `{' '.join(words)}`: build and pack a revision that has it "
               f"(exit code {done.returncode}: {done.stderr.decode(errors='replace').strip()[-300:]})")


def capability():
    """Returns the compute capability that nvidia-smi reports, such as 9.0; None without nvidia-smi."""
    try:
        asked = subprocess.run(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, timeout=places.DEVICE_LIMIT_S, check=True)
        return float(asked.stdout.decode().splitlines()[0])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None


def architecture(value):
    """Returns the name that NVRTC uses for a compute capability: sm_80, and from 9.0 on with the instructions of that device only: sm_90a."""
    number = round(10 * value)
    return f"sm_{number}{'a' if number >= 90 else ''}"


def kernels(part):
    """Compiles every kernel for the architecture of the device, and compares each one with its plain path."""
    needs_command(part, "kernels")
    own = capability() if part.device == "cuda" else None
    arch = architecture(own) if own else REHEARSED_ARCH
    rows = json.loads(part.trireme("kernels", "--arch", arch, "--json"))["kernels"]
    part.note(arch=arch, kernels=rows)
    check_kernels(part, rows)
    if part.device == "cuda":
        run_google_test(part, "tests/gpu_gpu_test", KERNEL_TESTS)


def check_kernels(part, rows):
    part.check(rows, "`trireme kernels` lists no kernel")
    empty = [row["name"] for row in rows if row["cubin_bytes"] <= 0]
    spilled = [row["name"] for row in rows if row["spill_bytes"] > 0]
    part.check(not empty, f"kernels that were not compiled: {', '.join(empty)}")
    part.check(not spilled, f"kernels that spill registers to memory: {', '.join(spilled)}")


def sync(part):
    """Runs training steps in the mode that throws at each synchronizing call."""
    run_google_test(part, "tests/gpu_gpu_test", SYNC_TESTS)


def write_toml(path, values):
    """Writes {"train.steps": 3} as TOML with one section for each first word."""
    sections = {}
    for key, value in values.items():
        section, name = key.split(".", 1)
        text = value if isinstance(value, (int, float)) or value in ("true", "false") else json.dumps(value)
        sections.setdefault(section, []).append(f"{name} = {text}")
    with open(path, "w", encoding="utf-8") as file:
        for section, lines in sections.items():
            file.write(f"[{section}]\n" + "\n".join(lines) + "\n\n")


def ladder(part):
    """Times training steps with each fast path off in turn."""
    needs_command(part, "bench", "ladder")
    sizes = {"model.preset": "minimind-1024x16", "model.vocab_size": 6400, "train.seq_len": 512, "train.micro_batch": 32} if not part.small else {
        "model.preset": "minimind-3", "model.hidden_size": 64, "model.num_layers": 2, "model.num_heads": 4, "model.num_kv_heads": 2, "model.vocab_size": 600,
        "train.seq_len": 64, "train.micro_batch": 2}
    config = part.path("ladder.toml")
    write_toml(config, {**sizes, "model.max_seq_len": sizes["train.seq_len"], "train.global_batch": sizes["train.micro_batch"],
                        "train.precision": "bf16", "train.device": part.device})
    rungs = json.loads(part.trireme("bench", "ladder", "--config", config, "--json"))["rungs"]
    part.note(rungs=rungs)
    check_rungs(part, rungs)


def check_rungs(part, rungs):
    part.check(len(rungs) > 1, f"the ladder has {len(rungs)} rungs, must have at least two")
    wrong = [rung["off"] for rung in rungs if not (rung["step_time_s"] > 0 and abs(rung["loss_delta"]) <= LADDER_BOUND)]
    part.check(not wrong, f"rungs without a step time or with another loss (difference over {LADDER_BOUND}): {wrong}")


def fp8_values(part):
    sizes = {"model.preset": "minimind-3", "model.hidden_size": 128, "model.num_layers": 2, "model.num_heads": 4, "model.num_kv_heads": 2,
             "model.intermediate_size": 256, "model.max_seq_len": 128, "train.seq_len": 128, "train.micro_batch": 2} if part.small else {
        "model.preset": "minimind-1024x16", "model.max_seq_len": 512, "train.seq_len": 512, "train.micro_batch": 32}
    return {**sizes, "model.vocab_size": 6400, "train.global_batch": sizes["train.micro_batch"], "train.precision": "bf16", "train.log_every": 0,
            "optim.lr": 3e-4, "optim.schedule": "constant", "optim.warmup_steps": 0, "train.steps": 6 if part.small else 30}


def refused(part, packed, values):
    """Checks that a device without fp8 refuses it, and skips the part."""
    done = subprocess.run([places.program("bin/trireme"), "pretrain", "--data", packed, "--run", part.path("refused"), "--train.device", part.device,
                           *map(str, keys({**values, "train.fp8": "tensorwise"}))], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, check=False, env=places.environment())
    text = done.stderr.decode(errors="replace")
    part.check(done.returncode == 2 and "needs a GPU of compute capability 8.9" in text,
               f"train.fp8 on a device without fp8 ended with exit code {done.returncode}, must be 2 with a clear message: {text[-500:]}")
    raise Skipped("this device has no fp8 products; the program refused train.fp8 with exit code 2, as it must")


def first_loss(part, packed, values, device, mode):
    run = part.path(f"first_{device}_{mode}")
    part.trireme("pretrain", "--data", packed, "--run", run, "--train.device", device, *keys({**values, "train.fp8": mode, "train.steps": 1}))
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        return next(line["loss"] for line in map(json.loads, file) if "loss" in line)


def fp8(part):
    """Compares fp8 with bf16: losses, step time and memory. On a GPU, the first loss must also be that of the CPU's reference."""
    values = fp8_values(part)
    packed = inputs.one_document_set(part, values["train.seq_len"])
    part.note(keys=values, bound=FP8_BOUND)
    own = capability() if part.device == "cuda" else None
    if own is not None and own < FP8_CAPABILITY:
        refused(part, packed, values)
    small = {**values, "train.micro_batch": 1, "train.global_batch": 1, "model.num_layers": 2}
    results = {}
    for mode in ("off", *FP8_MODES):
        if part.device == "cuda" and mode != "off":
            pair = {device: first_loss(part, packed, small, device, mode) for device in ("cpu", "cuda")}
            part.note(**{f"first_loss_{mode}": pair})
            apart = distance([pair["cuda"]], [pair["cpu"]])
            part.check(apart <= FP8_FIRST_BOUND, f"fp8 {mode}: the first loss is {pair['cuda']}, the CPU's reference {pair['cpu']}: relative difference "
                       f"{apart:.1e}, at most {FP8_FIRST_BOUND}")
        result = ours(part, packed, {**values, "train.fp8": mode})
        results[mode] = {"losses": result["losses"], "step_time_s": statistics.median(result["step_time_s"]),
                         "peak_memory_bytes": result["peak_memory_bytes"]}
        part.note(modes=results)
        check_fp8(part, mode, results)


def check_fp8(part, mode, results):
    apart = distance(results[mode]["losses"], results["off"]["losses"])
    results[mode].update(loss_distance=apart, speed_ratio=results["off"]["step_time_s"] / results[mode]["step_time_s"])
    part.note(modes=results)
    part.check(apart <= FP8_BOUND, f"fp8 {mode}: losses differ by {apart:.1e} from bf16, at most {FP8_BOUND}")
    part.check(mode == "off" or results[mode]["losses"] != results["off"]["losses"], f"fp8 {mode} has the losses of bf16, so it was not used")
