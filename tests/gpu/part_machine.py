"""The parts that look at the machine: libraries, device, NCCL and the GoogleTest programs of this directory."""
import json
import os
import platform
import re

import places

SYSTEM_LIBRARIES = re.compile(r"^(ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libresolv|libutil|libanl|libnsl|libmvec|linux-vdso)\.so")
HERE = os.path.dirname(os.path.abspath(__file__))
# Names in gpu_test.cpp: the parts `kernels` and `sync` run these tests, and the part gpu_tests the others.
KERNEL_TESTS, SYNC_TESTS = "*Kernel*", "*Sync*"


def resolved(part, program):
    """{library: its path as the loader names it, or None} of a program and all that it loads."""
    found = {}
    for line in part.run(["ldd", program], codes=(0, 1)).splitlines():
        if match := re.match(r"\s*(\S+) => (not found|\S+)", line):
            found[os.path.basename(match[1])] = None if match[2] == "not found" else os.path.normpath(match[2])
    return found


def foreign(libraries):
    """Libraries of a bundle's program that are neither the system's C library, nor LibTorch's, nor the bundle's."""
    torch = places.torch_directory()
    allowed = [os.path.join(folder, "") for own in (os.path.join(places.ROOT, "lib"), os.path.dirname(torch), os.path.dirname(os.path.realpath(torch)))
               for folder in (own, os.path.realpath(own))]
    return sorted(path for name, path in libraries.items() if path and not SYSTEM_LIBRARIES.match(name)
                  and not any(form.startswith(folder) for form in (path, os.path.realpath(path)) for folder in allowed))


def libraries(part):
    """Checks that all libraries of all programs are found, the programs start, MPI starts in a
    process without a launcher, and HDF5 writes."""
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
    note_torch(part, "versions")


def note_torch(part, *words):
    """Notes what torch_report.py prints; a line that says so if no Python has torch."""
    python, _ = places.python_with_torch()
    if python is None:
        part.note(torch="no python3 with torch is here")
        return
    part.note(**json.loads(part.run([python, os.path.join(HERE, "torch_report.py"), *words], **plain_environment()).splitlines()[-1]))


def plain_environment():
    """Python's torch brings its own libraries: it gets the search path that the user had."""
    return {"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown")


def device(part):
    """Notes facts and upper limits of the GPU: nvidia-smi, `trireme doctor`, a bf16 and an fp32
    matrix product, a copy."""
    part.note(gpus=places.device_lines())
    report = part.trireme("doctor", "--json", codes=(0, 1, 2, 3, 4, 5))
    part.note(doctor=json.loads(report))
    note_torch(part, "ceilings", "cuda")


def run_google_test(part, program, names="*"):
    """Runs the tests of a GoogleTest program with these names (a filter of GoogleTest), and notes the result of each one."""
    report = part.path("report.json")
    out = part.run([places.program(program), f"--gtest_output=json:{report}", f"--gtest_filter={names}"], codes=(0, 1))
    part.check(os.path.exists(report), f"{program} left no report: {out[-800:]}")
    results = test_results(report)
    part.note(tests=results, skipped_tests=[name for name, result in results.items() if result["skipped"]])
    part.check(results, f"{program} has no test with a name like {names}: build and pack a revision that has one")
    check_results(part, results)


def check_results(part, results):
    """Checks that no test failed and, on a GPU, that each suite has a test that was not skipped."""
    failed = [name for name, result in results.items() if not result["passed"] and not result["skipped"]]
    part.check(not failed, f"{len(failed)} of {len(results)} tests failed: " + "; ".join(f"{name}: {results[name]['failures'][0][:400]}" for name in failed))
    if part.device == "cpu":
        return
    suites = {suite_of(name) for name in results}
    skipped = sorted(suites - {suite_of(name) for name, result in results.items() if result["passed"]})
    part.check(not skipped, f"all tests of these suites were skipped although a device is here: {', '.join(skipped)}")


def suite_of(test):
    return test.rsplit(".", 1)[0]


def test_results(report):
    """{"Suite.Test": {"passed": bool, "skipped": bool, "seconds": s, "failures": [...]}}. A test that calls GTEST_SKIP has the status RUN and the
    result SKIPPED."""
    with open(report, encoding="utf-8") as file:
        suites = json.load(file)["testsuites"]
    return {f"{suite['name']}.{test['name']}": result_of(test) for suite in suites for test in suite["testsuite"]}


def result_of(test):
    failures = [failure["failure"][:800] for failure in test.get("failures", [])]
    completed, skipped = (test.get("result") == result and not failures for result in ("COMPLETED", "SKIPPED"))
    if not completed and not skipped and not failures:
        failures = [f"did not run: status {test.get('status')}, result {test.get('result')}"]
    return {"passed": completed, "skipped": skipped, "seconds": float(test["time"].rstrip("s")), "failures": failures}


def nccl(part):
    """Checks a real NCCL communicator of one rank, and the backend's world of one rank."""
    run_google_test(part, "tests/gpu_nccl_test")


def gpu_tests(part):
    """tests/gpu/gpu_test.cpp: training, resume and generation as a user starts them."""
    run_google_test(part, "tests/gpu_gpu_test", f"-{KERNEL_TESTS}:{SYNC_TESTS}")
