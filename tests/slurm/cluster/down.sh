#!/usr/bin/env bash
# down.sh DIR: stops the cluster in DIR. Logs and configuration stay. Ends only processes that the pid files, log files or
# SLURM_CONF of the cluster lead to.
set -euo pipefail
[[ -f ${1:-}/run/conf ]] || exit 0
dir=$(cd "$1" && pwd)
PATH=$PATH:/usr/sbin:/sbin
netns=0  # conf sets it
# shellcheck disable=SC1091
source "$dir/run/conf"

recorded_pid() { # recorded_pid FILE: prints its pid if this process still belongs to the cluster
  local pid
  [[ -s $1 ]] || return 0
  pid=$(<"$1")
  if tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF "$dir"; then printf '%s\n' "$pid"; fi
}

end_pid() { # end_pid SIGNAL [PID]
  [[ -z ${2:-} ]] || kill -s "$1" "$2" 2>/dev/null || true
}

down_netns() { # all processes of a namespace end with its process 1
  local i
  end_pid KILL "$(recorded_pid "$dir/run/ctl.pid")"
  end_pid KILL "$(recorded_pid "$dir/run/top.pid")"
  for ((i = 0; i < 100; i++)); do
    [[ -n $(recorded_pid "$dir/run/top.pid") ]] || return 0
    sleep 0.05
  done
}

end_jobs() { # called first, because slurmstepd outlives slurmd
  local i
  [[ -n $(recorded_pid "$dir/run/slurmctld.pid") ]] || return 0
  timeout 5 scancel -f --quiet --state=PENDING,RUNNING,SUSPENDED 2>/dev/null || true
  for ((i = 0; i < 100; i++)); do
    [[ -n $(timeout 5 squeue -h -t R,CG,S 2>/dev/null) ]] || return 0
    sleep 0.05
  done
}

end_leftovers() { # step daemons that log into DIR, and processes of jobs of this cluster
  local process pid
  for process in /proc/[0-9]*; do
    pid=${process#/proc/}
    case $(readlink "$process/exe" 2>/dev/null) in
      */slurmstepd*)
        # shellcheck disable=SC2010  # link targets, not names
        if ls -l "$process/fd" 2>/dev/null | grep -qF "$dir/log/"; then end_pid KILL "$pid"; fi ;;
      ?*)
        if tr '\0' '\n' 2>/dev/null <"$process/environ" | grep -qxF "SLURM_CONF=$dir/etc/slurm.conf" &&
          tr '\0' '\n' 2>/dev/null <"$process/environ" | grep -q '^SLURM_JOB_ID='; then end_pid KILL "$pid"; fi ;;
    esac
  done
}

down_plain() {
  local file pid i pids=() alive
  # shellcheck disable=SC1091
  source "$dir/env.sh"
  end_jobs
  for file in "$dir"/run/slurmd.*.pid "$dir/run/slurmctld.pid" "$dir/run/munged.pid"; do
    pid=$(recorded_pid "$file")
    [[ -z $pid ]] || pids+=("$pid")
    end_pid TERM "$pid"
  done
  for ((i = 0; i < 100; i++)); do
    alive=0
    for pid in "${pids[@]}"; do [[ ! -d /proc/$pid ]] || alive=1; done
    ((alive)) || break
    sleep 0.05
  done
  for pid in "${pids[@]}"; do end_pid KILL "$pid"; done
  end_leftovers
}

if ((netns)); then down_netns; else down_plain; fi
rm -f "$dir"/run/up "$dir"/run/*.pid "$dir"/run/munge.sock*
