# shellcheck shell=bash
# What the job scripts share: the banner, srun's arguments, and the decision to go back in the queue.

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

# Sets the array srun_command. --cpus-per-task is given again because srun does not take it from sbatch in
# Slurm 22.05 to 23.02; distribution block puts neighbouring ranks on one node.
prepare_srun() {
  local cpus=${SLURM_CPUS_PER_TASK:-1}
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$cpus} SRUN_CPUS_PER_TASK=$cpus
  srun_command=(srun "--mpi=$TRIREME_MPI" "--cpus-per-task=$cpus" --cpu-bind=cores --distribution=block:block
    --kill-on-bad-exit=1 --wait=60 --unbuffered --label)
  if [[ -n $TRIREME_LAUNCH ]]; then
    local words
    read -ra words <<<"$TRIREME_LAUNCH"
    srun_command+=("${words[@]}")
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

# Prints the command and ends when DRY_RUN=1; ends with 2 when Slurm is not there.
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
}

# The last step whose checkpoint is complete (unfinished ones never match step-*); -1 when there is none.
last_committed_step() { # last_committed_step RUN
  local folder step last=-1
  for folder in "$1"/checkpoints/step-*; do
    step=${folder##*/step-}
    if [[ -d $folder && $step =~ ^[0-9]+$ ]] && ((10#$step > last)); then
      last=$((10#$step))
    fi
  done
  printf '%s\n' "$last"
}

# What tells one status.json (or manifest.json) from another: it is always a new file, renamed into place. "none" when absent.
file_stamp() { stat -c '%i %y' "$1" 2>/dev/null || printf 'none\n'; }
status_stamp() { file_stamp "$1/status.json"; }      # status_stamp RUN
manifest_stamp() { file_stamp "$1/manifest.json"; }  # manifest_stamp SET

status_number() { # status_number RUN KEY: an integer of status.json, nothing when absent
  sed -nE "s/.*\"$2\": *(-?[0-9]+).*/\1/p" "$1/status.json" 2>/dev/null | head -n1
}

# program_exit RUN STAMP_BEFORE SRUN_CODE: the exit code of the program as rank 0 left it in status.json.
#
# srun's own code is no evidence: a rank that ends with 3 makes it 143 under --kill-on-bad-exit, and a failed
# launch can make it 0. Without a new status.json, or with one that still says "running" (rank 0 was killed), srun's
# code counts if it is one that the program ends with on purpose; all else is a crash (137).
program_exit() {
  local code=
  if [[ $(status_stamp "$1") != "$2" ]] && ! grep -q '"state": *"running"' "$1/status.json"; then
    code=$(status_number "$1" exit_code)
  fi
  if [[ -z $code ]]; then
    case $3 in
      1 | 2 | 3 | 6 | 93) code=$3 ;;
      *) code=137 ;;
    esac
  fi
  printf '%s\n' "$code"
}

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

# requeue_decision CODE STEP_BEFORE STEP_AFTER RESTARTS MAX [LOST]: prints "done", "requeue" or "stop REASON". LOST is the
# step of the last start that was lost: at each step one is forgiven.
requeue_decision() {
  case $1 in
    0) printf 'done\n' ;;
    4 | 5 | 75 | 137 | 139)
      if (($5 == 0)); then
        printf 'stop TRIREME_MAX_RESTARTS is 0\n'
      elif (($4 >= $5)); then
        printf 'stop restarted %s times already, TRIREME_MAX_RESTARTS is %s\n' "$4" "$5"
      elif (($3 <= $2)) && { (($1 == 4 || $1 == 75)) || [[ $2 == "${6:-}" ]]; }; then
        printf 'stop no progress: the last committed step was %s before and is %s now\n' "$2" "$3"
      else
        printf 'requeue\n'
      fi ;;
    *) printf 'stop another try would end the same\n' ;;
  esac
}

# scontrol would put a job that the user cancelled back in the queue as well, so look first. Such a job shows as
# COMPLETING, and so does one at its time limit, which names that as the reason.
may_be_requeued() {
  local facts
  facts=$(scontrol -o show job "$(job_id)" 2>/dev/null) || return 1
  [[ $facts =~ JobState=RUNNING || $facts =~ Reason=TimeLimit ]]
}

# end_job CODE SRUN_CODE BEFORE AFTER WHERE FOLDER: ends the script with the program's exit code (93: no progress since the
# last restart), after putting the job back in the queue where that can help. BEFORE and AFTER count what is done.
end_job() {
  local code=$1 decision restarts=${SLURM_RESTART_COUNT:-0}
  decision=$(requeue_decision "$code" "$3" "$4" "$restarts" "$TRIREME_MAX_RESTARTS" "$(lost_start "$6")")
  printf 'job       exit %s (srun %s), %s: %s\n' "$code" "$2" "$5" "$decision"
  rm -f "$(lost_start_file "$6")" 2>/dev/null || true
  if [[ $decision == requeue ]]; then
    if ! may_be_requeued; then
      printf 'job       ended from outside (scancel), not put back in the queue\n'
    elif (($4 <= $3)) && ! remember_lost_start "$6" "$4" 2>/dev/null; then
      job_error "cannot write $(lost_start_file "$6"), so this lost start gets no other; to go on: submit the same command again"
    elif ! scontrol requeue "$(job_id)"; then
      job_error "scontrol requeue $(job_id) failed; to go on: submit the same command again"
    fi
  elif [[ $decision == 'stop no progress'* ]] && ((restarts > 0)); then
    code=93
  fi
  exit "$code"
}

# Older Slurm does not tell a job when it ends; the program saves in time by this.
export_job_end() {
  local end
  [[ -z ${SLURM_JOB_END_TIME:-} ]] || return 0
  end=$(squeue -h -j "$(job_id)" -o %e 2>/dev/null) && end=$(date -d "$end" +%s 2>/dev/null) || return 0
  export SLURM_JOB_END_TIME=$end
}

# run_with_requeue RUN COMMAND...: runs a training command that writes to the folder RUN, then end_job.
run_with_requeue() {
  local run=$1 stamp before after srun_code=0
  shift
  before=$(last_committed_step "$run")
  stamp=$(status_stamp "$run")
  export_job_end
  trap ':' USR2 TERM  # the ranks answer these; the script only waits for them
  "$@" || srun_code=$?
  trap - USR2 TERM
  after=$(last_committed_step "$run")
  end_job "$(program_exit "$run" "$stamp" "$srun_code")" "$srun_code" "$before" "$after" "last committed step $after, $run" "$run"
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
  command=("${srun_command[@]}" "$TRIREME_BIN/trireme" "$task" "$@")
  dry_run_or_job "${command[@]}"
  banner "${command[@]}"
  run_with_requeue "$run" "${command[@]}"
}

num_shards() { # num_shards SET: shards that lie in the folder
  local files
  files=$(compgen -G "$1/shard-*.h5") || true
  printf '%s\n' "$files" | grep -c . || true
}

# pack_exit SET STAMP_BEFORE SRUN_CODE: the exit code of pack. Its manifest comes last: with a new one pack is done, whatever
# srun says, and with one from before if srun says so too (the set may be another one, or damaged). Otherwise srun's code
# counts if pack ends with it on purpose, all else is a crash (137).
pack_exit() {
  local stamp
  stamp=$(manifest_stamp "$1")
  if [[ $stamp != none && ($stamp != "$2" || $3 == 0) ]]; then
    printf '0\n'
  else
    case $3 in
      1 | 2 | 3 | 4 | 5 | 75) printf '%s\n' "$3" ;;
      *) printf '137\n' ;;
    esac
  fi
}

# run_pack_with_requeue SET COMMAND...: runs a pack that writes to the folder SET, then end_job.
run_pack_with_requeue() {
  local set=$1 stamp before after srun_code=0
  shift
  before=$(num_shards "$set")
  stamp=$(manifest_stamp "$set")
  trap ':' USR1 TERM  # the ranks answer these; the script only waits for them
  "$@" || srun_code=$?
  trap - USR1 TERM
  after=$(num_shards "$set")
  end_job "$(pack_exit "$set" "$stamp" "$srun_code")" "$srun_code" "$before" "$after" "$after shards (before: $before) in $set" "$set"
}
