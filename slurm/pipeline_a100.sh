#!/usr/bin/env bash
# The whole chain on one node of eight A100: prepare, pretrain, fine-tune on short and on long chats, learn from preferred
# answers, export. Each stage is a job that waits for those it needs; a stage that fails for good cancels the rest.
#
#   slurm/pipeline_a100.sh --tokenizer DIR --pretrain F.jsonl --sft-512 F.jsonl --sft-2048 F.jsonl --dpo F.jsonl --output DIR
#                          [--template NAME] [-- --section.key value ...]
#   DRY_RUN=1 slurm/pipeline_a100.sh ...              prints what it would submit
#
# Configurations are those of slurm/configs; what follows -- goes to every training stage. DIR gets data/, runs/ and
# exported/. A stage that lost its node goes back in the queue by itself and resumes; the ones after it go on waiting.
set -euo pipefail

cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

declare -A given=([template]=minimind-v3)
keys=()
while (($#)); do
  case $1 in
    --) shift; keys=("$@"); break ;;
    --tokenizer | --pretrain | --sft-512 | --sft-2048 | --dpo | --output | --template)
      [[ $# -ge 2 ]] || { printf 'error: %s needs a value\n' "$1" >&2; exit 2; }
      given[${1#--}]=$2; shift 2 ;;
    -h | --help) sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) printf 'error: %s is no option of this script; training keys come after --\n' "$1" >&2; exit 2 ;;
  esac
done
for name in tokenizer pretrain sft-512 sft-2048 dpo output; do
  [[ -n ${given[$name]:-} ]] || { printf 'error: --%s is missing\n' "$name" >&2; exit 2; }
  [[ $name == output || -e ${given[$name]} ]] || { printf 'error: --%s %s does not exist\n' "$name" "${given[$name]}" >&2; exit 2; }
done
data=${given[output]}/data runs=${given[output]}/runs

# submit NAME AFTER SCRIPT ARGUMENT...: puts one stage in the queue; prints its job's id. AFTER: ids joined by colons, or "".
submit() {
  local command=(sbatch --parsable "--job-name=$1" --kill-on-invalid-dep=yes)
  [[ -z $2 ]] || command+=("--dependency=afterok:$2")
  command+=("${@:3}")
  if [[ ${DRY_RUN:-0} == 1 ]]; then
    printf '%q ' "${command[@]}" >&2
    printf '\n' >&2
    printf '<%s>\n' "$1"
  else
    "${command[@]}"
  fi
}

pack() { # pack NAME KIND SEQ_LEN
  local template=()
  [[ $2 == pretrain ]] || template=(--template "${given[template]}")
  submit "prep-$1" "" slurm/prep.sbatch --kind "$2" --tokenizer "${given[tokenizer]}" --input "${given[$1]}" --seq-len "$3" \
    "${template[@]}" --output "$data/$1"
}

set_pretrain=$(pack pretrain pretrain 1024)
set_512=$(pack sft-512 sft 512)
set_2048=$(pack sft-2048 sft 2048)
set_dpo=$(pack dpo dpo 2048)

pretrain=$(submit pretrain "$set_pretrain" --nodes=1 slurm/pretrain_a100.sbatch --data "$data/pretrain" --run "$runs/pretrain" \
  --config slurm/configs/pretrain_1024.toml "${keys[@]}")
sft_512=$(submit sft-512 "$pretrain:$set_512" slurm/sft_a100.sbatch --init "$runs/pretrain" --data "$data/sft-512" \
  --run "$runs/sft-512" --config slurm/configs/sft_512.toml "${keys[@]}")
sft_2048=$(submit sft-2048 "$sft_512:$set_2048" slurm/sft_a100.sbatch --init "$runs/sft-512" --data "$data/sft-2048" \
  --run "$runs/sft-2048" --config slurm/configs/sft_2048.toml "${keys[@]}")
dpo=$(submit dpo "$sft_2048:$set_dpo" slurm/dpo_a100.sbatch --init "$runs/sft-2048" --data "$data/dpo" --run "$runs/dpo" \
  --config slurm/configs/dpo_2048.toml "${keys[@]}")
exported=$(submit export "$dpo" slurm/export.sbatch --checkpoint "$runs/dpo" --output "${given[output]}/exported")

printf 'prepare   %s %s %s %s\npretrain  %s\nsft 512   %s\nsft 2048  %s\ndpo       %s\nexport    %s\n' \
  "$set_pretrain" "$set_512" "$set_2048" "$set_dpo" "$pretrain" "$sft_512" "$sft_2048" "$dpo" "$exported"
