# shellcheck shell=bash
# Time limits and signals of the batch script and the ranks. docs/slurm.md has a table. Sourced by ../lib.sh.

# Slurm sends the warning of --signal=B:USR2@300 up to a minute early, and checks time limits twice a minute.
kWarning_s=390
job_start='' job_end=''

# Sets job_start and job_end (Unix time) from the controller, because the time limit may have changed. If the controller does not answer,
# both keep their values.
ask_job_times() {
  local facts start end
  facts=$(timeout 30 scontrol -o show job "$(job_id)" 2>/dev/null) || return 0
  start=${facts#* StartTime=} end=${facts#* EndTime=}
  [[ $start != "$facts" && $end != "$facts" ]] || return 0
  job_start=$(date -d "${start%% *}" +%s 2>/dev/null) || job_start=
  job_end=$(date -d "${end%% *}" +%s 2>/dev/null) || job_end=
}

# Exports start and end of this job as SLURM_JOB_START_TIME and SLURM_JOB_END_TIME. Inherited values belong to another job: sbatch passes on
# its own environment, and Slurm 22.05 does not set the variables.
export_job_times() {
  job_start='' job_end=''
  ask_job_times
  if [[ -n $job_start ]]; then export SLURM_JOB_START_TIME=$job_start; else unset SLURM_JOB_START_TIME; fi
  if [[ -n $job_end ]]; then export SLURM_JOB_END_TIME=$job_end; else unset SLURM_JOB_END_TIME; fi
}

# is_early_warning: true for the warning that Slurm sends at once in a job of a few minutes: the first SIGUSR2, in the first half of the
# job and near the end that the program knows.
is_early_warning() {
  local now
  [[ -z ${warned:-} && -n $job_start && -n $job_end && $job_end == "${SLURM_JOB_END_TIME:-}" ]] || return 1
  now=$(date +%s)
  ((job_end - now <= kWarning_s && 2 * now < job_start + job_end))
}

# on_stop_signal NAME: passes a signal of the batch script on to the step as SIGUSR2, the request to save and stop.
on_stop_signal() {
  if [[ $1 == USR2 ]]; then
    ask_job_times
    if is_early_warning; then
      warned=1
      printf 'job       Slurm warned of the time limit in the first half of the job: the program itself watches the clock\n'
      return 0  # in a trap, return without 0 passes on the status of the interrupted command, which ends the script
    fi
    warned=1
  fi
  printf 'job       SIG%s: the processes save and stop\n' "$1"
  stop_asked=1
  [[ -z $step_pid ]] || kill -USR2 "$step_pid" 2>/dev/null || true
}

# run_and_wait COMMAND...: runs a step, passes signals on to it, waits for its end, and sets srun_code.
run_and_wait() {
  local interrupted signal
  step_pid='' stop_asked=''
  for signal in USR1 USR2 TERM INT HUP; do
    # shellcheck disable=SC2064  # expand the name now
    trap "interrupted=1; on_stop_signal $signal" "$signal"
  done
  "$@" &
  step_pid=$!
  [[ -z $stop_asked ]] || kill -USR2 "$step_pid" 2>/dev/null || true
  while :; do
    interrupted=
    # shellcheck disable=SC2034  # result for the caller
    wait "$step_pid" && srun_code=0 || srun_code=$?
    [[ -n $interrupted ]] || break
  done
  trap : USR1 USR2 TERM INT HUP  # a late signal must not end the script before its decision
}

# watch_time_limit KNOWN_END: if the time limit was moved so near that the warning is due, sends the script the warning, which Slurm does
# not repeat. KNOWN_END: the end that the program knows.
watch_time_limit() {
  ask_job_times
  [[ -n $1 && -n $job_end && -z ${warned:-} ]] || return 0
  if ((job_end < $1 && job_end - $(date +%s) <= kWarning_s)); then
    warned=1
    kill -USR2 $$
  fi
}
