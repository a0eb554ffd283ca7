# shellcheck shell=bash
# Submits jobs that wait for each other: all of them or none. A script that sources this file sets `here` (the directory of the job
# scripts) and `logs` (the directory of the jobs' outputs), and declares the array `job`.

# Cancels the accepted stages if Slurm refuses a stage, because they would be in the way of the next chain.
withdraw() {
  local rc=$? accepted
  read -ra accepted <<<"${job[*]}"  # a stage that was not needed has no id
  if ((rc != 0 && ${#accepted[@]} > 0)); then
    printf 'error: Slurm refused a stage; the other stages are cancelled: %s\n' "${accepted[*]}" >&2
    scancel "${accepted[@]}"
  fi
  exit "$rc"
}

# submit NAME AFTER SCRIPT ARGUMENT...: submits one stage and stores its id in job[NAME]. AFTER: ids joined by colons, or "".
submit() {
  local command=(sbatch --parsable "--job-name=$1" --nodes=1 "--output=$logs/%x-%j.out" --kill-on-invalid-dep=yes) id
  [[ -z $2 ]] || command+=("--dependency=afterok:$2")
  command+=("$here/$3" "${@:4}")
  if [[ ${DRY_RUN:-0} == 1 ]]; then
    id="<$1>"
    printf '%q ' "${command[@]}" >&2
    printf '\n' >&2
  else
    id=$("${command[@]}")
    id=${id%%;*}  # without the name of the cluster
  fi
  job[$1]=$id
}
