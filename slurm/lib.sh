# shellcheck shell=bash
# Functions that the job scripts share: the banner, the arguments of srun, and the requeue.

lib=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib
# shellcheck source=slurm/lib/signals.sh
source "$lib/signals.sh"
# shellcheck source=slurm/lib/step.sh
source "$lib/step.sh"
# shellcheck source=slurm/lib/dependent_jobs.sh
source "$lib/dependent_jobs.sh"
# shellcheck source=slurm/lib/pack.sh
source "$lib/pack.sh"

job_error() { printf 'error: %s\n' "$*" >&2; }

# split_words ARRAY TEXT: splits TEXT into words like a shell, but expands nothing; 1 if a quote is not closed
split_words() {
  local split_lines
  split_lines=$(xargs -r printf '%s\n' <<<"$2" && echo end) || return 1  # "end" keeps empty words before it
  mapfile -t "$1" <<<"$split_lines"
  unset "$1[-1]"
}

# option_value NAME ARGUMENT...: prints the value of the last --NAME VALUE or --NAME=VALUE; prints nothing if it is missing
option_value() {
  local name=--$1 value=
  shift
  while (($#)); do
    case $1 in
      "$name") value=${2:-} ;;
      "$name"=*) value=${1#*=} ;;
    esac
    shift
  done
  printf '%s\n' "$value"
}

# Prints the id of this job for scontrol and squeue. In an array, SLURM_JOB_ID is a different number.
job_id() {
  if [[ -n ${SLURM_ARRAY_JOB_ID:-} ]]; then
    printf '%s_%s\n' "$SLURM_ARRAY_JOB_ID" "$SLURM_ARRAY_TASK_ID"
  else
    printf '%s\n' "${SLURM_JOB_ID:-local}"
  fi
}

# Joins the components of a heterogeneous job: combines the variables that Slurm sets for each component. The CPUs per task are those of
# the first component.
join_components() {
  local i name nodes=() tasks=0
  for ((i = 0; i < SLURM_HET_SIZE; i++)); do
    name=SLURM_JOB_NODELIST_HET_GROUP_$i
    nodes+=("${!name:-}")
    name=SLURM_NTASKS_HET_GROUP_$i
    tasks=$((tasks + ${!name:-1}))
  done
  SLURM_JOB_NODELIST=$(IFS=,; printf '%s' "${nodes[*]}")
  SLURM_NTASKS=$tasks
  SLURM_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK_HET_GROUP_0:-1}
}

# Sets the arrays launcher (a container, srun's options for one, or nothing) and srun_command (the arguments of srun).
# --cpus-per-task is repeated, because srun does not take it from sbatch in Slurm 22.05 to 23.02. --export is needed, because
# `sbatch --export=NONE` of a site would also apply to the ranks. Distribution block puts neighbouring ranks on one node. Each line of
# output begins with its rank, unless the script sets plain_output (for output that other programs read).
prepare_srun() {
  check_mpi
  [[ -z ${SLURM_HET_SIZE:-} ]] || join_components
  local cpus=${SLURM_CPUS_PER_TASK:-1}
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$cpus} SRUN_CPUS_PER_TASK=$cpus
  step_options=()
  if [[ -n ${SLURM_HET_SIZE:-} ]]; then step_options=("--het-group=0-$((SLURM_HET_SIZE - 1))"); fi
  srun_command=("--mpi=$TRIREME_MPI" "--cpus-per-task=$cpus" --export=ALL --cpu-bind=cores --distribution=block:block
    --kill-on-bad-exit=1 --wait=60 --unbuffered)
  if [[ -z ${plain_output:-} ]]; then srun_command+=(--label); fi
  launcher=()
  if [[ -n $TRIREME_LAUNCH ]]; then
    split_words launcher "$TRIREME_LAUNCH" || { job_error "TRIREME_LAUNCH=$TRIREME_LAUNCH: a quote is not closed"; exit 2; }
    srun_command+=("${launcher[@]}")
  fi
  if [[ ! $TRIREME_SPARES =~ ^[0-9]*$ ]]; then
    job_error "TRIREME_SPARES=$TRIREME_SPARES, must be a number of nodes"
    exit 2
  fi
  if [[ ! $TRIREME_MAX_FAILURES =~ ^([0-9]+|unlimited)$ ]]; then
    job_error "TRIREME_MAX_FAILURES=$TRIREME_MAX_FAILURES, must be a number or unlimited"
    exit 2
  fi
  if [[ ! $TRIREME_CONTROLLER_WAIT =~ ^(0|[1-9][0-9]{0,6})$ ]]; then
    job_error "TRIREME_CONTROLLER_WAIT=$TRIREME_CONTROLLER_WAIT, must be a number of seconds"
    exit 2
  fi
}

# Sets the array launch_once: the words before a command that runs one time on this node, in the container if there is one.
prepare_once() {
  launch_once=("${launcher[@]}")
  if [[ ${launcher[0]:-} == -* ]]; then launch_once=(srun --nodes=1 --ntasks=1 "${launcher[@]}"); fi
}

# Prints the revision of the checkout. A frozen copy is not in a repository, so `trireme submit` writes its revision into a file.
revision() {
  if [[ -f $lib/../../revision ]]; then
    cat "$lib/../../revision"
  else
    git -C "$lib" describe --always --dirty 2>/dev/null || printf 'unknown\n'
  fi
}

# Open MPI finds the other ranks by PMIx. PMI-2 needs a component that most builds lack; without it, MPI_Init ends the ranks.
check_mpi() {
  [[ ! $TRIREME_MPI =~ ^(pmix.*|none)$ && -z $TRIREME_LAUNCH ]] || return 0
  [[ $(ldd "$TRIREME_BIN/trireme" 2>/dev/null) == *libmpi.so.40* ]] || return 0  # another MPI
  command -v ompi_info >/dev/null || return 0
  # Reads all lines: `grep -q` would end ompi_info early, which counts as a failure.
  if ! ompi_info --parsable 2>/dev/null | grep -E '^mca:pmix:(s1|s2|cray):' >/dev/null; then
    job_error "TRIREME_MPI=$TRIREME_MPI: the Open MPI of trireme finds its ranks by PMIx only. Set TRIREME_MPI=pmix" \
      "(srun --mpi=list shows what this cluster has)"
    exit 2
  fi
}

banner() { # banner PROGRAM ARGUMENT...
  own_restart_count
  printf 'job       %s, restart %s, %s\n' "$(job_id)" "${SLURM_RESTART_COUNT:-0}" "$(date '+%Y-%m-%d %H:%M:%S %z')"
  printf 'nodes     %s (%s tasks, %s CPUs a task)\n' "${SLURM_JOB_NODELIST:-none}" "${SLURM_NTASKS:-1}" "${SLURM_CPUS_PER_TASK:-1}"
  printf 'revision  %s\n' "$(revision)"
  printf 'command  '
  printf ' %q' "$@"
  printf '\n'
}

# If DRY_RUN=1, prints the command and exits. Exits with 2 outside a job and inside a step.
dry_run_or_job() {
  if [[ ${DRY_RUN:-0} == 1 ]]; then
    printf '%q ' "$@"
    printf '\n'
    exit 0
  fi
  if [[ -z ${SLURM_JOB_ID:-} ]]; then
    job_error "not inside a Slurm job: submit with 'sbatch $0 ...', or print the command with DRY_RUN=1"
    exit 2
  fi
  refuse_in_step "submit it with 'sbatch $0 ...', or type '$0 ...' in a shell of salloc"
}

# run_once PROGRAM COMMAND ARGUMENT...: runs one step of a program in TRIREME_BIN, then ends the script. Other programs read its output.
run_once() {
  local command plain_output=1 program=$1
  shift
  srun_command=()
  prepare_srun
  command=(srun "${srun_command[@]}" "$TRIREME_BIN/$program" "$@")
  dry_run_or_job "${command[@]}"
  banner "${command[@]}"
  exec "${command[@]}"
}

# Prints an identity of manifest.json, which is always a new file that is renamed into place; "none" if it is missing.
manifest_stamp() { stat -c '%i %y' "$1/manifest.json" 2>/dev/null || printf 'none\n'; }  # manifest_stamp SET

# controller ARGUMENT...: runs scontrol, and repeats it until controller_until while the controller does not answer. Returns 1 if it
# refuses, 3 if it does not answer.
controller() {
  local said rc
  while :; do
    rc=0
    said=$(timeout 60 scontrol "$@" 2>&1) || rc=$?
    if ((rc == 0)); then
      printf '%s\n' "$said"
      return 0
    fi
    if ((rc != 124)) && [[ ! $said =~ [Uu]nable\ to\ contact|[Uu]nexpected\ message|timed\ out|[Cc]onnection\ (refused|failure)|not\ responding ]]; then
      printf '%s\n' "$said" >&2
      return 1
    fi
    ((SECONDS < controller_until)) || return 3
    sleep 5
  done
}

wait_for_controller() { controller_until=$((SECONDS + TRIREME_CONTROLLER_WAIT)); }

# Requeues this job, or prints the command to run.
requeue_job() {
  local rc=0 id
  id=$(job_id)
  controller requeue "$id" || rc=$?
  case $rc in
    0) ;;
    3) job_error "the controller has been silent for $TRIREME_CONTROLLER_WAIT s; when it answers again: scontrol requeue $id, or submit the same command again" ;;
    *) job_error "scontrol requeue $id failed; to resume: submit the same command again" ;;
  esac
}

json_text() { sed -nE "s/.*\"$1\": *\"([^\"]*)\".*/\1/p" <<<"$2"; }   # json_text KEY JSON
json_number() { sed -nE "s/.*\"$1\": *(-?[0-9]+).*/\1/p" <<<"$2"; }      # json_number KEY JSON

# Prints the nodes of this job that Slurm has lost, one per line.
lost_nodes() {
  timeout 30 sinfo -h -N -n "${SLURM_JOB_NODELIST:-}" -o '%N %T' 2>/dev/null | awk '$2 ~ /\*$|^(down|fail|unknown|reboot)/ { print $1 }' | sort -u
}

# Sets step_options for a step on the remaining nodes, TRIREME_SPARES fewer than the job has. Returns 1 if they are too few.
choose_nodes() { # choose_nodes EXCLUDED_NODE...
  local needed left=$((${SLURM_JOB_NUM_NODES:-1} - $#))
  needed=$((${SLURM_JOB_NUM_NODES:-1} - TRIREME_SPARES))
  ((needed > 0 && left >= needed)) || return 1
  step_options=("--nodes=$needed" "--ntasks=$((needed * ${SLURM_NTASKS_PER_NODE:-1}))")
  if (($#)); then step_options+=("--exclude=$(printf '%s\n' "$@" | paste -sd,)"); fi
}

# describe_now RUN: sets step, loss and remaining time as the job's comment (squeue -o "%i %k").
describe_now() {
  local line
  line=$(timeout 30 "$TRIREME_BIN/trireme" job watch "$1" --once 2>/dev/null) || return 0
  timeout 30 scontrol update JobId="$(job_id)" Comment="$line" >/dev/null 2>&1 || true
}

# describe_job RUN: updates the comment and checks the time limit each minute until it is killed.
describe_job() {
  local pause known_end=${job_end:-}
  trap 'kill "$pause" 2>/dev/null || true; exit 0' TERM
  trap '' USR1 USR2 INT HUP
  while :; do
    sleep 60 &
    pause=$!
    wait "$pause"
    watch_time_limit "$known_end"
    describe_now "$1"
  done
}

# notify DECISION: passes the decision as JSON to the standard input of TRIREME_NOTIFY.
notify() {
  if [[ -z ${TRIREME_NOTIFY:-} ]]; then return; fi
  printf '%s\n' "$1" | timeout 60 bash -c "$TRIREME_NOTIFY" || job_error "TRIREME_NOTIFY ended with $?: $TRIREME_NOTIFY"
}

# finish_attempt RUN: applies the decision of `trireme job finish` about the step that exited with srun_code. Ends the script, unless the
# decision is to restart the processes in this job.
finish_attempt() {
  local facts decision verdict command code=0 lost out
  wait_for_controller
  facts=$(controller -o show job "$(job_id)") || facts=
  mapfile -t lost < <(lost_nodes)
  command=("$TRIREME_BIN/trireme" job finish --run "$1" --srun-code "$srun_code" --job-says "$facts" --lost-nodes "${lost[*]}")
  if [[ -n $TRIREME_SPARES ]] && choose_nodes "${lost[@]}"; then command+=(--may-restart); fi
  if in_chain; then command+=(--in-chain); fi
  # Run the program on the node first, because a container cannot reach the controller. If that fails, run it in the container.
  decision=$("${command[@]}") || code=$?
  if [[ -z $decision ]] && ((${#launcher[@]} > 0)); then
    code=0
    prepare_once
    decision=$("${launch_once[@]}" "${command[@]}") || code=$?
  fi
  verdict=$(json_text verdict "$decision")
  if [[ -z $verdict ]]; then
    if ((code == 2)); then
      job_error "nothing was decided about $1 (trireme job finish ended with 2): correct what the error above names, then submit the command again"
    else
      job_error "nothing was decided about $1 (trireme job finish ended with $code); to resume: submit the same command again"
    fi
    exit $((code > 0 ? code : 1))
  fi
  printf 'job       %s\n' "$decision"
  notify "$decision"
  printf 'job       exit %s (srun %s), last committed step %s, %s: %s\n' "$code" "$srun_code" \
    "$(json_number step_after "$decision")" "$1" "$verdict"
  if [[ $verdict == restart ]]; then
    read -ra out <<<"$(sed -nE 's/.*"exclude": *\[([^]]*)\].*/\1/p' <<<"$decision" | tr -d '"' | tr , ' ')"
    mapfile -t out < <(printf '%s\n' "${lost[@]}" "${out[@]}" | grep . | sort -u)
    choose_nodes "${out[@]}" || choose_nodes "${lost[@]}"
    return
  fi
  kill "$describer" 2>/dev/null || true
  describe_now "$1"
  if [[ $decision == *'"is_requeued":true'* ]]; then exit "$code"; fi
  if in_chain; then leave_chain "$verdict" "$code" "$(json_text why "$decision")" "$1"; fi
  [[ $verdict != requeue ]] || requeue_job
  exit "$code"
}

# run_with_requeue RUN COMMAND...: runs a training command with the run directory RUN until the decision is not to restart it; ends the
# script.
run_with_requeue() {
  local run=$1
  shift
  export_job_times
  describe_job "$run" &
  describer=$!
  trap 'kill "$describer" 2>/dev/null || true' EXIT
  for ((TRIREME_ATTEMPT = 0; ; TRIREME_ATTEMPT++)); do
    export TRIREME_ATTEMPT
    run_and_wait srun "${step_options[@]}" "${srun_command[@]}" "$@"
    finish_attempt "$run"
  done
}

# train_job TASK ARGUMENT...: runs a training job; without --run, the run directory is TRIREME_RUNS/<job name>-<job id>.
train_job() {
  local task=$1 run command
  export train_task=$1  # lib/dependent_jobs.sh names it
  shift
  run=$(option_value run "$@")
  if [[ -z $run ]]; then
    run=$TRIREME_RUNS/${SLURM_JOB_NAME:-$task}-$(job_id)
    set -- "$@" --run "$run"
  fi
  prepare_srun
  if [[ -n $TRIREME_SPARES && -n ${SLURM_HET_SIZE:-} ]]; then
    job_error "TRIREME_SPARES=$TRIREME_SPARES is not supported in a heterogeneous job, which needs all its nodes. Submit it with TRIREME_SPARES= (empty)"
    exit 2
  fi
  if [[ -n $TRIREME_SPARES ]] && ! choose_nodes; then
    job_error "TRIREME_SPARES=$TRIREME_SPARES leaves no node of ${SLURM_JOB_NUM_NODES:-1}"
    exit 2
  fi
  command=("$TRIREME_BIN/trireme" "$task" "$@")
  dry_run_or_job srun "${step_options[@]}" "${srun_command[@]}" "${command[@]}"
  banner srun "${step_options[@]}" "${srun_command[@]}" "${command[@]}"
  check_chain
  run_with_requeue "$run" "${command[@]}"
}

