#!/usr/bin/env bash
# job_life_test.sh BIN_DIR [SCENARIO...]: tests the reports about a run and its jobs under a real Slurm of two nodes: `trireme
# submit` and its refusals, the states of `trireme job watch`, dependent jobs that are cancelled or used up, time limits that
# change while a job runs, and the table of signals in docs/slurm.md. SCENARIO...: runs only these.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
source tests/support/shell.sh
bin=$(cd "$1" && pwd)
source tests/slurm/with_cluster.sh

kRunKeys=(--train.device cpu --train.precision fp32 --train.seed 1 --train.seq_len 64 --train.micro_batch 1 --train.global_batch 8
  --model.preset tiny)

# Sets `said` to the output of submit and `code` to its exit code. The run directory is WORK/RUN.
submit_run() { # submit_run RUN [SUBMIT OPTION...] -- KEY...
  local run=$1 options=()
  shift
  while [[ $1 != -- ]]; do options+=("$1") && shift; done
  shift
  code=0
  said=$(TRIREME_HOME=$PWD on env -C "$work" "$bin/trireme" submit --time 20 --sbatch=--ntasks-per-node=1 --sbatch=--mem=0 "${options[@]}" -- \
    pretrain --data "$work/set" --run "$work/$run" "${kRunKeys[@]}" "$@" 2>&1) || code=$?
  job=$(sed -nE 's/^job ([0-9]+): .*/\1/p' <<<"$said")
}

watched() { on "$bin/trireme" job watch "$work/$1" --once | sed -E 's/  (attempt|leg) .*//'; }
is_watched_as() { [[ $(watched "$1") == "$2" ]]; }
expect_refused() { # expect_refused WHAT PATTERN
  expect_equal "exit of $1" 2 "$code"
  expect_match "$1" "$2" "$said"
}
output_of() { cat "$work"/*-"$1".out; }
runs_in() { [[ $(job_field "$1" JobState) == RUNNING ]]; }

make_set_here() {
  "$bin/trireme-data" pack --kind pretrain --tokenizer "$work/tokenizer" --input "$work/corpus.jsonl" --seq-len 64 --output "$work/set"
}

a_chain_that_is_cancelled_ends_as_a_whole() {
  local blocker
  blocker=$(on sbatch --parsable --nodes=2 --exclusive --output=/dev/null --wrap 'sleep 600')
  await 30 "the job that takes the nodes" runs_in "$blocker"
  submit_run chain --chain 3 -- --train.steps 100000
  expect_equal "exit of submit" 0 "$code"
  expect_match "what to type" "trireme job watch $work/chain" "$said"
  local first=$job
  expect_equal "the state before the first job" pending "$(watched chain)"
  submit_run chain --chain 3 -- --train.steps 100000
  expect_refused "a second chain" "job $first.* waits in the queue already.*\[run-queued\]"
  on scancel "$blocker"
  await 120 "step 3" logged_step "$work/chain" 3
  expect_equal "the state of a job that trains" running "$(watched chain)"
  submit_run chain -- --train.steps 100000
  expect_refused "a job of a run in use" '\[run-in-use\]'
  on scancel "${first}_1"
  await 120 "the end of the chain" ended "$first"
  expect_match "what the second job says" "ended the run: (job ${first}_1 was cancelled|the job was cancelled)" "$(output_of "${first}_2")"
  expect_equal "states" 'CANCELLED CANCELLED CANCELLED' "$(on scontrol -o show job "$first" | sed -nE 's/.* JobState=([A-Z]*) .*/\1/p' | xargs)"
  expect_equal "attempts of the run" 1 "$(grep -c '"event":"start"' "$work/chain/journal.jsonl")"
  expect_equal "the state of a chain that was cancelled" cancelled "$(watched chain)"
  expect_match "the revision of a submitted job" "revision  $(git describe --always)" "$(output_of "${first}_1")"
}

what_a_run_forbids_is_told_at_submission() {
  submit_run chain -- --train.steps 100000 --model.num_layers 7
  expect_refused "another shape" 'model.num_layers.*7'
  submit_run new --after 99999 -- --train.steps 10
  expect_refused "a job that nobody knows" 'the controller does not know job 99999.*\[after-unknown\]'
  submit_run new -- --init "$work/nosuch" --train.steps 10
  expect_refused "a start that is not there" 'nosuch'
  submit_run new --sbatch=--ntasks-per-node=16 -- --train.steps 10
  expect_refused "more ranks than CPUs" '16 ranks are requested on each node.*--ntasks-per-node=8 or less'
  submit_run "my run" -- --train.steps 5 --checkpoint.every 5
  expect_equal "exit of a short run" 0 "$code"
  expect_match "what to type" "trireme job watch '$work/my run'" "$said"
  await 120 "its end" ended "$job"
  expect_equal "the state of a run that is done" "done" "$(watched "my run")"
  submit_run "my run" -- --train.steps 5 --checkpoint.every 5
  expect_refused "a run that is done" 'has done its last step, 5 of 5.*\[run-done\]'
}

a_chain_that_is_used_up_says_what_to_submit() {
  local first task
  submit_run used --chain 2 -- --train.steps 100000 --train.log_every 1
  first=$job
  for task in 1 2; do
    await 120 "the start of job $task" runs_in "${first}_$task"
    await 120 "attempt $task" grep -sq "\"event\":\"ready\".*\"leg\":$task\|\"leg\":$task.*\"event\":\"ready\"" "$work/used/journal.jsonl"
    sleep 12  # longer than the start took
    on scancel -b -s USR2 "${first}_$task"
    if ((task == 1)); then await 60 "the state between two jobs" is_watched_as used "saved and waiting"; fi
  done
  await 60 "the end of the chain" ended "$first"
  expect_equal "exit code of the first" 0:0 "$(job_field "${first}_1" ExitCode)"
  expect_equal "exit code of the last" 93:0 "$(job_field "${first}_2" ExitCode)"
  expect_match "what the last says" "the last job of the chain.*trireme submit --chain N -- pretrain --run $work/used" "$(output_of "${first}_2")"
  expect_equal "the state" "used up" "$(watched used)"
}

a_requeued_job_that_is_cancelled_is_told() {
  local id
  id=$(nodes=1 steps=100000 TRIREME_NOTIFY="cat >$work/told" submit again)
  await 120 "step 3" logged_step "$work/again" 3
  on scancel -s USR2 "$id"
  await 60 "the requeue" is_watched_as again "saved and waiting"
  expect_match "the comment" '^saved and waiting|^queued' "$(on scontrol -o show job "$id" | sed -nE 's/.* Comment=(.*)$/\1/p')"
  expect_match "the input of TRIREME_NOTIFY" "\"run\":\"$work/again\".*\"job\":\"$id\"" "$(<"$work/told")"
  on scancel "$id"
  await 60 "its end" ended "$id"
  expect_equal "the state" cancelled "$(watched again)"
}

a_refusal_is_told_with_its_reason() {
  local id
  id=$(TRIREME_NOTIFY="cat >$work/refused.json" submit refused --optim.lr -1)
  await 60 "its end" ended "$id"
  expect_match "the reason" '"message":"refused before it began: .*optim.lr' "$(<"$work/refused.json")"
}

# Tests a row of the table of signals: sends the signal to a job, and expects this end, these stacks and this checkpoint.
sent_signal() { # sent_signal NAME: prints `saves`, `stacks`, `stacks, saves`, `killed` or `goes on`
  local effect=''
  if [[ -n $(compgen -G "$work/$1/stacks/*") ]]; then effect=stacks; fi
  if grep -q '^job  *exit 75 .*: requeue$' "$work/$1.out"; then
    effect+="${effect:+, }saves"
  elif grep -q '^job  *exit 5 .*: requeue$' "$work/$1.out"; then
    effect=killed
  elif grep -q '^job  *exit 75 .*: stop$' "$work/$1.out"; then
    effect="saves, cancelled"
  fi
  printf '%s\n' "${effect:-goes on}"
}
has_effect() { [[ $(sent_signal "$1") == "$2" ]]; }

signals_do_what_the_table_says() {
  local signal to name
  local -A id effect=([step-USR2]=saves [step-TERM]=saves [step-USR1]=stacks [batch-USR2]=saves [batch-TERM]=saves [batch-USR1]=saves
    [full-USR2]=saves [full-USR1]="stacks, saves" [full-TERM]=killed [job-KILL]="saves, cancelled")
  local -A how=([step]='' [batch]=--batch [full]=--full)
  for name in "${!effect[@]}"; do
    id[$name]=$(TRIREME_BIN=$bin on sbatch --parsable --nodes=1 --ntasks-per-node=1 --gpus-per-node=0 --cpus-per-task=1 --mem=0 --oversubscribe \
      --time=20 --job-name="$name" --output="$work/$name.out" slurm/pretrain_a100.sbatch --data "$work/set" --run "$work/$name" "${kRunKeys[@]}" \
      --train.steps 100000)
  done
  for name in "${!effect[@]}"; do await 150 "step 3 of $name" logged_step "$work/$name" 3; done
  for name in "${!effect[@]}"; do
    to=${name%-*} signal=${name#*-}
    # shellcheck disable=SC2046,SC2086  # words of options
    on scancel $([[ $to == job ]] || printf -- '%s --signal=%s' "${how[$to]}" "$signal") "${id[$name]}"
  done
  for name in "${!effect[@]}"; do
    await 60 "the effect of $name, ${effect[$name]} (now: $(sent_signal "$name"))" has_effect "$name" "${effect[$name]}"
  done
  on scancel --user=root
}

a_time_limit_that_changes_is_heeded() {
  local long short start
  long=$(nodes=1 limit=2 steps=100000 submit long)
  short=$(nodes=1 limit=20 steps=100000 submit short)
  await 120 "step 3" logged_step "$work/short" 3
  await 120 "step 3" logged_step "$work/long" 3
  start=$SECONDS
  on scontrol update JobId="$long" TimeLimit=20
  on scontrol update JobId="$short" TimeLimit=3
  await 100 "the stop before a shorter limit" requeued short
  expect_match "how it stopped" 'exit 75 ' "$(ends short | head -n1)"
  on scancel "$short"
  await 150 "the news of a longer limit" grep -q 'the scheduler now ends the job 1080 s later' "$work/long.out"
  while ((SECONDS < start + 130)); do sleep 1; done
  expect_equal "a job past its old limit" RUNNING "$(job_field "$long" JobState)"
  expect_equal "its restarts" 0 "$(job_field "$long" Restarts)"
  on scancel "$long"
  await 60 "its end" ended "$long"
}

cluster_up
scenarios=("${@:2}")
if ((${#scenarios[@]} == 0)); then
  scenarios=(a_chain_that_is_cancelled_ends_as_a_whole what_a_run_forbids_is_told_at_submission a_requeued_job_that_is_cancelled_is_told
    a_refusal_is_told_with_its_reason a_chain_that_is_used_up_says_what_to_submit signals_do_what_the_table_says
    a_time_limit_that_changes_is_heeded)
fi
run_scenarios make_set_here "${scenarios[@]}"
finish
