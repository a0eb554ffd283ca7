#!/usr/bin/env bash
# nanochat_test.sh BIN_DIR: the chain of jobs of slurm/nanochat_h100.sh under a real Slurm, from raw text to the report card, with a rank
# of the pretraining killed on the way. A second call of the same command must repeat no work.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
source tests/support/shell.sh
bin=$(cd "$1" && pwd)
source tests/slurm/with_cluster.sh

make_texts() {
  mkdir "$work/in"
  "$bin/trireme-data" synth --output "$work/in/texts.jsonl" --documents 600 --seed 1 >/dev/null
  "$bin/trireme-data" synth --output "$work/in/valid.jsonl" --documents 40 --seed 2 >/dev/null
  make_chats "$work/in/chats.jsonl"
  make_small_sbatch
}

chain() { # submits the chain, and sets jobs: the ids of its jobs in the order of the stages
  local said
  said=$(
    cd "$work/in"
    PATH=$work/path:$PATH TRIREME_BIN=$bin on "$checkout/slurm/nanochat_h100.sh" --texts texts.jsonl --valid valid.jsonl --chats chats.jsonl \
      --output "$work/nano" --depth 1 --question "3 plus 2?" --device cpu -- --train.micro_batch 1 --train.global_batch 4 \
      --train.steps 20 --train.eval_every 10 --train.seq_len 256 --model.vocab_size 2048 --checkpoint.every 5
  )
  read -ra jobs <<<"$(grep -oE '[0-9]+' <<<"$said" | xargs)"
}

states() {
  local job
  for job in "${jobs[@]}"; do printf '%s ' "$(job_field "$job" JobState)"; done
}

the_chain_ends_with_a_report_card() {
  local base=$work/nano/runs/base
  chain
  expect_equal "jobs" 7 "${#jobs[@]}"
  await 300 "a checkpoint of the base model" has_checkpoint "$base"
  kill_one_rank "$base"
  await 600 "the end of the chain" ended "${jobs[6]}"
  expect_equal "states" "$(printf 'COMPLETED %.0s' {1..7})" "$(states)"
  expect_match "restarts of the pretraining" '^[1-9]' "$(job_field "${jobs[4]}" Restarts)"
  expect_match "validation of the base model" '"valid_bpb":' "$(<"$base/metrics.jsonl")"
  expect_match "the evaluation on the card" '"bits_per_byte":' "$(<"$work/nano/runs/chat/evaluations/valid.json")"
  expect_match "the answer on the card" '"finish_reason":' "$(<"$work/nano/runs/chat/evaluations/chat.json")"
  expect_match "the report card" 'bits_per_byte|Bits per byte|bits per byte' "$(<"$work/nano/runs/chat/report.html")"
}

the_second_call_repeats_no_work() {
  local before
  before=$("$bin/trireme" checkpoint hash "$work/nano/runs/chat")
  chain
  expect_equal "jobs of the second call" 6 "${#jobs[@]}"
  await 600 "the end of the second chain" ended "${jobs[5]}"
  expect_equal "states of the second call" "$(printf 'COMPLETED %.0s' {1..6})" "$(states)"
  expect_equal "weights" "$before" "$("$bin/trireme" checkpoint hash "$work/nano/runs/chat")"
  expect_equal "steps of the base model" 20 "$(grep -oE '"step": *[0-9]+' "$work/nano/runs/base/metrics.jsonl" | sort -u | wc -l)"
}

cluster_up
make_texts
run_scenarios the_chain_ends_with_a_report_card the_second_call_repeats_no_work
finish
