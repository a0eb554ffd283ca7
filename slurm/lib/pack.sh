# shellcheck shell=bash
# shellcheck disable=SC2154  # srun_code and srun_command of ../lib.sh
# Preparation jobs: decides about the job of an incomplete data set. Sourced by ../lib.sh.

# Prints the name of the file that records a failed start (a bad node, or a failed launch: about one in a hundred under some MPIs) until
# the job makes progress. It is beside the data set, because the data set directory may contain no other files. Each task of an array has
# its own file.
lost_start_file() { printf '%s.lost-start-%s\n' "${1%/}" "$(job_id)"; }

# Prints the number of shards at the last failed start of this job; nothing without such a start.
lost_start() { cat "$(lost_start_file "$1")" 2>/dev/null || true; }  # lost_start DIR

remember_lost_start() { # remember_lost_start DIR SHARDS
  local file
  file=$(lost_start_file "$1")
  mkdir -p "${file%/*}" && printf '%s\n' "$2" >"$file.tmp" && mv -f "$file.tmp" "$file"
}

# pack_decision CODE SHARDS_BEFORE SHARDS_AFTER [LOST]: prints "done", "requeue" or "stop: REASON". LOST is the number of shards at the
# last failed start; one failed start in a row is allowed.
pack_decision() {
  case $1 in
    0) printf 'done\n' ;;
    4 | 5 | 75 | 137 | 139)
      if (($3 <= $2)) && { (($1 == 4 || $1 == 75)) || [[ $2 == "${4:-}" ]]; }; then
        printf 'stop: no progress: %s shards before, %s now\n' "$2" "$3"
      else
        printf 'requeue\n'
      fi ;;
    *) printf 'stop: a restart would fail in the same way\n' ;;
  esac
}

# A cancelled job is COMPLETING. A job at its time limit is COMPLETING, too, but with the reason TimeLimit.
is_cancelled() { [[ ! $1 =~ JobState=(RUNNING|SUSPENDED) && ! $1 =~ Reason=TimeLimit ]]; }

# end_pack CODE SRUN_CODE BEFORE AFTER SET: requeues the job if that can help, and ends the script with pack's exit code (93: no progress
# since the last restart). BEFORE and AFTER are numbers of shards.
end_pack() {
  local code=$1 decision facts
  decision=$(pack_decision "$code" "$3" "$4" "$(lost_start "$5")")
  printf 'job       exit %s (srun %s), %s shards (before: %s) in %s: %s\n' "$code" "$2" "$4" "$3" "$5" "$decision"
  rm -f "$(lost_start_file "$5")" 2>/dev/null || true
  # A job that was cancelled in the queue leaves its file.
  if [[ $decision == "done" && $(manifest_stamp "$5") != none ]]; then rm -f -- "${5%/}".lost-start-* 2>/dev/null || true; fi
  if [[ $decision == requeue ]]; then
    wait_for_controller
    if facts=$(controller -o show job "$(job_id)") && is_cancelled "$facts"; then
      printf 'job       cancelled (scancel), not requeued\n'
    elif (($4 <= $3)) && ! remember_lost_start "$5" "$4" 2>/dev/null; then
      job_error "cannot write $(lost_start_file "$5"), so the job is not requeued after this failed start; to resume: submit the same command again"
    else
      requeue_job
    fi
  elif [[ $decision == 'stop: no progress'* ]] && ((${SLURM_RESTART_COUNT:-0} > 0)); then
    code=93
  fi
  exit "$code"
}

num_shards() { # num_shards SET: prints the number of shards in the directory
  local file count=0
  for file in "$1"/shard-*.h5; do [[ ! -e $file ]] || ((++count)); done
  printf '%s\n' "$count"
}

# array_part: prints the option "--part K/N" for a task of an array; nothing outside an array.
array_part() {
  ((${SLURM_ARRAY_TASK_COUNT:-1} > 1)) || return 0
  printf -- '--part %s/%s\n' $(((SLURM_ARRAY_TASK_ID - SLURM_ARRAY_TASK_MIN) / ${SLURM_ARRAY_TASK_STEP:-1} + 1)) "$SLURM_ARRAY_TASK_COUNT"
}

# pack_exit SET STAMP_BEFORE SRUN_CODE [PART]: prints the exit code of pack. Pack writes its manifest last: with a new manifest it is
# done, whatever srun reports. With an old manifest it is done if srun reports 0 (the data set may be a different or damaged one).
# Otherwise the code of srun counts if pack exits with it on purpose; any other code is a crash (137). A part may be done earlier than
# the data set.
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

# run_pack_with_requeue SET COMMAND...: runs a pack command that writes to the directory SET, then end_pack.
run_pack_with_requeue() {
  local set=$1 stamp before after
  shift
  before=$(num_shards "$set")
  stamp=$(manifest_stamp "$set")
  run_and_wait srun "${srun_command[@]}" "$@"
  after=$(num_shards "$set")
  end_pack "$(pack_exit "$set" "$stamp" "$srun_code" "$(option_value part "$@")")" "$srun_code" "$before" "$after" "$set"
}
