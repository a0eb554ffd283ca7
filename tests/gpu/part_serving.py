"""The parts that measure inference: decoding of batches, and the server under the load of tests/bench/compare_serve.py."""
import json
import os
import socket

import inputs
import places
import serve_load
from part import Failed, keys

BATCHES = (1, 8, 32, 64)
CLIENTS = (1, 8, 32)
GRAPHS_OFF = ("CUDA graphs for decoding are off", "decoding runs without CUDA graphs")


def model_run(part):
    """Returns a run with random weights after one step, made once for the parts of this file: minimind-1024x16, or a tiny model in a small
    rehearsal."""
    folder = os.path.join(part.work, "inputs", "serving")
    shape = {"model.preset": "minimind-3", "model.hidden_size": 64, "model.num_layers": 2, "model.num_heads": 4, "model.num_kv_heads": 2} if part.small else {
        "model.preset": "minimind-1024x16"}
    with inputs.made_once(folder) as new:
        if new:
            part.trireme("pretrain", "--data", inputs.pretrain_set(part), "--run", f"{new}/run", *keys(
                {**shape, "model.max_seq_len": 4096, "train.steps": 1, "train.micro_batch": 2, "train.global_batch": 2, "train.log_every": 0,
                 "train.device": part.device}))
    return os.path.join(folder, "run")


def decode(part):
    """Measures prefill and decoding in bf16 for several batch sizes, with CUDA graphs and without."""
    run, prompt, new = model_run(part), 32 if part.small else 512, 16 if part.small else 128
    for batch in BATCHES[:2] if part.small else BATCHES:
        for mode in ("true", "false"):
            text = part.trireme("bench", "generate", "--checkpoint", run, "--device", part.device, "--precision", "bf16", "--batch", batch,
                                "--prompt-tokens", prompt, "--new-tokens", new, "--repeats", 2, "--cuda-graph", mode, "--json")
            figures = json.loads(text)
            part.note(**{f"batch_{batch}" if mode == "true" else f"batch_{batch}_without_graphs": figures})
            part.check(figures["prefill_tokens_per_s"] > 0 and figures["decode_tokens_per_s"] > 0, f"batch {batch}: bench generate measured {figures}")
            check_launches(part, f"batch {batch}", mode == "true" and part.device == "cuda", figures["graph_launches"], part.log)


def check_launches(part, what, has_graphs, launches, log):
    """Checks that decoding steps were launched as CUDA graphs if graphs are possible, and only then. `log`: the program's messages."""
    if not has_graphs:
        part.check(launches == 0, f"{what}: {launches} decoding steps were launched as CUDA graphs, must be 0")
        return
    off = [line for line in log.splitlines() if any(text in line for text in GRAPHS_OFF)]
    part.check(not off, f"{what}: graphs were given up or were not possible: {off}")
    part.check(launches > 0, f"{what}: no decoding step was launched as a CUDA graph")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def serve(part):
    """Measures the server with 1, 8 and 32 clients."""
    run, port = model_run(part), free_port()
    command = [places.program("bin/trireme"), "serve", "--checkpoint", run, "--port", port, "--device", part.device, "--precision", "bf16", "--model-name", "it",
               "--cuda-graph", "true"]
    with open(part.path("serve.log"), "wb") as log:
        try:
            server = serve_load.Server(command, port, "it", wait_s=60, env=places.environment(**part.threads()), log=log)
        except serve_load.NoAnswer as error:
            log.flush()
            raise Failed(f"{error}: {end_of(part.path('serve.log'))}") from error
        try:
            for clients in CLIENTS[:2] if part.small else CLIENTS:
                figures = serve_load.measured(server, clients, 4 if part.small else max(16, 2 * clients))
                part.note(**{f"clients_{clients}": figures})
                part.check(figures["tokens_per_s"] > 0, f"{clients} clients: no token was served")
            launches = server.metric("trireme_graph_launches_total")
            part.note(graph_launches=launches)
            check_launches(part, "serve", part.device == "cuda", launches, all_of(part.path("serve.log")))
        except serve_load.NoAnswer as error:
            raise Failed(f"{error}: {end_of(part.path('serve.log'))}") from error
        finally:
            server.stop()


def all_of(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def end_of(path):
    return all_of(path)[-1000:]
