# shellcheck shell=bash
# A script that starts srun must not run inside of a step: its own steps would wait for ever for the resources of that step.

# refuse_in_step ADVICE: ends the script with 2 below `srun`. A batch script has no step number of its own, but sbatch passes on that of
# the shell where it was typed; the number of salloc's interactive step is one of Slurm's own, and holds no resources.
refuse_in_step() {
  local step=${SLURM_STEP_ID:-}
  if [[ ! $step =~ ^[0-9]+$ || $0 == */slurm_script ]] || ((step >= 4294967000)); then return; fi
  if [[ ${SLURM_PROCID:-0} == 0 ]]; then
    printf 'error: %s starts srun itself and cannot run inside of srun (step %s.%s): %s\n' "$0" "${SLURM_JOB_ID:-}" "$step" "$1" >&2
  fi
  exit 2
}
