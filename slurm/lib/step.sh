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
