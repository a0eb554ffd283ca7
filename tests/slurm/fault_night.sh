#!/usr/bin/env bash
# fault_night.sh --runs N --seed S --out FILE [--kinds K,K...] [BIN_DIR]: runs a small model many times under a real Slurm of
# three nodes. Each run is disturbed once at a random moment; the kinds of kFaults take turns. FILE gets one line per run, then
# the totals:
#
#   {"run","fault","at_s","legs","committed_lost","redone_steps","hash_equal","hung","signal_to_commit_s","back_s","ours_s"}
#
# at_s: time of the fault after the first commit. back_s: time from the fault to the first step of the next attempt. ours_s: the
# part of back_s from the start of the ranks on. Exits with 1 if a fault did not happen, a commit was lost, a run hung, or a run
# ended with other weights than an undisturbed run.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
source tests/support/shell.sh

kFaults=(rank_kill rank_stop node_crash slurmd_other slurmd_batch controller suspend admin_requeue preemption time_limit full_disk crash_loop cable)
runs=${#kFaults[@]} seed=1 out='' kinds=("${kFaults[@]}") bin=build/release/bin
while (($#)); do
  case $1 in
    --runs | --seed | --out) printf -v "${1#--}" '%s' "${2:-}"; shift ;;
    --kinds) IFS=, read -ra kinds <<<"${2:-}"; shift ;;
    -*) printf 'error: fault_night.sh: unknown option %s\n' "$1" >&2; exit 2 ;;
    *) bin=$1 ;;
  esac
  shift
done
[[ -n $out ]] || { printf 'error: fault_night.sh: --out FILE is missing\n' >&2; exit 2; }
for kind in "${kinds[@]}"; do
  [[ " ${kFaults[*]} " == *" $kind "* ]] || { printf 'error: fault_night.sh: %s is none of %s\n' "$kind" "${kFaults[*]}" >&2; exit 2; }
done
bin=$(cd "$bin" && pwd)
: >"$out"
out=$(readlink -f "$out")
RANDOM=$seed
num_nodes=3
source tests/slurm/with_cluster.sh
command -v python3 >/dev/null || skip "python3 is not installed"
((${#mode[@]} > 0)) || skip "nodes cannot have a network of their own here"

# a longer time without a new line of metrics or event log counts as a hang; two starts and Slurm's waits take less
kSilence_s=180
kNightSteps=300
kLongSteps=1500  # for runs that reach a time limit of a minute, or wait until Slurm gives up a silent node

has_events() { # has_events NAME EVENT COUNT
  local count
  count=$(grep -cs "\"event\":\"$2\"" "$work/$1/journal.jsonl") || true
  ((${count:-0} >= $3))
}
first_node() { job_field "$1" BatchHost; }
other_node() { on scontrol show hostnames "$(job_field "$1" NodeList)" | grep -vx "$(first_node "$1")" | head -n1; }
is_in_state() { [[ $(job_field "$1" JobState) == "$2" ]]; }
all_idle() { [[ $(on sinfo -h -p gpu -o %t | sort -u) == idle ]]; }
is_given_up() { [[ $(on sinfo -h -n "$1" -o %t | head -n1) == down* ]]; }
written() { cat "$work/$1"/{metrics,journal}.jsonl 2>/dev/null | wc -c; }
no_rank_left() { [[ -z $(ranks_of "$work/$1") ]]; }

# fault_KIND NAME JOB: injects the fault. The run must resume after it, unless it stays (suspend).
fault_rank_kill() { kill_one_rank "$work/$1"; }
fault_rank_stop() { kill_one_rank "$work/$1" STOP; }
fault_node_crash() { broken_node=$(other_node "$2"); break_node crash "$broken_node"; }
fault_slurmd_other() { broken_node=$(other_node "$2"); break_node slurmd "$broken_node"; }
fault_slurmd_batch() { broken_node=$(first_node "$2"); break_node slurmd "$broken_node"; }
fault_cable() { broken_node=$(other_node "$2"); break_node cut "$broken_node"; }
fault_admin_requeue() { on scontrol requeue "$2"; }
fault_time_limit() { :; }  # the job was submitted with a limit

# The controller must have saved its state (every 5 s), otherwise it forgets the job. The ranks end while it is away.
fault_controller() {
  sleep 6
  on kill -9 "$(<"$cluster/run/slurmctld.pid")"
  kill_one_rank "$work/$1" USR2
  await 60 "the ranks' end" has_events "$1" end 1
  sleep 3
  on bash -c "setsid slurmctld -D -f $cluster/etc/slurm.conf >>$cluster/log/slurmctld.out 2>&1 </dev/null &"
}

# The sleep is longer than the silence that counts as a lost rank (10 s).
fault_suspend() {
  on scontrol suspend "$2"
  await 10 "the suspension" is_in_state "$2" SUSPENDED
  sleep 14
  on scontrol resume "$2"
}

fault_preemption() {
  on scontrol update PartitionName=gpu GraceTime=30
  urgent=$(on sbatch --parsable --partition=urgent --nodes=3 --exclusive --time=1 --output=/dev/null --wrap 'sleep 2')
}

fault_full_disk() {
  dd if=/dev/zero of="$work/disk/fill" bs=1M 2>/dev/null || true
  await 60 "a leg that meets the full disk" has_events "$1" end 1
  sleep 3
  rm "$work/disk/fill"
}

fault_crash_loop() {
  touch "$work/crash.now"
  kill_one_rank "$work/$1"
  await 120 "two starts that crash" has_events "$1" decision 3
  rm "$work/crash.now"
}

mend() { # mend FAULT: repairs the cluster
  [[ -n $broken_node ]] || return 0
  if [[ $1 == cable ]]; then
    await 60 "the end of the leg whose cable is cut" has_events "$name" end 1
    break_node join "$broken_node"
  else
    await 40 "Slurm to give $broken_node up" is_given_up "$broken_node"
    break_node start "$broken_node"
  fi
}

# evaluate RUN FAULT AT_S FAULT_TIME HUNG EQUAL LEAST_ATTEMPTS: prints the line of the run; exits with 0 if everything is correct
evaluate() {
  python3 - "$work/$name" "$@" <<'PYTHON'
import json, sys
folder, run, fault, at_s, fault_time, hung, equal, least = sys.argv[1:]
lines = [json.loads(l) for l in open(folder + "/journal.jsonl")]
begun = [l for l in lines if l["event"] == "start"]
lost, committed = 0, -1
for start in begun:
    lost += max(0, committed - (-1 if start["resumed_from"] is None else start["resumed_from"]))
    committed = max([committed] + [l["step"] for l in lines if l["event"] == "commit" and l["leg"] == start["leg"]])
steps = [l["step"] for l in map(json.loads, open(folder + "/metrics.jsonl")) if "step" in l]
requests = [l["time"] for l in lines if l["event"] == "request" and l["want"] == "stop"]
after = [l["time"] - requests[0] for l in lines if l["event"] == "commit" and requests and l["time"] >= requests[0]]
back = [(l["time"] - float(fault_time), l["start_s"]) for l in lines if l["event"] == "ready" and l["time"] > float(fault_time)]
line = {"run": int(run), "fault": fault, "at_s": float(at_s), "legs": len(begun), "committed_lost": lost,
        "redone_steps": len(steps) - len(set(steps)), "hash_equal": equal == "yes", "hung": hung == "yes",
        "signal_to_commit_s": round(after[0], 3) if after else None, "back_s": round(back[0][0], 1) if back else None,
        "ours_s": round(back[0][1], 1) if back else None}
print(json.dumps(line))
sys.exit(0 if lost == 0 and equal == "yes" and hung == "no" and len(begun) >= int(least) else 1)
PYTHON
}

one_run() { # one_run NUMBER FAULT
  local at_s=0 hung=no equal=no least=2 steps=$kNightSteps limit=20 whole=whole fault=$2 fault_time deadline job size last=-1
  name=night$1 broken_node='' urgent=''
  case $fault in
    suspend) least=1 ;;
    slurmd_batch) steps=$kLongSteps whole=whole_long ;;
    time_limit) limit=1 steps=$kLongSteps whole=whole_long ;;
    full_disk) mkdir "$work/disk/$name" && ln -s "disk/$name" "$work/$name" ;;
  esac
  [[ -d $work/$whole ]] || undisturbed "$whole" "$steps"
  job=$(TRIREME_LAUNCH=$work/launcher TRIREME_MAX_FAILURES=8 submit "$name" --train.comm_timeout_s 10)
  await 120 "a commit of $name" has_events "$name" commit 1
  at_s=$(awk -v random="$RANDOM" 'BEGIN { printf "%.3f", 3 * random / 32768 }')
  sleep "$at_s"
  is_in_state "$job" RUNNING || broken "run $1 ($fault) had ended before its fault"
  fault_time=$(date +%s.%N)
  "fault_$fault" "$name" "$job"
  mend "$fault"
  until ended "$job"; do
    size=$(written "$name")
    if ((size != last)); then deadline=$((SECONDS + kSilence_s)) last=$size; fi
    if ((SECONDS > deadline)); then hung=yes; on scancel "$job"; break; fi
    [[ -z $(on sinfo -h -t drain -o %n) ]] || on scontrol update NodeName="n[1-$num_nodes]" State=RESUME
    sleep 0.5
  done
  [[ -z $urgent ]] || await 60 "the urgent job" ended "$urgent"
  await 60 "ranks of $name that are left over" no_rank_left "$name"
  await 90 "the nodes" all_idle
  # Slurm 22.05 loses count of a job's devices if its node dies, and does not give idle nodes to the next job.
  [[ -z $broken_node ]] || on scontrol reconfigure
  [[ $(final_hash "$work/$name" 2>/dev/null) != "$(final_hash "$work/$whole")" ]] || equal=yes
  evaluate "$1" "$fault" "$at_s" "$fault_time" "$hung" "$equal" "$least" | tee -a "$out" || broken "run $1 ($fault), $work/$name.out"
  rm -rf "$work/disk/$name"  # the next run needs the disk space
}

undisturbed() { # undisturbed NAME STEPS
  local job
  job=$(steps=$2 limit=20 submit "$1")  # limit: the caller's value is for the disturbed run
  await 1200 "the undisturbed run" ended "$job"
  [[ -d $work/$1/checkpoints/step-$(printf %09d "$2") ]] || { broken "the undisturbed run $1 did not reach step $2"; finish; }
}

mkdir "$work/disk"
mount -t tmpfs -o size=64m none "$work/disk"  # the nodes start after this mount and see it
after_cluster() { umount --lazy "$work/disk"; }
printf '#!/bin/sh\n[ ! -e %q ] || kill -SEGV $$\nexec "$@"\n' "$work/crash.now" >"$work/launcher"
chmod +x "$work/launcher"
cluster_up
"$bin/trireme-data" pack --kind pretrain --tokenizer "$work/tokenizer" --input "$work/corpus.jsonl" --seq-len 64 --output "$work/set"
for ((number = 1; number <= runs; number++)); do one_run "$number" "${kinds[(number - 1) % ${#kinds[@]}]}"; done
python3 - "$out" <<'PYTHON' | tee -a "$out"
import json, sys
rows = [json.loads(l) for l in open(sys.argv[1])]
known = lambda key: sorted(r[key] for r in rows if r[key] is not None)
middle = lambda v: v[len(v) // 2] if v else None
print(json.dumps({"runs": len(rows), "kinds": len({r["fault"] for r in rows}), "committed_lost": sum(r["committed_lost"] for r in rows),
    "hung": sum(r["hung"] for r in rows), "hash_equal": sum(r["hash_equal"] for r in rows),
    "redone_steps": sum(r["redone_steps"] for r in rows), "signal_to_commit_s": middle(known("signal_to_commit_s")),
    "back_s": middle(known("back_s")), "ours_s": middle(known("ours_s")), "ours_s_max": max(known("ours_s"), default=None)}))
PYTHON
finish
