#!/usr/bin/env bash
# Tests the ends of a pack in a job, without a cluster: done, requeued, or failed.
# shellcheck disable=SC2030,SC2031  # a job's environment ends with its subshell
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
source tests/support/shell.sh
source tests/slurm/fakes.sh
source slurm/lib.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

packs_end_is_told_by_its_folder() {
  local set=$work/set
  expect_equal "no directory" 0 "$(num_shards "$set")"
  mkdir -p "$set"
  expect_equal "empty directory" 0 "$(num_shards "$set")"
  touch "$set"/shard-0000{0,1,2}.h5 "$set"/.tmp.shard-00003.h5.7 "$set/.tmp.unit-3"
  expect_equal "three shards" 3 "$(num_shards "$set")"
  expect_equal "asked to stop" 75 "$(pack_exit "$set" none 75)"
  expect_equal "bad data" 3 "$(pack_exit "$set" none 3)"
  expect_equal "killed by srun after a rank's end" 137 "$(pack_exit "$set" none 143)"
  expect_equal "a failed launch" 137 "$(pack_exit "$set" none 0)"
  expect_equal "a part of a set that is not whole yet" 0 "$(pack_exit "$set" none 0 2/4)"
  touch "$set/manifest.json"
  expect_equal "a new manifest" 0 "$(pack_exit "$set" none 143)"
  expect_equal "a manifest from before, nothing to do" 0 "$(pack_exit "$set" "$(manifest_stamp "$set")" 0)"
  expect_equal "a manifest from before, of another set" 2 "$(pack_exit "$set" "$(manifest_stamp "$set")" 2)"
  expect_equal "a manifest from before, and a crash" 137 "$(pack_exit "$set" "$(manifest_stamp "$set")" 143)"
}

a_task_of_an_array_makes_a_part() {
  expect_equal "outside an array" '' "$(array_part)"
  expect_equal "task 9 of 3-9:2" '--part 4/4' \
    "$(SLURM_ARRAY_TASK_ID=9 SLURM_ARRAY_TASK_MIN=3 SLURM_ARRAY_TASK_STEP=2 SLURM_ARRAY_TASK_COUNT=4 array_part)"
  expect_match "its command" '--part 2/3 $' "$(SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_MIN=0 SLURM_ARRAY_TASK_COUNT=3 DRY_RUN=1 slurm/prep.sbatch --input a)"
}

packs_that_move_on_come_back() {
  local code
  for code in 4 5 75 137 139; do
    expect_equal "code $code with new shards" requeue "$(pack_decision "$code" 10 20)"
    expect_equal "code $code with new shards after a lost start" requeue "$(pack_decision "$code" 10 20 10)"
    expect_match "code $code, the second without" '^stop: no progress' "$(pack_decision "$code" 20 20 20)"
  done
  for code in 5 137 139; do expect_equal "code $code, the first without" requeue "$(pack_decision "$code" 20 20 10)"; done
  for code in 1 2 3 6 93 134; do expect_match "code $code" '^stop: a restart would' "$(pack_decision "$code" 10 20)"; done
  expect_equal "code 0" "done" "$(pack_decision 0 10 20)"
}

# Runs a pack in a job with the step COMMAND. Prints its end and the commands that scontrol got.
pack_ends() { # [STATE=S] pack_ends SET COMMAND
  local rc=0
  fake scontrol <<'EOF'
if [[ $1 == requeue ]]; then printf '%s\n' "$*" >>"$CALLS"; else printf 'JobState=%s Reason=None\n' "${STATE:-RUNNING}"; fi
EOF
  rm -f "$work/calls"
  (
    export CALLS=$work/calls PATH=$work/path:$PATH SLURM_JOB_ID=7
    srun_command=()
    : "${TRIREME_CONTROLLER_WAIT:=600}"
    run_pack_with_requeue "$1" sh -c "$2"
  ) >"$work/out" 2>&1 || rc=$?
  printf '%s %s\n' "$rc" "$(if [[ -e $work/calls ]]; then xargs <"$work/calls"; fi)"
}

a_stopped_pack_goes_back_in_the_queue() {
  local set=$work/stopped
  mkdir -p "$set"
  expect_equal "a stopped pack" '75 requeue 7' "$(pack_ends "$set" "touch '$set/shard-00000.h5'; exit 75")"
  expect_equal "a cancelled one" '75 ' "$(STATE=COMPLETING pack_ends "$set" "touch '$set/shard-00001.h5'; exit 75")"
  expect_equal "one without progress" '93 ' "$(SLURM_RESTART_COUNT=1 pack_ends "$set" 'exit 75')"
}

a_packs_lost_start_is_forgiven_once() {
  local set=$work/new/lost-pack
  expect_equal "the first" '137 requeue 7' "$(SLURM_RESTART_COUNT=1 pack_ends "$set" 'exit 139')"
  expect_equal "the first of another task of the array" '137 requeue 6_2' \
    "$(SLURM_RESTART_COUNT=1 SLURM_ARRAY_JOB_ID=6 SLURM_ARRAY_TASK_ID=2 pack_ends "$set" 'exit 139')"
  expect_equal "the second" '93 ' "$(SLURM_RESTART_COUNT=2 pack_ends "$set" 'exit 139')"
  expect_equal "the directory that pack makes itself" no "$([[ -e $set ]] && printf yes || printf no)"
  printf 'a file\n' >"$work/file"
  expect_equal "where it cannot be remembered" '137 ' "$(pack_ends "$work/file/set" 'exit 139')"
  expect_match "its message" 'cannot write .*/file/set.lost-start-7' "$(<"$work/out")"
}

fake_srun
packs_end_is_told_by_its_folder
a_task_of_an_array_makes_a_part
packs_that_move_on_come_back
a_stopped_pack_goes_back_in_the_queue
a_packs_lost_start_is_forgiven_once
finish
