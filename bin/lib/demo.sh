# shellcheck shell=bash
# The steps of bin/demo after the build. bin/demo sources this file at the top of the checkout.

kSteps=240
kStopAt=80         # the stop signal is sent after this step is logged
kVocab=2000
kSeqLen=128
kMinDrop=0.25      # the last loss must be below this fraction of the first; measured: 0.08
kPrecision=fp32
grep -qE 'avx512_bf16|amx_bf16' /proc/cpuinfo 2>/dev/null && kPrecision=bf16  # twice as fast with these instructions, slow without
kPrompt="Once upon a time"

bin=build/release/bin
demo=build/demo
demo_start=$SECONDS

note() { printf 'demo: %s\n' "$*"; }
wrong() { # wrong MESSAGE [LOG]: prints the error and exits
  printf 'error: demo: %s\n' "$1" >&2
  if [[ -n ${2:-} && -s $2 ]]; then
    printf '  the end of %s:\n' "$2" >&2
    tail -n 15 "$2" | sed 's/^/  | /' >&2
  fi
  exit 1
}

quiet() { # quiet LOG COMMAND...: writes the output to the log, shown only after a failure; a hang ends with 124
  local log=$1 rc=0
  shift
  timeout -k 10 300 "$@" >"$log" 2>&1 || rc=$?
  ((rc == 0)) || wrong "'$*' ended with exit $rc" "$log"
}

mpi_launch=(mpirun -n 2)
[[ -n ${TRIREME_MPI_ROOT:-} && -x $TRIREME_MPI_ROOT/bin/mpirun ]] && mpi_launch[0]=$TRIREME_MPI_ROOT/bin/mpirun
if "${mpi_launch[0]}" --version 2>&1 | grep -q 'Open MPI'; then
  mpi_launch+=(--oversubscribe --bind-to none)  # for machines with one core, and containers with few CPUs
fi
if ((EUID == 0)); then  # Open MPI refuses root otherwise (containers)
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
export OMP_NUM_THREADS=1

# metric FILE KEY: prints "step value" for every step in order; the last line of a step counts
metric() {
  awk -v key="\"$2\":" '
    match($0, /"step": *[0-9]+/) {
      step = substr($0, RSTART, RLENGTH); sub(/.*: */, "", step)
      at = index($0, key); if (!at) next
      rest = substr($0, at + length(key)); sub(/^ */, "", rest); sub(/[,}].*/, "", rest)
      if (!(step in value)) order[++n] = step
      value[step] = rest
    }
    END { for (i = 1; i <= n; i++) print order[i], value[order[i]] }' "$1" | sort -n -k1,1
}

newest_checkpoint() { # newest_checkpoint RUN: prints its path; returns 1 if there is none
  local all=("$1"/checkpoints/step-*)
  [[ -d ${all[-1]} ]] && printf '%s\n' "${all[-1]}"
}

train=("${mpi_launch[@]}" "$bin/trireme" pretrain --data "$demo/train" --data.valid_path "$demo/valid"
  --train.device cpu --train.precision "$kPrecision" --train.seed 1 --train.steps "$kSteps" --train.seq_len "$kSeqLen"
  --train.micro_batch 8 --train.global_batch 16 --train.eval_every "$kSteps"
  --model.preset tiny --optim.lr 3e-3 --optim.warmup_steps 20 --checkpoint.every 50)

make_data() {
  note "corpus, tokenizer with $kVocab tokens, shards"
  quiet "$demo/synth.log" "$bin/trireme-data" synth --output "$demo/train.jsonl" --documents 20000 --seed 1
  quiet "$demo/synth-valid.log" "$bin/trireme-data" synth --output "$demo/valid.jsonl" --documents 500 --seed 2
  quiet "$demo/tokenizer.log" "$bin/trireme-data" tokenizer train --input "$demo/train.jsonl" \
    --vocab-size "$kVocab" --output "$demo/tokenizer"
  local set
  for set in train valid; do
    quiet "$demo/pack-$set.log" "${mpi_launch[@]}" "$bin/trireme-data" pack --kind pretrain --tokenizer "$demo/tokenizer" \
      --input "$demo/$set.jsonl" --seq-len "$kSeqLen" --output "$demo/$set"
    quiet "$demo/verify-$set.log" "$bin/trireme-data" verify "$demo/$set"
  done
}

train_whole() {
  note "training, 2 ranks, $kSteps steps, $kPrecision"
  quiet "$demo/whole.log" "${train[@]}" --run "$demo/whole"
  local losses first last
  losses=$(metric "$demo/whole/metrics.jsonl" loss)
  (($(wc -l <<<"$losses") == kSteps)) || wrong "whole/metrics.jsonl has $(wc -l <<<"$losses") steps, must have $kSteps" "$demo/whole.log"
  first=$(awk 'NR == 1 {print $2}' <<<"$losses")
  last=$(awk 'END {print $2}' <<<"$losses")
  awk -v a="$first" -v b="$last" -v f="$kMinDrop" 'BEGIN { exit !(a + 0 > 0 && b + 0 > 0 && b < f * a) }' ||
    wrong "the loss went from $first to $last, must end under $kMinDrop of the first" "$demo/whole.log"
  note "$(printf 'loss %.3f -> %.3f' "$first" "$last")"
}

stop_half_way() { # sends the signal that Slurm sends before the time limit; sets stopped_at
  note "the same run again, stopped by SIGUSR2 after step $kStopAt, then resumed"
  "${train[@]}" --run "$demo/stopped" >"$demo/stopped.log" 2>&1 &
  local pid=$! rc=0 step=0
  trap 'kill -TERM '"$pid"' 2>/dev/null || true' EXIT
  while kill -0 "$pid" 2>/dev/null; do
    if [[ -s $demo/stopped/metrics.jsonl ]]; then
      step=$(metric "$demo/stopped/metrics.jsonl" loss | awk 'END {print $1 + 0}')
      ((step >= kStopAt)) && break
    fi
    sleep 0.1
  done
  kill -USR2 "$pid" 2>/dev/null || true
  wait "$pid" || rc=$?
  trap - EXIT
  ((rc == 75)) || wrong "the stopped run ended with exit $rc, must be 75 (stopped after a committed save)" "$demo/stopped.log"
  local checkpoint
  checkpoint=$(newest_checkpoint "$demo/stopped") || wrong "the stopped run left no checkpoint" "$demo/stopped.log"
  stopped_at=$((10#${checkpoint##*step-}))
  ((stopped_at >= kStopAt && stopped_at < kSteps)) ||
    wrong "the newest checkpoint of the stopped run is of step $stopped_at, must be between $kStopAt and $kSteps" "$demo/stopped.log"
}

resume_and_compare() {
  quiet "$demo/resumed.log" "${train[@]}" --run "$demo/stopped"
  grep -qE "\"resumed_from\": *${stopped_at}[,}]" "$demo/stopped/metrics.jsonl" ||
    wrong "stopped/metrics.jsonl has no line with resumed_from $stopped_at" "$demo/resumed.log"
  local a b hash_a hash_b
  a=$(newest_checkpoint "$demo/whole") || wrong "the whole run left no checkpoint" "$demo/whole.log"
  b=$(newest_checkpoint "$demo/stopped")
  [[ ${a##*/} == "${b##*/}" ]] || wrong "the runs end at ${a##*/} and ${b##*/}" "$demo/resumed.log"
  hash_a=$("$bin/trireme" checkpoint hash "$a" 2>"$demo/hash.log") || wrong "checkpoint hash $a failed" "$demo/hash.log"
  hash_b=$("$bin/trireme" checkpoint hash "$b" 2>"$demo/hash.log") || wrong "checkpoint hash $b failed" "$demo/hash.log"
  [[ -n $hash_a && $hash_a == "$hash_b" ]] ||
    wrong "resumed run differs from the uninterrupted one: $hash_b, must be $hash_a"
  note "resumed bitwise yes"
  checkpoint=$b
}

export_and_sample() {
  quiet "$demo/export.log" "$bin/trireme" export --checkpoint "$checkpoint" --output "$demo/export"
  local file sample
  for file in config.json model.safetensors tokenizer.json; do
    [[ -s $demo/export/$file ]] || wrong "the export has no $file" "$demo/export.log"
  done
  note "export $demo/export"
  sample=$("$bin/trireme" generate --checkpoint "$checkpoint" --prompt "$kPrompt" --max-tokens 60 --temperature 0 \
    2>"$demo/generate.log") || wrong "generate failed" "$demo/generate.log"
  sample=$(tr '\n\r\t' '   ' <<<"$sample" | sed 's/  */ /g; s/ *$//')
  [[ -n ${sample// /} ]] || wrong "generate printed nothing" "$demo/generate.log"
  note "sample \"$kPrompt$sample\""
}

mkdir -p build
exec 9>build/demo.lock
flock -n 9 || wrong "another bin/demo is running in this checkout (build/demo.lock)"
rm -rf "$demo"
mkdir -p "$demo"
make_data
train_whole
stop_half_way
resume_and_compare
export_and_sample
note "done in $((SECONDS - demo_start)) s; logs in $demo"
