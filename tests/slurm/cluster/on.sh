#!/usr/bin/env bash
# DIR/on WHERE COMMAND...: runs COMMAND on "ctl" or on a node (with namespaces), or only with the environment of the cluster.
set -euo pipefail
dir=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck disable=SC1091
source "$dir/env.sh"
netns=0  # conf sets it
# shellcheck disable=SC1091
source "$dir/run/conf"
where=$1
shift
((netns)) || exec "$@"

target=$(<"$dir/run/ctl.pid")
if [[ $where != ctl ]]; then
  # The node's file has its pid as ctl sees it; find this process in the own namespace.
  inside=$(<"$dir/run/$where.pid")
  target=
  while read -r file; do
    pid=${file//[^0-9]/}
    if tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF " $dir/run/init.sh node "; then target=$pid; fi
  done < <(grep -lE "^NSpid:.*[[:space:]]${inside}[[:space:]]1$" /proc/[0-9]*/status 2>/dev/null)
  [[ -n $target ]] || { printf 'error: %s is down\n' "$where" >&2; exit 1; }
fi
user=()
((EUID == 0)) || user=(-U --preserve-credentials)
# nsenter forgets the working directory when it enters a mount namespace
exec nsenter "${user[@]}" -t "$target" -n -u -i -m -p env --chdir="$PWD" "$@"
