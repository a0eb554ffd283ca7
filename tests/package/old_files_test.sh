#!/usr/bin/env bash
# Reads a token set and a checkpoint that version 0.1.0 wrote (v0.1.0). Every later version must read both.
# Usage: old_files_test.sh BUILD
set -euo pipefail
bin=$(readlink -f "$1")/bin
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
source tests/support/shell.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
set_=tests/package/v0.1.0/tokens
checkpoint=tests/package/v0.1.0/step-000000003

a_token_set_is_read() {
  expect_match "trireme-data verify" 'good, 1 shard, 5041 tokens' "$("$bin/trireme-data" verify "$set_" 2>&1 || true)"
}

a_checkpoint_is_read() {
  expect_equal "hash of all weights and states" 354225d6de06e00cc13614e590a4f80ca09e6db407f7f079584b276bc8aae408 "$("$bin/trireme" checkpoint hash "$checkpoint")"
  expect_match "trireme checkpoint verify" ' good, ' "$("$bin/trireme" checkpoint verify "$checkpoint" 2>&1 || true)"
  "$bin/trireme" generate --checkpoint "$checkpoint" --prompt The --max-tokens 4 --device cpu >"$work/out" 2>&1 || broken "generate: $(tail -n3 "$work/out")"
}

# Version 0.1.0 reached the same loss at step 6 without a stop.
a_run_is_resumed() {
  local loss
  "$bin/trireme" pretrain --data "$set_" --run "$work/run" --resume "$checkpoint" --train.device cpu --train.precision fp32 --train.seq_len 32 \
    --train.micro_batch 1 --train.global_batch 2 --train.steps 6 --optim.lr 0.01 >"$work/out" 2>&1 || broken "pretrain: $(tail -n3 "$work/out")"
  loss=$(sed -nE 's/.*"step":6,.*"loss":([0-9.]{6}).*/\1/p' "$work/run/metrics.jsonl" | tail -n1)
  expect_match "loss at step 6" '^5\.68(8|9)' "$loss"
}

a_token_set_is_read
a_checkpoint_is_read
a_run_is_resumed
finish
