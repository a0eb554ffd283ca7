#!/usr/bin/env bash
# Tests the job scripts without a cluster: time limits that change, signals to the batch script, and dependent jobs.
# shellcheck disable=SC2030,SC2031  # a job's environment ends with its subshell
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
source tests/support/shell.sh
source tests/slurm/fakes.sh
source slurm/lib.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

utc() { TZ=UTC date -d "@$1" +%Y-%m-%dT%H:%M:%S; }

# Prints the exit code of a step if its batch script gets SIGNAL. Times are seconds from now. NEW_END: the end that the controller
# then reports.
signalled_job() { # [NEW_END=S] [SIGNALS=N] signalled_job SIGNAL START END
  local now rc=0
  now=$(date +%s)
  fake scontrol <<'EOF2'
printf 'JobId=7 RunTime=00:00:09 StartTime=%s EndTime=%s Deadline=N/A\n' "$START" "$END"
EOF2
  START=$(utc $((now + $2))) END=$(utc $((now + ${NEW_END:-$3}))) TZ=UTC SLURM_JOB_ID=7 PATH=$work/path:$PATH bash -c '
    set -euo pipefail  # like in the job scripts
    source slurm/lib.sh
    job_start=$2 job_end=$3
    export SLURM_JOB_END_TIME=$job_end
    (for ((i = 0; i < $4; i++)); do sleep 0.2; kill "-$1" $$; done) &
    run_and_wait sh -c "trap \"exit 75\" USR2; for i in 1 2 3 4 5 6 7; do sleep 0.1; done"
    exit "$srun_code"' signalled "$1" $((now + $2)) $((now + $3)) "${SIGNALS:-1}" >"$work/out" 2>&1 || rc=$?
  printf '%s\n' "$rc"
}

a_warning_is_slurms_own_only_near_the_end() {
  expect_equal "five minutes before the end of an hour" 75 "$(signalled_job USR2 -3300 300)"
  expect_equal "nine seconds into twenty minutes" 75 "$(signalled_job USR2 -9 1191)"
  expect_equal "after half a minute of three" 0 "$(signalled_job USR2 -30 150)"
  expect_match "its message" 'in the first half of the job: the program itself watches the clock' "$(<"$work/out")"
  expect_equal "the second one in a job of three minutes" 75 "$(SIGNALS=2 signalled_job USR2 -30 150)"
  expect_equal "a limit that was shortened from an hour to three minutes" 75 "$(NEW_END=150 signalled_job USR2 -30 3570)"
  expect_equal "a job of three minutes that has an hour now" 75 "$(NEW_END=3570 signalled_job USR2 -30 150)"
}

every_other_signal_to_the_script_saves_and_stops() {
  local signal
  for signal in USR1 TERM HUP; do
    expect_equal "SIG$signal" 75 "$(signalled_job "$signal" -9 1191)"
    expect_match "its message" "SIG$signal: the processes save and stop" "$(<"$work/out")"
  done
}

# Slurm sends its warning once. The script checks each minute whether a changed limit has come near.
a_limit_that_is_moved_near_is_noticed() {
  local now rc
  now=$(date +%s)
  # shellcheck disable=SC2016  # expanded where it runs
  fake scontrol <<<'printf "JobId=7 StartTime=%s EndTime=%s Deadline=N/A\n" "$START" "$END"'
  for end in 200 3000; do
    rc=0
    START=$(utc $((now - 60))) END=$(utc $((now + end))) TZ=UTC SLURM_JOB_ID=7 PATH=$work/path:$PATH bash -c '
      source slurm/lib.sh
      trap "exit 75" USR2
      watch_time_limit "$1"' watching $((now + 3540)) || rc=$?
    expect_equal "a limit $end s away" $((end == 200 ? 75 : 0)) "$rc"
  done
}

the_time_limit_is_this_jobs() {
  # shellcheck disable=SC2016  # expanded where it runs
  fake scontrol <<<'printf "JobId=7 StartTime=2026-01-31T12:00:00 EndTime=%s Deadline=N/A\n" "$END"'
  local line
  line=$(PATH=$work/path:$PATH SLURM_JOB_ID=7 SLURM_JOB_END_TIME=1 END=2026-01-31T13:00:00Z bash -c 'source slurm/lib.sh; export_job_times; printf %s "$SLURM_JOB_END_TIME"')
  expect_equal "its end, whatever was inherited" "$(date -d 2026-01-31T13:00:00Z +%s)" "$line"
  line=$(PATH=$work/path:$PATH SLURM_JOB_ID=7 SLURM_JOB_END_TIME=1 END=Unknown bash -c 'source slurm/lib.sh; export_job_times; printf %s "${SLURM_JOB_END_TIME:-none}"')
  expect_equal "a job without one" none "$line"
}

# Jobs of an array that share a run, like the jobs of `trireme submit --chain`.
a_chain_goes_on_until_its_run_has_ended() {
  local chain_file=$work/chain-code
  local -x SLURM_ARRAY_JOB_ID=9 SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_MAX=2
  : >"$chain_file"
  expect_equal "an attempt before the next dependent job" '0 ' "$(job_ends requeue 75 143)"
  expect_match "what finish is asked" ' --in-chain' "$(xargs <"$work/asked")"
  expect_equal "the last job's" '93 ' "$(SLURM_ARRAY_TASK_ID=2 job_ends requeue 75 143)"
  expect_match "its message" 'the last job of the chain.*trireme submit --chain N -- pretrain --run ' "$(<"$work/out")"
  expect_equal "the dependent jobs continue" '' "$(<"$chain_file")"
  expect_equal "one that fails for good" '3 ' "$(SAYS='"why":"bad data"' job_ends stop 3 3)"
  expect_equal "the chain has ended" '3 bad data' "$(<"$chain_file")"
}

# Runs the second or third of several dependent tasks. Prints its exit code and the steps that it started. CODE: the content of
# chain-code. Earlier tasks are in the states STATE..., one for each query.
next_in_chain() { # [TASK=N] next_in_chain CODE STATE...
  local rc=0
  rm -rf "$work/frozen" && mkdir -p "$work/frozen" && cp -r slurm "$work/frozen/"
  printf '%s' "$1" >"$work/frozen/chain-code"
  printf '%s\n' "${@:2}" >"$work/states"
  rm -f "$work"/calls*
  fake scontrol <<'EOF2'
[[ $4 != 12 ]] || exit 0  # the query for the path of the script
if [[ $4 == 9_"$SLURM_ARRAY_TASK_ID" ]]; then printf 'JobId=12 JobState=RUNNING Restarts=0 StartTime=Unknown EndTime=Unknown\n'; exit; fi
printf '%s\n' "$*" >>"$CALLS"
state=$(head -n1 "$STATES") && sed -i 1d "$STATES"
[[ $state != gone ]] || { printf 'slurm_load_jobs error: Invalid job id specified\n' >&2; exit 1; }
printf 'JobId=11 ArrayJobId=9 ArrayTaskId=%s JobState=%s RunTime=%s Restarts=0\n' "${4#9_}" "${state%%:*}" "${state#*:}"
EOF2
  # shellcheck disable=SC2016  # expanded where it runs
  fake scancel <<<'printf "scancel %s\n" "$*" >>"$CALLS"'
  fake sleep <<<'exit 0'
  STATES=$work/states CALLS=$work/calls PATH=$work/path:$PATH SLURM_JOB_ID=12 SLURM_ARRAY_JOB_ID=9 SLURM_ARRAY_TASK_ID=${TASK:-2} \
    SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=3 TRIREME_BIN=$work/bin "$work/frozen/slurm/pretrain_a100.sbatch" --data d --run r >"$work/out" 2>&1 || rc=$?
  printf '%s %s\n' "$rc" "$(if [[ -e $work/calls.steps ]]; then printf started; else printf none; fi)"
}

a_task_settles_what_became_of_the_one_before() {
  job_ends "done" 0 0 >/dev/null  # the output of trireme job finish
  fake_srun
  expect_equal "after one that ended the run" '3 none' "$(next_in_chain '3 another try would end the same' COMPLETED:00:01:00)"
  expect_match "its message" 'an earlier job of this chain ended the run: another try would end the same' "$(<"$work/out")"
  expect_equal "after one that saved" '0 started' "$(next_in_chain '' COMPLETED:00:01:00)"
  expect_equal "after one that the controller has forgotten" '0 started' "$(next_in_chain '' gone)"
  expect_equal "after one that was cancelled and still saves" '75 none' \
    "$(next_in_chain '' COMPLETING:00:01:00 COMPLETING:00:01:00 CANCELLED:00:01:00)"
  expect_match "its message" 'ended the run: job 9_1 was cancelled' "$(<"$work/out")"
  expect_equal "the chain" '75 job 9_1 was cancelled (scancel)' "$(<"$work/frozen/chain-code")"
  expect_match "what else" 'scancel 9$' "$(<"$work/calls")"
  expect_equal "after one that was taken out of the queue" '0 started' "$(TASK=3 next_in_chain '' CANCELLED:00:00:00 COMPLETED:00:01:00)"
  expect_match "which ones it asks about" "show job 9_2 -o show job 9_1 " "$(xargs <"$work/calls")"
  rm "$work/frozen/chain-code" && mkdir "$work/frozen/chain"{,-code}  # a user may have such files in a checkout
  CALLS=$work/calls PATH=$work/path:$PATH SLURM_JOB_ID=7 "$work/frozen/slurm/pretrain_a100.sbatch" --data d --run r >"$work/out" 2>&1 || true
  expect_match "steps in a directory with these names" 'pretrain --data d' "$(cat "$work/calls.steps")"
}

fake_srun
a_warning_is_slurms_own_only_near_the_end
every_other_signal_to_the_script_saves_and_stops
a_limit_that_is_moved_near_is_noticed
the_time_limit_is_this_jobs
a_chain_goes_on_until_its_run_has_ended
a_task_settles_what_became_of_the_one_before
finish
