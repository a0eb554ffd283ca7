#!/usr/bin/env bash
# The job scripts without a cluster: what they would run, and when a job goes back in the queue.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
source tests/support/shell.sh
source slurm/lib.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

commands_are_printed_and_arguments_kept() {
  local line
  line=$(DRY_RUN=1 slurm/pretrain_a100.sbatch --data 'my data' --run runs/x --optim.lr 3e-4)
  expect_match "pretrain's command" ' --cpus-per-task=1 .*trireme pretrain --data my\\ data --run runs/x --optim.lr 3e-4 $' "$line"
  line=$(DRY_RUN=1 SLURM_CPUS_PER_TASK=8 SLURM_JOB_ID=7 SLURM_JOB_NAME=big slurm/pretrain_a100.sbatch --data d)
  expect_match "the default run folder" '--cpus-per-task=8 .* --data d --run runs/big-7 $' "$line"
  line=$(DRY_RUN=1 SLURM_JOB_ID=9 SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=2 slurm/pretrain_a100.sbatch --data d)
  expect_match "an array task's run folder" '--run runs/pretrain-7_2 $' "$line"
  line=$(DRY_RUN=1 TRIREME_LAUNCH='apptainer exec --nv x.sif' slurm/prep.sbatch --input a.jsonl)
  expect_match "prep's command in a container" '--label apptainer exec --nv x.sif [^ ]*/trireme-data pack --input a.jsonl $' "$line"
  line=$(DRY_RUN=1 SLURM_JOB_ID=7 slurm/serve.sbatch --checkpoint runs/x)
  expect_match "serve's command" 'trireme serve --checkpoint runs/x --token-file runs/serve-7.token --host [^ ]+ --port 0 $' "$line"
  line=$(DRY_RUN=1 slurm/serve.sbatch --checkpoint c --token-file=t --host n1 --port 80)
  expect_match "serve's own arguments" 'trireme serve --checkpoint c --token-file=t --host n1 --port 80 $' "$line"
  line=$(DRY_RUN=1 slurm/debug.sh --nodes=2 -- prog --x 'a b')
  expect_match "debug's command" '^srun --mpi=pmix .*--nodes=2 .* prog --x a\\ b $' "$line"
}

outside_a_job_is_an_error() {
  local rc=0
  slurm/pretrain_a100.sbatch --data d >"$work/out" 2>&1 || rc=$?
  expect_equal "exit without Slurm" 2 "$rc"
  expect_match "its message" 'submit with .sbatch' "$(<"$work/out")"
}

# What a job sees: a copy of the script in Slurm's spool, a working folder of its own, and scontrol that knows the script's path.
a_job_finds_its_checkout() {
  local checkout=$PWD line rc=0
  mkdir -p "$work/spool" "$work/elsewhere" "$work/path"
  cp slurm/export.sbatch "$work/spool/slurm_script"
  fake scontrol <<'EOF'
printf 'JobId=7 JobName=x Command=%s --checkpoint my.sbatch/run WorkDir=/x\n' "$COMMAND"
EOF
  cd "$work/elsewhere"
  line=$(job_of_copy "$checkout/slurm/export.sbatch")
  expect_match "the program of a job submitted elsewhere" " $checkout/build/release/bin/trireme export --checkpoint a \$" "$line"
  ln -sfn "$checkout/slurm/export.sbatch" "$work/elsewhere/mine.sbatch"
  line=$(DRY_RUN=1 ./mine.sbatch --checkpoint a)
  expect_match "the program by a link" " $checkout/build/release/bin/trireme export --checkpoint a \$" "$line"
  line=$(job_of_copy "$work/elsewhere/mine.sbatch")
  expect_match "the program of a job submitted by a link" " $checkout/build/release/bin/trireme export --checkpoint a \$" "$line"
  job_of_copy "(null)" >"$work/out" 2>&1 || rc=$?
  expect_equal "exit of a job whose script lies nowhere" 2 "$rc"
  expect_match "its message" 'no env.sh beside this script' "$(<"$work/out")"
  line=$(TRIREME_HOME=$checkout job_of_copy "(null)")
  expect_match "the program of TRIREME_HOME" " $checkout/build/release/bin/trireme export --checkpoint a \$" "$line"
  cd "$checkout"
  line=$(job_of_copy "(null)")
  expect_match "the program of a copied script in the checkout" " $checkout/build/release/bin/trireme export --checkpoint a \$" "$line"
}

# The program's URL becomes the line that leads there, and the token is this job's own.
a_server_says_how_to_reach_it() {
  local output
  mkdir -p "$work/serve"
  fake srun <<'EOF2'
printf '0: http://node7:4711\n'
EOF2
  output=$(PATH=$work/path:$PATH SLURM_JOB_ID=7 SLURM_SUBMIT_HOST=login1 TRIREME_RUNS=$work/serve slurm/serve.sbatch --checkpoint c)
  expect_match "the ssh line" 'ssh -N -L 8000:node7:4711 login1' "$output"
  expect_match "where the token is" "token +cat .*/serve/serve-7.token" "$output"
  expect_equal "mode of the token" 600 "$(stat -c %a "$work/serve/serve-7.token")"
  expect_match "the token" '^[0-9a-f]{48}$' "$(<"$work/serve/serve-7.token")"
}

fake() { # fake PROGRAM: the script on standard input stands for it where PATH begins with $work/path
  mkdir -p "$work/path"
  { printf '#!/usr/bin/env bash\n' && cat; } >"$work/path/$1"
  chmod +x "$work/path/$1"
}

job_of_copy() { # job_of_copy COMMAND: what the job would run
  (
    unset TRIREME_BIN
    PATH=$work/path:$PATH DRY_RUN=1 SLURM_JOB_ID=7 COMMAND=$1 bash "$work/spool/slurm_script" --checkpoint a
  )
}

# sbatch as a file that keeps its arguments, answers 1, 2, 3 ... and refuses from the job REFUSE on
chain() { # chain FOLDER ARGUMENT...
  local output=$1
  shift
  mkdir -p "$work/elsewhere/in"
  touch "$work/elsewhere/in/"{tok,a.jsonl}
  fake sbatch <<'EOF'
printf '%s\n' "$*" >>"$CALLS"
n=$(wc -l <"$CALLS")
((n < ${REFUSE:-99})) || exit 1
printf '%s\n' "$n"
EOF
  fake scancel <<'EOF'
printf 'scancel %s\n' "$(printf '%s\n' "$@" | sort | xargs)" >>"$CALLS"
EOF
  rm -f "$work/calls"
  (
    slurm=$PWD/slurm
    cd "$work/elsewhere"
    CALLS=$work/calls PATH=$work/path:$PATH "$slurm/pipeline_a100.sh" --tokenizer in/tok --pretrain in/a.jsonl --sft-512 in/a.jsonl \
      --sft-2048 in/a.jsonl --dpo in/a.jsonl --output "$output" "$@"
  )
}

a_chain_is_submitted_from_any_folder() {
  local calls
  chain out -- --train.steps 2 >"$work/out"
  mapfile -t calls <"$work/calls"
  expect_equal "jobs" 9 "${#calls[@]}"
  expect_match "the second" "--nodes=1 --output=out/logs/%x-%j.out .*$PWD/slurm/prep.sbatch --kind sft .*--input in/a.jsonl .*--output out/data/sft-512\$" "${calls[1]}"
  expect_match "pretrain" "--dependency=afterok:1 $PWD/slurm/pretrain_a100.sbatch --data out/data/pretrain .*--config $PWD/slurm/configs/.*--train.steps 2\$" \
    "${calls[4]}"
  expect_match "sft" "--dependency=afterok:5:2 .*sft_a100.sbatch --init out/runs/pretrain .*--train.steps 2\$" "${calls[5]}"
  expect_match "dpo" "--dependency=afterok:7:4 .*dpo_a100.sbatch --init out/runs/sft-2048 " "${calls[7]}"
  expect_match "export" "--kill-on-invalid-dep=yes --dependency=afterok:8 .*--checkpoint out/runs/dpo --output out/exported\$" "${calls[8]}"
  expect_match "what is printed" 'sft 2048  7' "$(<"$work/out")"
  expect_equal "the folder of the jobs' outputs" yes "$([[ -d $work/elsewhere/out/logs ]] && printf yes || printf no)"
}

a_chain_refused_in_part_is_withdrawn() {
  local rc=0
  REFUSE=6 chain refused >"$work/out" 2>&1 || rc=$?
  expect_equal "its exit" 1 "$rc"
  expect_equal "what is cancelled" 'scancel 1 2 3 4 5' "$(tail -n1 "$work/calls")"
  mkdir -p "$work/elsewhere/done/exported"
  rc=0
  chain "done" >"$work/out" 2>&1 || rc=$?
  expect_equal "exit of a chain that is there already" 2 "$rc"
  expect_match "its message" 'done/exported exists already' "$(<"$work/out")"
  expect_equal "jobs of it" no "$([[ -e $work/calls ]] && printf yes || printf no)"
}

run_folder_is_read_from_the_arguments() {
  expect_equal "--run DIR" b "$(option_value run --run a --data d --run b)"
  expect_equal "--run=DIR" 'a b' "$(option_value run '--run=a b' --data d)"
  expect_equal "no --run" '' "$(option_value run --data d --runs x)"
}

newest_step_ignores_unfinished_ones() {
  local run=$work/steps
  expect_equal "no folder" -1 "$(last_committed_step "$run")"
  mkdir -p "$run"/checkpoints/{step-000000008,step-000000040,tmp-step-000000050,step-000000060.tmp}
  expect_equal "newest step" 40 "$(last_committed_step "$run")"
}

exit_code_comes_from_a_new_status_file() {
  local run=$work/status stamp
  mkdir -p "$run"
  stamp=$(status_stamp "$run")
  expect_equal "no status, srun 143" 137 "$(program_exit "$run" "$stamp" 143)"
  expect_equal "no status, srun 0" 137 "$(program_exit "$run" "$stamp" 0)"
  expect_equal "no status, usage error" 2 "$(program_exit "$run" "$stamp" 2)"
  printf '{"state":"stopped","exit_code":75,"step":40}\n' >"$run/tmp" && mv "$run/tmp" "$run/status.json"
  expect_equal "new status, srun 143" 75 "$(program_exit "$run" "$stamp" 143)"
  stamp=$(status_stamp "$run")
  expect_equal "old status, srun 143" 137 "$(program_exit "$run" "$stamp" 143)"
  printf '{"state": "done", "exit_code": 0, "step": 80}\n' >"$run/tmp" && mv "$run/tmp" "$run/status.json"
  expect_equal "new status, srun 0" 0 "$(program_exit "$run" "$stamp" 0)"
  printf '{"state":"running","exit_code":0,"step":0}\n' >"$run/tmp" && mv "$run/tmp" "$run/status.json"
  expect_equal "rank 0 was killed" 137 "$(program_exit "$run" "$stamp" 137)"
  expect_equal "rank 0 was killed, srun 0" 137 "$(program_exit "$run" "$stamp" 0)"
}

only_curable_ends_with_progress_requeue() {
  local code
  for code in 4 5 75 137 139; do
    expect_equal "code $code with progress" requeue "$(requeue_decision "$code" 10 20 0 20)"
    expect_equal "code $code with progress after a lost start" requeue "$(requeue_decision "$code" 10 20 3 20 10)"
    expect_match "code $code, the second without progress" '^stop no progress' "$(requeue_decision "$code" 20 20 2 20 20)"
    expect_match "code $code at the cap" '^stop restarted 20 times' "$(requeue_decision "$code" 10 20 20 20)"
  done
  for code in 4 75; do
    expect_match "code $code of a first start" '^stop no progress' "$(requeue_decision "$code" -1 -1 0 20)"
    expect_match "code $code without progress" '^stop no progress' "$(requeue_decision "$code" 20 20 1 20)"
  done
  for code in 5 137 139; do
    expect_equal "code $code of a first start" requeue "$(requeue_decision "$code" -1 -1 0 20)"
    expect_equal "code $code, the first without progress" requeue "$(requeue_decision "$code" 20 20 1 20)"
    expect_equal "code $code, the first at this step" requeue "$(requeue_decision "$code" 20 20 2 20 10)"
  done
  for code in 1 2 3 6 93 134; do
    expect_match "code $code" '^stop another try' "$(requeue_decision "$code" 10 20 0 20)"
  done
  expect_equal "code 0" "done" "$(requeue_decision 0 10 20 0 20)"
  expect_match "requeue switched off" '^stop TRIREME_MAX_RESTARTS is 0' "$(requeue_decision 75 10 20 0 0)"
}

packs_end_is_told_by_its_folder() {
  local set=$work/set
  expect_equal "no folder" 0 "$(num_shards "$set")"
  mkdir -p "$set"
  expect_equal "empty folder" 0 "$(num_shards "$set")"
  touch "$set"/shard-0000{0,1,2}.h5 "$set"/.tmp.shard-00003.h5.7 "$set/.tmp.unit-3"
  expect_equal "three shards" 3 "$(num_shards "$set")"
  expect_equal "asked to stop" 75 "$(pack_exit "$set" none 75)"
  expect_equal "bad data" 3 "$(pack_exit "$set" none 3)"
  expect_equal "killed by srun after a rank's end" 137 "$(pack_exit "$set" none 143)"
  expect_equal "a failed launch" 137 "$(pack_exit "$set" none 0)"
  touch "$set/manifest.json"
  expect_equal "a new manifest" 0 "$(pack_exit "$set" none 143)"
  expect_equal "a manifest from before, nothing to do" 0 "$(pack_exit "$set" "$(manifest_stamp "$set")" 0)"
  expect_equal "a manifest from before, of another set" 2 "$(pack_exit "$set" "$(manifest_stamp "$set")" 2)"
  expect_equal "a manifest from before, and a crash" 137 "$(pack_exit "$set" "$(manifest_stamp "$set")" 143)"
}

# The starts of a requeued job one after another, each told by its exit code or by the step that it commits before it is
# killed: prints where the job stands after each ("requeue", or its exit code), scontrol being a function here.
starts_of_a_job() { # starts_of_a_job RUN START...
  local run=$1 restart=0 start rc
  shift
  for start in "$@"; do
    rm -f "$work/requeued"
    rc=0
    (
      scontrol() { if [[ $1 == requeue ]]; then touch "$work/requeued"; else printf 'JobState=RUNNING\n'; fi; }
      TRIREME_MAX_RESTARTS=20 SLURM_RESTART_COUNT=$restart SLURM_JOB_END_TIME=1
      case $start in
        step-*) run_with_requeue "$run" sh -c "mkdir -p '$run/checkpoints/$start'; exit 137" ;;
        done) run_with_requeue "$run" sh -c "printf '{\"state\": \"done\", \"exit_code\": 0}' >'$run/status.json'" ;;
        *) run_with_requeue "$run" sh -c "exit $start" ;;
      esac
    ) >>"$work/starts" || rc=$?
    if [[ -e $work/requeued ]]; then printf 'requeue '; else printf '%s ' "$rc"; fi
    restart=$((restart + 1))
  done
}

one_lost_start_is_forgiven_at_each_step() {
  local -x SLURM_JOB_ID=7
  local run=$work/new/lost
  expect_equal "a first start lost twice" 'requeue 93 ' "$(starts_of_a_job "$run" 139 139)"
  expect_equal "one lost start at each step" 'requeue requeue requeue requeue requeue requeue 0 ' \
    "$(starts_of_a_job "$run" 139 step-10 143 step-20 step-30 137 "done")"
  expect_equal "what is left beside the run" '' "$(compgen -G "$run.*")"
  expect_equal "two lost starts at one step" 'requeue requeue 93 ' "$(starts_of_a_job "$run" step-40 139 143)"
  expect_equal "what is left beside the run" '' "$(compgen -G "$run.*")"
  expect_equal "a lost start with a slash after the folder" 'requeue ' "$(starts_of_a_job "$run/" 139)"
  expect_equal "what is left beside the run" "$run.lost-start" "$(compgen -G "$run.*")"
  expect_equal "another job's lost start" 'requeue 93 ' "$(SLURM_JOB_ID=8 starts_of_a_job "$run" 139 139)"
  expect_equal "what is left inside the run" 'checkpoints status.json' "$(cd "$run" && echo *)"
}

a_lost_start_that_cannot_be_remembered_ends_the_job() {
  printf 'a file\n' >"$work/file"
  local -x SLURM_JOB_ID=7
  expect_equal "no place beside the run" '137 ' "$(starts_of_a_job "$work/file/run" 139 2>"$work/out")"
  expect_match "its message" 'cannot write .*/file/run.lost-start' "$(<"$work/out")"
}

# A pack that Slurm stops, in a job of our own making: scontrol is a function here.
a_stopped_pack_goes_back_in_the_queue() {
  local set=$work/stopped rc=0
  mkdir -p "$set"
  (
    scontrol() { if [[ $1 == requeue ]]; then touch "$work/requeued"; else printf 'JobState=RUNNING\n'; fi; }
    TRIREME_MAX_RESTARTS=3
    run_pack_with_requeue "$set" sh -c "touch '$set/shard-00000.h5'; exit 75"
  ) >"$work/out" || rc=$?
  expect_equal "exit of a stopped pack" 75 "$rc"
  expect_equal "put back in the queue" yes "$([[ -e $work/requeued ]] && printf yes || printf no)"
  rm -f "$work/requeued"
  rc=0
  (
    scontrol() { touch "$work/requeued"; }
    TRIREME_MAX_RESTARTS=3 SLURM_RESTART_COUNT=1
    run_pack_with_requeue "$set" sh -c 'exit 75'
  ) >"$work/out" || rc=$?
  expect_equal "exit without progress" 93 "$rc"
  expect_equal "not put back" no "$([[ -e $work/requeued ]] && printf yes || printf no)"
}

a_packs_lost_start_is_forgiven_once() {
  local set=$work/lost-pack restart rc
  for restart in 1 2; do
    rc=0
    rm -f "$work/requeued"
    (
      scontrol() { if [[ $1 == requeue ]]; then touch "$work/requeued"; else printf 'JobState=RUNNING\n'; fi; }
      TRIREME_MAX_RESTARTS=3 SLURM_RESTART_COUNT=$restart SLURM_JOB_ID=7
      run_pack_with_requeue "$set" sh -c 'exit 139'
    ) >"$work/out" || rc=$?
    ((restart == 2)) || expect_equal "put back in the queue" yes "$([[ -e $work/requeued ]] && printf yes || printf no)"
  done
  expect_equal "put back a second time" no "$([[ -e $work/requeued ]] && printf yes || printf no)"
  expect_equal "exit of the second" 93 "$rc"
  expect_equal "the folder that pack makes itself" no "$([[ -e $set ]] && printf yes || printf no)"
}

packs_end_is_told_by_its_folder
a_stopped_pack_goes_back_in_the_queue
a_packs_lost_start_is_forgiven_once
one_lost_start_is_forgiven_at_each_step
a_lost_start_that_cannot_be_remembered_ends_the_job
commands_are_printed_and_arguments_kept
outside_a_job_is_an_error
a_server_says_how_to_reach_it
a_job_finds_its_checkout
a_chain_is_submitted_from_any_folder
a_chain_refused_in_part_is_withdrawn
run_folder_is_read_from_the_arguments
newest_step_ignores_unfinished_ones
exit_code_comes_from_a_new_status_file
only_curable_ends_with_progress_requeue
finish
