#!/usr/bin/env bash
# Tests without a cluster that scripts with srun refuse to run inside of a step, and that debug.sh keeps the directory.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
source tests/support/shell.sh
source tests/slurm/fakes.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/path" "$work/elsewhere" "$work/spool"
# shellcheck disable=SC2031  # the subshells of fakes.sh have a PATH of their own
export PATH=$work/path:$PATH
fake scontrol <<'EOF'
exit 1
EOF
fake srun <<'EOF'
printf 'srun in %s, step %s of %s tasks: %s\n' "$PWD" "${SLURM_STEP_ID:-none}" "${SLURM_STEP_NUM_TASKS:-none}" "$*"
EOF

# The number of the step, or of the task, decides.
scripts_refuse_to_run_in_a_step() {
  local script text rc
  for script in slurm/*.sbatch slurm/debug.sh; do
    [[ $script != slurm/sweep.sbatch && $script != slurm/train_a100.sbatch ]] || continue  # training jobs with a first argument
    rc=0
    text=$(SLURM_JOB_ID=7 SLURM_STEP_ID=3 SLURM_PROCID=0 "$script" --x=y --output=d 2>&1) || rc=$?
    expect_equal "exit code of srun $script" 2 "$rc"
    expect_match "its message" "^error: $script starts srun itself and cannot run inside of srun \(step 7.3\): " "$text"
    rc=0
    text=$(SLURM_JOB_ID=7 SLURM_STEP_ID=3 SLURM_PROCID=1 "$script" --x=y --output=d 2>&1) || rc=$?
    expect_equal "exit code of another task" 2 "$rc"
    expect_equal "its message" "" "$text"
  done
  text=$(SLURM_JOB_ID=7 SLURM_STEP_ID=3 SLURM_PROCID=0 slurm/eval.sbatch 2>&1) || true
  expect_match "what to type" "submit it with 'sbatch slurm/eval.sbatch ...', or type 'slurm/eval.sbatch ...' in a shell of salloc" "$text"
  text=$(DRY_RUN=1 SLURM_JOB_ID=7 SLURM_STEP_ID=3 slurm/eval.sbatch --x y)
  expect_match "the command in a step" '^srun .* eval --x y $' "$text"
}

scripts_run_in_a_job_and_in_the_shell_of_salloc() {
  local text
  text=$(SLURM_JOB_ID=7 slurm/eval.sbatch --x y)
  expect_match "in salloc" 'srun in .* eval --x y$' "$text"
  text=$(SLURM_JOB_ID=7 SLURM_STEP_ID=4294967290 slurm/eval.sbatch --x y)
  expect_match "in salloc's interactive step" 'srun in .* eval --x y$' "$text"
  # Inside a step, sbatch passes on the variables of the step.
  cp slurm/eval.sbatch "$work/spool/slurm_script"
  text=$(TRIREME_HOME=$PWD SLURM_JOB_ID=8 SLURM_STEP_ID=3 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 "$work/spool/slurm_script" --x y)
  expect_match "in a job submitted within a step" 'srun in .*, step none of none tasks: .* eval --x y$' "$text"
}

the_restarts_are_those_of_the_job() {
  local text
  fake scontrol <<'EOF'
printf 'JobId=8 JobState=RUNNING Requeue=1 Restarts=%s BatchFlag=1\n' "$RESTARTS"
EOF
  fake srun <<'EOF'
printf 'restart %s\n' "${SLURM_RESTART_COUNT:-none}"
EOF
  cp slurm/prep.sbatch "$work/spool/slurm_script"
  restart_of() { TRIREME_HOME=$PWD SLURM_JOB_ID=8 SLURM_RESTART_COUNT=2 RESTARTS=$1 "$work/spool/slurm_script" --output "$work/set" 2>&1 || true; }
  text=$(restart_of 0)
  expect_match "the banner of a job that another job submitted" '^job +8, restart 0,' "$text"
  expect_match "its step" 'restart none' "$text"
  text=$(restart_of 1)
  expect_match "the step of its restart" $'\nrestart 1' "$text"
}

debug_runs_where_it_is_typed() {
  local text script=$PWD/slurm/debug.sh
  text=$(cd "$work/elsewhere" && "$script" -- prog --data d)
  expect_match "a command" "^srun in $work/elsewhere, .* --mpi=pmix .* prog --data d\$" "$text"
  text=$(cd "$work/elsewhere" && "$script" --nodes=2)
  expect_match "a shell" "^srun in $work/elsewhere, .* --mpi=none .*--nodes=2 --pty bash\$" "$text"
  text=$("$script" --help)
  expect_match "the help's last line" 'gdb -p PID.$' "$text"
}

scripts_refuse_to_run_in_a_step
scripts_run_in_a_job_and_in_the_shell_of_salloc
debug_runs_where_it_is_typed
the_restarts_are_those_of_the_job
finish
