# shellcheck shell=bash
# shellcheck disable=SC2154  # work: a folder that the test made
# Programs that stand in for Slurm's, for tests of the job scripts without a cluster. Sourced after support/shell.sh.

fake() { # fake PROGRAM: the script on standard input stands for it where PATH begins with $work/path
  mkdir -p "$work/path"
  { printf '#!/usr/bin/env bash\n' && cat; } >"$work/path/$1"
  chmod +x "$work/path/$1"
}

# srun as a file that starts what follows its options
fake_srun() {
  fake srun <<'EOF'
[[ -z ${CALLS:-} ]] || printf 'srun %s\n' "$*" >>"$CALLS.steps"
while [[ ${1:-} == --* ]]; do shift; done
exec "$@"
EOF
}
