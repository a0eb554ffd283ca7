#!/usr/bin/env bash
# Breaks and repairs a node.
#   node.sh DIR crash NODE    the node dies at once: slurmd, step daemons, ranks
#   node.sh DIR slurmd NODE   only slurmd dies; the jobs continue
#   node.sh DIR cut NODE      netns: unplug the cable          node.sh DIR join NODE   plug it in again
#   node.sh DIR start NODE    slurmd, or the whole node, starts again
set -euo pipefail
(($# == 3)) || { sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
dir=$(cd "$1" && pwd) what=$2 node=$3
netns=0  # conf sets it
# shellcheck disable=SC1091
source "$dir/run/conf"
# shellcheck disable=SC1091
source "$dir/env.sh"

step_daemons() {
  local process
  for process in /proc/[0-9]*; do
    # shellcheck disable=SC2010  # link targets, not names
    if [[ $(readlink "$process/exe" 2>/dev/null) == */slurmstepd* ]] &&
      ls -l "$process/fd" 2>/dev/null | grep -qF "$dir/log/slurmd.$node.log"; then printf '%s\n' "${process#/proc/}"; fi
  done
}

with_children() {
  local child children=()
  read -ra children < <(cat "/proc/$1/task/"*/children 2>/dev/null) || true
  for child in "${children[@]}"; do with_children "$child"; done
  printf '%s\n' "$1"
}

crash() {
  local pid
  if ((netns)); then
    "$dir/on" ctl kill -9 "$(<"$dir/run/$node.pid")"
  else
    for pid in $(for step in $(step_daemons); do with_children "$step"; done) "$(<"$dir/run/slurmd.$node.pid")"; do
      kill -9 "$pid" || true
    done
  fi
  # Simulates the reboot of a diskless node: PMIx files of the dead step would make the requeued step fail (same ids).
  sleep 0.2
  rm -rf "$dir/node/$node"/{spool,tmp,shm}/*
}

case $what in
  crash) crash ;;
  slurmd)
    if ((netns)); then "$dir/on" "$node" kill -9 "$(<"$dir/run/slurmd.$node.pid")"; else kill -9 "$(<"$dir/run/slurmd.$node.pid")"; fi ;;
  cut) "$dir/on" ctl ip link set "v$node" down ;;
  join) "$dir/on" ctl ip link set "v$node" up ;;
  start)
    if ((netns)) && "$dir/on" "$node" true 2>/dev/null; then
      "$dir/on" "$node" bash -c "setsid slurmd -D -N $node -f $SLURM_CONF >>$dir/log/slurmd.$node.out 2>&1 </dev/null &"
    else
      "$dir/on" ctl bash "$dir/run/init.sh" start "$dir" "$node"
    fi ;;
  *) printf 'error: %s is not one of crash, slurmd, cut, join, start\n' "$what" >&2; exit 2 ;;
esac
