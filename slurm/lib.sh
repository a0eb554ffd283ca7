# shellcheck shell=bash
# What the job scripts share: the banner, srun's arguments, and the decision to go back in the queue.
# shellcheck source=slurm/step.sh
source "$(dirname "${BASH_SOURCE[0]}")/step.sh"

job_error() { printf 'error: %s\n' "$*" >&2; }

# option_value NAME ARGUMENT...: the value of --NAME VALUE or --NAME=VALUE, the last one; nothing when absent
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

# The id that scontrol and squeue know this job by. In an array SLURM_JOB_ID is another number.
job_id() {
  if [[ -n ${SLURM_ARRAY_JOB_ID:-} ]]; then
    printf '%s_%s\n' "$SLURM_ARRAY_JOB_ID" "$SLURM_ARRAY_TASK_ID"
  else
    printf '%s\n' "${SLURM_JOB_ID:-local}"
  fi
}

# The components of a heterogeneous job are one world: Slurm's facts of all of them, which it gives of each alone. The CPUs of a task
# are those of the first.
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

# Sets the arrays launcher (what starts a program here: a container, srun's options for one, or nothing) and srun_command (what follows srun). --cpus-per-task is given
# again because srun does not take it from sbatch in Slurm 22.05 to 23.02; --export because a site's `sbatch --export=NONE`
# would go on to the ranks; distribution block puts neighbouring ranks on one node.
prepare_srun() {
  [[ -z ${SLURM_HET_SIZE:-} ]] || join_components
  local cpus=${SLURM_CPUS_PER_TASK:-1} words
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$cpus} SRUN_CPUS_PER_TASK=$cpus
  step_options=()
  if [[ -n ${SLURM_HET_SIZE:-} ]]; then step_options=("--het-group=0-$((SLURM_HET_SIZE - 1))"); fi
  srun_command=("--mpi=$TRIREME_MPI" "--cpus-per-task=$cpus" --export=ALL --cpu-bind=cores --distribution=block:block
    --kill-on-bad-exit=1 --wait=60 --unbuffered --label)
  launcher=()
  if [[ -n $TRIREME_LAUNCH ]]; then
    # Words as a shell reads them, but nothing is expanded.
    words=$(xargs printf '%s\n' <<<"$TRIREME_LAUNCH") || { job_error "TRIREME_LAUNCH=$TRIREME_LAUNCH: a quote is not closed"; exit 2; }
    mapfile -t launcher <<<"$words"
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
}

banner() { # banner PROGRAM ARGUMENT...
  printf 'job       %s, restart %s, %s\n' "$(job_id)" "${SLURM_RESTART_COUNT:-0}" "$(date '+%Y-%m-%d %H:%M:%S %z')"
  printf 'nodes     %s (%s tasks, %s CPUs a task)\n' "${SLURM_JOB_NODELIST:-none}" "${SLURM_NTASKS:-1}" "${SLURM_CPUS_PER_TASK:-1}"
  printf 'revision  %s\n' "$(git -C "$(dirname "${BASH_SOURCE[0]}")" describe --always --dirty 2>/dev/null || printf unknown)"
  printf 'command  '
  printf ' %q' "$@"
  printf '\n'
}

# Prints the command and ends when DRY_RUN=1; ends with 2 when Slurm is not there, or inside of a step.
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

# What tells one manifest.json from another: it is always a new file, renamed into place. "none" when absent.
manifest_stamp() { stat -c '%i %y' "$1/manifest.json" 2>/dev/null || printf 'none\n'; }  # manifest_stamp SET

# controller ARGUMENT...: scontrol, asked again while the controller is silent, until controller_until. 1: refused; 3: silent.
controller() {
  local said rc
  while :; do
    rc=0
    said=$(timeout 60 scontrol "$@" 2>&1) || rc=$?
    if ((rc == 0)); then
      printf '%s\n' "$said"
      return 0
    fi
    if ((rc != 124)) && [[ ! $said =~ [Uu]nable\ to\ contact|timed\ out|[Cc]onnection\ (refused|failure)|not\ responding ]]; then
      printf '%s\n' "$said" >&2
      return 1
    fi
    ((SECONDS < controller_until)) || return 3
    sleep 5
  done
}

wait_for_controller() { controller_until=$((SECONDS + TRIREME_CONTROLLER_WAIT)); }

# Puts this job back in the queue, or says what to type.
requeue_job() {
  local rc=0 id
  id=$(job_id)
  controller requeue "$id" || rc=$?
  case $rc in
    0) ;;
    3) job_error "the controller has been silent for $TRIREME_CONTROLLER_WAIT s; when it is back: scontrol requeue $id, or submit the same command again" ;;
    *) job_error "scontrol requeue $id failed; to go on: submit the same command again" ;;
  esac
}

# Sets job_start and job_end (Unix time) from the controller; empty where it does not tell. An inherited SLURM_JOB_END_TIME is
# another job's: sbatch passes its own environment on, and Slurm 22.05 sets none.
export_job_end() {
  local facts start end
  job_start='' job_end=''
  facts=$(timeout 30 scontrol -o show job "$(job_id)" 2>/dev/null) || facts=
  start=${facts#* StartTime=} end=${facts#* EndTime=}
  if [[ $start != "$facts" && $end != "$facts" ]]; then
    job_start=$(date -d "${start%% *}" +%s 2>/dev/null) || job_start=
    job_end=$(date -d "${end%% *}" +%s 2>/dev/null) || job_end=
  fi
  if [[ -n $job_end ]]; then export SLURM_JOB_END_TIME=$job_end; else unset SLURM_JOB_END_TIME; fi
}

# Slurm's warning before the time limit (--signal=B:USR2@300), which comes at once in a job of a few minutes: it counts from
# the middle of the job's time on. Before that the program goes by the clock, and saves as late as it can.
pass_warning() { # pass_warning PID
  local now
  now=$(date +%s)
  if [[ -n $job_start && -n $job_end ]] && ((2 * now < job_start + job_end)); then
    printf 'job       the warning before the time limit came in its first half: the program itself watches the clock\n'
  else
    kill -USR2 "$1" 2>/dev/null || true
  fi
}

# run_and_wait COMMAND...: sets srun_code. Signals to the ranks are answered by them; the script waits for their end.
run_and_wait() {
  local interrupted
  step_pid=
  trap 'interrupted=1; pass_warning "$step_pid"' USR2
  trap 'interrupted=1; kill -USR1 "$step_pid" 2>/dev/null || true' USR1
  trap 'interrupted=1' TERM
  "$@" &
  step_pid=$!
  while :; do
    interrupted=
    wait "$step_pid" && srun_code=0 || srun_code=$?
    [[ -n $interrupted ]] || break
  done
  trap - TERM
  trap : USR1 USR2  # a late one must not end the script, which has still to decide
}

json_text() { sed -nE "s/.*\"$1\": *\"([^\"]*)\".*/\1/p" <<<"$2"; }   # json_text KEY JSON
json_number() { sed -nE "s/.*\"$1\": *(-?[0-9]+).*/\1/p" <<<"$2"; }      # json_number KEY JSON

# Nodes of this job that Slurm has lost, one a line.
lost_nodes() {
  timeout 30 sinfo -h -N -n "${SLURM_JOB_NODELIST:-}" -o '%N %T' 2>/dev/null | awk '$2 ~ /\*$|^(down|fail|unknown|reboot)/ { print $1 }' | sort -u
}

# Sets step_options for a step on the nodes that are left, TRIREME_SPARES fewer than the job has; 1: they are too few.
choose_nodes() { # choose_nodes NODE...: to leave out
  local needed left=$((${SLURM_JOB_NUM_NODES:-1} - $#))
  needed=$((${SLURM_JOB_NUM_NODES:-1} - TRIREME_SPARES))
  ((needed > 0 && left >= needed)) || return 1
  step_options=("--nodes=$needed" "--ntasks=$((needed * ${SLURM_NTASKS_PER_NODE:-1}))")
  if (($#)); then step_options+=("--exclude=$(printf '%s\n' "$@" | paste -sd,)"); fi
}

# Jobs of `trireme submit --chain` go on with a run one after another, and none goes back in the queue. They share this file beside
# the frozen scripts, which takes the exit code when a job ends the run for good.
chain_file=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")/chain-code

# leave_chain VERDICT CODE: ends the script; with 0 where the next job of the chain goes on.
leave_chain() {
  local code=$2
  if [[ $1 != requeue ]]; then
    printf '%s\n' "$code" >"$chain_file.tmp" && mv -f "$chain_file.tmp" "$chain_file"
  elif ((SLURM_ARRAY_TASK_ID < SLURM_ARRAY_TASK_MAX)); then
    printf 'job       the next job of the chain goes on\n'
    code=0
  fi
  exit "$code"
}

# describe_job RUN: step, loss and time left as the job's comment (squeue -o "%i %k"), each minute until it is killed.
describe_job() {
  local line pause
  trap 'kill "$pause"; exit 0' TERM
  while :; do
    sleep 60 &
    pause=$!
    wait "$pause"
    line=$(timeout 30 "$TRIREME_BIN/trireme" job watch "$1" --once 2>/dev/null) || continue
    timeout 30 scontrol update JobId="$(job_id)" Comment="$line" >/dev/null 2>&1 || true
  done
}

# notify DECISION: TRIREME_NOTIFY gets it as JSON on its standard input.
notify() {
  if [[ -z ${TRIREME_NOTIFY:-} ]]; then return; fi
  printf '%s\n' "$1" | timeout 60 bash -c "$TRIREME_NOTIFY" || job_error "TRIREME_NOTIFY ended with $?: $TRIREME_NOTIFY"
}

# finish_leg RUN: what `trireme job finish` says of the step that ended with srun_code. Ends the script, unless the verdict is
# to start the step again on nodes of this job.
finish_leg() {
  local facts decision verdict command code=0 lost out
  wait_for_controller
  facts=$(controller -o show job "$(job_id)") || facts=
  mapfile -t lost < <(lost_nodes)
  command=("$TRIREME_BIN/trireme" job finish --run "$1" --srun-code "$srun_code" --job-says "$facts" --lost-nodes "${lost[*]}")
  if [[ -n $TRIREME_SPARES ]] && choose_nodes "${lost[@]}"; then command+=(--may-restart); fi
  if [[ -f $chain_file ]]; then command+=(--in-chain); fi
  # What starts the ranks may be a container, where there is no controller, or the only place where the program runs.
  decision=$("${command[@]}") || code=$?
  if [[ -z $decision ]] && ((${#launcher[@]} > 0)); then
    code=0
    if [[ ${launcher[0]} == -* ]]; then launcher=(srun --nodes=1 --ntasks=1 "${launcher[@]}"); fi
    decision=$("${launcher[@]}" "${command[@]}") || code=$?
  fi
  verdict=$(json_text verdict "$decision")
  if [[ -z $verdict ]]; then
    job_error "nothing was decided about $1 (trireme job finish ended with $code); to go on: submit the same command again"
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
  if [[ $decision == *'"is_requeued":true'* ]]; then exit "$code"; fi
  if [[ -f $chain_file ]]; then leave_chain "$verdict" "$code"; fi
  [[ $verdict != requeue ]] || requeue_job
  exit "$code"
}

# run_with_requeue RUN COMMAND...: steps of a training command that writes to the folder RUN, one after another; ends the script.
run_with_requeue() {
  local run=$1
  shift
  export_job_end
  describe_job "$run" &
  # shellcheck disable=SC2064  # the process of now
  trap "kill $! 2>/dev/null" EXIT
  for ((TRIREME_ATTEMPT = 0; ; TRIREME_ATTEMPT++)); do
    export TRIREME_ATTEMPT
    run_and_wait srun "${step_options[@]}" "${srun_command[@]}" "$@"
    finish_leg "$run"
  done
}

# train_job TASK ARGUMENT...: all of a training job; without --run the folder is TRIREME_RUNS/<job name>-<job id>.
train_job() {
  local task=$1 run command
  shift
  run=$(option_value run "$@")
  if [[ -z $run ]]; then
    run=$TRIREME_RUNS/${SLURM_JOB_NAME:-$task}-$(job_id)
    set -- "$@" --run "$run"
  fi
  prepare_srun
  if [[ -n $TRIREME_SPARES ]] && ! choose_nodes; then
    job_error "TRIREME_SPARES=$TRIREME_SPARES leaves no node of ${SLURM_JOB_NUM_NODES:-1}"
    exit 2
  fi
  command=("$TRIREME_BIN/trireme" "$task" "$@")
  dry_run_or_job srun "${step_options[@]}" "${srun_command[@]}" "${command[@]}"
  banner srun "${step_options[@]}" "${srun_command[@]}" "${command[@]}"
  if [[ -f $chain_file && -s $chain_file ]]; then
    printf 'job       an earlier job of this chain ended the run\n'
    exit "$(<"$chain_file")"
  fi
  run_with_requeue "$run" "${command[@]}"
}

# --- pack: what becomes of a set that is not done ----------------------------------------------------------------

# A start that was lost before it brought anything (a bad node, a launch that failed: one in a hundred under some MPIs) is
# remembered beside the folder it would have written to, which takes no files of others, until the job has moved on.
lost_start_file() { printf '%s.lost-start\n' "${1%/}"; }

# Where this job stood when its last start was lost; nothing when it has moved since.
lost_start() { # lost_start FOLDER
  local job step
  read -r job step 2>/dev/null <"$(lost_start_file "$1")" || return 0
  [[ $job != "$(job_id)" ]] || printf '%s\n' "$step"
}

remember_lost_start() { # remember_lost_start FOLDER STEP
  local file
  file=$(lost_start_file "$1")
  mkdir -p "${file%/*}" && printf '%s %s\n' "$(job_id)" "$2" >"$file.tmp" && mv -f "$file.tmp" "$file"
}

# pack_decision CODE SHARDS_BEFORE SHARDS_AFTER [LOST]: prints "done", "requeue" or "stop REASON". LOST is what there was when
# the last start was lost: one is forgiven each time.
pack_decision() {
  case $1 in
    0) printf 'done\n' ;;
    4 | 5 | 75 | 137 | 139)
      if (($3 <= $2)) && { (($1 == 4 || $1 == 75)) || [[ $2 == "${4:-}" ]]; }; then
        printf 'stop no progress: %s shards before, %s now\n' "$2" "$3"
      else
        printf 'requeue\n'
      fi ;;
    *) printf 'stop another try would end the same\n' ;;
  esac
}

# A job that scancel ended shows as COMPLETING, and so does one at its time limit, which names that as the reason.
is_cancelled() { [[ ! $1 =~ JobState=(RUNNING|SUSPENDED) && ! $1 =~ Reason=TimeLimit ]]; }

# end_pack CODE SRUN_CODE BEFORE AFTER SET: ends the script with pack's exit code (93: no progress since the last restart), after
# putting the job back in the queue where that can help. BEFORE and AFTER count shards.
end_pack() {
  local code=$1 decision facts
  decision=$(pack_decision "$code" "$3" "$4" "$(lost_start "$5")")
  printf 'job       exit %s (srun %s), %s shards (before: %s) in %s: %s\n' "$code" "$2" "$4" "$3" "$5" "$decision"
  rm -f "$(lost_start_file "$5")" 2>/dev/null || true
  if [[ $decision == requeue ]]; then
    wait_for_controller
    if facts=$(controller -o show job "$(job_id)") && is_cancelled "$facts"; then
      printf 'job       ended from outside (scancel), not put back in the queue\n'
    elif (($4 <= $3)) && ! remember_lost_start "$5" "$4" 2>/dev/null; then
      job_error "cannot write $(lost_start_file "$5"), so this lost start gets no other; to go on: submit the same command again"
    else
      requeue_job
    fi
  elif [[ $decision == 'stop no progress'* ]] && ((${SLURM_RESTART_COUNT:-0} > 0)); then
    code=93
  fi
  exit "$code"
}

num_shards() { # num_shards SET: shards that lie in the folder
  local files
  files=$(compgen -G "$1/shard-*.h5") || true
  printf '%s\n' "$files" | grep -c . || true
}

# array_part: what a task of an array makes of the set, "--part K/N"; nothing outside an array.
array_part() {
  ((${SLURM_ARRAY_TASK_COUNT:-1} > 1)) || return 0
  printf -- '--part %s/%s\n' $(((SLURM_ARRAY_TASK_ID - SLURM_ARRAY_TASK_MIN) / ${SLURM_ARRAY_TASK_STEP:-1} + 1)) "$SLURM_ARRAY_TASK_COUNT"
}

# pack_exit SET STAMP_BEFORE SRUN_CODE [PART]: the exit code of pack. Its manifest comes last: with a new one pack is done, whatever
# srun says, and with one from before if srun says so too (the set may be another one, or damaged). Otherwise srun's code
# counts if pack ends with it on purpose, all else is a crash (137). A part may be done before the set is.
pack_exit() {
  local stamp
  stamp=$(manifest_stamp "$1")
  if [[ $stamp != none && ($stamp != "$2" || $3 == 0) ]]; then
    printf '0\n'
  else
    case $3 in
      0) if [[ -n ${4:-} ]]; then printf '0\n'; else printf '137\n'; fi ;;
      1 | 2 | 3 | 4 | 5 | 75) printf '%s\n' "$3" ;;
      *) printf '137\n' ;;
    esac
  fi
}

# run_pack_with_requeue SET COMMAND...: runs a pack that writes to the folder SET, then end_pack.
run_pack_with_requeue() {
  local set=$1 stamp before after
  shift
  before=$(num_shards "$set")
  stamp=$(manifest_stamp "$set")
  run_and_wait srun "${srun_command[@]}" "$@"
  after=$(num_shards "$set")
  end_pack "$(pack_exit "$set" "$stamp" "$srun_code" "$(option_value part "$@")")" "$srun_code" "$before" "$after" "$set"
}
