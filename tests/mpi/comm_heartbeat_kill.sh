#!/usr/bin/env bash
# Kills or stops a rank in a collective. Every survivor must name the rank and exit with code 5 by itself.
# mpirun detects a death as well. It may be first to send SIGTERM, which requests a run to stop; its SIGKILL follows a second
# later.
#   comm_heartbeat_kill.sh MPIRUN PROGRAM RANKS VICTIM kill|stop [RANKS_PER_NODE]
set -euo pipefail
mpirun=$1 program=$2 ranks=$3 victim=$4 how=$5
if [ $# -gt 5 ]; then export TRIREME_TEST_NODE_RANKS=$6; fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
timeout 60 "$mpirun" --oversubscribe --bind-to none -n "$ranks" "$program" "$victim" "$how" "$folder" >"$folder/log" 2>&1 &
launcher=$!
if [ "$how" = stop ]; then  # the stopped rank must be killed here, because mpirun waits for it
  for _ in $(seq 100); do
    if [ "$(find "$folder" -name 'loss.*' | wc -l)" -ge $((ranks - 1)) ]; then break; fi
    sleep 0.1
  done
  kill -KILL "$(cat "$folder/victim.$victim")"
fi
code=0
wait "$launcher" || code=$?
failed=0
if [ "$code" -eq 0 ]; then echo "mpirun ended with 0" && failed=1; fi
pid=$(cat "$folder/victim.$victim")
for ((rank = 0; rank < ranks; ++rank)); do
  if [ "$rank" -eq "$victim" ]; then continue; fi
  read -r who exit_code who_pid reason 2>/dev/null <"$folder/loss.$rank" || true
  if [ "${who:-none} ${exit_code:-} ${who_pid:-}" != "$victim 5 $pid" ]; then
    echo "rank $rank saw '${who:-none} ${exit_code:-} ${who_pid:-} ${reason:-}', expected '$victim 5 $pid'" && failed=1
  fi
  unset who exit_code who_pid reason
done
[ "$failed" -eq 0 ] || cat "$folder/log"
exit "$failed"
