#!/usr/bin/env bash
# fault_night.sh --runs N --seed S --out FILE [--kinds K,K...] [BIN_FOLDER]: runs of a small model under a real Slurm of three
# nodes, each disturbed once at a random moment, in every way of kFaults by turns. FILE gets a line a run, then the totals:
#
#   {"run","fault","at_s","legs","committed_lost","redone_steps","hash_equal","hung","signal_to_commit_s","back_s","ours_s"}
#
# at_s: when, after the first commit. back_s: from the fault to the next leg's first step; ours_s: of that, from the start of
# the ranks on. Exit 1 if a commit was lost, a run hung, ended wrongly or came to other weights than an undisturbed one.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
source tests/support/shell.sh

kFaults=(rank_kill rank_stop node_crash slurmd_other slurmd_batch controller suspend admin_requeue preemption time_limit full_disk crash_loop cable)
runs=${#kFaults[@]} seed=1 out='' kinds=("${kFaults[@]}") bin=build/release/bin
while (($#)); do
  case $1 in
    --runs | --seed | --out) printf -v "${1#--}" '%s' "$2"; shift ;;
    --kinds) IFS=, read -ra kinds <<<"$2"; shift ;;
    -*) printf 'error: fault_night.sh: unknown option %s\n' "$1" >&2; exit 2 ;;
    *) bin=$1 ;;
  esac
  shift
done
[[ -n $out ]] || { printf 'error: fault_night.sh: --out FILE is missing\n' >&2; exit 2; }
bin=$(cd "$bin" && pwd)
: >"$out"
out=$(readlink -f "$out")
RANDOM=$seed
num_nodes=3
source tests/slurm/with_cluster.sh
command -v python3 >/dev/null || skip "python3 is not installed"

kLimit_s=240
journal() { printf '%s/%s/journal.jsonl\n' "$work" "$1"; }
has_event() { grep -q "\"event\":\"$2\"" "$(journal "$1")" 2>/dev/null; } # has_event NAME EVENT
starts() { grep -c '"event":"start"' "$(journal "$1")" 2>/dev/null || true; }
first_node() { job_field "$1" BatchHost; }
other_node() { on scontrol show hostnames "$(job_field "$1" NodeList)" | grep -vx "$(first_node "$1")" | head -n1; }

fault_rank_kill() { kill_one_rank "$work/$1"; }
fault_rank_stop() { kill_one_rank "$work/$1" STOP; }
fault_node_crash() { node=$(other_node "$2"); break_node crash "$node"; }
fault_slurmd_other() { node=$(other_node "$2"); break_node slurmd "$node"; }
fault_slurmd_batch() { node=$(first_node "$2"); break_node slurmd "$node"; }
fault_cable() { node=$(other_node "$2"); break_node cut "$node"; }
fault_controller() { sleep 6; on kill -9 "$(<"$cluster/run/slurmctld.pid")"; kill_one_rank "$work/$1" USR2; sleep 10; }
fault_suspend() { on scontrol suspend "$2"; sleep 10; on scontrol resume "$2"; }
fault_admin_requeue() { on scontrol requeue "$2"; }
fault_preemption() { urgent=$(on sbatch --parsable --partition=urgent --nodes=3 --exclusive --time=1 --output=/dev/null --wrap 'sleep 2'); }
fault_time_limit() { on scontrol update JobId="$2" TimeLimit=1; }
fault_full_disk() { mount -t tmpfs -o size=4k tmpfs "$work/$1/checkpoints" 2>/dev/null && sleep 8 && umount -l "$work/$1/checkpoints"; }
fault_crash_loop() { touch "$work/crash.now"; kill_one_rank "$work/$1"; sleep 8; rm -f "$work/crash.now"; }

mend() {
  on scontrol ping 2>/dev/null | grep -q 'is UP' ||
    on bash -c "setsid slurmctld -D -f $cluster/etc/slurm.conf >>$cluster/log/slurmctld.out 2>&1 </dev/null &"
  if [[ -n $node ]]; then
    [[ $fault != cable ]] || break_node join "$node"
    [[ $fault == cable ]] || break_node start "$node"
  fi
  if [[ $fault == time_limit ]]; then await 120 "the end of a short job" requeued_or_ended; fi
}
requeued_or_ended() { (($(starts "$name") > 1)) || ended "$job"; }
all_idle() { [[ $(on sinfo -h -p gpu -o %t | sort -u) == idle ]]; }
no_rank_left() { ! pgrep -f "^$bin/trireme pretrain .*$work/$name( |\$)" >/dev/null; }

evaluate() { # prints the line of the run; its exit says whether all is well
  python3 - "$1" "$2" "$3" "$4" "$5" "$6" "$7" <<'EOF'
import json, sys
folder, run, fault, at_s, fault_time, hung, equal = sys.argv[1:]
lines = [json.loads(l) for l in open(folder + "/journal.jsonl")]
legs = sorted({l["leg"] for l in lines if l["event"] == "start"})
of = lambda leg, event: [l for l in lines if l["leg"] == leg and l["event"] == event]
lost, committed = 0, -1
for leg in legs:
    begun = of(leg, "start")[0]["resumed_from"]
    lost += max(0, committed - (-1 if begun is None else begun))
    committed = max([committed] + [l["step"] for l in of(leg, "commit")])
steps = [json.loads(l).get("step") for l in open(folder + "/metrics.jsonl")]
steps = [s for s in steps if s is not None]
requests = [l for l in lines if l["event"] == "request" and l["want"] == "stop"]
commits = [l for l in lines if l["event"] == "commit"]
to_commit = None
if requests:
    after = [c["time"] - requests[0]["time"] for c in commits if c["time"] >= requests[0]["time"]]
    to_commit = after[0] if after else None
back = [(l["time"] - float(fault_time), l["start_s"]) for l in lines if l["event"] == "ready" and l["time"] > float(fault_time)]
line = {"run": int(run), "fault": fault, "at_s": round(float(at_s), 1), "legs": len(legs), "committed_lost": lost,
        "redone_steps": len(steps) - len(set(steps)), "hash_equal": equal == "yes", "hung": hung == "yes",
        "signal_to_commit_s": to_commit and round(to_commit, 3), "back_s": round(back[0][0], 1) if back else None,
        "ours_s": round(back[0][1], 1) if back else None}
print(json.dumps(line))
sys.exit(0 if lost == 0 and equal == "yes" and hung == "no" else 1)
EOF
}

one_run() { # one_run NUMBER FAULT
  local at_ms hung=no equal=no fault_time
  fault=$2 name=night$1 node='' urgent=''
  printf '#!/bin/sh\n[ ! -e %q ] || kill -SEGV $$\nexec "$@"\n' "$work/crash.now" >"$work/launcher"
  chmod +x "$work/launcher"
  job=$(TRIREME_LAUNCH=$work/launcher TRIREME_MAX_FAILURES=6 steps=120 submit "$name" --train.comm_timeout_s 10)
  await 120 "a commit of $name" has_event "$name" commit
  at_ms=$((RANDOM % 3000))
  sleep "$((at_ms / 1000)).$((at_ms % 1000 + 1000))"
  fault_time=$(date +%s.%N)
  "fault_$fault" "$name" "$job" || broken "$fault could not be done"
  mend
  local deadline=$((SECONDS + kLimit_s))
  until ended "$job"; do
    if ((SECONDS > deadline)); then hung=yes; on scancel "$job"; break; fi
    sleep 0.5
  done
  [[ -z $urgent ]] || await 60 "the urgent job" ended "$urgent"
  await 60 "ranks of $name that are left over" no_rank_left
  await 90 "the nodes" all_idle
  [[ $(final_hash "$work/$name" 2>/dev/null) != "$(final_hash "$work/whole")" ]] || equal=yes
  evaluate "$work/$name" "$1" "$fault" "$(awk -v ms="$at_ms" 'BEGIN { print ms / 1000 }')" "$fault_time" "$hung" "$equal" | tee -a "$out" ||
    broken "run $1 ($fault), $work/$name.out"
}

cluster_up
"$bin/trireme-data" pack --kind pretrain --tokenizer "$work/tokenizer" --input "$work/corpus.jsonl" --seq-len 64 --output "$work/set"
job=$(steps=120 submit whole)
await 240 "the undisturbed run" ended "$job"
for ((i = 1; i <= runs; i++)); do one_run "$i" "${kinds[(i - 1) % ${#kinds[@]}]}"; done
python3 - "$out" <<'EOF' | tee -a "$out"
import json, sys
rows = [json.loads(l) for l in open(sys.argv[1])]
known = lambda key: sorted(r[key] for r in rows if r[key] is not None)
middle = lambda v: v[len(v) // 2] if v else None
print(json.dumps({"runs": len(rows), "kinds": len({r["fault"] for r in rows}), "committed_lost": sum(r["committed_lost"] for r in rows),
    "hung": sum(r["hung"] for r in rows), "hash_equal": sum(r["hash_equal"] for r in rows),
    "redone_steps": sum(r["redone_steps"] for r in rows), "signal_to_commit_s": middle(known("signal_to_commit_s")),
    "back_s": middle(known("back_s")), "ours_s": middle(known("ours_s")), "ours_s_max": max(known("ours_s") or [None])}))
EOF
finish
