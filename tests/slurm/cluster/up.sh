#!/usr/bin/env bash
# Starts a Slurm cluster on this machine; returns when all nodes are idle. All its state is under DIR.
#
#   up.sh DIR [--netns] [--nodes N] [--cpus C] [--gpus G] [--rate R] [--port P] [--kill-wait S] [--keep]
#
#   --netns      every node in its own network, hostname, shared memory and process namespaces (root, or a kernel
#                that gives users namespaces); without it the nodes are daemons on ports P+1.. of this host
#   --nodes N    2       --cpus C  of each node, 8       --gpus G  of each node, pretended, 8
#   --rate R     netns: the bandwidth of each node's link, for example 1gbit
#   --port P     plain mode: 20000; nodes P+1.., srun P+100 to P+399
#   --kill-wait  seconds between SIGTERM and SIGKILL, 2
#   --keep       keep the job state of the last cluster in DIR
#
# Afterwards: DIR/on ctl COMMAND (both modes), DIR/on NODE COMMAND (netns: inside the node). DIR must be short:
# the paths of unix sockets end at 108 bytes.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
(($#)) || { sed -n '2,16s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
mkdir -p "$1"
dir=$(cd "$1" && pwd)
shift
netns=0 nodes=2 cpus=8 gpus=8 rate='' port=20000 kill_wait=2 keep=0
while (($#)); do
  case $1 in
    --netns) netns=1 ;;
    --keep) keep=1 ;;
    --nodes | --cpus | --gpus | --rate | --port | --kill-wait)
      (($# > 1)) || { printf 'error: %s needs a value\n' "$1" >&2; exit 2; }
      name=${1#--}
      printf -v "${name//-/_}" '%s' "$2"
      shift ;;
    *) printf 'error: up.sh: unknown option %s\n' "$1" >&2; exit 2 ;;
  esac
  shift
done
PATH=$PATH:/usr/sbin:/sbin
for program in munged slurmctld slurmd scontrol; do
  command -v "$program" >/dev/null || { printf 'error: %s not found (apt-get install slurmctld slurmd slurm-client munge)\n' "$program" >&2; exit 4; }
done

if [[ -x $dir/on && -s $dir/run/up ]] && timeout 5 "$dir/on" ctl scontrol ping 2>/dev/null | grep -q 'is UP'; then
  printf 'up.sh: already up\n'
  exit 0
fi
"$here/down.sh" "$dir"

ctl_name=$(hostname -s) ctl_address=127.0.0.1 interfaces=lo
if ((netns)); then
  ctl_name=ctl ctl_address=10.77.0.1 port=20000 interfaces=10.77.0.0/24
fi
mkdir -p "$dir"/{etc,run,log,state,dev,node}
chmod 755 "$dir" "$dir/run" "$dir/log"
rm -rf "$dir"/run/* "$dir"/node/*/{shm,tmp}
((keep)) || rm -rf "$dir"/{log,state,node}/*
for ((i = 0; i < gpus; i++)); do ln -sfn /dev/null "$dir/dev/nvidia$i"; done

names=() node_lines='' hosts=$'127.0.0.1 localhost\n10.77.0.1 ctl\n'
for ((i = 1; i <= nodes; i++)); do
  node=n$i address=127.0.0.1 node_port=$((port + i))
  ((netns)) && address=10.77.0.$((10 + i)) node_port=$((port + 1))
  names+=("$node")
  hosts+="$address $node"$'\n'
  mkdir -p "$dir/node/$node"/{spool,tmp,shm}
  chmod 1777 "$dir/node/$node"/{tmp,shm}
  node_lines+="NodeName=$node NodeHostname=$node NodeAddr=$address Port=$node_port CPUs=$cpus Sockets=1 CoresPerSocket=$cpus"
  node_lines+=" ThreadsPerCore=1 RealMemory=16000 State=UNKNOWN"
  ((gpus)) && node_lines+=" Gres=gpu:a100:$gpus"
  node_lines+=$'\n'
done

fill() { # fill TEMPLATE
  local text
  text=$(<"$1")
  text=${text//@DIR@/$dir}
  text=${text//@CTL_NAME@/$ctl_name}
  text=${text//@CTL_ADDRESS@/$ctl_address}
  text=${text//@CTL_PORT@/$port}
  text=${text//@SRUN_PORTS@/$((port + 100))-$((port + 399))}
  text=${text//@USER@/$(id -un)}
  text=${text//@KILL_WAIT@/$kill_wait}
  text=${text//@NODE_LINES@/$node_lines}
  text=${text//@NODE_LIST@/n[1-$nodes]}
  text=${text//@GPU_LAST@/$((gpus - 1))}
  printf '%s\n' "$text"
}
fill "$here/slurm.conf.in" >"$dir/etc/slurm.conf"
: >"$dir/etc/gres.conf"
((gpus)) && fill "$here/gres.conf.in" >"$dir/etc/gres.conf"
: >"$dir/etc/plugstack.conf"
: >"$dir/etc/cgroup.conf"
: >"$dir/etc/resolv.conf"
printf '%s' "$hosts" >"$dir/etc/hosts"

# In plain mode, all nodes share one hostname and one /dev/shm. Open MPI names its segments by hostname and local rank, so ranks
# of two "nodes" would share them and crash. This does not apply to the batch step (its id is huge): mpirun there would give one
# node's directory to all.
if ((!netns)); then
  cat >"$dir/etc/task_prolog.sh" <<PROLOG
#!/bin/sh
[ -n "\$SLURM_STEP_ID" ] && [ "\$SLURM_STEP_ID" -lt 4000000000 ] || exit 0
folder=$dir/node/\$SLURMD_NODENAME/shm
echo "export OMPI_MCA_btl_vader_backing_directory=\$folder"
echo "export OMPI_MCA_osc_sm_backing_directory=\$folder"
echo "export OMPI_MCA_osc_rdma_backing_directory=\$folder"
PROLOG
  chmod +x "$dir/etc/task_prolog.sh"
  printf 'TaskProlog=%s\n' "$dir/etc/task_prolog.sh" >>"$dir/etc/slurm.conf"
fi

# Ranks must yield: under srun, Open MPI does not know that there are more ranks than cores, and every message would cost a time
# slice.
cat >"$dir/env.sh" <<ENVIRONMENT
export SLURM_CONF=$dir/etc/slurm.conf
export PATH=\$PATH:/usr/sbin:/sbin
export OMPI_MCA_btl_tcp_if_include=$interfaces OMPI_MCA_oob_tcp_if_include=$interfaces
export OMPI_MCA_mpi_yield_when_idle=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ENVIRONMENT
[[ -s $dir/etc/munge.key ]] || (umask 077 && head -c 128 /dev/urandom >"$dir/etc/munge.key")
chmod 600 "$dir/etc/munge.key"
cp "$here/init.sh" "$dir/run/init.sh"
{
  printf 'netns=%s rate=%s port=%s ctl_address=%s\n' "$netns" "$rate" "$port" "$ctl_address"
  printf 'names=(%s)\n' "${names[*]}"
} >"$dir/run/conf"
cp "$here/on.sh" "$dir/on"
chmod +x "$dir/on"

if ((netns)); then
  # An unprivileged user is not mapped to root, because slurmctld would then fail in setgroups().
  user=()
  ((EUID == 0)) || user=(--user --map-current-user --keep-caps)
  setsid unshare "${user[@]}" --net --uts --ipc --mount --pid --fork --kill-child \
    bash "$dir/run/init.sh" ctl "$dir" >>"$dir/log/init.log" 2>&1 </dev/null &
  printf '%s\n' $! >"$dir/run/top.pid"
else
  bash "$dir/run/init.sh" plain "$dir" >>"$dir/log/init.log" 2>&1 </dev/null
fi
for ((i = 0; i < 1000; i++)); do
  idle=$(timeout 10 "$dir/on" ctl sinfo -h -N -p gpu -o %t 2>/dev/null | grep -c '^idle$' || true)
  if ((idle == nodes)); then
    printf 'up\n' >"$dir/run/up"
    printf 'up.sh: %s nodes idle, use %s/on ctl COMMAND\n' "$nodes" "$dir"
    exit 0
  fi
  sleep 0.02
done
printf 'error: the nodes are not idle after 20 s\n' >&2
timeout 5 "$dir/on" ctl sinfo -N -l >&2 || true
tail -n 5 "$dir"/log/*.log >&2
exit 1
