#!/usr/bin/env bash
# Tests the job scripts without a cluster: the commands that they would run, and when a job is requeued.
# shellcheck disable=SC2030,SC2031  # a job's environment ends with its subshell
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
source tests/support/shell.sh
source tests/slurm/fakes.sh
source slurm/lib.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

commands_are_printed_and_arguments_kept() {
  local line
  line=$(DRY_RUN=1 slurm/pretrain_a100.sbatch --data 'my data' --run runs/x --optim.lr 3e-4)
  expect_match "pretrain's command" ' --cpus-per-task=1 .*trireme pretrain --data my\\ data --run runs/x --optim.lr 3e-4 $' "$line"
  line=$(DRY_RUN=1 SLURM_CPUS_PER_TASK=8 SLURM_JOB_ID=7 SLURM_JOB_NAME=big slurm/pretrain_a100.sbatch --data d)
  expect_match "the default run directory" '--cpus-per-task=8 .* --data d --run runs/big-7 $' "$line"
  line=$(DRY_RUN=1 SLURM_JOB_ID=9 SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=2 slurm/pretrain_a100.sbatch --data d)
  expect_match "the run directory of an array task" '--run runs/pretrain-7_2 $' "$line"
  line=$(DRY_RUN=1 TRIREME_LAUNCH='apptainer exec --nv x.sif' slurm/prep.sbatch --input a.jsonl)
  expect_match "prep's command in a container" '--label apptainer exec --nv x.sif [^ ]*/trireme-data pack --input a.jsonl $' "$line"
  line=$(DRY_RUN=1 SLURM_JOB_ID=7 slurm/serve.sbatch --checkpoint runs/x)
  expect_match "serve's command" 'trireme serve --checkpoint runs/x --token-file runs/serve-7.token --host [^ ]+ --port 0 $' "$line"
  line=$(DRY_RUN=1 slurm/serve.sbatch --checkpoint c --token-file=t --host n1 --port 80)
  expect_match "serve's own arguments" 'trireme serve --checkpoint c --token-file=t --host n1 --port 80 $' "$line"
  local job
  for job in "pretrain_h100 trireme pretrain" "distill_a100 trireme distill" "eval trireme eval" "tokenizer trireme-data tokenizer train" \
    "health_check trireme doctor"; do
    line=$(DRY_RUN=1 "slurm/${job%% *}.sbatch" --x 'a b')
    expect_match "the command of ${job%% *}" "/${job#* } --x a\\\\ b " "$line"
  done
  line=$(DRY_RUN=1 SLURM_JOB_ID=7 SLURM_JOB_NAME=mine slurm/train_a100.sbatch distill --x 'a b')
  expect_match "the command of train_a100" '/trireme distill --x a\\ b --run [^ ]*/mine-7 ' "$line"
  local rc=0
  DRY_RUN=1 slurm/train_a100.sbatch --data d >"$work/out" 2>&1 || rc=$?
  expect_equal "exit without a task" 2 "$rc"
  expect_match "its message" 'give a training task as the first argument' "$(<"$work/out")"
  line=$(DRY_RUN=1 SLURM_JOB_ID=7 SLURM_NTASKS=12 slurm/scaling.sbatch --config a.toml)
  expect_match "the study of weak scaling" \
    'trireme bench scaling --weak --ranks 1\\,2\\,4\\,8\\,12 --figure scaling-7.svg --config a.toml $' "$line"
  line=$(DRY_RUN=1 slurm/scaling.sbatch --strong --ranks 1,2 --figure x.svg)
  expect_match "the arguments of scaling" 'trireme bench scaling --strong --ranks 1\\,2 --figure x.svg $' "$line"
  line=$(DRY_RUN=1 slurm/debug.sh --nodes=2 -- prog --x 'a b')
  expect_match "debug's command" '^srun --mpi=pmix .*--nodes=2 .* prog --x a\\ b $' "$line"
}

a_sweep_takes_a_line_a_task() {
  local line rc=0
  printf -- '--data.split 1 --tag ""\n--optim.lr 3e-4 --data "my data"\n--data "open\n' >"$work/sweep.txt"
  line=$(DRY_RUN=1 SLURM_JOB_ID=9 SLURM_JOB_NAME=sweep SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=2 slurm/sweep.sbatch "$work/sweep.txt" --data d)
  expect_match "the second task" 'trireme pretrain --data d --optim.lr 3e-4 --data my\\ data --run runs/sweep-7_2 $' "$line"
  line=$(DRY_RUN=1 SLURM_JOB_ID=9 SLURM_JOB_NAME=sweep SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=1 slurm/sweep.sbatch "$work/sweep.txt")
  expect_match "an empty value at the end" "--data.split 1 --tag '' --run runs/sweep-7_1 \$" "$line"
  DRY_RUN=1 SLURM_ARRAY_TASK_ID=4 slurm/sweep.sbatch "$work/sweep.txt" >"$work/out" 2>&1 || rc=$?
  expect_equal "exit without a line" 2 "$rc"
  expect_match "its message" 'sweep.txt has no line 4' "$(<"$work/out")"
  rc=0
  DRY_RUN=1 SLURM_ARRAY_TASK_ID=3 slurm/sweep.sbatch "$work/sweep.txt" >"$work/out" 2>&1 || rc=$?
  expect_equal "exit with an open quote" 2 "$rc"
  rc=0
  DRY_RUN=1 slurm/sweep.sbatch --data d >"$work/out" 2>&1 || rc=$?
  expect_equal "exit without a file" 2 "$rc"
}

outside_a_job_is_an_error() {
  local rc=0
  slurm/pretrain_a100.sbatch --data d >"$work/out" 2>&1 || rc=$?
  expect_equal "exit without Slurm" 2 "$rc"
  expect_match "its message" 'submit with .sbatch' "$(<"$work/out")"
}

# Simulates the environment of a job: a copy of the script in Slurm's spool, its own working directory, and scontrol with the path
# of the script.
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
  expect_equal "exit code of a job without its script" 2 "$rc"
  expect_match "its message" 'no env.sh beside this script: .* or set TRIREME_HOME to the checkout' "$(<"$work/out")"
  line=$(TRIREME_HOME=$checkout job_of_copy "(null)")
  expect_match "the program of TRIREME_HOME" " $checkout/build/release/bin/trireme export --checkpoint a \$" "$line"
  cd "$checkout"
  line=$(job_of_copy "(null)")
  expect_match "the program of a copied script in the checkout" " $checkout/build/release/bin/trireme export --checkpoint a \$" "$line"
}

# Slurm copies a script alone, so each script must search for the shared file. These lines cannot be shared, so they must be
# equal.
job_scripts_share_their_opening() {
  local checkout=$PWD script opening line
  opening=$(sed -n '/^# Slurm runs a copy/,/^source /p' slurm/export.sbatch)
  expect_equal "lines of the opening" 6 "$(wc -l <<<"$opening")"
  cd "$work/elsewhere"
  for script in "$checkout"/slurm/*.sbatch; do
    expect_equal "how ${script##*/} finds the checkout" "$opening" "$(sed -n '/^# Slurm runs a copy/,/^source /p' "$script")"
    # shellcheck disable=SC2016  # the text of a line
    expect_equal "what ${script##*/} sources" 'source "$here/job.sh"' "$(grep -E '^ *(source|\.) ' "$script")"
    [[ $script != */sweep.sbatch && $script != */train_a100.sbatch ]] || continue  # training jobs with a first argument
    cp "$script" "$work/spool/slurm_script"
    line=$(job_of_copy "$script")
    expect_match "the program of ${script##*/} in the spool" " $checkout/build/release/bin/trireme(-data)? " "$line"
  done
  cd "$checkout"
}

# The script prints the program's URL as a line that can be opened, and makes a token for this job only.
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

job_of_copy() { # job_of_copy COMMAND: prints the command that the job would run
  (
    unset TRIREME_BIN
    PATH=$work/path:$PATH DRY_RUN=1 SLURM_JOB_ID=7 COMMAND=$1 bash "$work/spool/slurm_script" --checkpoint a
  )
}

# Replaces sbatch by a script that keeps its arguments, answers 1, 2, 3 ... and fails from the job REFUSE on.
chain() { # chain DIR ARGUMENT...
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
[[ " $* " != *'  '* ]] || exit 1  # Slurm refuses an empty id and cancels no job.
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
  expect_equal "the directory of the jobs' outputs" yes "$([[ -d $work/elsewhere/out/logs ]] && printf yes || printf no)"
}

nanochat() { # nanochat OUTPUT ARGUMENT...
  (
    slurm=$PWD/slurm
    cd "$work/elsewhere"
    CALLS=$work/calls PATH=$work/path:$PATH "$slurm/nanochat_h100.sh" --texts in/a.jsonl --valid in/a.jsonl --chats in/a.jsonl --output "$@"
  )
}

a_chain_leads_to_the_report_card() {
  local calls line
  chain out >"$work/out"
  rm -f "$work/calls"
  nanochat nano --depth 12 --core in/core -- --train.steps 2 >"$work/out"
  mapfile -t calls <"$work/calls"
  expect_equal "jobs of nanochat" 7 "${#calls[@]}"
  expect_match "the base model" "--dependency=afterok:2:3 $PWD/slurm/pretrain_h100.sbatch .*--data nano/data/texts .*--model.depth 12 .*--train.steps 2\$" "${calls[4]}"
  expect_match "the chat model" "--dependency=afterok:5:4 .*sft_a100.sbatch --run nano/runs/chat --init nano/runs/base --data nano/data/chats --train.device auto\$" "${calls[5]}"
  expect_match "the card" "--dependency=afterok:6 .*card.sbatch --checkpoint nano/runs/chat --data nano/data/valid .*--core in/core\$" "${calls[6]}"
  line=$(DRY_RUN=1 slurm/card.sbatch --checkpoint c --data d --question 'a b')
  expect_match "the evaluation on all ranks" '^srun .*/trireme eval --data d --checkpoint c --device auto --json ' "$(sed -n 1p <<<"$line")"
  expect_match "the question on one rank" ' --ntasks=1 .*/trireme generate --chat --prompt a\\ b .*--json ' "$(sed -n 2p <<<"$line")"
  expect_match "the report" '/trireme report c --output c/report.html' "$(sed -n 3p <<<"$line")"
  line=$(DRY_RUN=1 TRIREME_LAUNCH='apptainer exec x.sif' slurm/card.sbatch --checkpoint c --question q)
  expect_match "the question in a container" '^srun --ntasks=1 .* apptainer exec x.sif [^ ]*/trireme generate ' "$(sed -n 1p <<<"$line")"
  expect_match "the report in a container" '^ apptainer exec x.sif [^ ]*/trireme report c ' "$(sed -n 2p <<<"$line")"
  line=$(DRY_RUN=1 TRIREME_LAUNCH='--container-image=x.sqsh' slurm/card.sbatch --checkpoint c)
  expect_match "the report in a container of srun" '^ srun --nodes=1 --ntasks=1 --container-image=x.sqsh [^ ]*/trireme report c ' "$line"
}

a_chain_refused_in_part_is_withdrawn() {
  local rc=0
  REFUSE=6 chain refused >"$work/out" 2>&1 || rc=$?
  expect_equal "its exit" 1 "$rc"
  expect_equal "what is cancelled" 'scancel 1 2 3 4 5' "$(tail -n1 "$work/calls")"
  mkdir -p "$work/elsewhere/nano-refused/data/tokenizer"
  touch "$work/elsewhere/nano-refused/data/tokenizer/tokenizer.json"
  rm -f "$work/calls"
  REFUSE=3 nanochat nano-refused >"$work/out" 2>&1 || true
  expect_equal "what is cancelled of a chain with its tokenizer" 'scancel 1 2' "$(tail -n1 "$work/calls")"
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

a_job_ends_as_is_decided() {
  expect_equal "a run that is done" '0 ' "$(job_ends "done" 0 143)"
  expect_equal "a stop" '6 ' "$(job_ends stop 6 143)"
  expect_equal "STOP" '0 ' "$(job_ends stop 0 75)"
  expect_equal "an attempt that is requeued" '75 requeue 7' "$(job_ends requeue 75 143)"
  expect_match "the message" 'job +exit 75 \(srun 143\), last committed step 12, .*/run: requeue' "$(<"$work/out")"
  expect_match "what finish is asked" "job finish --run $work/run --srun-code 143 --job-says JobId=7 JobState=RUNNING" "$(xargs <"$work/asked")"
  expect_equal "one that Slurm has put back" '5 ' "$(SAYS='"is_requeued":true' job_ends requeue 5 143)"
  expect_equal "an array's task" '75 requeue 9_2' "$(SLURM_ARRAY_JOB_ID=9 SLURM_ARRAY_TASK_ID=2 job_ends requeue 75 143)"
}

a_job_tells_how_it_stands_and_what_was_decided() {
  local describer
  expect_equal "a stop" '6 ' "$(TRIREME_NOTIFY="cat >$work/told" job_ends stop 6 143)"
  expect_equal "the notification" '{"verdict":"stop","exit_code":6,"step_after":12}' "$(<"$work/told")"
  expect_equal "a notification that fails" '6 ' "$(TRIREME_NOTIFY="exit 3" job_ends stop 6 143)"
  expect_match "its message" 'TRIREME_NOTIFY ended with 3: exit 3' "$(<"$work/out")"

  printf '#!/bin/sh\necho "running  step 3/9  of $*"\n' >"$work/bin/trireme"
  # shellcheck disable=SC2016  # expanded where it runs
  fake scontrol <<<'printf "%s\n" "$*" >>"$CALLS"'
  fake sleep <<<'exec /bin/sleep 0.2'
  rm -f "$work/calls"
  CALLS=$work/calls PATH=$work/path:$PATH TRIREME_BIN=$work/bin SLURM_JOB_ID=7 describe_job runs/a &
  describer=$!
  for ((i = 0; i < 50; i++)); do
    ! grep -q "^update" "$work/calls" 2>/dev/null || break
    /bin/sleep 0.1
  done
  kill "$describer"
  wait "$describer" || broken "it ended with $?"
  expect_equal "the comment" 'update JobId=7 Comment=running  step 3/9  of job watch runs/a --once' "$(grep -m1 '^update' "$work/calls")"
}

a_silent_controller_is_no_cancel() {
  expect_equal "one that answers later" '75 requeue 7' "$(SILENT=4 job_ends requeue 75 143)"
  expect_match "the input of finish" 'JobState=RUNNING' "$(xargs <"$work/asked")"
  expect_match "one that stays silent" '^75 requeue 7' "$(TRIREME_CONTROLLER_WAIT=0 SILENT=99 job_ends requeue 75 143)"
  expect_match "the message" 'silent for 0 s; when it answers again: scontrol requeue 7, or submit' "$(<"$work/out")"
}

a_job_about_which_nothing_is_decided_says_what_to_do() {
  expect_equal "its end" '127 ' "$(job_ends '' 127 143)"
  expect_match "its message" 'nothing was decided .*submit the same command again' "$(<"$work/out")"
  expect_equal "an invalid directory" '2 ' "$(job_ends '' 2 2)"
  expect_match "its message" 'correct what the error above names, then submit the command again' "$(<"$work/out")"
}

a_program_of_an_image_is_asked_there() {
  export LAUNCHER
  LAUNCHER="env IN_IMAGE=1"
  expect_equal "a command that starts it" '75 requeue 7' "$(job_ends requeue 75 143)"
  fake srun <<'EOF'
printf '%s\n' "$*" >>"$CALLS.steps"
while [[ ${1:-} == -* ]]; do shift; done
IN_IMAGE=1 exec "$@"
EOF
  rm -f "$work/calls.steps"
  LAUNCHER="--container-image=x.sqsh --container-workdir=/x"
  expect_equal "options of srun" '75 requeue 7' "$(job_ends requeue 75 143)"
  expect_match "its step" '--nodes=1 --ntasks=1 --container-image=x.sqsh --container-workdir=/x .*/trireme job finish --run' "$(tail -n1 "$work/calls.steps")"
  unset LAUNCHER
  fake_srun
}

# Replaces scontrol by a script that sends the warning to the job at its first query.
a_warning_before_or_after_the_ranks_ends_no_script() {
  local script line
  # shellcheck disable=SC2016  # expanded where it runs
  fake scontrol <<<'kill -USR2 "$SCRIPT"; kill -USR1 "$SCRIPT"'
  printf -- '--optim.lr 1e-4\n' >"$work/warned.txt"
  for script in slurm/*.sbatch; do
    grep -q -- '--signal=B:USR2' "$script" || continue
    line=$(
      export SCRIPT=$BASHPID PATH=$work/path:$PATH DRY_RUN=1 SLURM_JOB_ID=7 SLURM_ARRAY_TASK_ID=1
      [[ $script != *sweep* ]] || set -- "$work/warned.txt"
      [[ $script != *train_a100* || $script == *pretrain* ]] || set -- kto
      exec "$script" "$@" --data d
    ) || broken "$script was ended by a warning at its start: $?"
    expect_match "the command of $script" ' --data d ' "$line"
  done
  line=$(PATH=$work/path:$PATH bash -c 'source slurm/lib.sh; run_and_wait true; SCRIPT=$$ scontrol; printf %s "$srun_code"') ||
    broken "a warning after the step ended the script: $?"
  expect_equal "code of the step" 0 "$line"
}

a_step_has_the_scripts_environment_and_the_words_of_the_launcher() {
  local line rc=0
  line=$(DRY_RUN=1 TRIREME_LAUNCH='apptainer exec --env "A=b c" x.sif' slurm/prep.sbatch --input a.jsonl)
  expect_match "a quoted word" ' --export=ALL .* apptainer exec --env A=b\\ c x.sif [^ ]*/trireme-data pack' "$line"
  DRY_RUN=1 TRIREME_LAUNCH="x 'y" slurm/prep.sbatch --input a.jsonl >"$work/out" 2>&1 || rc=$?
  expect_equal "exit with an open quote" 2 "$rc"
  rc=0
  DRY_RUN=1 TRIREME_MAX_FAILURES=many slurm/pretrain_a100.sbatch --data d >"$work/out" 2>&1 || rc=$?
  expect_equal "exit with a limit that is none" 2 "$rc"
  expect_match "its message" 'TRIREME_MAX_FAILURES=many, must be a number or unlimited' "$(<"$work/out")"
  rc=0
  DRY_RUN=1 TRIREME_CONTROLLER_WAIT=10m slurm/pretrain_a100.sbatch --data d >"$work/out" 2>&1 || rc=$?
  expect_equal "exit with a wait that is no number" 2 "$rc"
  expect_match "its message" 'TRIREME_CONTROLLER_WAIT=10m, must be a number of seconds' "$(<"$work/out")"
  DRY_RUN=1 TRIREME_MAX_FAILURES=unlimited slurm/pretrain_a100.sbatch --data d >/dev/null || broken "unlimited is refused"
}

# The output of a command with a result is the result, so its lines have no rank prefix.
results_are_printed_as_they_are() {
  local script line
  for script in eval export health_check scaling tokenizer; do
    line=$(DRY_RUN=1 "slurm/$script.sbatch" --json)
    expect_equal "labels of $script" '' "$(grep -o -- ' --label ' <<<"$line" || true)"
  done
  expect_match "labels of a training job" ' --label ' "$(DRY_RUN=1 slurm/pretrain_a100.sbatch --data d)"
  expect_match "the output of a sweep's task" 'output=%x-%A_%a.out' "$(<slurm/sweep.sbatch)"
}

a_frozen_copy_tells_its_revision() {
  rm -rf "$work/copy" && mkdir -p "$work/copy" && cp -r slurm "$work/copy/"
  expect_equal "without a file" unknown "$(bash -c "source $work/copy/slurm/lib.sh; revision")"
  printf 'abc1234-dirty\n' >"$work/copy/revision"
  expect_equal "with a file" abc1234-dirty "$(bash -c "source $work/copy/slurm/lib.sh; revision")"
}

a_pmi_that_open_mpi_lacks_is_refused() {
  local rc=0
  fake ldd <<<"printf 'libmpi.so.40 => /usr/lib/libmpi.so.40\n'"
  fake ompi_info <<<"printf 'mca:pmix:%s:version:\"mca:2.1.0\"\n' isolated \"\${HAS:-ext3x}\""
  PATH=$work/path:$PATH DRY_RUN=1 TRIREME_MPI=pmi2 slurm/pretrain_a100.sbatch --data d >"$work/out" 2>&1 || rc=$?
  expect_equal "exit with pmi2" 2 "$rc"
  expect_match "its message" 'TRIREME_MPI=pmi2: the Open MPI of trireme finds its ranks by PMIx only. Set TRIREME_MPI=pmix' "$(<"$work/out")"
  HAS=s2 PATH=$work/path:$PATH DRY_RUN=1 TRIREME_MPI=pmi2 slurm/pretrain_a100.sbatch --data d >/dev/null || broken "an Open MPI with PMI-2 is refused"
  PATH=$work/path:$PATH DRY_RUN=1 TRIREME_MPI=pmix_v4 slurm/pretrain_a100.sbatch --data d >/dev/null || broken "pmix_v4 is refused"
  rm "$work/path/ldd" "$work/path/ompi_info"
}

components_are_one_world() {
  local -x SLURM_HET_SIZE=2 SLURM_JOB_NODELIST_HET_GROUP_0='n[1-2]' SLURM_JOB_NODELIST_HET_GROUP_1=n7 SLURM_NTASKS_HET_GROUP_0=16
  local -x SLURM_CPUS_PER_TASK_HET_GROUP_0=3
  expect_match "its step" '^srun --het-group=0-1 .* --cpus-per-task=3 .*/trireme pretrain --data d ' "$(DRY_RUN=1 slurm/hetjob.sbatch --data d)"
  expect_equal "its nodes and tasks" 'n[1-2],n7 17' "$(join_components; printf '%s %s' "$SLURM_JOB_NODELIST" "$SLURM_NTASKS")"
  local rc=0
  TRIREME_SPARES=0 DRY_RUN=1 slurm/hetjob.sbatch --data d >"$work/out" 2>&1 || rc=$?
  expect_equal "exit with spare nodes" 2 "$rc"
  expect_match "its message" 'TRIREME_SPARES=0 is not supported in a heterogeneous job' "$(<"$work/out")"
}

# A node is lost, and the job continues on its other nodes: the second step excludes the node, and ends the job.
a_step_starts_again_on_the_nodes_that_are_left() {
  mkdir -p "$work/bin"
  cat >"$work/bin/trireme" <<'EOF'
#!/usr/bin/env bash
if [[ $TRIREME_ATTEMPT == 0 && " $* " == *" --may-restart "* ]]; then
  printf '{"verdict":"restart","exit_code":5,"step_after":12,"exclude":["n2"]}'
  exit 5
fi
printf '{"verdict":"done","exit_code":0,"step_after":20,"exclude":[]}'
EOF
  chmod +x "$work/bin/trireme"
  fake scontrol <<<'printf "JobId=7 JobState=RUNNING Restarts=0\n"'
  fake sinfo <<<'printf "n1 allocated\nn2 down*\nn3 allocated\n"'
  rm -f "$work/calls.steps"
  (
    export CALLS=$work/calls PATH=$work/path:$PATH SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=3 SLURM_NTASKS_PER_NODE=2
    TRIREME_BIN=$work/bin launcher=() srun_command=(--label) TRIREME_SPARES=1 TRIREME_CONTROLLER_WAIT=600
    choose_nodes
    run_with_requeue "$work/run" sh -c 'exit 137'
  ) >"$work/out" 2>&1 || broken "its exit is $?: $(<"$work/out")"
  expect_equal "its steps" "srun --nodes=2 --ntasks=4 --label sh -c exit 137 srun --nodes=2 --ntasks=4 --exclude=n2 --label sh -c exit 137" \
    "$(xargs <"$work/calls.steps")"
  SLURM_JOB_NUM_NODES=2 TRIREME_SPARES=1 choose_nodes n1 n2 && broken "two lost nodes of two are too many"
  DRY_RUN=1 TRIREME_SPARES=2 SLURM_JOB_NUM_NODES=2 slurm/pretrain_a100.sbatch --data d >"$work/out" 2>&1 && broken "no node is left"
  expect_match "its message" 'TRIREME_SPARES=2 leaves no node of 2' "$(<"$work/out")"
}

fake_srun
results_are_printed_as_they_are
a_frozen_copy_tells_its_revision
a_pmi_that_open_mpi_lacks_is_refused
components_are_one_world
a_step_starts_again_on_the_nodes_that_are_left
a_job_ends_as_is_decided
a_job_tells_how_it_stands_and_what_was_decided
a_silent_controller_is_no_cancel
a_job_about_which_nothing_is_decided_says_what_to_do
a_program_of_an_image_is_asked_there
a_step_has_the_scripts_environment_and_the_words_of_the_launcher
commands_are_printed_and_arguments_kept
a_sweep_takes_a_line_a_task
a_warning_before_or_after_the_ranks_ends_no_script
outside_a_job_is_an_error
a_server_says_how_to_reach_it
a_job_finds_its_checkout
job_scripts_share_their_opening
a_chain_is_submitted_from_any_folder
a_chain_leads_to_the_report_card
a_chain_refused_in_part_is_withdrawn
run_folder_is_read_from_the_arguments
finish
