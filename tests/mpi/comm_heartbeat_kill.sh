#!/usr/bin/env bash
# Kills or stops a rank in a collective. Every survivor must name the rank and exit with code 5 by itself.
#   comm_heartbeat_kill.sh MPIRUN PROGRAM RANKS VICTIM kill|stop [RANKS_PER_NODE]
#
# mpirun starts this script for each rank (comm_heartbeat_kill.sh rank DIRECTORY RANKS COMMAND...), and the script starts the program.
# mpirun kills the ranks that are left when several have exited, so each rank waits here until all programs have ended.
set -euo pipefail

count_of() { find "$folder" -name "$1.*" | wc -l; }

# Waits at most 20 s for a number of files of one kind.
wait_for() {
  for _ in $(seq 200); do
    if [ "$(count_of "$1")" -ge "$2" ]; then return; fi
    sleep 0.1
  done
}

if [ "$1" = rank ]; then
  folder=$2 ranks=$3
  shift 3
  trap '' TERM
  code=0
  "$@" || code=$?
  echo "$code" >"$folder/exit.$OMPI_COMM_WORLD_RANK"
  wait_for exit "$ranks"
  exit "$code"
fi

mpirun=$1 program=$2 ranks=$3 victim=$4 how=$5
if [ $# -gt 5 ]; then export TRIREME_TEST_NODE_RANKS=$6; fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
timeout 60 "$mpirun" --oversubscribe --bind-to none -n "$ranks" "$0" rank "$folder" "$ranks" "$program" "$victim" "$how" "$folder" \
  >"$folder/log" 2>&1 &
launcher=$!
if [ "$how" = stop ]; then  # nothing else ends the stopped program
  wait_for loss $((ranks - 1))
  kill -KILL "$(cat "$folder/victim.$victim")"
fi
code=0
wait "$launcher" || code=$?
failed=0
if [ "$code" -eq 0 ]; then echo "mpirun ended with 0" && failed=1; fi
pid=$(cat "$folder/victim.$victim")
for ((rank = 0; rank < ranks; ++rank)); do
  if [ "$rank" -eq "$victim" ]; then continue; fi
  read -r who reported_code who_pid reason 2>/dev/null <"$folder/loss.$rank" || true
  read -r exit_code 2>/dev/null <"$folder/exit.$rank" || true
  if [ "${who:-none} ${reported_code:-} ${who_pid:-} ${exit_code:-none}" != "$victim 5 $pid 5" ]; then
    echo "rank $rank saw '${who:-none} ${reported_code:-} ${who_pid:-} ${reason:-}' and exited with ${exit_code:-none}," \
      "expected '$victim 5 $pid' and 5"
    failed=1
  fi
  unset who reported_code who_pid reason exit_code
done
[ "$failed" -eq 0 ] || cat "$folder/log"
exit "$failed"
