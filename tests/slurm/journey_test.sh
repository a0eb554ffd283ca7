#!/usr/bin/env bash
# journey_test.sh BIN_DIR [build]: types the commands of docs/quickstart.md, "From jsonl to a model on a cluster, in ten
# commands", unchanged into a real Slurm of two nodes, in a fresh clone, and the same commands again on the next day. The test
# adds only what the document assumes: a corpus of trireme-data synth, and a preset and nodes for a small machine. Without
# "build", the clone gets the programs of BIN_DIR instead of command 2.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
source tests/support/shell.sh
checkout=$PWD
bin=$(cd "$1" && pwd)
builds=${2:-}
source tests/slurm/with_cluster.sh
git -C "$checkout" rev-parse HEAD >/dev/null 2>&1 || skip "this is no git checkout"

# Prints the commands of the document's block, one per line; the line number equals the "# N" of the command.
commands() {
  awk '/^## From jsonl to a model on a cluster, in ten commands/ { here = 1 } here && /^```bash/ { block = 1; next }
    block && /^```/ { exit } block' docs/quickstart.md | sed -e ':more' -e '/\\$/{N; s/ *\\\n */ /; b more' -e '}'
}

adapted() { # adapted COMMAND: prints the command for this machine
  local line=$1
  line=${line/URL/$checkout}
  line=${line/sbatch slurm\/prep/sbatch --ntasks-per-node=2 slurm\/prep}
  line=${line/sbatch slurm\/pretrain/sbatch --gpus-per-node=0 --ntasks-per-node=2 --cpus-per-task=1 slurm\/pretrain}
  line=${line/--train.micro_batch 32/--train.micro_batch 4 --train.device cpu}
  line=${line/--model.preset minimind-3/--model.preset tiny}
  printf '%s\n' "${line/tail -f/timeout 3 tail -f}"
}

type_in() { # type_in NUMBER: runs the command; sets said and code
  local line
  line=$(adapted "${typed[$1 - 1]}")
  printf '%s> %s\n' "$1" "$line"
  code=0
  said=$(timeout 600 "$cluster/on" ctl bash -c "cd $place && $line" 2>&1) || code=$?
  tail -n 3 <<<"$said"
}

expect_code() { expect_equal "exit of command $1" "$2" "$code"; }

job_ends() { # job_ends NUMBER: expects a successful end of the job that was just submitted
  local job=${said##* }
  await 300 "the end of command $1" ended "$job"
  expect_equal "state after command $1" COMPLETED "$(job_field "$job" JobState)"
  output=$(cat "$work"/trireme/*-"$job".out)
}

newest_step() { cat "$work/trireme/runs/first/checkpoints/latest"; }

the_block_has_ten() {
  local i
  mapfile -t typed < <(commands)
  expect_equal "commands in the block" 10 "${#typed[@]}"
  for ((i = 1; i <= ${#typed[@]}; i++)); do expect_match "command $i" " # $i\$" "${typed[i - 1]}"; done
  synth=$(sed -nE 's/.*no such file, .([^\x60]*)\x60.*/\1/p' docs/quickstart.md)
  expect_match "what the page says of no data" '^trireme-data synth .*data.jsonl$' "$synth"
}

from_clone_to_programs() {
  place=$work
  type_in 1
  expect_code 1 0
  place=$work/trireme
  if [[ $builds == build ]]; then
    [[ ! -e $checkout/.deps ]] || ln -s "$(readlink -f "$checkout/.deps")" "$place/.deps"
    timeout 3600 "$cluster/on" ctl bash -c "cd $place && ${typed[1]}" >"$work/demo.out" 2>&1 || broken "command 2 ended with $?"
  else
    mkdir -p "$place/build/release"
    ln -s "$bin" "$place/build/release/bin"
  fi
  on bash -c "cd $place && build/release/bin/$synth --documents 4000" || broken "$synth ended with $?"
}

from_texts_to_a_set() { # from_texts_to_a_set SHARDS_KEPT
  type_in 3
  expect_code 3 0
  expect_match "command 3" 'tokenizer of [0-9]+ tokens in data/tokenizer' "$said"
  type_in 4
  expect_code 4 0
  job_ends 4
  expect_match "output of command 4" "data/pretrain: 1 shard, $1 of them kept" "$output"
  type_in 5
  expect_code 5 0
  expect_match "command 5" '^data/pretrain: good, 1 shard' "$said"
}

from_a_set_to_a_model() { # from_a_set_to_a_model END
  type_in 6
  expect_code 6 0
  expect_match "command 6" '^srun .*trireme pretrain --data data/pretrain --run runs/first --model.preset tiny' "$said"
  type_in 7
  expect_code 7 0
  local submitted=$said
  await 120 "the first step" logged_step "$place/runs/first" 1
  type_in 8
  expect_code 8 124  # until Ctrl-C
  expect_match "command 8" '"loss": ?[0-9]' "$said"
  said=$submitted
  job_ends 7
  expect_match "output of command 7" "$1" "$output"
}

the_first_day() {
  from_texts_to_a_set 0
  from_a_set_to_a_model 'done at step ([0-9]+)/[0-9]+: [1-9][0-9]* steps,'
  type_in 9
  expect_code 9 0
  [[ -s $place/runs/first-hf/model.safetensors && -s $place/runs/first-hf/config.json ]] || broken "command 9 left no model"
  type_in 10
  expect_code 10 0
  first_text=$said
  expect_match "a text" '.{20}' "$first_text"
}

# No work is repeated and nothing is lost: existing results are kept, or the command reports them.
the_second_day() {
  local before
  before=$(newest_step)
  from_texts_to_a_set 1
  from_a_set_to_a_model 'done at step ([0-9]+)/[0-9]+: no new step'
  expect_equal "the newest checkpoint" "$before" "$(newest_step)"
  type_in 9
  expect_code 9 2
  expect_match "command 9" 'runs/first-hf exists already: choose another --output or remove it' "$said"
  type_in 10
  expect_code 10 0
  expect_equal "the text of the same weights" "$first_text" "$said"
  "$bin/trireme" generate --checkpoint "$place/runs/first-hf" --prompt "Once upon a time" --max-tokens 10 >"$work/exported.txt" || broken "the export does not generate"
}

cluster_up
run_scenarios the_block_has_ten from_clone_to_programs the_first_day the_second_day
finish
