#!/usr/bin/env bash
# Runs the pipeline of nanochat on one node of eight H100, from raw text to the report card: tokenizer, packing, pretraining, fine-tuning
# on chats, evaluations and a question. Each stage is a job that waits for the jobs that it needs. If a stage fails for good, the later
# stages are cancelled.
#
#   slurm/nanochat_h100.sh --texts F.jsonl --valid F.jsonl --chats F.jsonl --output DIR [--depth N] [--core BUNDLE] [--question TEXT]
#                          [--device auto|cpu|cuda] [-- --section.key value ...]
#   DRY_RUN=1 slurm/nanochat_h100.sh ...              prints the commands
#
# The depth gives the model, the batch, the steps and the rates (docs/optimizers.md). --texts, --valid: texts for training and for
# validation. Options after -- are passed to the pretraining. DIR gets data/, runs/ and logs/; the report card is
# DIR/runs/chat/report.html. A stage that loses its node is requeued and resumes. bin/speedrun runs the same stages on one machine.
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")

declare -A given=([depth]=20 [question]='What is the capital of France?' [device]=auto [texts]='' [valid]='' [chats]='' [output]='' [core]='')
keys=()
while (($#)); do
  case $1 in
    --) shift; keys=("$@"); break ;;
    -h | --help) sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *)
      [[ $1 == --* && -n ${given[${1#--}]+known} ]] || { printf 'error: %s is not an option of this script. Put training keys after --\n' "$1" >&2; exit 2; }
      [[ $# -ge 2 ]] || { printf 'error: %s needs a value\n' "$1" >&2; exit 2; }
      given[${1#--}]=$2; shift 2 ;;
  esac
done
for name in texts valid chats output; do
  [[ -n ${given[$name]} ]] || { printf 'error: --%s is missing\n' "$name" >&2; exit 2; }
  [[ $name == output || -e ${given[$name]} ]] || { printf 'error: --%s %s does not exist\n' "$name" "${given[$name]}" >&2; exit 2; }
done
data=${given[output]}/data runs=${given[output]}/runs logs=${given[output]}/logs
[[ ${DRY_RUN:-0} == 1 ]] || mkdir -p "$logs"

declare -A job
# shellcheck source=slurm/lib/chain.sh
source "$here/lib/chain.sh"

pack() { # pack NAME KIND OPTION...
  submit "prep-$1" "${job[tokenizer]}" prep.sbatch --kind "$2" --tokenizer "$data/tokenizer" --input "${given[$1]}" --seq-len 2048 \
    --output "$data/$1" "${@:3}"
}

[[ ${DRY_RUN:-0} == 1 ]] || trap withdraw EXIT
if [[ -e $data/tokenizer/tokenizer.json ]]; then
  job[tokenizer]=''
else
  submit tokenizer '' tokenizer.sbatch --input "${given[texts]}" --vocab-size 32768 --output "$data/tokenizer"
fi
pack texts pretrain
pack valid pretrain
pack chats sft --template minimind-v3
submit base "${job[prep-texts]}:${job[prep-valid]}" pretrain_h100.sbatch --run "$runs/base" --data "$data/texts" --data.valid_path "$data/valid" \
  --model.preset nanochat --model.depth "${given[depth]}" --train.eval_every 250 --train.device "${given[device]}" "${keys[@]}"
submit chat "${job[base]}:${job[prep-chats]}" sft_a100.sbatch --run "$runs/chat" --init "$runs/base" --data "$data/chats" \
  --train.device "${given[device]}"
card=(--checkpoint "$runs/chat" --data "$data/valid" --question "${given[question]}" --device "${given[device]}")
[[ -z ${given[core]} ]] || card+=(--core "${given[core]}")
submit card "${job[chat]}" card.sbatch "${card[@]}"

printf 'tokenizer  %s\nprepare    %s %s %s\n' "${job[tokenizer]:-done}" "${job[prep-texts]}" "${job[prep-valid]}" "${job[prep-chats]}"
printf 'pretrain   %s\nsft        %s\ncard       %s\n' "${job[base]}" "${job[chat]}" "${job[card]}"
