#!/usr/bin/env bash
# The whole chain on one node of eight A100: prepare, pretrain, fine-tune on short and on long chats, learn from preferred
# answers, export. Each stage is a job that waits for those it needs; a stage that fails for good cancels the rest.
#
#   slurm/pipeline_a100.sh --tokenizer DIR --pretrain F.jsonl --sft-512 F.jsonl --sft-2048 F.jsonl --dpo F.jsonl --output DIR
#                          [--template NAME] [-- --section.key value ...]
#   DRY_RUN=1 slurm/pipeline_a100.sh ...              prints what it would submit
#
# Configurations are those of slurm/configs; what follows -- goes to every training stage. DIR gets data/, runs/, logs/ and
# exported/. A stage that lost its node goes back in the queue by itself and resumes; the ones after it go on waiting.
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
    *) printf 'error: %s is no option of this script; training keys come after --\n' "$1" >&2; exit 2 ;;
  esac
done
for name in tokenizer pretrain sft-512 sft-2048 dpo output; do
  [[ -n ${given[$name]:-} ]] || { printf 'error: --%s is missing\n' "$name" >&2; exit 2; }
  [[ $name == output || -e ${given[$name]} ]] || { printf 'error: --%s %s does not exist\n' "$name" "${given[$name]}" >&2; exit 2; }
done
data=${given[output]}/data runs=${given[output]}/runs logs=${given[output]}/logs exported=${given[output]}/exported
[[ ! -e $exported ]] || { printf 'error: %s exists already, the last stage would end there: move it away\n' "$exported" >&2; exit 2; }
[[ ${DRY_RUN:-0} == 1 ]] || mkdir -p "$logs"

# All stages or none: what Slurm accepted of a chain that it refused in part would be in the way of the next one.
declare -A job
withdraw() {
  local rc=$?
  if ((rc != 0 && ${#job[@]} > 0)); then
    printf 'error: Slurm refused a stage, the others are cancelled: %s\n' "${job[*]}" >&2
    scancel "${job[@]}"
  fi
  exit "$rc"
}

# submit NAME AFTER SCRIPT ARGUMENT...: puts one stage in the queue, its job's id is job[NAME]. AFTER: ids joined by colons, or "".
submit() {
  local command=(sbatch --parsable "--job-name=$1" --nodes=1 "--output=$logs/%x-%j.out" --kill-on-invalid-dep=yes) id
  [[ -z $2 ]] || command+=("--dependency=afterok:$2")
  command+=("$here/$3" "${@:4}")
  if [[ ${DRY_RUN:-0} == 1 ]]; then
    id="<$1>"
    printf '%q ' "${command[@]}" >&2
    printf '\n' >&2
  else
    id=$("${command[@]}")
  fi
  job[$1]=$id
}

pack() { # pack NAME KIND SEQ_LEN
  local template=()
  [[ $2 == pretrain ]] || template=(--template "${given[template]}")
  submit "prep-$1" "" prep.sbatch --kind "$2" --tokenizer "${given[tokenizer]}" --input "${given[$1]}" --seq-len "$3" \
    "${template[@]}" --output "$data/$1"
}

train() { # train NAME BEFORE SCRIPT CONFIG: on the set NAME, from the run BEFORE where there is one
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
