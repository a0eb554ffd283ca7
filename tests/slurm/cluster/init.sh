#!/usr/bin/env bash
# Starts daemons for up.sh and node.sh, directly or as process 1 of a namespace.
#   init.sh plain DIR | ctl DIR | node DIR NAME | start DIR NAME
set -euo pipefail
what=$1 dir=$2 name=${3:-}
netns=0 rate='' port=0 ctl_address='' names=()  # conf sets them
# shellcheck disable=SC1091
source "$dir/run/conf"
# shellcheck disable=SC1091
source "$dir/env.sh"
# this process's pid in the outer namespace, which still has its /proc mounted here
read -r outer_pid _ </proc/self/stat

start_munged() { # the socket is a path, so one munged serves all network namespaces
  munged --force --num-threads=2 --key-file="$dir/etc/munge.key" --socket="$dir/run/munge.sock" \
    --pid-file="$dir/run/munged.pid" --log-file="$dir/log/munged.log" --seed-file="$dir/run/munged.seed"
}

start_slurmd() {
  setsid slurmd -D -N "$1" -f "$SLURM_CONF" >>"$dir/log/slurmd.$1.out" 2>&1 </dev/null &
}

start_slurmctld() {
  setsid slurmctld -D -f "$SLURM_CONF" >>"$dir/log/slurmctld.out" 2>&1 </dev/null &
  local i
  for ((i = 0; i < 500; i++)); do  # a slurmd that finds no controller would sleep a second
    if (: >"/dev/tcp/$ctl_address/$port") 2>/dev/null; then return; fi
    sleep 0.01
  done
}

boot() { # powers a node on
  rm -f "$dir/run/$1.pid"
  setsid unshare --net --uts --ipc --mount --pid --fork --kill-child \
    bash "$dir/run/init.sh" node "$dir" "$1" >>"$dir/log/init.log" 2>&1 </dev/null &
}

plug() { # connects its cable as soon as the interface exists
  until [[ -s $dir/run/$1.pid ]]; do sleep 0.01; done
  ip link del "v$1" 2>/dev/null || true
  # A fixed MAC address: with another one after a restart, the ARP entries of the neighbours are wrong for seconds.
  ip link add "v$1" type veth peer name eth0 address "$(printf '02:77:00:00:00:%02x' "${1#n}")" netns "$(<"$dir/run/$1.pid")"
  ip link set "v$1" master br0 up
  limit_rate "v$1"
}

limit_rate() { # limit_rate INTERFACE: limits the rate of sent data
  [[ -z $rate ]] || tc qdisc add dev "$1" root tbf rate "$rate" burst 256kb latency 50ms
}

reap_forever() { # process 1 of a namespace ends only if it is killed from outside
  while :; do wait -n 2>/dev/null || sleep 1; done
}

case $what in
  start)
    if ((netns)); then
      boot "$name"
      plug "$name"
    else
      start_slurmd "$name"
    fi ;;
  plain)
    start_munged
    start_slurmctld
    for node in "${names[@]}"; do start_slurmd "$node"; done ;;
  ctl)
    mount --make-rprivate /
    mount -t proc proc /proc
    mount -t tmpfs -o mode=1777 tmpfs /dev/shm
    mount --bind "$dir/etc/hosts" /etc/hosts
    mount --bind "$dir/etc/resolv.conf" /etc/resolv.conf
    hostname ctl
    ip link set lo up
    ip link add br0 type bridge
    ip addr add 10.77.0.1/24 dev br0
    ip link set br0 up
    printf '%s\n' "$outer_pid" >"$dir/run/ctl.pid"
    start_munged
    start_slurmctld
    for node in "${names[@]}"; do boot "$node"; done
    for node in "${names[@]}"; do plug "$node"; done
    reap_forever ;;
  node)
    mount --make-rprivate /
    hostname "$name"
    mount -t tmpfs -o mode=1777 tmpfs /dev/shm  # each node has its own shared memory
    printf '%s\n' "$outer_pid" >"$dir/run/$name.pid"
    mount -t proc proc /proc
    ip link set lo up
    until ip link show eth0 >/dev/null 2>&1; do sleep 0.01; done
    ip addr add "10.77.0.$((10 + ${name#n}))/24" dev eth0
    ip link set eth0 up
    ip route add default via 10.77.0.1
    limit_rate eth0
    start_slurmd "$name"
    reap_forever ;;
  *) printf 'error: init.sh: unknown %s\n' "$what" >&2; exit 2 ;;
esac
