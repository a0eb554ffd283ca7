#!/usr/bin/env bash
# Runs a command on nodes of the debug kind at once, in this terminal.
#
#   slurm/debug.sh [srun option...] [-- command...]
#
#   slurm/debug.sh                                                       a shell on one node
#   slurm/debug.sh -- build/release/bin/trireme pretrain --data data/pretrain --run runs/try --model.preset tiny
#   slurm/debug.sh --nodes=2 --ntasks-per-node=8 --gpus-per-node=8 -- build/release/bin/trireme pretrain ...
#   DRY_RUN=1 slurm/debug.sh ...                                         prints the command
#
# Defaults: one node, one task, eight CPUs a task, half an hour; srun options given here come later and win.
# To look at a running job: srun --jobid=ID --overlap --gres=gpu:0 --nodelist=NODE --pty bash, then gdb -p PID.
set -euo pipefail

cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
source slurm/env.sh

options=(--nodes=1 --ntasks-per-node=1 --cpus-per-task=8 --time=00:30:00)
while (($#)) && [[ $1 != -- ]]; do
  case $1 in
    -h | --help) sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    -*) options+=("$1") ;;
    *) printf 'error: %s is no srun option of the form --name=value; the command comes after --\n' "$1" >&2; exit 2 ;;
  esac
  shift
done
(($#)) && shift

if (($#)); then
  command=(srun "--mpi=$TRIREME_MPI" "${options[@]}" --cpu-bind=cores --kill-on-bad-exit=1 --unbuffered --label "$@")
else
  command=(srun "${options[@]}" --pty bash)
fi
if [[ ${DRY_RUN:-0} == 1 ]]; then
  printf '%q ' "${command[@]}"
  printf '\n'
  exit 0
fi
command -v srun >/dev/null || { printf 'error: srun not found: run this on a login node of the cluster\n' >&2; exit 2; }
exec "${command[@]}"
