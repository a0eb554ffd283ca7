# shellcheck shell=bash
# shellcheck disable=SC2154  # controller_until of ../lib.sh
# Jobs of `trireme submit --chain N`: tasks of one array, one at a time. Sourced by ../lib.sh.
#
# The tasks share the file `chain-code` beside the frozen scripts. It is empty while the run goes on. The task that ends the run for
# good writes its exit code and the reason there, and the tasks after it start no ranks.
chain_file=$(dirname "$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")")/chain-code

in_chain() { [[ -f $chain_file ]]; }

end_chain() { # end_chain CODE WHY
  printf '%s %s\n' "$1" "$2" >"$chain_file.tmp" && mv -f "$chain_file.tmp" "$chain_file"
}

# fact KEY LINE: the value of KEY=VALUE in a line of `scontrol -o show job`; nothing if it is absent.
fact() {
  local rest=" $2"
  [[ $rest == *" $1="* ]] || return 0
  rest=${rest#*" $1="}
  printf '%s\n' "${rest%% *}"
}

# Prints what the controller says of the nearest earlier task that began, once its script has ended; nothing without such a task.
# After scancel, Slurm starts the next task while the script of the cancelled one still saves and decides: it shows as COMPLETING.
earlier_task() {
  local task=$((SLURM_ARRAY_TASK_ID - 1)) facts told=
  wait_for_controller
  while ((task >= ${SLURM_ARRAY_TASK_MIN:-1})); do
    facts=$(controller -o show job "${SLURM_ARRAY_JOB_ID}_$task" 2>/dev/null) || return 0  # forgotten by now, or silent
    facts=${facts%%$'\n'*}
    if [[ $(fact JobState "$facts") =~ ^(COMPLETING|RUNNING|SUSPENDED|STOPPED)$ ]] && ((SECONDS < controller_until)); then
      [[ -n $told ]] || printf 'job       waits for the end of task %s of the chain\n' "$task" >&2
      told=1
      sleep 1
    elif [[ $(fact JobState "$facts") == CANCELLED && $(fact RunTime "$facts") == 00:00:00 ]]; then
      task=$((task - 1))  # it was taken out of the queue and decided nothing
    else
      printf '%s\n' "$facts"
      return 0
    fi
  done
}

# Before the ranks start: ends the script if an earlier task of the chain ended the run, or was cancelled before it could say so.
settle_chain() {
  local facts code why
  in_chain || return 0
  facts=$(earlier_task)
  if [[ ! -s $chain_file && $(fact JobState "$facts") == CANCELLED ]]; then
    end_chain 75 "job $(fact ArrayJobId "$facts")_$(fact ArrayTaskId "$facts") was cancelled (scancel)"
  fi
  [[ -s $chain_file ]] || return 0
  read -r code why <"$chain_file" || true
  printf 'job       an earlier job of this chain ended the run: %s\n' "${why:-exit code $code}"
  # A chain that was cancelled is cancelled as a whole: its tasks do not look as if they had failed.
  if [[ $code == 75 ]]; then timeout 60 scancel "$SLURM_ARRAY_JOB_ID" || true; fi
  exit "$code"
}

# leave_chain VERDICT CODE WHY RUN: ends the script; with 0 if the next job of the chain goes on.
leave_chain() {
  local code=$2
  if [[ $1 != requeue ]]; then
    end_chain "$code" "$3"
  elif ((SLURM_ARRAY_TASK_ID < SLURM_ARRAY_TASK_MAX)); then
    printf 'job       the next job of the chain goes on\n'
    code=0
  else
    job_error "this was the last job of the chain, and the run has not ended: no job goes on with it. Submit more jobs:" \
      "trireme submit --chain N -- ${train_task:-pretrain} --run $(printf '%q' "$4")"
    code=93
  fi
  exit "$code"
}
