#!/usr/bin/env bash
# prep_nodes_test.sh BIN_DIR: runs slurm/prep.sbatch on 1, 2 and 4 nodes, and as an array of four tasks that share one data set:
# the bytes are the same.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
source tests/support/shell.sh
bin=$(cd "$1" && pwd)
num_nodes=4
source tests/slurm/with_cluster.sh

prep() { # prep NAME [SBATCH_OPTION...]: packs into WORK/NAME and waits; every task must succeed
  local name=$1 job
  shift
  job=$(TRIREME_BIN=$bin on sbatch --parsable --ntasks-per-node=2 --output="$work/$name-%a.out" "$@" slurm/prep.sbatch --kind pretrain \
    --tokenizer "$work/tokenizer" --input "$work/corpus.jsonl" --seq-len 64 --unit-bytes 4096 --threads 1 --output "$work/$name")
  await 240 "the end of $name" ended "$job"
  expect_equal "states of $name" COMPLETED "$(on scontrol -o show job "$job" | sed -nE 's/.* JobState=([A-Z]*).*/\1/p' | sort -u)"
  "$bin/trireme-data" verify "$work/$name"
}
sums() { (cd "$work/$1" && find . -type f ! -name '*LOCK*' ! -name '*.log' -print0 | sort -z | xargs -0 sha256sum); }

cluster_up
prep one --nodes=1
for nodes in 2 4; do
  prep "on_$nodes" --nodes="$nodes"
  expect_equal "bytes of a set made on $nodes nodes" "$(sums one)" "$(sums "on_$nodes")"
done
prep array --nodes=1 --array=1-4
expect_equal "bytes of a set made by an array" "$(sums one)" "$(sums array)"
expect_match "shards of it" '\.h5' "$(sums array)"
finish
