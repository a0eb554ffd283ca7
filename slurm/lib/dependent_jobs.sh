# shellcheck shell=bash
# shellcheck disable=SC2154  # controller_until of ../lib.sh
# Dependent jobs of `trireme submit --chain N`: tasks of one array that run one at a time. Sourced by ../lib.sh.
#
# The tasks share the file `chain-code` beside the frozen scripts. It is empty while the run continues. The task that ends the run for
# good writes its exit code and the reason into the file, and later tasks start no ranks.
chain_file=$(dirname "$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")")/chain-code

in_chain() { [[ -f $chain_file ]]; }

end_chain() { # end_chain CODE WHY
  printf '%s %s\n' "$1" "$2" >"$chain_file.tmp" && mv -f "$chain_file.tmp" "$chain_file"
}

# fact KEY LINE: prints the value of KEY=VALUE in a line of `scontrol -o show job`; prints nothing if KEY is missing.
fact() {
  local rest=" $2"
  [[ $rest == *" $1="* ]] || return 0
  rest=${rest#*" $1="}
  printf '%s\n' "${rest%% *}"
}

# Prints the controller's description of the nearest earlier task that began, after its script has ended; nothing without such a task.
# After scancel, Slurm starts the next task while the cancelled task still saves and decides, in the state COMPLETING.
earlier_task() {
  local task=$((SLURM_ARRAY_TASK_ID - 1)) facts announced=
  wait_for_controller
  while ((task >= ${SLURM_ARRAY_TASK_MIN:-1})); do
    facts=$(controller -o show job "${SLURM_ARRAY_JOB_ID}_$task" 2>/dev/null) || return 0  # unknown job, or no answer
    facts=${facts%%$'\n'*}
    if [[ $(fact JobState "$facts") =~ ^(COMPLETING|RUNNING|SUSPENDED|STOPPED)$ ]] && ((SECONDS < controller_until)); then
      [[ -n $announced ]] || printf 'job       waits for the end of task %s of the chain\n' "$task" >&2
      announced=1
      sleep 1
    elif [[ $(fact JobState "$facts") == CANCELLED && $(fact RunTime "$facts") == 00:00:00 ]]; then
      task=$((task - 1))  # it was removed from the queue before it began
    else
      printf '%s\n' "$facts"
      return 0
    fi
  done
}

# Ends the script if an earlier task of the chain ended the run, or was cancelled before it could record that. Call it before the ranks
# start.
check_chain() {
  local facts code why
  in_chain || return 0
  facts=$(earlier_task)
  if [[ ! -s $chain_file && $(fact JobState "$facts") == CANCELLED ]]; then
    end_chain 75 "job $(fact ArrayJobId "$facts")_$(fact ArrayTaskId "$facts") was cancelled (scancel)"
  fi
  [[ -s $chain_file ]] || return 0
  read -r code why <"$chain_file" || true
  printf 'job       an earlier job of this chain ended the run: %s\n' "${why:-exit code $code}"
  # Cancel all tasks of a cancelled chain, so that they do not look as if they had failed.
  if [[ $code == 75 ]]; then timeout 60 scancel "$SLURM_ARRAY_JOB_ID" || true; fi
  exit "$code"
}

# leave_chain DECISION CODE WHY RUN: ends the script, with 0 if the next job of the chain resumes the run.
leave_chain() {
  local code=$2
  if [[ $1 != requeue ]]; then
    end_chain "$code" "$3"
  elif ((SLURM_ARRAY_TASK_ID < SLURM_ARRAY_TASK_MAX)); then
    printf 'job       the next job of the chain resumes the run\n'
    code=0
  else
    job_error "this was the last job of the chain, and the run has not ended. Submit more jobs to resume it:" \
      "trireme submit --chain N -- ${train_task:-pretrain} --run $(printf '%q' "$4")"
    code=93
  fi
  exit "$code"
}
