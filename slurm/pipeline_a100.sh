#!/usr/bin/env bash
# Runs the whole pipeline on one node of eight A100: prepare, pretrain, fine-tune on short and on long chats, DPO, export. Each stage is
# a job that waits for the jobs that it needs. If a stage fails for good, the later stages are cancelled.
#
#   slurm/pipeline_a100.sh --tokenizer DIR --pretrain F.jsonl --sft-512 F.jsonl --sft-2048 F.jsonl --dpo F.jsonl --output DIR
#                          [--template NAME] [-- --section.key value ...]
#   DRY_RUN=1 slurm/pipeline_a100.sh ...              prints the commands
#
# The configurations are in slurm/configs. Options after -- are passed to every training stage. DIR gets data/, runs/, logs/ and
# exported/. A stage that loses its node is requeued and resumes; the later stages continue to wait.
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")

declare -A given=([template]=minimind-v3)
keys=()
while (($#)); do
  case $1 in
    --) shift; keys=("$@"); break ;;
    --tokenizer | --pretrain | --sft-512 | --sft-2048 | --dpo | --output | --template)
      [[ $# -ge 2 ]] || { printf 'error: %s needs a value\n' "$1" >&2; exit 2; }
      given[${1#--}]=$2; shift 2 ;;
    -h | --help) sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) printf 'error: %s is not an option of this script. Put training keys after --\n' "$1" >&2; exit 2 ;;
  esac
done
for name in tokenizer pretrain sft-512 sft-2048 dpo output; do
  [[ -n ${given[$name]:-} ]] || { printf 'error: --%s is missing\n' "$name" >&2; exit 2; }
  [[ $name == output || -e ${given[$name]} ]] || { printf 'error: --%s %s does not exist\n' "$name" "${given[$name]}" >&2; exit 2; }
done
data=${given[output]}/data runs=${given[output]}/runs logs=${given[output]}/logs exported=${given[output]}/exported
[[ ! -e $exported ]] || { printf 'error: %s exists already, so the last stage would fail. Move it away\n' "$exported" >&2; exit 2; }
[[ ${DRY_RUN:-0} == 1 ]] || mkdir -p "$logs"

declare -A job
# shellcheck source=slurm/lib/chain.sh
source "$here/lib/chain.sh"

pack() { # pack NAME KIND SEQ_LEN
  local template=()
  [[ $2 == pretrain ]] || template=(--template "${given[template]}")
  submit "prep-$1" "" prep.sbatch --kind "$2" --tokenizer "${given[tokenizer]}" --input "${given[$1]}" --seq-len "$3" \
    "${template[@]}" --output "$data/$1"
}

train() { # train NAME BEFORE SCRIPT CONFIG: trains on the data set NAME, from the run BEFORE unless it is ""
  local after=${job[prep-$1]} init=()
  [[ -z $2 ]] || after=${job[$2]}:$after init=(--init "$runs/$2")
  submit "$1" "$after" "$3" "${init[@]}" --data "$data/$1" --run "$runs/$1" --config "$here/configs/$4" "${keys[@]}"
}

[[ ${DRY_RUN:-0} == 1 ]] || trap withdraw EXIT
pack pretrain pretrain 1024
pack sft-512 sft 512
pack sft-2048 sft 2048
pack dpo dpo 2048
train pretrain '' pretrain_a100.sbatch pretrain_1024.toml
train sft-512 pretrain sft_a100.sbatch sft_512.toml
train sft-2048 sft-512 sft_a100.sbatch sft_2048.toml
train dpo sft-2048 dpo_a100.sbatch dpo_2048.toml
submit export "${job[dpo]}" export.sbatch --checkpoint "$runs/dpo" --output "$exported"

printf 'prepare   %s %s %s %s\n' "${job[prep-pretrain]}" "${job[prep-sft-512]}" "${job[prep-sft-2048]}" "${job[prep-dpo]}"
printf 'pretrain  %s\nsft 512   %s\nsft 2048  %s\ndpo       %s\nexport    %s\n' "${job[pretrain]}" "${job[sft-512]}" "${job[sft-2048]}" "${job[dpo]}" "${job[export]}"
