#!/usr/bin/env python3
"""Prints facts that Python's torch knows, as one line of JSON.

usage: torch_report.py versions
       torch_report.py ceilings cuda|cpu

ceilings: the rate of a large matrix product on random data and of a large copy, which bound what any program reaches (cpu: small sizes, to
rehearse this script).
"""
import json
import statistics
import sys
import time

import torch

WARMUP, REPEATS = 3, 10


def versions():
    cuda = torch.cuda.is_available()
    return {"torch": torch.__version__, "torch_cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
            "nccl": ".".join(map(str, torch.cuda.nccl.version())) if cuda else None, "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "torch_sees_device": cuda}


def seconds(call, device):
    """Returns the median time of one call, after the warm-up."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    times = []
    for _ in range(WARMUP + REPEATS):
        wait()
        begin = time.perf_counter()
        call()
        wait()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[WARMUP:])


def ceilings(device):
    """Products take milliseconds and copies too, so that the launch and the clock do not count."""
    size, numbers = (8192, 2**29) if device == "cuda" else (256, 2**20)
    result = {"matmul_size": size, "copied_bytes": 4 * numbers}
    for name, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
        result[f"matmul_{name}_flops"] = 2 * size**3 / seconds(lambda: a @ b, device)
    source = torch.randn(numbers, device=device)
    target = torch.empty_like(source)
    result["copy_bytes_per_s"] = 2 * 4 * numbers / seconds(lambda: target.copy_(source), device)
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        result.update(multiprocessors=properties.multi_processor_count, memory_bytes=properties.total_memory, capability=f"{properties.major}.{properties.minor}")
    return result


if __name__ == "__main__":
    print(json.dumps(versions() if sys.argv[1] == "versions" else ceilings(sys.argv[2])))
