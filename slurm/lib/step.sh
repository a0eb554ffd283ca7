# shellcheck shell=bash
# A script that starts srun must not run inside a step: its own steps would wait forever for the resources of that step.

# refuse_in_step ADVICE: ends the script with 2 if it runs below `srun`. The interactive step of salloc has a special number and holds no
# resources, so it is allowed.
refuse_in_step() {
  local step=${SLURM_STEP_ID:-}
  if [[ ! $step =~ ^[0-9]+$ ]] || ((step >= 4294967000)); then return; fi
  if [[ ${SLURM_PROCID:-0} == 0 ]]; then
    printf 'error: %s starts srun itself and cannot run inside of srun (step %s.%s): %s\n' "$0" "${SLURM_JOB_ID:-}" "$step" "$1" >&2
  fi
  exit 2
}

# sbatch passes on the variables of the step in which it was typed. A batch script is not in a step, so its programs must not see them.
if [[ $0 == */slurm_script ]]; then
  unset SLURM_STEP_ID SLURM_STEPID SLURM_STEP_NODELIST SLURM_STEP_NUM_NODES SLURM_STEP_NUM_TASKS SLURM_STEP_TASKS_PER_NODE PMIX_RANK PMIX_NAMESPACE
fi

# Replaces the number of restarts of this job by the controller's number. Slurm does not set the variable in the first start, so there it
# may be that of the job in which sbatch was typed. If the controller does not answer, the variable stays.
own_restart_count() {
  local facts restarts
  [[ $0 == */slurm_script && -n ${SLURM_RESTART_COUNT:-} ]] || return 0
  facts=$(timeout 30 scontrol -o show job "$(job_id)" 2>/dev/null) || return 0
  restarts=${facts#* Restarts=}
  [[ $restarts != "$facts" ]] || return 0
  restarts=${restarts%%[!0-9]*}
  if ((restarts > 0)); then export SLURM_RESTART_COUNT=$restarts; else unset SLURM_RESTART_COUNT; fi
}
