#!/usr/bin/env bash
# start_test.sh BIN_DIR: tests how a command starts under a real Slurm of two nodes without GPUs: in interactive shells, with a
# missing rank, without srun, with one srun too many, and with a run directory that only one node sees.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
source tests/support/shell.sh
bin=$(cd "$1" && pwd)
source tests/slurm/with_cluster.sh
export OMP_NUM_THREADS=1  # applies to programs without srun as well
export SHELL=/bin/bash  # salloc starts this shell; every login sets it, but the starter of a test may not

training() { # training RUN: the options of a short training
  printf '%s ' --data set --run "$1" --model.preset tiny --train.steps 2 --train.seq_len 64 --train.global_batch 8 --train.micro_batch 1
}

# Runs twelve commands in a row, with and without ranks, typed in a shell. Prints a line with the exit code of each.
# shellcheck disable=SC2016  # the variable is the typed script's
write_typed() {
  cat >"$work/typed.sh" <<EOF
run=\$1
say() { "\$@" </dev/null >>typed.log 2>&1 && printf 'code 0\n' || printf 'code %s of %s\n' "\$?" "\$*"; }
say $bin/trireme help
say $bin/trireme --version
say $bin/trireme-data inspect set
say $bin/trireme-data pack --help
say $bin/trireme pretrain $(training '$run')
say $bin/trireme checkpoint list \$run
say $bin/trireme checkpoint hash \$run
say $bin/trireme job watch \$run --once
say $bin/trireme checkpoint verify \$run
say $bin/trireme-data pack --kind pretrain --tokenizer tokenizer --input corpus.jsonl --seq-len 64 --output "\$run-set"
say mpirun --oversubscribe -n 2 $bin/trireme checkpoint hash \$run
say mpirun --oversubscribe -n 2 $bin/trireme pretrain $(training '$run-two')
EOF
}

# exec is needed: as the shell's child, timeout would be a background job of the terminal, which must not read it.
in_terminal() { script -qec "$(printf '%q ' exec timeout 300 "$cluster/on" ctl "$@")" /dev/null; }

expect_typed() { # expect_typed WHERE TEXT
  expect_equal "commands that ended well in $1" 12 "$(tr -d '\r' <<<"$2" | grep -c 'code 0$')"
  [[ $2 != *'code '[1-9]* ]] || broken "in $1: $(grep 'code [1-9]' <<<"$2"); $(tail -n 5 "$work/typed.log")"
}

set_mpi_default() { # set_mpi_default none|pmix
  sed -i "s/^MpiDefault=.*/MpiDefault=$1/" "$cluster/etc/slurm.conf"
  on scontrol reconfigure
}

any_number_of_commands_run_in_an_interactive_shell() {
  local mpi
  cd "$work"
  write_typed
  for mpi in none pmix; do
    set_mpi_default "$mpi"
    expect_typed "srun --pty bash, MpiDefault=$mpi" "$(in_terminal srun --cpus-per-task=2 --pty bash typed.sh "pty-$mpi")"
  done
  expect_typed "the shell of debug.sh" \
    "$(printf 'bash typed.sh debug\nexit\n' | in_terminal "$checkout/slurm/debug.sh" --cpus-per-task=2)"
  printf 'LaunchParameters=use_interactive_step\n' >>"$cluster/etc/slurm.conf"
  on scontrol reconfigure
  expect_typed "the interactive step of salloc" "$(printf 'bash typed.sh salloc\nexit\n' | in_terminal salloc --ntasks=2)"
  sed -i '/use_interactive_step/d' "$cluster/etc/slurm.conf"
  on scontrol reconfigure
  cd "$checkout"
}

a_step_within_a_step_and_one_program_of_two_tasks_work() {
  local text rc=0
  cd "$work"
  text=$(on srun --ntasks=1 --cpus-per-task=2 bash -c "srun --overlap $bin/trireme checkpoint hash pty-none; srun --overlap $bin/trireme checkpoint hash pty-none; $bin/trireme checkpoint hash pty-none")
  expect_equal "hashes with --overlap" 3 "$(grep -cE '^[0-9a-f]{64}' <<<"$text")"
  text=$(on srun --ntasks=2 bash -c "if ((SLURM_PROCID == 0)); then $bin/trireme --version; fi")
  expect_equal "the version that one task of two asked for" 1 "$(grep -c '^trireme ' <<<"$text")"
  text=$(on srun --ntasks=2 bash -c "if ((SLURM_PROCID == 1)); then $bin/trireme checkpoint list pty-none; fi" 2>&1) || rc=$?
  expect_equal "exit code of one task of two with a command of one rank" 2 "$rc"
  expect_match "its message" "takes one rank, this start has 2" "$text"
  rc=0
  text=$(on srun --ntasks=2 bash -c "if ((SLURM_PROCID == 0)); then exec $bin/trireme pretrain $(training lonely) --train.start_timeout_s 4; fi; sleep 30" 2>&1) || rc=$?
  expect_match "the message of a rank without its peer" "1 of 2 ranks have not started: rank 1, on node n[12] \(1 of 2 ranks have started\)" "$text"
  ((rc != 0)) || broken "a start that lacks a rank ended with 0"
  cd "$checkout"
}

# On the job's first start, the rank of the second node never reaches MPI.
# shellcheck disable=SC2016  # variables of the launcher
a_stuck_start_is_named_and_requeued() {
  local job
  printf '#!/bin/bash\nif [[ ${SLURM_RESTART_COUNT:-0} == 0 && $SLURM_NODEID == 1 ]]; then exec sleep 600; fi\nexec "$@"\n' >"$work/launcher"
  chmod +x "$work/launcher"
  job=$(TRIREME_LAUNCH=$work/launcher steps=10 submit stuck --train.start_timeout_s 5)
  await 300 "the output" test -s "$work/stuck.out"
  await 300 "the requeue" requeued stuck
  expect_match "what the start says" '5 s \(train.start_timeout_s\); 2 of 4 ranks have not started: ranks 2-3, on node n2 \(0 of 2' "$(<"$work/stuck.out")"
  expect_match "how it ended" 'job  *exit 5 ' "$(ends stuck)"
  await 300 "the end" ended "$job"
  expect_equal "state" COMPLETED "$(job_field "$job" JobState)"
  expect_stuck_cause
  [[ ! -e $work/stuck.start ]] || broken "marks of the start stay behind: $(ls -R "$work/stuck.start")"
}

expect_stuck_cause() {
  expect_match "the decision" '"verdict":"requeue".*"root_cause":\{"rank":2,"host":"n2","kind":"hang","message":"the start took longer than 5 s[^"]*ranks 2-3' \
    "$(grep '"event":"decision"' "$work/stuck/journal.jsonl" | head -n 1)"
}

# A preparation job has no key for the limit.
a_stuck_preparation_is_named_and_requeued() {
  local job
  job=$(TRIREME_LAUNCH=$work/launcher TRIREME_BIN=$bin TRIREME_TRAIN_START_TIMEOUT_S=4 on sbatch --parsable --nodes=2 --ntasks-per-node=1 \
    --time=10 --output="$work/stuck-prep.out" slurm/prep.sbatch --kind pretrain --tokenizer "$work/tokenizer" --input "$work/corpus.jsonl" \
    --seq-len 64 --output "$work/prepared")
  await 300 "the end" ended "$job"
  expect_match "what the start says" '4 s \(train.start_timeout_s\); 1 of 2 ranks have not started: rank 1, on node n2 \(0 of 1' "$(<"$work/stuck-prep.out")"
  expect_equal "state" COMPLETED "$(job_field "$job" JobState)"
  expect_equal "restarts" 1 "$(job_field "$job" Restarts)"
  [[ ! -e $work/prepared.start ]] || broken "marks of the start stay behind"
}

a_forgotten_srun_is_a_warning() {
  on sbatch --wait --nodes=2 --ntasks-per-node=1 --output="$work/forgotten.out" --chdir="$work" --wrap "$bin/trireme pretrain $(training forgotten)" >/dev/null
  expect_match "the warning" 'this Slurm job has 2 tasks, but this command runs as one process.*srun [^ ]*trireme pretrain' "$(<"$work/forgotten.out")"
  on sbatch --wait --nodes=2 --ntasks-per-node=1 --output="$work/meant.out" --chdir="$work" --wrap "srun $bin/trireme pretrain $(training meant)" >/dev/null
  [[ $(<"$work/meant.out") != *'runs as one process'* ]] || broken "a warning although srun is used: $(<"$work/meant.out")"
}

a_script_below_srun_says_what_to_type() {
  local script text rc
  for script in slurm/pretrain_a100.sbatch slurm/prep.sbatch slurm/serve.sbatch slurm/debug.sh; do
    rc=0
    text=$(TRIREME_BIN=$bin on srun --ntasks=2 "$script" 2>&1) || rc=$?
    expect_equal "exit code of srun $script" 2 "$rc"
    expect_equal "its messages: $text" 1 "$(grep -c 'cannot run inside of srun' <<<"$text")"
  done
  # Inside a step, sbatch passes the variables of the step to the batch script.
  on srun bash -c "TRIREME_BIN=$bin sbatch --wait --output=$work/within.out slurm/export.sbatch --checkpoint $work/pty-none --output $work/within" >/dev/null ||
    broken "a job submitted within a step: $(<"$work/within.out")"
}

# Each node has a /dev/shm of its own.
a_run_directory_of_one_node_is_refused_at_the_start() {
  if ((${#mode[@]} == 0)); then
    printf 'NOT TESTED: the nodes need network and mount namespaces of their own, to have different /dev/shm\n'
    return 0
  fi
  local text rc=0 options
  read -ra options <<<"$(training /dev/shm/run)"
  text=$(cd "$work" && on srun --nodes=2 --ntasks-per-node=1 --kill-on-bad-exit=1 "$bin/trireme" pretrain "${options[@]}" 2>&1) || rc=$?
  expect_equal "exit code" 2 "$rc"
  expect_match "its message" 'rank 1 \(host n2\): a file of rank 0.s in /dev/shm does not appear .*give a --run on a file system that all nodes share' "$text"
  expect_equal "files that stay behind" '' "$("$cluster/on" n1 find /dev/shm -name run -o -name '.trireme*')"
}

debug_keeps_the_directory() {
  expect_equal "where debug.sh runs a command" "0: $work" "$(cd "$work" && on "$checkout/slurm/debug.sh" --cpus-per-task=1 -- pwd)"
}

cluster_up
cd "$work"
"$bin/trireme-data" pack --kind pretrain --tokenizer tokenizer --input corpus.jsonl --seq-len 64 --output set
cd "$checkout"
if [[ -n ${2:-} ]]; then
  run_scenarios "${@:2}"
else
  run_scenarios any_number_of_commands_run_in_an_interactive_shell
  run_together 'a_stuck_start_is_named_and_requeued a_stuck_preparation_is_named_and_requeued' \
    'a_step_within_a_step_and_one_program_of_two_tasks_work debug_keeps_the_directory' \
    'a_forgotten_srun_is_a_warning a_script_below_srun_says_what_to_type a_run_directory_of_one_node_is_refused_at_the_start'
fi
finish
