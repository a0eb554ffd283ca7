#!/usr/bin/env bash
# prefix_test.sh BUILD: runs jobs of an installed prefix under a real Slurm: the prefix was moved to a name with a blank, belongs to
# another user and cannot be written. A data set is packed, and a training job stops, is requeued and resumes. `trireme submit` works, too.
set -euo pipefail
build=$(readlink -f "$1")
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
source tests/support/shell.sh
bin=$build/bin
source tests/slurm/with_cluster.sh

prefix="$work/apps/a moved prefix"
user=(setpriv --reuid 65534 --regid 65534 --clear-groups env "HOME=$work/home" USER=nobody "PATH=$prefix/bin:/usr/bin:/bin")
training=(--data "$work/set" --train.device cpu --train.precision fp32 --train.seed 1 --train.steps 40 --train.seq_len 64
  --train.micro_batch 1 --train.global_batch 8 --model.preset tiny --checkpoint.every 5)

install_prefix() {
  TRIREME_INSTALL_LIBTORCH="link" cmake --install "$build" --prefix "$work/apps/first" >"$work/install.log" 2>&1 || broken "$(tail -n5 "$work/install.log")"
  mv "$work/apps/first" "$prefix"
  chmod -R a-w "$prefix"
  mkdir "$work/home"
  chmod 755 "$work"
  chown 65534 "$work" "$work/home"
}

a_data_set_is_packed() {
  local job
  job=$(on "${user[@]}" sbatch --parsable --ntasks-per-node=2 --output="$work/prep.out" "$prefix/share/trireme/slurm/prep.sbatch" --kind pretrain \
    --tokenizer "$work/tokenizer" --input "$work/corpus.jsonl" --seq-len 64 --output "$work/set")
  await 120 "the end of prep.sbatch" ended "$job"
  expect_equal "prep's state" COMPLETED "$(job_field "$job" JobState)"
}

a_job_is_requeued_and_resumes() {
  local job
  job=$(on "${user[@]}" sbatch --parsable --nodes=2 --ntasks-per-node=2 --gpus-per-node=0 --cpus-per-task=1 --mem=0 --time=20 \
    --job-name=moved --output="$work/moved.out" "$prefix/share/trireme/slurm/pretrain_a100.sbatch" --run "$work/moved" "${training[@]}")
  await 120 "step 8" logged_step "$work/moved" 8
  on scancel --signal=USR2 "$job"
  await 120 "the requeue" requeued moved
  await 240 "the end" ended "$job"
  expect_equal "state" COMPLETED "$(job_field "$job" JobState)"
  expect_equal "resumed_from" "$(first_committed moved)" "$(resumed_from "$work/moved")"
  expect_equal "revision" "revision  $(<"$build/revision")" "$(grep -m1 '^revision' "$work/moved.out")"
}

a_job_is_submitted_with_the_settings_of_the_site() {
  local job
  chmod u+w "$prefix" && mkdir -p "$prefix/etc/trireme"
  printf 'TRIREME_NOTIFY="cat >%s"\n' "$work/notified" >"$prefix/etc/trireme/env.sh"
  on env -C "$work" "${user[@]}" trireme submit --nodes 2 --time 20 --sbatch=--ntasks-per-node=2 --sbatch=--cpus-per-task=1 --sbatch=--mem=0 \
    --sbatch=--gpus-per-node=0 -- pretrain --run "$work/submitted" "${training[@]}" >"$work/submit.out" 2>&1 || broken "submit: $(<"$work/submit.out")"
  rm -r "${prefix:?}/etc"  # the job has a copy of the settings
  job=$(sed -nE 's/^job ([0-9]+):.*/\1/p' "$work/submit.out")
  await 240 "the end" ended "$job"
  expect_equal "state" COMPLETED "$(job_field "$job" JobState)"
  expect_equal "weights of both jobs" "$(final_hash "$work/moved")" "$(final_hash "$work/submitted")"
  expect_match "the notification, a setting of the site" '"verdict":"done"' "$(cat "$work/notified" 2>/dev/null || true)"
  expect_equal "the program of the job" "$prefix/bin/trireme" "$(readlink "$work/submitted/submit/1/build/release/bin/trireme")"
}

cluster_up
run_scenarios install_prefix a_data_set_is_packed a_job_is_requeued_and_resumes a_job_is_submitted_with_the_settings_of_the_site
finish
