# shellcheck shell=bash
# shellcheck disable=SC2154  # srun_code and srun_command of ../lib.sh
# Preparation jobs: the decision about a data set that is not complete. Sourced by ../lib.sh.

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
    *) printf 'stop a restart would fail in the same way\n' ;;
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
