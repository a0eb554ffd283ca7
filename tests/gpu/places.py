"""Finds the programs, LibTorch and a Python with torch, in a checkout or in an unpacked bundle.

Both have the same layout: build/release/bin, build/release/tests, tests/gpu. A bundle also has lib (shared libraries), openmpi
(plug-ins and help texts) and bundle.json, which marks it.
"""
import ctypes
import glob
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, "build", "release")
PROGRAMS = ("bin/trireme", "bin/trireme-data", "tests/gpu_gpu_test", "tests/gpu_nccl_test", "tests/parity_driver", "bench/checkpoint_bench")
FIND_TORCH = "import importlib.util as i; s = i.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
TORCH_LIMIT_S = 60
DEVICE_LIMIT_S = 60


class Missing(Exception):
    """A program or library that must be here is not; the message says what to do."""


def is_bundle():
    return os.path.exists(os.path.join(ROOT, "bundle.json"))


def bundle_facts():
    """bundle.json as a dict: when, from which revision and on which system the bundle was packed. {} in a checkout."""
    if not is_bundle():
        return {}
    with open(os.path.join(ROOT, "bundle.json"), encoding="utf-8") as file:
        return json.load(file)


def program(name):
    """Returns the path of a program by its path below the build directory. Raises Missing if it
    was not built."""
    path = os.path.join(BUILD, name)
    if not os.access(path, os.X_OK):
        raise Missing(f"{path} is not there. " + ("Pack the bundle again." if is_bundle() else
                      "Build it: ninja -C build/release trireme trireme-data gpu_gpu_test gpu_nccl_test parity_driver checkpoint_bench"))
    return path


def torch_of(python):
    """Returns the directory of the torch package of this interpreter; "" if it has none. Does
    not import torch, which takes seconds."""
    try:
        found = subprocess.run([python, "-c", FIND_TORCH], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=TORCH_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.decode().strip() if found.returncode == 0 else ""


def python_with_torch():
    """(interpreter, its torch directory): the private environment of a checkout, then this interpreter, then python3; (None, "") if
    none of them has torch."""
    for python in (os.path.join(ROOT, ".deps", "python", "bin", "python"), sys.executable, "python3"):
        if torch := torch_of(python):
            return python, torch
    return None, ""


def torch_directory():
    """Returns the LibTorch that the programs load: TRIREME_TORCH_ROOT if set, otherwise that of
    python_with_torch. Raises Missing."""
    root = os.environ.get("TRIREME_TORCH_ROOT", "")
    for directory in (root, os.path.join(root, "torch")) if root else (python_with_torch()[1],):
        if directory and glob.glob(os.path.join(directory, "lib", "libtorch_cpu.so*")):
            return directory
    raise Missing(f"TRIREME_TORCH_ROOT is {root or 'not set'} and holds no LibTorch." if root else
                  "No LibTorch found: python3 has no module torch. Install torch==2.11.0, or set TRIREME_TORCH_ROOT to a wheel's torch directory.")


def torch_library_path(torch):
    """LD_LIBRARY_PATH for LibTorch and the CUDA libraries that its wheel depends on."""
    beside = os.path.join(os.path.dirname(os.path.realpath(torch)), "nvidia")
    return ":".join([os.path.join(torch, "lib"), *sorted(glob.glob(os.path.join(beside, "*", "lib")))])


def environment(**more):
    """Returns the environment of Trireme's programs. Outside a bundle they find their libraries
    by themselves."""
    result = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if is_bundle():
        openmpi = os.path.join(ROOT, "openmpi")
        given = os.environ.get("LD_LIBRARY_PATH", "")
        result["LD_LIBRARY_PATH"] = torch_library_path(torch_directory()) + (f":{given}" if given else "")
        result.update(OPAL_PREFIX=openmpi, OPAL_LIBDIR=os.path.join(ROOT, "lib"), OPAL_PKGLIBDIR=os.path.join(openmpi, "lib"),
                      OPAL_PKGDATADIR=os.path.join(openmpi, "share"), OPAL_SYSCONFDIR=os.path.join(openmpi, "etc"),
                      # MPI_Init in a process alone else starts a daemon, which needs ssh or rsh and a network interface.
                      OMPI_MCA_ess_singleton_isolated="1")
    result.update(more)
    return result


def count_devices():
    """Asks the CUDA driver: (number of visible GPUs, why there is none). Runs in a process of its own, because a broken driver can hang
    or crash."""
    command = [sys.executable, "-c", "import places; print(*places.ask_driver(), sep='|')"]
    try:
        asked = subprocess.run(command, cwd=os.path.dirname(os.path.abspath(__file__)), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               timeout=DEVICE_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return 0, f"the CUDA driver did not answer in {DEVICE_LIMIT_S} s"
    if asked.returncode != 0:
        return 0, f"asking the CUDA driver ended with {asked.returncode}: {asked.stderr.decode(errors='replace')[-300:]}"
    count, reason = asked.stdout.decode().strip().split("|", 1)
    return int(count), reason


def ask_driver():
    """count_devices in this process, through the driver API."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return 0, str(error)
    code = cuda.cuInit(0)
    if code != 0:
        return 0, f"cuInit returns error {code}"
    count = ctypes.c_int(0)
    code = cuda.cuDeviceGetCount(ctypes.byref(count))
    if code != 0:
        return 0, f"cuDeviceGetCount returns error {code}"
    return count.value, "" if count.value else "the driver shows no GPU (CUDA_VISIBLE_DEVICES)"


def device_lines():
    """Returns one dict per GPU as nvidia-smi reports it; [] if nvidia-smi is absent or fails."""
    fields = ("name", "driver_version", "memory.total", "power.limit", "clocks.sm", "clocks.max.sm", "temperature.gpu")
    try:
        asked = subprocess.run(["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, timeout=DEVICE_LIMIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [dict(zip(fields, (word.strip() for word in line.split(",")))) for line in asked.stdout.decode().splitlines() if line.strip()]
