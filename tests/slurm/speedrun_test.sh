#!/usr/bin/env bash
# Tests bin/speedrun with a tiny model: all stages, a second call that repeats none of them, and a stage that fails.
#
# usage: tests/slurm/speedrun_test.sh [DIRECTORY OF THE PROGRAMS]
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
source tests/support/shell.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TRIREME_BIN=${1:-$PWD/build/release/bin} OMP_NUM_THREADS=1

"$TRIREME_BIN/trireme-data" synth --output "$work/texts.jsonl" --documents 400 --seed 1 >/dev/null 2>&1
for ((i = 0; i < 40; i++)); do
  printf '{"conversations": [{"role": "user", "content": "What is %d plus 1?"}, {"role": "assistant", "content": "It is %d."}]}\n' "$i" "$((i + 1))"
done >"$work/chats.jsonl"
small=(--texts "$work/texts.jsonl" --chats "$work/chats.jsonl" --depth 1 --vocab-size 400 --seq-len 64 --batch 4 --chat-steps 2 --question "What is 3 plus 1?")

bin/speedrun "${small[@]}" --output "$work/run" --steps 3 >"$work/out" 2>&1 || { cat "$work/out" >&2; broken "the first call ended with $?"; }
expect_equal "stages" "split tokenizer pack pretrain sft evaluate chat report all" "$(awk '/^[a-z]/ {print $1}' "$work/out" | xargs)"
expect_match "the evaluation" '"bits_per_byte":' "$(<"$work/run/chat/evaluations/valid.json")"
expect_match "the answer" '"finish_reason":' "$(<"$work/run/chat/evaluations/chat.json")"
expect_match "the report" 'Run report' "$(<"$work/run/report.html")"
expect_equal "texts for validation" 8 "$(wc -l <"$work/run/data/valid.jsonl")"

before=$("$TRIREME_BIN/trireme" checkpoint hash "$work/run/chat")
bin/speedrun "${small[@]}" --output "$work/run" --steps 3 >"$work/out" 2>&1 || broken "the second call ended with $?"
expect_equal "weights after a second call" "$before" "$("$TRIREME_BIN/trireme" checkpoint hash "$work/run/chat")"
expect_equal "steps of the base model" 3 "$(grep -c '"loss":' "$work/run/base/metrics.jsonl")"

rc=0
bin/speedrun "${small[@]}" --output "$work/run" --steps 3 --core "$work/no-bundle" >"$work/out" 2>&1 || rc=$?
[[ $rc != 0 ]] || broken "a missing bundle of CORE ended with 0"
expect_match "its message" 'stage evaluate ended with exit code' "$(<"$work/out")"
[[ ! -e $work/run/chat/evaluations/core.json ]] || broken "a failed evaluation was published"
rc=0
bin/speedrun "${small[@]}" --output "$work/bad" --steps 3 --depth 99 >"$work/out" 2>&1 || rc=$?
expect_equal "exit with a wrong depth" 2 "$rc"
expect_match "its message" 'stage pretrain ended with exit code 2' "$(<"$work/out")"
rc=0
bin/speedrun --texts "$work/texts.jsonl" >"$work/out" 2>&1 || rc=$?
expect_equal "exit without chats" 2 "$rc"
expect_match "its message" '--chats is missing' "$(<"$work/out")"
finish
