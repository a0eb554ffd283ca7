#!/usr/bin/env bash
# requeue_test.sh BIN_DIR: tests slurm/pretrain_a100.sbatch under a real Slurm of two nodes with two tasks each, without GPUs.
#
# - A signal: the ranks save and exit with 75; the job is requeued, resumes, and ends with the weights of a run that was never
#   stopped.
# - A killed rank, and a start that is lost after it: the same.
# - A wrong option or scancel: no second attempt.
# - srun without a PMI: a message with the command to type.
# - slurm/pipeline_a100.sh: the dependent jobs wait while a stage is requeued; a stage that finally fails ends them.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
source tests/support/shell.sh
bin=$(cd "$1" && pwd)

source tests/slurm/with_cluster.sh

make_set() {
  TRIREME_BIN=$bin on sbatch --parsable --ntasks-per-node=2 --output="$work/prep.out" slurm/prep.sbatch --kind pretrain \
    --tokenizer "$work/tokenizer" --input "$work/corpus.jsonl" --seq-len 64 --output "$work/set" >"$work/prep.id"
  await 300 "the end of prep.sbatch" ended "$(<"$work/prep.id")"
  expect_equal "prep's state" COMPLETED "$(job_field "$(<"$work/prep.id")" JobState)"
  "$bin/trireme-data" verify "$work/set"
}

# Starts the program like in an image without Slurm's commands and munge.
make_hiding_launcher() {
  cat >"$work/hide" <<EOF
#!/usr/bin/env bash
exec unshare --mount bash -c '
  mount --bind /dev/null "$(command -v scontrol)" && mount --bind /dev/null "$cluster/run/munge.sock" || exit 97
  ! scontrol --version >/dev/null 2>&1 || exit 98
  exec "\$@"' hidden "\$@"
EOF
  chmod +x "$work/hide"
}

# The stop signal, which --signal=USR2@300 sends before the time limit.
signalled_job_resumes_to_the_same_weights() {
  local job stopped
  make_hiding_launcher
  job=$(TRIREME_LAUNCH=$work/hide submit signalled)
  await 300 "step 12" logged_step "$work/signalled" 12
  on scancel --signal=USR2 "$job"
  await 300 "the requeue" requeued signalled
  expect_match "the first end" 'job +exit 75 ' "$(ends signalled | head -n1)"
  stopped=$(first_committed signalled)
  await 300 "the second end" ended "$job"
  expect_equal "state" COMPLETED "$(job_field "$job" JobState)"
  expect_equal "restarts" $((1 + $(lost_starts signalled))) "$(job_field "$job" Restarts)"
  expect_equal "resumed_from" "$stopped" "$(resumed_from "$work/signalled")"
  ((stopped >= 12 && stopped < kSteps)) || broken "stopped at step $stopped, must be between 12 and $kSteps"
  expect_equal "weights after stop and resume" "$(final_hash "$work/whole")" "$(final_hash "$work/signalled")"
}

killed_rank_means_requeue() {
  local job
  job=$(submit killed)
  await 300 "a checkpoint" has_checkpoint "$work/killed"
  await 300 "step 12" logged_step "$work/killed" 12
  kill_one_rank "$work/killed"
  await 300 "the requeue" requeued killed
  await 300 "the second end" ended "$job"
  expect_equal "state" COMPLETED "$(job_field "$job" JobState)"
  expect_equal "restarts" $((1 + $(lost_starts killed))) "$(job_field "$job" Restarts)"
  expect_equal "resumed_from" "$(first_committed killed)" "$(resumed_from "$work/killed")"
  expect_equal "weights after the kill" "$(final_hash "$work/whole")" "$(final_hash "$work/killed")"
}

# srun starts this script instead of the program. On the job's second start, it dies like a program inside MPI_Init.
make_losing_launcher() {
  cat >"$work/lose" <<'EOF'
#!/usr/bin/env bash
[[ ${SLURM_RESTART_COUNT:-0} != 1 ]] || kill -SEGV $$
exec "$@"
EOF
  chmod +x "$work/lose"
}

a_lost_start_after_progress_is_forgiven() {
  local job
  make_losing_launcher
  job=$(TRIREME_LAUNCH=$work/lose submit lost)
  await 300 "step 12" logged_step "$work/lost" 12
  on scancel --signal=USR2 "$job"
  await 300 "the end" ended "$job"
  expect_equal "state" COMPLETED "$(job_field "$job" JobState)"
  expect_equal "restarts" 2 "$(job_field "$job" Restarts)"
  expect_match "the lost start" "job +exit 5 .*, last committed step $(first_committed lost), .*: requeue" \
    "$(grep 'job  *exit' "$work/lost.out" | sed -n 2p)"
  expect_equal "weights after the lost start" "$(final_hash "$work/whole")" "$(final_hash "$work/lost")"
}

wrong_option_fails_at_once() {
  local job
  job=$(submit wrong --optim.lr -1)
  await 300 "the end" ended "$job"
  expect_equal "state" FAILED "$(job_field "$job" JobState)"
  expect_equal "exit code" 2:0 "$(job_field "$job" ExitCode)"
  expect_equal "restarts" 0 "$(job_field "$job" Restarts)"
}

missing_pmi_says_what_to_type() {
  local rc=0 program
  for program in "trireme pretrain --data $work/set --run $work/alone" \
    "trireme-data pack --kind pretrain --tokenizer $work/tokenizer --input $work/corpus.jsonl --seq-len 64 --output $work/set2"; do
    rc=0
    # shellcheck disable=SC2086  # a list of words
    on srun --mpi=none --ntasks=2 "$bin/"$program >"$work/alone.out" 2>&1 || rc=$?
    expect_equal "exit of $program" 2 "$rc"
    expect_match "its message" 'Type `srun --mpi=pmix' "$(<"$work/alone.out")"
  done
}

cancelled_job_stays_cancelled() {
  local job
  job=$(steps=100000 submit cancelled)
  await 300 "step 3" logged_step "$work/cancelled" 3
  on scancel "$job"
  await 300 "the end" ended "$job"
  sleep 7  # longer than the delay before a requeued job starts
  expect_equal "state" CANCELLED "$(job_field "$job" JobState)"
  expect_equal "restarts" "$(lost_starts cancelled)" "$(job_field "$job" Restarts)"
}

# The pipeline needs these files besides the texts.
make_chain_inputs() {
  local i
  mkdir -p "$work/in"
  make_chats "$work/in/chats.jsonl"
  for ((i = 0; i < 60; i++)); do
    printf '{"chosen": [{"role": "user", "content": "%s plus 2?"}, {"role": "assistant", "content": "It is %s."}], ' $i $((i + 2))
    printf '"rejected": [{"role": "user", "content": "%s plus 2?"}, {"role": "assistant", "content": "No."}]}\n' $i
  done >"$work/in/pairs.jsonl"
  make_small_sbatch
}

chain() { # chain OUTPUT KEY...: prints the ids of its nine jobs
  local checkout=$PWD
  (
    cd "$work/in"
    PATH=$work/path:$PATH TRIREME_BIN=$bin on "$checkout/slurm/pipeline_a100.sh" --tokenizer ../tokenizer --pretrain ../corpus.jsonl \
      --sft-512 chats.jsonl --sft-2048 chats.jsonl --dpo pairs.jsonl --output "$work/$1" -- --train.device cpu --train.precision fp32 \
      --model.hidden_size 32 --model.num_layers 2 --train.micro_batch 1 --train.accumulation 1 --train.steps 10 --optim.warmup_steps 2 \
      --checkpoint.every 2 "${@:2}" | sed -E 's/^(sft [0-9]+|[a-z]+) +//' | xargs
  )
}

states_of() { # states_of JOB...
  local job
  for job in "$@"; do printf '%s ' "$(job_field "$job" JobState)"; done
}

a_chain_waits_for_its_requeued_stage() {
  local jobs output=$work/chain
  make_chain_inputs
  read -ra jobs <<<"$(chain chain)"
  await 300 "a checkpoint of sft-2048" has_checkpoint "$output/runs/sft-2048"
  kill_one_rank "$output/runs/sft-2048"
  await 300 "the end of the chain" ended "${jobs[8]}"
  expect_equal "states" "$(printf 'COMPLETED %.0s' {1..9})" "$(states_of "${jobs[@]}")"
  expect_match "restarts of sft-2048" '^[1-9]' "$(job_field "${jobs[6]}" Restarts)"
  "$bin/trireme" import --hf "$output/exported" --output "$work/imported"
  "$bin/trireme" generate --checkpoint "$work/imported" --prompt "1 plus" --max-tokens 4 >/dev/null
}

a_chain_ends_with_a_stage_that_fails_for_good() {
  local jobs
  read -ra jobs <<<"$(chain broken --optim.lr -1)"
  await 300 "the end of the chain" ended "${jobs[8]}"
  expect_equal "states" 'FAILED CANCELLED CANCELLED CANCELLED CANCELLED ' "$(states_of "${jobs[@]:4}")"
  expect_equal "exit code" 2:0 "$(job_field "${jobs[4]}" ExitCode)"
  expect_equal "what waits for ever" '' "$(IFS=, && on squeue -h -j "${jobs[*]}")"
}

uninterrupted_run() {
  local job
  job=$(submit whole)
  await 300 "the uninterrupted run" ended "$job"
  expect_equal "state" COMPLETED "$(job_field "$job" JobState)"
}

cluster_up
run_scenarios make_set uninterrupted_run
run_together 'a_chain_waits_for_its_requeued_stage a_chain_ends_with_a_stage_that_fails_for_good' \
  'signalled_job_resumes_to_the_same_weights wrong_option_fails_at_once' \
  'killed_rank_means_requeue cancelled_job_stays_cancelled' \
  'a_lost_start_after_progress_is_forgiven missing_pmi_says_what_to_type'
finish
