#!/usr/bin/env bash
# endings_test.sh BIN_DIR [silence]: tests how an attempt may end or be disturbed under a real Slurm, and how the run continues.
# Uses two nodes without GPUs. The cases of requeue_test.sh (a signal, a killed rank, scancel, a lost start) are not repeated.
# silence: runs only the case of a controller that does not answer, which takes two minutes.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
source tests/support/shell.sh
bin=$(cd "$1" && pwd)
source tests/slurm/with_cluster.sh

# Prints the restart decisions in the event log of a run, one for each attempt.
decisions() { sed -nE 's/.*"event":"decision".*"verdict":"([a-z]+)".*/\1/p' "$work/$1/journal.jsonl" | xargs; }
root_causes() { sed -nE 's/.*"event":"decision".*"root_cause":\{[^}]*"kind":"([a-z]*)".*/\1/p' "$work/$1/journal.jsonl" | xargs; }
started_legs() { grep -c '"event":"start"' "$work/$1/journal.jsonl" || true; }
has_started() { (($(started_legs "$1") >= $2)); }  # has_started NAME ATTEMPTS

expect_whole() { # expect_whole NAME: expects the weights of an undisturbed run
  expect_equal "weights of $1" "$(final_hash "$work/whole")" "$(final_hash "$work/$1")"
}

make_set_here() {
  "$bin/trireme-data" pack --kind pretrain --tokenizer "$work/tokenizer" --input "$work/corpus.jsonl" --seq-len 64 --output "$work/set"
}

# The end of an outer job is in the environment. Its warning comes in the first of three minutes.
a_short_job_trains_on() {
  local job
  job=$(SLURM_JOB_END_TIME=$(($(date +%s) + 8)) limit=3 submit whole)
  await 300 "the end" ended "$job"
  expect_equal "state" COMPLETED "$(job_field "$job" JobState)"
  expect_equal "restarts" "$(lost_starts whole)" "$(job_field "$job" Restarts)"
}

a_stop_file_ends_a_run_politely() {
  local job
  job=$(submit politely)
  await 300 "step 12" logged_step "$work/politely" 12
  touch "$work/politely/STOP"
  await 300 "the end" ended "$job"
  sleep 7  # longer than the delay before a requeued job starts
  expect_equal "state" COMPLETED "$(job_field "$job" JobState)"
  expect_equal "exit code" 0:0 "$(job_field "$job" ExitCode)"
  expect_equal "restarts" "$(lost_starts politely)" "$(job_field "$job" Restarts)"
  expect_match "decisions" 'stop$' "$(decisions politely)"
  job=$(submit politely)
  await 300 "the end of the next job" ended "$job"
  expect_whole politely
}

controller() { # controller kill|start
  if [[ $1 == kill ]]; then
    on kill -9 "$(<"$cluster/run/slurmctld.pid")"
  else
    on bash -c "setsid slurmctld -D -f $cluster/etc/slurm.conf >>$cluster/log/slurmctld.out 2>&1 </dev/null &"
  fi
}

# Step daemons that waited for the dead controller have drained their nodes ("Kill task failed"), which is its administrator's
# task.
ended_with_help() {
  [[ -z $(on sinfo -h -t drain -o %n) ]] || on scontrol update NodeName=n1,n2 State=RESUME
  ended "$1"
}

a_controller_that_was_silent_at_the_end_still_requeues() {
  local job
  job=$(steps=300 submit undisturbed)  # long enough for a fast machine
  await 300 "the undisturbed run" ended "$job"
  job=$(steps=300 submit silent)
  await 300 "step 12" logged_step "$work/silent" 12
  sleep 6  # its state is on disk
  controller kill
  kill_one_rank "$work/silent" USR2
  await 300 "the ranks' end" grep -q '"event":"end"' "$work/silent/journal.jsonl"
  sleep 8
  controller start
  await 300 "the requeue" requeued silent
  await 300 "the second end" ended_with_help "$job"
  expect_equal "state" COMPLETED "$(job_field "$job" JobState)"
  expect_equal "weights" "$(final_hash "$work/undisturbed")" "$(final_hash "$work/silent")"
}

# Slurm considers the node lost and starts the job elsewhere. The ranks on the node are not informed.
a_later_leg_fences_the_earlier() {
  local job node
  job=$(nodes=1 steps=4000 submit fenced)
  await 300 "step 12" logged_step "$work/fenced" 12
  node=$(job_field "$job" NodeList)
  break_node slurmd "$node"
  await 300 "the second leg" has_started fenced 2
  await 300 "the end of the first leg's ranks" only_two_ranks fenced
  on scancel "$job"
  break_node start "$node"
  expect_equal "attempts in the event log" '1 2' "$("$bin/trireme" job watch "$work/fenced" --once --json | sed -nE 's/.*"leg":([0-9]+).*/1 \1/p')"
  await 300 "the nodes" nodes_are_idle
}

only_two_ranks() { (($(ranks_of "$work/$1" | wc -l) == 2)); }
nodes_are_idle() { [[ $(on sinfo -h -p gpu -o %t | sort -u) == idle ]]; }

a_suspended_job_goes_on() {
  local job
  job=$(submit suspended --train.comm_timeout_s 6)
  await 300 "step 12" logged_step "$work/suspended" 12
  on scontrol suspend "$job"
  sleep 14  # after 6 s of silence, the ranks consider a rank lost
  on scontrol resume "$job"
  await 300 "the end" ended "$job"
  expect_equal "state" COMPLETED "$(job_field "$job" JobState)"
  expect_equal "restarts" "$(lost_starts suspended)" "$(job_field "$job" Restarts)"
  expect_whole suspended
}

a_step_has_its_environment_whatever_sbatch_exports() {
  local job
  job=$(on sbatch --parsable --export=NONE --nodes=1 --ntasks-per-node=2 --gpus-per-node=0 --cpus-per-task=3 --time=5 --job-name=bare \
    --output="$work/bare.out" slurm/pretrain_a100.sbatch --data "$work/set" --run "$work/bare" --train.device cpu --train.steps 2 \
    --model.preset tiny --train.seq_len 64 --train.micro_batch 1 --train.global_batch 8)
  await 300 "the end" ended "$job"
  expect_equal "state" COMPLETED "$(job_field "$job" JobState)"
  expect_match "threads of a rank" '3 CPU threads a rank' "$(<"$work/bare.out")"
}

gpus_that_no_rank_sees_are_told() {
  local job
  job=$(gpus=2 device=auto submit blind)
  await 300 "the end" ended "$job"
  expect_equal "exit code" 2:0 "$(job_field "$job" ExitCode)"
  expect_match "the message" 'this job has GPUs, but ranks 0, 1 \(host .*\) see none' "$(<"$work/blind.out")"
}

a_crash_loop_ends() {
  local job
  printf '#!/bin/sh\nkill -SEGV $$\n' >"$work/crash"
  chmod +x "$work/crash"
  job=$(TRIREME_MAX_FAILURES=2 TRIREME_LAUNCH=$work/crash submit loop)
  await 300 "the end" ended "$job"
  expect_equal "exit code" 93:0 "$(job_field "$job" ExitCode)"
  expect_equal "decisions" 'requeue stop' "$(decisions loop)"
  expect_equal "root causes" 'killed killed' "$(root_causes loop)"
}

a_killed_rank_starts_again_in_the_same_job() {
  local job
  job=$(TRIREME_SPARES=0 submit inplace)
  await 300 "step 12" logged_step "$work/inplace" 12
  kill_one_rank "$work/inplace"
  await 300 "the end" ended "$job"
  expect_equal "state" COMPLETED "$(job_field "$job" JobState)"
  expect_equal "restarts" "$(lost_starts inplace)" "$(job_field "$job" Restarts)"
  # Seldom, a rank of the second step crashes inside MPI_Init, before the program has any output. Then one more restart is right.
  local again=
  if grep -q 'Segmentation fault' "$work/inplace.out"; then again=1; fi
  expect_equal "decisions" "restart ${again:+restart }done" "$(decisions inplace)"
  expect_equal "root causes" "killed${again:+ killed}" "$(root_causes inplace)"
  expect_whole inplace
}

cluster_up
run_scenarios make_set_here a_short_job_trains_on
if [[ ${2:-} == silence ]]; then
  run_scenarios a_controller_that_was_silent_at_the_end_still_requeues
  finish
  exit
fi
run_together a_stop_file_ends_a_run_politely 'a_suspended_job_goes_on gpus_that_no_rank_sees_are_told' \
  'a_crash_loop_ends a_step_has_its_environment_whatever_sbatch_exports' a_killed_rank_starts_again_in_the_same_job
run_scenarios a_later_leg_fences_the_earlier  # takes a node from all jobs
finish
