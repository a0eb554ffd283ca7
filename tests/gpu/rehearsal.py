#!/usr/bin/env python3
"""Rehearses tests/gpu/check without a GPU: packs the bundle, unpacks it in a root without Open MPI and HDF5, and runs all parts on the CPU.

usage: rehearsal.py [--only NAME,...] [--json FILE]

Exits 0 if the parts that need no GPU passed and those that need one say so, 1 if not, 77 if this machine cannot make such a root.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import bare_root
import driver
import parts
import places

BUDGET_S = 1500
HERE = os.path.dirname(os.path.abspath(__file__))


def wrong_statuses(document, names):
    """Yields a description of each wrong status."""
    gpu_only = {row.name for row in parts.TABLE if row.gpu_only}
    for entry in document["parts"]:
        wanted = (driver.SKIPPED, driver.NO_DEVICE) if entry["name"] in gpu_only else (driver.PASSED, None)
        if entry["status"] != wanted[0] or wanted[1] not in (None, entry["reason"]):
            yield f"{entry['name']}: {entry['status']}: {entry['reason']}"
    if [entry["name"] for entry in document["parts"]] != names:
        yield f"the document has not the parts {names}"


def rehearse(args, work):
    root = os.path.join(work, "root")
    archive = os.path.join(work, "bundle.tar.zst")
    subprocess.run([sys.executable, os.path.join(HERE, "check"), "bundle", archive], check=True)
    mounts, variables = bare_root.make(root)
    if found := bare_root.forbidden(root):
        print(f"the root has {found}: it is not bare", file=sys.stderr)
        return 1
    os.makedirs(f"{root}/opt")
    subprocess.run(["tar", "--zstd", "-xf", archive, "-C", f"{root}/opt"], check=True)
    command = ["/usr/bin/python3", "-B", "/opt/trireme-gpu-check/tests/gpu/check", "run", "--device", "cpu", "--budget", str(BUDGET_S), "--json", "/tmp/result.json"]
    code = bare_root.enter(root, mounts, variables, command + (["--only", args.only] if args.only else []))
    with open(f"{root}/tmp/result.json", encoding="utf-8") as file:
        document = json.load(file)
    if args.json:
        driver.write_atomic(os.path.abspath(args.json), document)
    wrong = list(wrong_statuses(document, [row.name for row in parts.TABLE if not args.only or row.name in args.only.split(",")]))
    for line in wrong:
        print(f"FAILED: {line}", file=sys.stderr)
    if code != document["exit_code"]:
        print(f"FAILED: exit code {code}, the document says {document['exit_code']}", file=sys.stderr)
    return 1 if wrong or code != 0 else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    args = parser.parse_args()
    if shutil.which("zstd") is None or places.is_bundle():
        print("SKIPPED: the rehearsal runs in a checkout, on a machine with zstd")
        return driver.EXIT_SKIPPED
    with tempfile.TemporaryDirectory(prefix="trireme-rehearsal-") as work:
        try:
            return rehearse(args, work)
        except bare_root.Unable as reason:
            print(f"SKIPPED: {reason}")
            return driver.EXIT_SKIPPED


if __name__ == "__main__":
    sys.exit(main())
