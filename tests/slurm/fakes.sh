# shellcheck shell=bash
# shellcheck disable=SC2154  # work: a directory that the test made
# shellcheck disable=SC2030,SC2031,SC2034,SC2317  # a job's environment ends with its subshell; slurm/lib.sh uses it
# Programs that replace those of Slurm, for tests of the job scripts without a cluster. Sourced after support/shell.sh.

fake() { # fake PROGRAM: the script on standard input replaces PROGRAM if PATH begins with $work/path
  mkdir -p "$work/path"
  { printf '#!/usr/bin/env bash\n' && cat; } >"$work/path/$1"
  chmod +x "$work/path/$1"
}

# Replaces srun by a script that starts the command after its options.
fake_srun() {
  fake srun <<'EOF'
[[ -z ${CALLS:-} ]] || printf 'srun %s\n' "$*" >>"$CALLS.steps"
while [[ ${1:-} == --* ]]; do shift; done
exec "$@"
EOF
}

# Runs a job with a step that ends with SRUN_CODE and with `VERDICT` as the answer of `trireme job finish`. Prints the commands that
# scontrol got. SILENT: how often the controller does not answer. SAYS: more of the decision. LAUNCHER: the command that starts
# programs. If it is set, they run only under it.
job_ends() { # [SILENT=N] [SAYS=JSON] [LAUNCHER=WORDS] `job_ends VERDICT EXIT_CODE SRUN_CODE`
  mkdir -p "$work/bin"
  # shellcheck disable=SC2016  # expanded where it runs
  printf '#!/usr/bin/env bash\n[[ -n ${IN_IMAGE:-} || -z ${LAUNCHER:-} ]] || exit 127\nprintf "%%s\\n" "$@" >%q\nprintf %%s %q\nexit %s\n' "$work/asked" \
    "{\"verdict\":\"$1\",\"exit_code\":$2,\"step_after\":12${SAYS:+,$SAYS}}" "$2" >"$work/bin/trireme"
  chmod +x "$work/bin/trireme"
  fake scontrol <<'EOF'
if [[ $1 == requeue ]]; then printf '%s\n' "$*" >>"$CALLS"; fi
silent=$(cat "$CALLS.silent")
if ((silent > 0)); then
  printf '%s\n' $((silent - 1)) >"$CALLS.silent"
  if [[ $1 == requeue ]]; then printf 'Unexpected message received for job %s\n' "$2" >&2; else
    printf 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n' >&2
  fi
  exit 1
fi
printf 'JobId=7 JobState=%s Reason=None Restarts=0 StartTime=2026-01-31T12:00:00 EndTime=2026-01-31T13:00:00\n' "${STATE:-RUNNING}"
EOF
  fake sleep <<<'exit 0'
  rm -f "$work/calls"
  printf '%s\n' "${SILENT:-0}" >"$work/calls.silent"
  local rc=0
  (
    export CALLS=$work/calls PATH=$work/path:$PATH SLURM_JOB_ID=7
    read -ra launcher <<<"${LAUNCHER:-}"
    TRIREME_BIN=$work/bin srun_command=() step_options=() TRIREME_SPARES=${SPARES:-}
    : "${TRIREME_CONTROLLER_WAIT:=600}"
    describe_job() { :; }  # sleep takes no time here
    describe_now() { :; }
    run_with_requeue "$work/run" sh -c "exit $3"
  ) >"$work/out" 2>&1 || rc=$?
  printf '%s %s\n' "$rc" "$(if [[ -e $work/calls ]]; then xargs <"$work/calls"; fi)"
}
