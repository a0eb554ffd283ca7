#!/usr/bin/env bash
# Runs a command on allocated nodes interactively, in this terminal.
#
#   slurm/debug.sh [srun option...] [-- command...]
#
#   slurm/debug.sh                                                       starts a shell on one node
#   slurm/debug.sh -- build/release/bin/trireme pretrain --data data/pretrain --run runs/try --model.preset tiny
#   slurm/debug.sh --nodes=2 --ntasks-per-node=8 --gpus-per-node=8 -- build/release/bin/trireme pretrain ...
#   DRY_RUN=1 slurm/debug.sh ...                                         prints the command
#
# Defaults: one node, one task, eight CPUs per task, half an hour. srun options given here override them. The command runs in the
# current directory, like a job. The shell accepts any number of commands as on a workstation (also `mpirun --oversubscribe -n 2
# trireme ...`). It uses --mpi=none, because a PMIx server accepts only one MPI start per step.
# To inspect a running job: srun --jobid=ID --overlap --gres=gpu:0 --nodelist=NODE --pty bash, then gdb -p PID.
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source=slurm/lib/settings.sh
source "$here/lib/settings.sh"
read_settings
# shellcheck source=slurm/env.sh
source "$here/env.sh"
# shellcheck source=slurm/lib/step.sh
source "$here/lib/step.sh"

options=(--nodes=1 --ntasks-per-node=1 --cpus-per-task=8 --time=00:30:00)
while (($#)) && [[ $1 != -- ]]; do
  case $1 in
    -h | --help) sed -n '2,15s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    -*) options+=("$1") ;;
    *) printf 'error: %s is not an srun option of the form --name=value. Put the command after --\n' "$1" >&2; exit 2 ;;
  esac
  shift
done
(($#)) && shift

if (($#)); then
  command=(srun "--mpi=$TRIREME_MPI" "${options[@]}" --cpu-bind=cores --kill-on-bad-exit=1 --unbuffered --label "$@")
else
  command=(srun --mpi=none "${options[@]}" --pty bash)
fi
if [[ ${DRY_RUN:-0} == 1 ]]; then
  printf '%q ' "${command[@]}"
  printf '\n'
  exit 0
fi
refuse_in_step "run the command without debug.sh, or open another terminal on the login node"
command -v srun >/dev/null || { printf 'error: srun not found: run this on a login node of the cluster\n' >&2; exit 2; }
exec "${command[@]}"
