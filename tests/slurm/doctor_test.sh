#!/usr/bin/env bash
# doctor_test.sh BIN_DIR BAD_PLACE: tests every finding of `trireme doctor` that needs no GPU, in a real Slurm of three nodes.
# Each scenario makes one thing wrong, and expects id, severity, exit code and advice of this finding, and no other finding. If
# a trainer must not start there, it exits with 2 before it makes its directory, with the same words.
# BAD_PLACE is the library of bad_place.cpp. These findings need a GPU: gpu-in-use, gpu-idle, gpu-ranks of two ranks on one.
# network-none is not tested: without a network, no rank finds the others (the last scenario shows the result).
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
source tests/support/shell.sh
bin=$(cd "$1" && pwd)
bad=$(readlink -f "$2")
num_nodes=3
source tests/slurm/with_cluster.sh
((${#mode[@]})) || skip "nodes of this test need network and mount namespaces of their own"
command -v tc >/dev/null || skip "tc is not installed (iproute2)"

make_places() {
  "$bin/trireme-data" pack --kind pretrain --tokenizer "$work/tokenizer" --input "$work/corpus.jsonl" --seq-len 64 --output "$work/sets/set"
  cp -r "$work/sets/set" "$work/sets/other"
  train=(pretrain --data "$work/sets/set" --model.preset tiny --train.steps 2 --train.micro_batch 1 --train.global_batch 8)
  OMP_NUM_THREADS=1 "$bin/trireme" "${train[@]}" --run "$work/run" >"$work/run.out" 2>&1
  cp "$bin/trireme" "$work/other" && printf 'x' >>"$work/other"
  { cat "$work/run/config.toml" && printf '# x\n'; } >"$work/other.toml"
  # at NODE SETUP COMMAND...: runs COMMAND on this node (all: on each node) after the setup, in its own mount namespace
  cat >"$work/at" <<'END'
#!/usr/bin/env bash
if [[ $1 == all || $1 == "$(hostname)" ]]; then exec unshare --mount bash -c "$2"$'\nexec "${@:3}"' at "$@"; fi
exec "${@:3}"
END
  chmod +x "$work/at"
  mkdir "$work/shared"
}

start() { # start TASKS WHERE SETUP COMMAND...: on the nodes n1 to nTASKS, or so many tasks on n1 alone for TASKS = 2@1
  local place=(--nodes="$1" --ntasks-per-node=1 --nodelist="n[1-$1]")
  if [[ $1 == *@1 ]]; then place=(--nodes=1 --ntasks="${1%@1}" --nodelist=n1); fi
  # shellcheck disable=SC2086  # options
  OMP_NUM_THREADS=${threads:-1} on srun --mpi="${mpi:-pmix}" --export=ALL --cpu-bind=none --overcommit --kill-on-bad-exit=1 ${options:-} "${place[@]}" \
    "$work/at" "${@:2:2}" "${instead:-$bin/trireme}" "${@:4}"
}

ids() { grep -oE '"id":"[^"]*"' "$work/doctor.json" | sed -E 's/.*:"(.*)"/\1/' | sort -u | xargs; }
member() { # member ID KEY: prints KEY of the first finding with this id
  awk -v RS='}' -v id="\"id\":\"$1\"" -v key="\"$2\":\"" '
    index($0, id) && (at = index($0, key)) { text = substr($0, at + length(key)); sub(/"(,".*)?$/, "", text); print text; exit }' "$work/doctor.json"
}

# finds ID SEVERITY WHAT DO TASKS NODE SETUP [DOCTOR_ARGUMENT...]: WHAT (searched in "what" and "where") and DO are patterns
finds() {
  local rc=0 want=0 both
  [[ $2 != error ]] || want=2
  start "${@:5:3}" doctor --json "${@:8}" >"$work/doctor.json" 2>"$work/doctor.err" || rc=$?
  expect_equal "exit of doctor at $1" "$want" "$rc"
  expect_equal "findings" "$1${beside:+ $beside}" "$(ids)"
  expect_equal "severity of $1" "$2" "$(member "$1" severity)"
  both="$(member "$1" where): $(member "$1" what)"
  expect_match "$1" "$3" "$both"
  expect_match "what to do about $1" "$4" "$(member "$1" "do")"
  printf '%s: %s %s; %s\n' "$1" "$2" "$both" "$(member "$1" "do")"
}

excluded() { sed -nE 's/.*"exclude":"([^"]*)".*/\1/p' "$work/doctor.json"; }

# refused WORDS TASKS NODE SETUP [ARGUMENT...]: expects that a trainer refuses to start there
refused() {
  local rc=0 begin=$SECONDS
  local run=${run:-$work/refused}
  start "${@:2:3}" "${train[@]}" --run "$run" "${@:5}" >"$work/refused.out" 2>&1 || rc=$?
  expect_equal "exit of pretrain ($1)" 2 "$rc"
  expect_match "its message" "$1" "$(<"$work/refused.out")"
  ((SECONDS - begin < 30)) || broken "pretrain ($1) took $((SECONDS - begin)) s"
  [[ ! -e $run ]] || broken "pretrain ($1) left a run directory"
}

nothing_is_wrong() {
  start 3 all true doctor --run "$work/run" --data "0.5 $work/sets/set + 0.5 $work/sets/other" >"$work/doctor.out" 2>&1 || broken "doctor ended with $?"
  expect_match "what it says" '3 ranks on 3 nodes.*no problems found' "$(<"$work/doctor.out")"
}

devices() {
  local said='this job has GPUs, but rank 0 .*n1.*; rank 1 .*n2.* see none'
  options=--gpus-per-node=1 finds gpu-ranks error "$said" 'nvidia-smi.*--train.device cpu' 2 all true
  expect_equal "nodes to leave out" '' "$(excluded)"
  options=--gpus-per-node=1 refused "$said" 2 all true
  said='rank 1 .*n2.* the NVIDIA driver knows CUDA 11\.8, the program was built for'
  local old="export LD_PRELOAD=$bad BAD_PLACE_DRIVER=11080"
  if [[ $(ldd "$bin/trireme") != *cudart* ]]; then
    printf 'cuda-driver-old: a build without CUDA\n'
  else
    finds cuda-driver-old error "$said" 'TRIREME_CUDA=12 bin/demo.*newer driver' 2 n2 "$old"
    expect_equal "nodes to leave out" n2 "$(excluded)"
    refused "$said" 2 n2 "$old"
    start 2 n2 "$old" "${train[@]}" --run "$work/cpus" --train.device cpu >"$work/cpus.out" 2>&1 || broken "pretrain on CPUs beside an old driver ended with $?"
  fi
}

cpus() {
  finds cpus-shared warning 'n1: 2 ranks are bound to the same 1 CPU' '--cpus-per-task.*--bind-to none' 2@1 all 'taskset -cp 0 $$ >/dev/null'
  threads=64 finds threads-many warning 'n1: 64 threads of 1 rank' 'OMP_NUM_THREADS' 1 all true
}

limits() {
  finds files-few warning 'n1: rank 0 may open 200 files' 'LimitNOFILE' 2 all 'ulimit -n 200'
  finds memory-locked-little warning 'ranks? 1 .*n2.*locked' 'LimitMEMLOCK' 2 n2 \
    'mount -t tmpfs none /sys/class && mkdir -p /sys/class/infiniband/mlx5_0 && ulimit -l 64'
  finds shm-small warning 'n1: /dev/shm has' '--shm-size' 2@1 all 'mount -t tmpfs -o size=60m none /dev/shm'
  finds shm-absent warning 'n2: /dev/shm is missing' '--ipc=host' 2 n2 'mount -t tmpfs -o ro none /dev/shm'
  finds shm-absent error 'n1: /dev/shm is missing' '--ipc=host' 2@1 all 'mount -t tmpfs -o ro none /dev/shm'
  refused '/dev/shm is missing.*--shm-size' 2@1 all 'mount -t tmpfs -o ro none /dev/shm'
}

# The number of ranks exceeds the connections that rank 0 may have. MPI itself needs 48.
few_files() {
  local rc=0
  beside=threads-many finds files-few error 'rank 0 may open 53 files .* 22 ranks need about 278' 'LimitNOFILE' 22@1 all 'ulimit -n 53'
  start 1 all 'ulimit -n 30' doctor >"$work/doctor.out" 2>&1 || rc=$?
  expect_equal "exit without descriptors for MPI" 4 "$rc"
  expect_match "its message" 'too few file descriptors to start MPI.*ulimit -n' "$(<"$work/doctor.out")"
}

environment() {
  finds environment-differs warning 'rank 1 .*n2.* NCCL_DEBUG is INFO, on rank 0 not set' 'srun --export=ALL' 2 n2 'export NCCL_DEBUG=INFO'
  finds interface-absent warning 'ranks? 0.*NCCL_SOCKET_IFNAME=ib9 .*there: eth0' 'all hosts have: eth0' 2 all 'export NCCL_SOCKET_IFNAME=ib9'
  finds interface-absent error 'OMPI_MCA_btl_tcp_if_include=ib9' 'all hosts have: eth0' 2@1 all 'export OMPI_MCA_btl_tcp_if_include=ib9'
  refused 'OMPI_MCA_btl_tcp_if_include=ib9.*eth0' 2@1 all 'export OMPI_MCA_btl_tcp_if_include=ib9'
  finds binary-differs error 'rank 1 .*n2' 'TRIREME_BIN' 2 n2 "mount --bind $work/other $bin/trireme"
  refused "rank 1 .*n2.*the program differs from that of rank 0" 2 n2 "mount --bind $work/other $bin/trireme"
  finds variable-unread warning 'TRIREME_ZZZZQ matches no' 'unset it' 1 all 'export TRIREME_ZZZZQ=1'
  finds variable-wrong error 'TRIREME_OPTIM_LRR.*did you mean .TRIREME_OPTIM_LR' 'correct or unset' 1 all 'export TRIREME_OPTIM_LRR=1'
  finds variable-wrong error 'optim.lr = abc, must be' 'correct or unset' 1 all 'export TRIREME_OPTIM_LR=abc'
  finds clock-skew warning 'n2: its clock is 1m00s ahead of rank 0' 'NTP' 2 n2 "export LD_PRELOAD=$bad BAD_PLACE_AHEAD_S=60"
  finds clock-skew warning 'n2: its clock is 24h00m behind rank 0' 'NTP' 2 n2 "export LD_PRELOAD=$bad BAD_PLACE_AHEAD_S=-86400"
}

folders() {
  finds folder-not-shared error 'rank 1 .*n2.*/dev/shm does not appear' '--run .*all nodes share' 2 all true --run /dev/shm/run
  expect_equal "nodes to exclude in a directory of one run" '' "$(excluded)"
  finds folder-not-shared error 'rank 1 .*n2.*does not appear' '--run .*all nodes share' 3 n2 "mount -t tmpfs none $work/shared" --run "$work/shared/run"
  expect_equal "nodes to leave out where the others have it" n2 "$(excluded)"
  run=$work/shared/run refused 'rank 1 .*n2.*does not appear.*all nodes share' 3 n2 "mount -t tmpfs none $work/shared"
  expect_equal "files that the check left" '' "$(ls -A "$work/shared")"
  finds folder-not-writable error 'rank 1 .*n2.*Read-only' '--run where you may write' 2 n2 "mount --bind -o ro $work/run $work/run" --run "$work/run"
  finds folder-not-writable error 'rank 0 .*n1.*Read-only' '--run where you may write' 2 n1 "mount --bind -o ro $work/run $work/run" --run "$work/run"
  finds config-differs error 'rank 1 .*n2.*config.toml is not what rank 0 sees' 'a local directory of the same name' 2 n2 \
    "mount --bind $work/other.toml $work/run/config.toml" --run "$work/run"
  finds data-absent error 'rank 1 .*n2.*/set does not exist' 'all nodes share' 2 n2 "mount -t tmpfs none $work/sets" --data "$work/sets/set"
  finds data-absent error 'ranks? 0.*/sat does not exist' 'trireme-data pack wrote' 2 all true --data "0.5 $work/sets/set + 0.5 $work/sat"
  local small="mkdir -p $work/small && mount -t tmpfs -o"
  finds space-little warning "/small: only .* are free" 'prune.*another --run' 1 all "$small size=50m none $work/small" --run "$work/small/run"
  finds space-none error "are free, a checkpoint takes" 'prune.*another --run' 1 all \
    "$small size=20m none $work/small && cp -r $work/run $work/small && fallocate -l 5M $work/small/x" --run "$work/small/run"
  finds files-none-left warning 'only .* more files can be made' 'delete some' 1 all "$small nr_inodes=500 none $work/small" --run "$work/small/run"
}

network() {
  finds allreduce-wrong error 'n2: a sum over ranks is wrong' 'exclude the node' 3 n2 "export LD_PRELOAD=$bad BAD_PLACE_DAMAGES=1"
  "$cluster/on" n3 tc qdisc add dev eth0 root tbf rate 50mbit burst 256kb latency 50ms
  finds node-slow error 'n3: all-reduce with its neighbours runs at' '--exclude=n3' 3 all true
  expect_equal "nodes to leave out" n3 "$(excluded)"
  "$cluster/on" n3 tc qdisc del dev eth0 root
}

without_the_launchers_help() {
  local rc=0 begin=$SECONDS
  mpi=none options=--kill-on-bad-exit=0 start 2 all true doctor >"$work/doctor.out" 2>&1 || rc=$?
  expect_equal "exit where MPI sees one of two" 2 "$rc"
  expect_match "its message" 'srun --mpi=pmix' "$(<"$work/doctor.out")"
  rc=0
  instead=unshare start 2 nowhere true --net "$bin/trireme" doctor >"$work/doctor.out" 2>&1 || rc=$?
  ((rc != 0)) || broken "doctor without a network ended with 0"
  ((SECONDS - begin < 40)) || broken "doctor without a network took $((SECONDS - begin)) s"
}

cluster_up
run_scenarios make_places nothing_is_wrong devices cpus limits few_files environment folders network without_the_launchers_help
finish
