"""Compares checkpoints with torch.distributed.checkpoint: the same tensors, two ranks, one disk,
in turns.

usage: compare_dcp.py BUILD DIR [--megabytes 512] [--pairs 3]

Every rank has the whole state (data parallelism); both programs share the writing among the
ranks. Loads are from disk: pages are dropped first, on both sides. Trireme verifies every byte;
the peer has no checksums. The stall of an asynchronous save is how long a rank cannot work: for
the peer the call of async_save; for Trireme its call, and the wait for the copy after half a
second or more of arithmetic, which simulates the next forward and backward pass. "extra" is all
time that the save adds to such work during it: stall, copy, and the write as far as it has come.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TENSOR_BYTES = 8 << 20


def drop_pages(folder):
    for path in pathlib.Path(folder).rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def peer(rank, folder, megabytes, repeats, port, results):
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    behind = dist.new_group(backend="gloo")  # async_save communicates in its own thread
    count = (megabytes << 20) // TENSOR_BYTES
    state = {f"t{i}": torch.arange(TENSOR_BYTES // 4, dtype=torch.float32).reshape(-1, 1024) + i for i in range(count)}

    def timed(work):
        dist.barrier()
        cpu = time.process_time()
        begin = time.perf_counter()
        out = work()
        seconds = torch.tensor([time.perf_counter() - begin])
        used = torch.tensor([time.process_time() - cpu])
        dist.all_reduce(seconds, dist.ReduceOp.MAX)
        dist.all_reduce(used)
        return seconds.item(), used.item(), out

    lines = {key: [] for key in ("save_s", "load_s", "stall_s", "extra_s", "save_cpu_s", "load_cpu_s")}
    matrix = torch.rand(256, 256)

    def work():
        for _ in range(rounds):
            matrix @ matrix

    rounds = 1000
    while timed(work)[0] < 0.5:
        rounds *= 2
    for repeat in range(repeats):
        place = f"{folder}/step{repeat}"
        seconds, cpu, _ = timed(lambda: dcp.save(state, checkpoint_id=place))
        lines["save_s"].append(seconds)
        lines["save_cpu_s"].append(cpu)
        for tensor in state.values():
            tensor.zero_()
        dist.barrier()
        drop_pages(place)
        seconds, cpu, _ = timed(lambda: dcp.load(state, checkpoint_id=place))
        lines["load_s"].append(seconds)
        lines["load_cpu_s"].append(cpu)
        assert state["t1"][0, 5].item() == 6

        def save_beside_work():
            begin = time.perf_counter()
            future = dcp.async_save(state, checkpoint_id=f"{place}-async", process_group=behind)
            blocked = time.perf_counter() - begin
            work()
            return future, blocked

        alone, _, _ = timed(work)
        seconds, _, (future, blocked) = timed(save_beside_work)
        blocked = torch.tensor([blocked])
        dist.all_reduce(blocked, dist.ReduceOp.MAX)
        lines["stall_s"].append(blocked.item())
        lines["extra_s"].append(seconds - alone)
        future.result()
        dist.barrier()
        if rank == 0:
            shutil.rmtree(place)
            shutil.rmtree(f"{place}-async")
        dist.barrier()
    if rank == 0:
        results.put(lines)
    dist.destroy_process_group()


def run_peer(folder, megabytes, repeats):
    import torch.multiprocessing as mp

    context = mp.get_context("spawn")
    results = context.Queue()
    port = 20000 + os.getpid() % 20000
    workers = [context.Process(target=peer, args=(r, folder, megabytes, repeats, port, results)) for r in range(2)]
    for worker in workers:
        worker.start()
    lines = results.get(timeout=300)
    for worker in workers:
        worker.join()
    return lines


def run_ours(build, folder, megabytes, repeats):
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2", f"{build}/bench/checkpoint_bench", folder]
    done = subprocess.run(command + [str(megabytes), str(repeats)], env=environment, capture_output=True, text=True, check=True, timeout=300)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("folder")
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    ratios = {"save": [], "load": [], "stall": [], "extra": [], "save_to_raw": [], "load_to_raw": []}
    for pair in range(options.pairs):
        with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
            load_before = os.getloadavg()[0]
            theirs = run_peer(f"{scratch}/peer", options.megabytes, options.repeats)
            ours = run_ours(options.build, f"{scratch}/ours", options.megabytes, options.repeats)
        mine = {"save": ours["save_s"], "load": ours["load_s"], "stall": ours["all_stall_s"], "extra": ours["all_step_extra_s"]}
        line = {"pair": pair, "load_average": load_before}
        for key in mine:
            a, b = statistics.median(mine[key]), statistics.median(theirs[f"{key}_s"])
            ratios[key].append(a / b if key in ("stall", "extra") else b / a)
            line[f"{key}_s"] = [round(a, 4), round(b, 4)]
        for key in ("save_to_raw", "load_to_raw"):
            ratios[key].append(ours[key])
            line[key] = round(ours[key], 2)
        line["save_cpu_s"] = [round(ours["save_cpu_s"], 2), round(statistics.mean(theirs["save_cpu_s"]), 2)]
        line["load_cpu_s"] = [round(ours["load_cpu_s"], 2), round(statistics.mean(theirs["load_cpu_s"]), 2)]
        print(json.dumps(line), flush=True)
    print(json.dumps({key: round(statistics.median(values), 3) for key, values in ratios.items()}))


if __name__ == "__main__":
    sys.exit(main())
