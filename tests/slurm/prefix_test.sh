#!/usr/bin/env bash
# prefix_test.sh BUILD: runs jobs of an installed prefix under a real Slurm. The prefix was moved, belongs to another user and is mounted read-only
# on all nodes, at a path without and at a path with a blank. A data set is packed, and a training job stops, is requeued and resumes. `trireme
# submit` works, too.
set -euo pipefail
build=$(readlink -f "$1")
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
# The nodes copy the mounts of this script, and other programs must not see them.
if [[ -z ${TRIREME_TEST_MOUNTS:-} ]] && ((EUID == 0)) && unshare --mount true 2>/dev/null; then
  TRIREME_TEST_MOUNTS=private exec unshare --mount "${BASH_SOURCE[0]}" "$build"
fi
source tests/support/shell.sh
bin=$build/bin
source tests/slurm/with_cluster.sh

store="$work/store/trireme of the site"
moved=$store prefix=$store
if [[ -n ${TRIREME_TEST_MOUNTS:-} ]]; then moved=$work/apps/trireme prefix="$work/apps/a moved prefix"; fi
as_user() { # as_user PREFIX COMMAND...: runs a command on the cluster as a user who has loaded the module of the prefix
  on env -C "$work" setpriv --reuid 65534 --regid 65534 --clear-groups env "HOME=$work/home" USER=nobody "PATH=$1/bin:/usr/bin:/bin" "TRIREME_ROOT=$1" "${@:2}"
}
training=(--data "$work/set" --train.device cpu --train.precision fp32 --train.seed 1 --train.steps 40 --train.seq_len 64
  --train.micro_batch 1 --train.global_batch 8 --model.preset tiny --checkpoint.every 5)

install_prefix() {
  local directory
  TRIREME_INSTALL_LIBTORCH="link" cmake --install "$build" --prefix "$work/apps/first" >"$work/install.log" 2>&1 || broken "$(tail -n5 "$work/install.log")"
  mkdir -p "$work/home" "$store" "$work/apps/first/etc/trireme"
  printf 'TRIREME_NOTIFY="cat >%s"\n' "$work/notified" >"$work/apps/first/etc/trireme/env.sh"
  mv -T "$work/apps/first" "$store"
  chown -R 65533 "$store"
  chmod -R a-w "$store"
  chmod 755 "$work"
  chown 65534 "$work" "$work/home"
  if [[ -z ${TRIREME_TEST_MOUNTS:-} ]]; then printf 'NOT TESTED: read-only mounts, which need a mount namespace\n'; return 0; fi
  for directory in "$moved" "$prefix"; do
    mkdir "$directory"
    mount --bind "$store" "$directory" && mount -o remount,bind,ro "$directory"
  done
}

after_cluster() { [[ -z ${TRIREME_TEST_MOUNTS:-} ]] || umount "$moved" "$prefix"; }

the_nodes_cannot_write_into_the_prefix() {
  [[ -n ${TRIREME_TEST_MOUNTS:-} ]] || return 0
  local node
  for node in ctl n1 n2; do
    ! timeout 60 "$cluster/on" "$node" touch "$prefix/bin/file" 2>"$work/touch.out" || broken "root of $node can write into the prefix"
    expect_match "its message" 'Read-only file system' "$(<"$work/touch.out")"
  done
  expect_equal "owner" 65533 "$(stat -c %u "$prefix/bin/trireme")"
  [[ ! -e $work/apps/first ]] || broken "the first place of the prefix still exists"
}

a_data_set_is_packed() {
  local job
  job=$(as_user "$moved" sbatch --parsable --ntasks-per-node=2 --output="$work/prep.out" "$moved/share/trireme/slurm/prep.sbatch" --kind pretrain \
    --tokenizer "$work/tokenizer" --input "$work/corpus.jsonl" --seq-len 64 --output "$work/set")
  await 120 "the end of prep.sbatch" ended "$job"
  expect_equal "prep's state" COMPLETED "$(job_field "$job" JobState)"
}

a_job_is_requeued_and_resumes() {
  local job
  job=$(as_user "$prefix" sbatch --parsable --nodes=2 --ntasks-per-node=2 --gpus-per-node=0 --cpus-per-task=1 --mem=0 --time=20 \
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
  rm -f "$work/notified"
  as_user "$prefix" trireme submit --nodes 2 --time 20 --sbatch=--ntasks-per-node=2 --sbatch=--cpus-per-task=1 --sbatch=--mem=0 \
    --sbatch=--gpus-per-node=0 -- pretrain --run "$work/submitted" "${training[@]}" >"$work/submit.out" 2>&1 || broken "submit: $(<"$work/submit.out")"
  rm -r "${store:?}/etc"  # the administrator removes the settings, but the job has a copy
  job=$(sed -nE 's/^job ([0-9]+):.*/\1/p' "$work/submit.out")
  await 240 "the end" ended "$job"
  expect_equal "state" COMPLETED "$(job_field "$job" JobState)"
  expect_equal "weights of both jobs" "$(final_hash "$work/moved")" "$(final_hash "$work/submitted")"
  expect_match "the notification, a setting of the site" '"verdict":"done"' "$(cat "$work/notified" 2>/dev/null || true)"
  expect_equal "the program of the job" "$prefix/bin/trireme" "$(readlink "$work/submitted/submit/1/build/release/bin/trireme")"
}

run_scenarios install_prefix cluster_up the_nodes_cannot_write_into_the_prefix a_data_set_is_packed a_job_is_requeued_and_resumes a_job_is_submitted_with_the_settings_of_the_site
finish
