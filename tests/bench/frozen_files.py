#!/usr/bin/env python3
"""Measures step times while the file system of a run does not answer for 15 s. Needs root.

usage: frozen_files.py BUILD_DIR [--kinds ext4,fuse] [--ranks 2] [--seconds 15] [--repeats 3]

The run directory, the log and the textfile are on the file system. All sinks are on, with a line of metrics and of the log
for each step. The file system is frozen in one of two ways:

ext4  an ext4 image on a loop device, `fsfreeze --freeze`: writes wait, reads do not
fuse  a bindfs mount, SIGSTOP to bindfs: every call waits, like on a stopped NFS server

The script reads the step from /metrics over HTTP, which also shows that rank 0 answers while the file system is frozen. The
step times are `step_time_s` of metrics.jsonl. `before` and `after` last as long as the freeze. Prints for each run the number of
steps, the median, the mean and the largest step time of each part.
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
import urllib.request

from save_beside_steps import make_set

T = 128
KEYS = {"model.preset": "tiny", "model.hidden_size": 128, "model.num_layers": 4, "model.num_heads": 4, "model.num_kv_heads": 2,
        "model.head_dim": 32, "model.vocab_size": 600, "model.max_seq_len": T, "train.seq_len": T, "train.micro_batch": 2,
        "train.device": "cpu", "train.precision": "fp32", "train.threads": 1, "train.steps": 1000000, "checkpoint.every": 0,
        "train.log_every": 1, "metrics.tensorboard": "true", "metrics.wandb": "true", "metrics.per_rank": "true", "metrics.listen": ":0"}
WARM_STEPS = 20


def call(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


class Ext4:
    """An ext4 image on a loop device."""

    def __init__(self, work, mount):
        image = os.path.join(work, "image")
        with open(image, "wb") as file:
            file.truncate(512 << 20)
        call("mkfs.ext4", "-q", image)
        call("mount", "-o", "loop", image, mount)
        self.mount = mount

    def freeze(self):
        call("fsfreeze", "--freeze", self.mount)

    def thaw(self):
        call("fsfreeze", "--unfreeze", self.mount)

    def close(self):
        call("umount", "--lazy", self.mount)


class Fuse:
    """A bindfs mount of a directory."""

    def __init__(self, work, mount):
        below = os.path.join(work, "below")
        os.mkdir(below)
        self.process = subprocess.Popen(["bindfs", "-f", below, mount])
        while not os.path.ismount(mount):
            time.sleep(0.05)
        self.mount = mount

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def close(self):
        call("umount", "--lazy", self.mount)
        self.process.wait()


KINDS = {"ext4": Ext4, "fuse": Fuse}


class Run:
    """A run in a directory of the mount. `address`: its page /metrics, read before the freeze."""

    def __init__(self, args, packed, mount):
        self.folder = os.path.join(mount, "run")
        textfile = os.path.join(mount, "textfile")
        os.mkdir(textfile)
        keys = {**KEYS, "data.path": packed, "train.global_batch": 2 * args.ranks, "metrics.textfile": textfile}
        command = [f"{args.build}/bin/trireme", "pretrain", "--run", self.folder]
        command += [str(word) for key, value in keys.items() for word in (f"--{key}", value)]
        # Each rank writes its log into the mount. The output of mpirun is elsewhere, because mpirun itself would wait.
        shell = f'exec "$@" 2>>{mount}/log.$OMPI_COMM_WORLD_RANK'
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")
        self.process = subprocess.Popen(["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(args.ranks), "sh", "-c", shell, "sh"] + command,
                                        env=environment, stdout=subprocess.DEVNULL)
        self.address = None

    def step(self):
        """Returns the newest step of /metrics; 0 before the first one."""
        if self.process.poll() is not None:
            raise SystemExit(f"the run has ended with {self.process.returncode}")
        try:
            if self.address is None:
                with open(os.path.join(self.folder, "prometheus_sd.json"), encoding="utf-8") as file:
                    self.address = json.load(file)[0]["targets"][0]
            with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=2) as page:
                lines = page.read().decode().splitlines()
        except (OSError, ValueError):
            return 0
        return next((int(float(line.split()[-1])) for line in lines if line.startswith("trireme_step{")), 0)

    def stop(self):
        with open(os.path.join(self.folder, "STOP"), "w", encoding="utf-8"):
            pass
        code = self.process.wait(timeout=300)
        if code not in (0, 75):
            raise SystemExit(f"the run has ended with {code}")

    def lines(self):
        with open(os.path.join(self.folder, "metrics.jsonl"), encoding="utf-8") as file:
            return [line for line in map(json.loads, file) if "step_time_s" in line]


def measure(args, kind, packed, work):
    mount = os.path.join(work, "mount")
    os.mkdir(mount)
    disk = KINDS[kind](work, mount)
    run = Run(args, packed, mount)
    try:
        while run.step() < WARM_STEPS:
            time.sleep(0.2)
        times = [time.time()]
        time.sleep(args.seconds)
        times.append(time.time())
        disk.freeze()
        frozen_from = run.step()
        try:
            time.sleep(args.seconds - 1)
            frozen_to = run.step()
            time.sleep(1)
        finally:
            disk.thaw()
        times.append(time.time())
        time.sleep(args.seconds)
        times.append(time.time())
        run.stop()
        lines = run.lines()
        with open(os.path.join(mount, "log.0"), encoding="utf-8") as file:
            warnings = [line for line in file if "[warn" in line]
    finally:
        run.process.terminate()
        disk.close()
    steps = [line["step"] for line in lines]
    if steps != list(range(1, len(steps) + 1)):
        raise SystemExit("metrics.jsonl does not have each step once")
    print(f"{kind}: /metrics went from step {frozen_from} to {frozen_to} while the file system was frozen; metrics.jsonl has all {len(steps)}"
          f" steps; {len(warnings)} warnings; load average {os.getloadavg()[0]:.1f}")
    for name, begin, end in zip(("before", "frozen", "after"), times, times[1:]):
        took = [1e3 * line["step_time_s"] for line in lines if begin <= line["time"] < end]
        print(f"  {name}: {len(took)} steps, median {statistics.median(took):.1f} ms, mean {statistics.mean(took):.1f} ms, largest {max(took):.1f} ms",
              flush=True)
    for line in warnings[:5]:
        print("  " + line.rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--kinds", default="ext4,fuse")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as data:
        packed = make_set(f"{args.build}/bin/trireme-data", data, 2000, T)
        for kind in args.kinds.split(","):
            for _ in range(args.repeats):
                with tempfile.TemporaryDirectory() as work:
                    measure(args, kind, packed, work)


if __name__ == "__main__":
    main()
