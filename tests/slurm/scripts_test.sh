#!/usr/bin/env bash
# The job scripts without a cluster: what they would run, and when a job goes back in the queue.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
source tests/support/shell.sh
source slurm/lib.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

commands_are_printed_and_arguments_kept() {
  local line
  line=$(DRY_RUN=1 slurm/pretrain_a100.sbatch --data 'my data' --run runs/x --optim.lr 3e-4)
  expect_match "pretrain's command" ' --cpus-per-task=1 .*trireme pretrain --data my\\ data --run runs/x --optim.lr 3e-4 $' "$line"
  line=$(DRY_RUN=1 SLURM_CPUS_PER_TASK=8 SLURM_JOB_ID=7 SLURM_JOB_NAME=big slurm/pretrain_a100.sbatch --data d)
  expect_match "the default run folder" '--cpus-per-task=8 .* --data d --run runs/big-7 $' "$line"
  line=$(DRY_RUN=1 SLURM_JOB_ID=9 SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=2 slurm/pretrain_a100.sbatch --data d)
  expect_match "an array task's run folder" '--run runs/pretrain-7_2 $' "$line"
  line=$(DRY_RUN=1 TRIREME_LAUNCH='apptainer exec --nv x.sif' slurm/prep.sbatch --input a.jsonl)
  expect_match "prep's command in a container" '--label apptainer exec --nv x.sif [^ ]*/trireme-data pack --input a.jsonl $' "$line"
  line=$(DRY_RUN=1 slurm/debug.sh --nodes=2 -- prog --x 'a b')
  expect_match "debug's command" '^srun --mpi=pmix .*--nodes=2 .* prog --x a\\ b $' "$line"
}

outside_a_job_is_an_error() {
  local rc=0
  slurm/pretrain_a100.sbatch --data d >"$work/out" 2>&1 || rc=$?
  expect_equal "exit without Slurm" 2 "$rc"
  expect_match "its message" 'submit with .sbatch' "$(<"$work/out")"
  rc=0
  SLURM_SUBMIT_DIR=$work slurm/pretrain_a100.sbatch --data d >"$work/out" 2>&1 || rc=$?
  expect_equal "exit from a wrong folder" 2 "$rc"
  expect_match "its message" 'no slurm/env.sh in' "$(<"$work/out")"
}

run_folder_is_read_from_the_arguments() {
  expect_equal "--run DIR" b "$(option_value run --run a --data d --run b)"
  expect_equal "--run=DIR" 'a b' "$(option_value run '--run=a b' --data d)"
  expect_equal "no --run" '' "$(option_value run --data d --runs x)"
}

newest_step_ignores_unfinished_ones() {
  local run=$work/steps
  expect_equal "no folder" -1 "$(last_committed_step "$run")"
  mkdir -p "$run"/checkpoints/{step-000000008,step-000000040,tmp-step-000000050,step-000000060.tmp}
  expect_equal "newest step" 40 "$(last_committed_step "$run")"
}

exit_code_comes_from_a_new_status_file() {
  local run=$work/status stamp
  mkdir -p "$run"
  stamp=$(status_stamp "$run")
  expect_equal "no status, srun 143" 137 "$(program_exit "$run" "$stamp" 143)"
  expect_equal "no status, srun 0" 137 "$(program_exit "$run" "$stamp" 0)"
  expect_equal "no status, usage error" 2 "$(program_exit "$run" "$stamp" 2)"
  printf '{"state":"stopped","exit_code":75,"step":40}\n' >"$run/tmp" && mv "$run/tmp" "$run/status.json"
  expect_equal "new status, srun 143" 75 "$(program_exit "$run" "$stamp" 143)"
  stamp=$(status_stamp "$run")
  expect_equal "old status, srun 143" 137 "$(program_exit "$run" "$stamp" 143)"
  printf '{"state": "done", "exit_code": 0, "step": 80}\n' >"$run/tmp" && mv "$run/tmp" "$run/status.json"
  expect_equal "new status, srun 0" 0 "$(program_exit "$run" "$stamp" 0)"
  printf '{"state":"running","exit_code":0,"step":0}\n' >"$run/tmp" && mv "$run/tmp" "$run/status.json"
  expect_equal "rank 0 was killed" 137 "$(program_exit "$run" "$stamp" 137)"
  expect_equal "rank 0 was killed, srun 0" 137 "$(program_exit "$run" "$stamp" 0)"
}

only_curable_ends_with_progress_requeue() {
  local code
  for code in 4 5 75 137 139; do
    expect_equal "code $code with progress" requeue "$(requeue_verdict "$code" 10 20 0 20)"
    expect_match "code $code without progress" '^stop no progress' "$(requeue_verdict "$code" 20 20 1 20)"
    expect_match "code $code at the cap" '^stop restarted 20 times' "$(requeue_verdict "$code" 10 20 20 20)"
  done
  for code in 4 75; do
    expect_match "code $code of a first start" '^stop no progress' "$(requeue_verdict "$code" -1 -1 0 20)"
  done
  for code in 5 137 139; do
    expect_equal "code $code of a first start" requeue "$(requeue_verdict "$code" -1 -1 0 20)"
  done
  for code in 1 2 3 6 93 134; do
    expect_match "code $code" '^stop another try' "$(requeue_verdict "$code" 10 20 0 20)"
  done
  expect_equal "code 0" "done" "$(requeue_verdict 0 10 20 0 20)"
  expect_match "requeue switched off" '^stop TRIREME_MAX_RESTARTS is 0' "$(requeue_verdict 75 10 20 0 0)"
}

packs_end_is_told_by_its_folder() {
  local set=$work/set
  expect_equal "no folder" 0 "$(num_shards "$set")"
  mkdir -p "$set"
  expect_equal "empty folder" 0 "$(num_shards "$set")"
  touch "$set"/shard-0000{0,1,2}.h5 "$set"/.tmp.shard-00003.h5.7 "$set/.tmp.unit-3"
  expect_equal "three shards" 3 "$(num_shards "$set")"
  expect_equal "asked to stop" 75 "$(pack_exit "$set" 75)"
  expect_equal "bad data" 3 "$(pack_exit "$set" 3)"
  expect_equal "killed by srun after a rank's end" 137 "$(pack_exit "$set" 143)"
  expect_equal "a failed launch" 137 "$(pack_exit "$set" 0)"
  touch "$set/manifest.json"
  expect_equal "a manifest" 0 "$(pack_exit "$set" 143)"
}

# A pack that Slurm stops, in a job of our own making: scontrol is a function here.
a_stopped_pack_goes_back_in_the_queue() {
  local set=$work/stopped rc=0
  mkdir -p "$set"
  (
    scontrol() { if [[ $1 == requeue ]]; then touch "$work/requeued"; else printf 'JobState=RUNNING\n'; fi; }
    TRIREME_MAX_RESTARTS=3
    run_pack_with_requeue "$set" sh -c "touch '$set/shard-00000.h5'; exit 75"
  ) >"$work/out" || rc=$?
  expect_equal "exit of a stopped pack" 75 "$rc"
  expect_equal "put back in the queue" yes "$([[ -e $work/requeued ]] && printf yes || printf no)"
  rm -f "$work/requeued"
  rc=0
  (
    scontrol() { touch "$work/requeued"; }
    TRIREME_MAX_RESTARTS=3 SLURM_RESTART_COUNT=1
    run_pack_with_requeue "$set" sh -c 'exit 75'
  ) >"$work/out" || rc=$?
  expect_equal "exit without progress" 93 "$rc"
  expect_equal "not put back" no "$([[ -e $work/requeued ]] && printf yes || printf no)"
}

packs_end_is_told_by_its_folder
a_stopped_pack_goes_back_in_the_queue
commands_are_printed_and_arguments_kept
outside_a_job_is_an_error
run_folder_is_read_from_the_arguments
newest_step_ignores_unfinished_ones
exit_code_comes_from_a_new_status_file
only_curable_ends_with_progress_requeue
finish
