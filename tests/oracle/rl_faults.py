#!/usr/bin/env python3
"""Runs `trireme rl` with reward programs and tool programs that fail, and with hostile prompts and models.

usage: rl_faults.py TRIREME TRIREME_DATA MPIEXEC [--all]

A program that hangs, dies or writes a wrong line must end the run in time with one error, with the documented exit code and with the
checkpoint of the step before. Then the same command must resume and finish. A prompt over the limit is one error before the first
step. Slow rewards are no hang. An answer without text gets its rewards. Without --all, not every failure is tried with every kind of program. Exits with 1 and prints every difference.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time

import rl
from agents import SETTINGS, Setup
from post_training import OPTIM, call, keys_of, write_lines

# Answers each line, and fails in the second update while the file `marker` exists. Reads the failure from its arguments.
PROGRAM = """
import json, os, sys, time
marker, failure, answer = sys.argv[1:]
for number, line in enumerate(sys.stdin):
    if os.path.exists(marker) and json.loads(line).get('fail', number >= FIRST):
        if failure == 'hang': time.sleep(1000)
        if failure == 'die': sys.exit('out of luck')
        print({'nan': 'NaN', 'garbage': 'no JSON'}[failure], flush=True)
    print(answer, flush=True)
"""
# Answers each call, and sends SIGTERM to the program that started it in the second rollout while the file `marker` exists.
STOPPING_PROGRAM = """
import json, os, signal, sys
marker, rollouts = sys.argv[1:]
parent = os.getppid()
while open(f'/proc/{parent}/comm').read().strip() != 'trireme':
    parent = int(open(f'/proc/{parent}/stat').read().rpartition(')')[2].split()[1])
for line in sys.stdin:
    if os.path.exists(marker) and os.path.exists(f'{rollouts}/step-000000001.jsonl'):
        os.kill(parent, signal.SIGTERM)
    print('{"result":"7"}', flush=True)
"""
EXIT_USAGE, EXIT_DATA, EXIT_RESOURCE, EXIT_STOPPED = 2, 3, 4, 75


def read_text(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class Faults:
    def __init__(self, setup, mpiexec):
        self.setup, self.mpiexec, self.wrong = setup, mpiexec, 0

    def expect(self, name, condition, output):
        if not condition:
            self.wrong += 1
            print(f"{name}: not as expected\n{output}")

    def run(self, command, faults=None):
        begin = time.monotonic()
        ended = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
                               check=False, env={**os.environ, **(faults or {})})
        return ended.returncode, ended.stdout, time.monotonic() - begin

    def ranks(self, count, command):
        return [self.mpiexec, "--oversubscribe", "--bind-to", "none", "-n", count] + command

    def check_program(self, key, failure, code, ranks=1):
        name = f"{key} {failure} {ranks}"
        marker, program = self.setup.path(f"{name}.marker"), self.setup.path(f"{name}.py")
        answers = SETTINGS["rl.group"] * SETTINGS["train.global_batch"] // ranks
        first = answers if key == "rl.reward_command" else 1
        with open(program, "w", encoding="utf-8") as file:
            file.write(PROGRAM.replace("FIRST", str(first)))
        open(marker, "w", encoding="utf-8").close()
        answer = "0.5" if key == "rl.reward_command" else '{"result":"7"}'
        keys = {key: f"'{sys.executable}' '{program}' '{marker}' {failure} '{answer}'", "rl.reward_timeout_s": 2, "checkpoint.every": 1,
                "train.steps": 2, "train.micro_batch": 1}
        keys |= {"rl.rewards": "command=1"} if key == "rl.reward_command" else {"rl.tools": ""}
        command = self.setup.command(name, keys)
        if ranks > 1:
            command = self.ranks(ranks, command)
        ended, output, seconds = self.run(command)
        errors = [line for line in output.splitlines() if "trireme: error" in line or " error " in line]
        self.expect(f"{name} (exit {ended} after {seconds:.0f} s)", ended == code and seconds < 60 and len(errors) == 1 and key in output, output)
        if failure == "die":
            self.expect(f"{name}: standard error", "out of luck" in output, output)
        os.remove(marker)
        call(command)
        metrics, rollouts = rl.read_run(self.setup.path(name))
        self.expect(f"{name}: resume", len(metrics) == 2 and len(rollouts) == 2 * SETTINGS["rl.group"] * SETTINGS["train.global_batch"], metrics)
        if key == "rl.reward_command":  # the first step succeeded before the failure
            self.expect(f"{name}: checkpoint", "step-000000001" in output, output)

    def check_stop(self, ranks):
        """A stop in a rollout ends the run before the rollout is complete, and a resumed run equals one without a stop."""
        chains = []
        for name in (f"stopped {ranks}", f"undisturbed {ranks}"):
            marker, program = self.setup.path(f"{name}.marker"), self.setup.path(f"{name}.py")
            with open(program, "w", encoding="utf-8") as file:
                file.write(STOPPING_PROGRAM)
            rollouts = os.path.join(self.setup.path(name), "rollouts")
            command = self.ranks(ranks, self.setup.command(
                name, {"rl.tools": "", "rl.tool_command": f"'{sys.executable}' '{program}' '{marker}' '{rollouts}'", "train.micro_batch": 1}))
            if name.startswith("stopped"):
                open(marker, "w", encoding="utf-8").close()
                ended, output, _ = self.run(command)
                self.expect(f"{name} (exit {ended})", ended == EXIT_STOPPED and "SIGTERM" in output and "step-000000001" in output
                            and len(os.listdir(rollouts)) == 1, output)
                os.remove(marker)
            call(command)
            with open(os.path.join(self.setup.path(name), "chain.txt"), encoding="utf-8") as file:
                chains.append(file.read())
        self.expect(f"{ranks} ranks: resume after a stop", chains[0] == chains[1] != "", chains)

    def check_kept_rollouts(self):
        """A checkpoint within a rollout keeps the file of this rollout, so that a killed run resumes from it, and a new run continues from it.
        A rollout serves four steps, and rl.keep_rollouts keeps the newest file only."""
        path, chain_of = self.setup.path, lambda name: read_text(os.path.join(self.setup.path(name), "chain.txt"))
        keys = {"rl.updates": 2, "rl.mini_batch": 3, "rl.keep_rollouts": 1, "train.micro_batch": 1, "train.steps": 0, "train.epochs": 0.5, "checkpoint.every": 5}
        for name, more in (("unkilled", {}), ("killed", {}), ("killed async", {"checkpoint.async": "true"})):
            command = self.setup.command(name, {**keys, **more})
            if name != "unkilled":
                ended, output, _ = self.run(command, {"TRIREME_FAULT": "train.step:0:10:kill9", "TRIREME_ALLOW_FAULTS": "1"})
                self.expect(f"{name} (exit {ended})", ended == -9, output)
            ended, output, _ = self.run(command)
            files = sorted(os.listdir(os.path.join(path(name), "rollouts")))
            self.expect(f"{name}: files of the checkpoints 5 and 10 ({files}, exit {ended})",
                        ended == 0 and files == ["step-000000005.jsonl", "step-000000009.jsonl"], output)
            self.expect(f"{name}: step hashes", chain_of(name) == chain_of("unkilled") != "", output)
        branch = lambda name, step: [self.setup.trireme, "rl", "--resume", path(f"killed/checkpoints/step-{step:09}"), "--run", path(name)]
        ended, output, _ = self.run(self.ranks(2, branch("branch", 5) + ["--parallel.tp", "2", "--train.steps", "6"]))
        self.expect(f"a new run on two ranks (exit {ended})", ended == 0 and os.listdir(path("branch/rollouts")) == ["step-000000005.jsonl"] and
                    read_text(path("branch/rollouts/step-000000005.jsonl")) == read_text(path("killed/rollouts/step-000000005.jsonl")), output)
        for step in (5, 10):
            ended, output, _ = self.run(branch(f"branch {step}", step))
            self.expect(f"a new run from step {step} (exit {ended})", ended == 0 and chain_of(f"branch {step}").splitlines()[-1] ==
                        chain_of("unkilled").splitlines()[-1], output)
        os.remove(path("killed/rollouts/step-000000005.jsonl"))
        ended, output, _ = self.run(branch("lost", 5))
        self.expect(f"lost answers (exit {ended})", ended == EXIT_DATA and output.count("trireme: error") == 1 and not os.path.exists(
            path("lost/rollouts")) and "killed/rollouts/step-000000005.jsonl is missing" in output and ": step 4, step 8, or" in output, output)
        ended, output, _ = self.run(branch("lost", 10))
        self.expect(f"the same new run from another checkpoint (exit {ended})", ended == 0, output)

    def check_slow(self):
        """Rewards of a rollout may take longer than train.comm_timeout_s if no single answer does."""
        answers = SETTINGS["rl.group"] * SETTINGS["train.global_batch"] // 2
        slow = f"while read -r line; do sleep {5 / answers:.2f}; echo 0.5; done"
        ended, output, seconds = self.run(self.ranks(2, self.setup.command("slow", {
            "rl.tools": "", "rl.rewards": "command=1", "rl.reward_command": slow, "rl.reward_timeout_s": 2, "train.comm_timeout_s": 3,
            "train.micro_batch": 1, "train.steps": 1})))
        self.expect(f"slow rewards (exit {ended} after {seconds:.0f} s)", ended == 0 and seconds > 5, output)

    def check_limits(self):
        ended, output, _ = self.run(self.setup.command("long", {"rl.max_total_tokens": 40}))
        self.expect("a prompt over the limit", ended == EXIT_USAGE and output.count("error") == 1 and "rl.max_total_tokens is 40" in output
                    and not os.path.exists(self.setup.path("long")), output)
        patient = self.setup.command("patient", {"rl.rewards": "command=1", "rl.reward_command": "cat", "train.micro_batch": 1,
                                                 "rl.reward_timeout_s": 600})
        ended, output, _ = self.run(self.ranks(2, patient))
        self.expect("a time limit that other ranks do not wait for", ended == 2 and output.count("error") == 1 and
                    "train.comm_timeout_s = 600" in output, output)
        for name, keys in (("two kinds", {"rl.tool_command": "cat"}), ("no table", {"rl.tools": self.setup.path("chats.jsonl")})):
            ended, output, _ = self.run(self.setup.command(name, keys))
            self.expect(name, ended in (2, EXIT_DATA) and output.count("trireme: error") == 1 and not os.path.exists(self.setup.path(name)),
                        output)

    def check_empty(self):
        """A model that has learned to answer nothing."""
        path, trireme = self.setup.path, self.setup.trireme
        write_lines(path("empty.jsonl"), [{"conversations": [{"role": "user", "content": f"{a} + {b} ?"}, {"role": "assistant", "content": ""}]}
                                          for a in range(1, 10) for b in range(1, 10)])
        call([self.setup.data, "pack", "--kind", "sft", "--tokenizer", path("tokenizer"), "--input", path("empty.jsonl"), "--seq-len", 112,
              "--output", path("empty"), "--template-file", path("chat.jinja")])
        call([trireme, "sft", "--init", self.setup.start, "--data", path("empty"), "--run", path("silent"), "--train.steps", 30] +
             keys_of({**OPTIM, "train.precision": "fp32", "train.global_batch": 4}))
        self.setup.start = path("silent")
        call(self.setup.command("nothing", {"rl.rewards": "gt=1,tools=1,tags=1,length=1,thinking=1,repetition=1", "train.steps": 1}))
        answers = [a for a in rl.read_run(path("nothing"))[1] if a["text"] == ""]
        wanted = {"gt": 0, "tools": 0, "tags": 0, "length": -0.5, "thinking": 0, "repetition": 0}
        self.expect("empty answers", len(answers) > 3 and all(a["rewards"] == wanted and len(a["completion_ids"]) == 1 and a["mask"] == [1]
                                                              and a["finish"] == "stop" for a in answers), answers)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trireme")
    parser.add_argument("trireme_data")
    parser.add_argument("mpiexec")
    parser.add_argument("--all", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        faults = Faults(Setup(args.trireme, args.trireme_data, work, 80), args.mpiexec)
        for key, failure, code, always in (("rl.reward_command", "hang", EXIT_RESOURCE, False), ("rl.reward_command", "die", EXIT_DATA, False),
                                           ("rl.reward_command", "nan", EXIT_DATA, True), ("rl.tool_command", "hang", EXIT_RESOURCE, False),
                                           ("rl.tool_command", "die", EXIT_DATA, True), ("rl.tool_command", "garbage", EXIT_DATA, True)):
            if always or args.all:
                faults.check_program(key, failure, code)
        faults.check_program("rl.reward_command", "hang", EXIT_RESOURCE, ranks=2)
        for ranks in (1, 2) if args.all else (2,):
            faults.check_stop(ranks)
        faults.check_kept_rollouts()
        faults.check_slow()
        faults.check_limits()
        faults.check_empty()
    sys.exit(1 if faults.wrong else 0)


if __name__ == "__main__":
    main()
