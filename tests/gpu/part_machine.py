"""The parts that look at the machine: libraries, device, NCCL and the GoogleTest programs of this directory."""
import json
import os
import platform
import re

import places

SYSTEM_LIBRARIES = re.compile(r"^(ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libresolv|libutil|libanl|libnsl|libmvec|linux-vdso)\.so")
TORCH_REPORT = """
import json, torch
cuda = torch.cuda.is_available()
print(json.dumps({"torch": torch.__version__, "torch_cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
                  "nccl": ".".join(map(str, torch.cuda.nccl.version())) if cuda else None, "cpu_capability": torch.backends.cpu.get_cpu_capability(),
                  "torch_sees_device": cuda}))
"""
SPEED_REPORT = """
import json, statistics, torch
device = torch.device("cuda")
def milliseconds(call, repeats=20):
    for _ in range(3): call()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record(); call(); end.record(); end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)
N = 8192
flops = {}
for name, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
    a, b = (torch.randn(N, N, device=device, dtype=dtype) for _ in range(2))
    flops[name] = 2 * N**3 / (milliseconds(lambda: a @ b, 5 if dtype == torch.float32 else 20) * 1e-3)
source = torch.randn(2**29, device=device)
copy = torch.empty_like(source)
properties = torch.cuda.get_device_properties(device)
print(json.dumps({"matmul_8192_flops": flops, "copy_bytes_per_s": 2 * source.nbytes / (milliseconds(lambda: copy.copy_(source)) * 1e-3),
                  "multiprocessors": properties.multi_processor_count, "memory_bytes": properties.total_memory,
                  "capability": f"{properties.major}.{properties.minor}"}))
"""


def resolved(part, program):
    """{library: path or None} of a program and all that it loads."""
    found = {}
    for line in part.run(["ldd", program], codes=(0, 1)).splitlines():
        if match := re.match(r"\s*(\S+) => (not found|\S+)", line):
            found[os.path.basename(match[1])] = None if match[2] == "not found" else os.path.realpath(match[2])
    return found


def foreign(libraries):
    """Libraries of a bundle's program that are neither the system's C library, nor LibTorch's, nor the bundle's."""
    allowed = (os.path.join(places.ROOT, "lib"), os.path.dirname(os.path.realpath(places.torch_directory())))
    return sorted(path for name, path in libraries.items() if path and not SYSTEM_LIBRARIES.match(name) and not path.startswith(allowed))


def libraries(part):
    """All libraries of all programs are found, the programs start, MPI starts in a process alone, and HDF5 writes."""
    part.note(python=platform.python_version(), libc=" ".join(platform.libc_ver()), system=platform.platform(), cpus=os.cpu_count(), cpu=cpu_model(),
              bundle=places.is_bundle())
    part.note(torch_directory=places.torch_directory())
    missing, outside = {}, {}
    for name in places.PROGRAMS:
        found = resolved(part, places.program(name))
        missing[name] = sorted(library for library, path in found.items() if path is None)
        if places.is_bundle():
            outside[name] = foreign(found)
    part.note(missing={name: names for name, names in missing.items() if names}, from_the_system={name: names for name, names in outside.items() if names})
    part.check(not part.figures["missing"], f"libraries that are not found: {part.figures['missing']}")
    part.check(not part.figures["from_the_system"], f"libraries that should come from the bundle: {part.figures['from_the_system']}")
    part.note(version=part.trireme("--version").splitlines())
    part.trireme_data("--version")
    # This program calls MPI_Init in a process that no launcher started, and writes and reads HDF5 files.
    part.run([places.program("bench/checkpoint_bench"), part.path("checkpoint"), "8", "1"])
    part.note(mpi_singleton="started", hdf5="written and read")
    python, _ = places.python_with_torch()
    if python is None:
        part.note(torch=None)
        return
    part.note(**json.loads(part.run([python, "-c", TORCH_REPORT], **plain_environment()).splitlines()[-1]))


def plain_environment():
    """Python's torch brings its own libraries: it gets the search path that the user had."""
    return {"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown")


def device(part):
    """Facts and ceilings of the GPU: nvidia-smi, `trireme doctor`, a bf16 and an fp32 matrix product, a copy."""
    part.note(gpus=places.device_lines())
    report = part.trireme("doctor", "--json", codes=(0, 1, 4))
    part.note(doctor=json.loads(report))
    python, _ = places.python_with_torch()
    if python is not None:
        part.note(**json.loads(part.run([python, "-c", SPEED_REPORT], **plain_environment()).splitlines()[-1]))


def google_test(part, program):
    """Runs a GoogleTest program and notes the result of each of its tests."""
    report = part.path("report.json")
    try:
        part.run([places.program(program), f"--gtest_output=json:{report}"])
    finally:
        if os.path.exists(report):
            part.note(tests=test_results(report))
    part.check(part.figures.get("tests"), f"{program} ran no test")


def test_results(report):
    """{"Suite.Test": {"passed": bool, "seconds": s, "failures": [...]}}"""
    with open(report, encoding="utf-8") as file:
        suites = json.load(file)["testsuites"]
    return {f"{suite['name']}.{test['name']}": {"passed": test["status"] == "RUN" and not test.get("failures"), "seconds": float(test["time"].rstrip("s")),
                                                "failures": [failure["failure"][:800] for failure in test.get("failures", [])]}
            for suite in suites for test in suite["testsuite"]}


def nccl(part):
    """A real NCCL communicator of one rank, and the backend's world of one rank."""
    google_test(part, "tests/gpu_nccl_test")


def gpu_tests(part):
    """tests/gpu/gpu_test.cpp: training, resume and generation as a user starts them."""
    google_test(part, "tests/gpu_gpu_test")
