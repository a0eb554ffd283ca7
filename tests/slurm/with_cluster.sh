# shellcheck shell=bash
# shellcheck disable=SC2154  # bin, num_nodes, and kSkipped of support/shell.sh
# Runs tests under a real Slurm of two nodes on this machine, with four ranks on CPUs. Sourced in the root of the checkout after
# support/shell.sh; bin is the directory of the programs. cluster_up starts the cluster, which stops when the script ends.

PATH=$PATH:/usr/sbin:/sbin
for program in munged slurmctld slurmd srun sbatch; do
  command -v "$program" >/dev/null || skip "$program is not installed (bin/test installs it as root)"
done
((EUID == 0)) || skip "the cluster of this test needs root"
find /usr/lib -name 'mpi_pmix*.so' -path '*slurm*' | grep -q . || skip "this Slurm has no PMIx plugin (slurm-wlm-basic-plugins)"

checkout=$PWD
work=$(mktemp -d /tmp/trireme-slurm.XXXXXX)
cluster=$work/c
mode=()
if unshare --net --mount --pid --fork true 2>/dev/null && command -v ip >/dev/null; then mode=(--netns); fi

cleanup() {
  local rc=$?
  cd "$checkout" || return
  tests/slurm/cluster/down.sh "$cluster" || true
  if declare -F after_cluster >/dev/null; then after_cluster || true; fi
  if ((rc != 0 && rc != kSkipped)); then
    tail -n 20 "$work"/*.out >&2 || true
    printf 'kept for a look: %s\n' "$work" >&2
  else
    rm -rf "$work"
  fi
}
trap cleanup EXIT

on() { timeout 300 "$cluster/on" ctl "$@"; }

# job_field JOB FIELD
job_field() { on scontrol -o show job "$1" | sed -nE "1s/.*(^| )$2=([^ ]*).*/\2/p"; }

await() { # await SECONDS WHAT COMMAND...: waits until the command succeeds
  local deadline=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    if ((SECONDS > deadline)); then
      broken "waited in vain for $what"
      finish
    fi
    sleep 0.2
  done
}

ended() { [[ -z $(on squeue -h -j "$1" -o %t 2>/dev/null) ]]; }
logged_step() { # logged_step RUN STEP: succeeds if the run has logged this step or a later one
  [[ -s $1/metrics.jsonl ]] &&
    awk -v want="$2" 'match($0, /"step": *[0-9]+/) { s = substr($0, RSTART, RLENGTH); sub(/.*: */, "", s); if (s + 0 >= want) found = 1 }
      END { exit !found }' "$1/metrics.jsonl"
}
has_checkpoint() { [[ -n $(compgen -G "$1/checkpoints/step-*") ]]; }
resumed_from() { sed -nE 's/.*"resumed_from": *([0-9]+).*/\1/p' "$1/metrics.jsonl" | tail -n1; }
# Prints the number of starts that died by themselves: about one in a hundred dies inside MPI_Init.
kLostStart='^job  *exit 5 (srun 139).*: requeue$'
lost_starts() { grep -c "$kLostStart" "$work/$1.out" || true; }
ends() { grep '^job  *exit' "$work/$1.out" | grep -v "$kLostStart"; }  # NAME: one line for each attempt, without lost starts
requeued() { ends "$1" | grep -q ': requeue$'; }
committed_of_ends() { ends "$1" | sed -nE 's/.*last committed step (-?[0-9]+),.*/\1/p'; }
first_committed() { committed_of_ends "$1" | head -n1; }
final_hash() {
  local all=("$1"/checkpoints/step-*)
  "$bin/trireme" checkpoint hash "${all[-1]}"
}

kSteps=60
# [steps=N] [nodes=N] [limit=MINUTES] [gpus=N] [device=D] submit NAME [OPTION...]: prints the job id; the run directory is
# WORK/NAME
submit() {
  local name=$1
  shift
  TRIREME_BIN=$bin on sbatch --parsable --nodes="${nodes:-2}" --ntasks-per-node=2 --gpus-per-node="${gpus:-0}" --cpus-per-task=1 \
    --time="${limit:-20}" --job-name="$name" --output="$work/$name.out" slurm/pretrain_a100.sbatch --data "$work/set" --run "$work/$name" \
    --train.device "${device:-cpu}" --train.precision fp32 --train.seed 1 --train.steps "${steps:-$kSteps}" --train.seq_len 64 \
    --train.micro_batch 1 --train.global_batch 8 --model.preset tiny --checkpoint.every 5 "$@"
}

# Makes WORK/path/sbatch, which asks for smaller nodes than the job scripts do. Chains of jobs call it.
make_small_sbatch() {
  mkdir -p "$work/path"
  printf '#!/usr/bin/env bash\nexec %q --ntasks-per-node=2 --cpus-per-task=1 --gpus-per-node=0 "$@"\n' "$(command -v sbatch)" >"$work/path/sbatch"
  chmod +x "$work/path/sbatch"
}

make_chats() { # make_chats FILE: writes 60 conversations
  local i
  for ((i = 0; i < 60; i++)); do
    printf '{"conversations": [{"role": "user", "content": "%s plus 2?"}, {"role": "assistant", "content": "It is %s."}]}\n' $i $((i + 2))
  done >"$1"
}

break_node() { tests/slurm/cluster/node.sh "$cluster" "$@"; }

# Starts the cluster, and makes the data set of all runs.
cluster_up() {
  tests/slurm/cluster/up.sh "$cluster" --nodes "${num_nodes:-2}" "${mode[@]}"
  "$bin/trireme-data" synth --output "$work/corpus.jsonl" --documents 400 --seed 1
  "$bin/trireme-data" tokenizer train --input "$work/corpus.jsonl" --vocab-size 600 --output "$work/tokenizer"
}

ranks_of() { # ranks_of RUN: prints the process ids of its ranks, found by their arguments
  local process word words
  for process in /proc/[0-9]*; do
    # Most processes have other arguments. Only a match costs a subprocess.
    mapfile -d '' -t words 2>/dev/null <"$process/cmdline" || continue
    for word in "${words[@]}"; do
      if [[ $word == "$1" && $(readlink "$process/exe" 2>/dev/null) == "$bin/trireme" ]]; then
        printf '%s\n' "${process#/proc/}"
        break
      fi
    done
  done
}

kill_one_rank() { # kill_one_rank RUN [SIGNAL]
  local ranks
  mapfile -t ranks < <(ranks_of "$1")
  if ((${#ranks[@]} > 0)); then kill "-${2:-KILL}" "${ranks[0]}"; else broken "found no rank to kill"; fi
}

run_scenarios() { # run_scenarios NAME...
  local start scenario
  for scenario in "$@"; do
    start=$SECONDS
    "$scenario"
    printf '%s: %d s\n' "$scenario" $((SECONDS - start))
  done
}

# run_together 'NAME...'...: runs the lists of scenarios at the same time, and the scenarios of one list one after the other. Most of
# their time is waiting for Slurm. Prints the output of each list when all lists have ended.
run_together() {
  local list i=0 pids=() logs=()
  for list in "$@"; do
    logs+=("$work/list.$((++i)).log")
    (
      checks_failed=0
      # shellcheck disable=SC2086  # a list of words
      run_scenarios $list
      ((checks_failed == 0))
    ) >"${logs[-1]}" 2>&1 &
    pids+=($!)
  done
  for i in "${!pids[@]}"; do
    wait "${pids[i]}" || broken "one of these scenarios: $(<"${logs[i]}")"
    cat "${logs[i]}"
  done
}
