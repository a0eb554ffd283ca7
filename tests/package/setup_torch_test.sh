#!/usr/bin/env bash
# Installs a prefix without LibTorch, and gives it the LibTorch of the build with trireme-setup: in the prefix, and for a user who cannot write
# into the prefix. Usage: setup_torch_test.sh BUILD
set -euo pipefail
build=$(readlink -f "$1")
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
source tests/support/shell.sh
source tests/package/prefix.sh

prefix="$work/a prefix"
torch=$(sed -nE 's/^TRIREME_TORCH_DIR:PATH=(.*)/\1/p' "$build/CMakeCache.txt")
unset TRIREME_TORCH_ROOT LD_LIBRARY_PATH

setup() { # setup EXIT ARGUMENT...: its output is in $work/out
  local want=$1 rc=0
  shift
  "$prefix/bin/trireme-setup" "$@" >"$work/out" 2>&1 || rc=$?
  expect_equal "exit of trireme-setup $*" "$want" "$rc"
}

a_prefix_without_libtorch_does_not_start() {
  install_into "$prefix" none
  [[ ! -e $prefix/lib/trireme/torch && ! -e $prefix/lib/trireme/nvidia ]] || broken "the prefix contains LibTorch"
  ! "$prefix/bin/trireme" --version >"$work/out" 2>&1 || broken "trireme starts without LibTorch"
  "$prefix/bin/trireme-data" --version >"$work/out" 2>&1 || broken "trireme-data needs LibTorch: $(<"$work/out")"
}

wrong_calls_are_refused() {
  setup 2 tensorflow
  expect_match "its message" 'unknown command tensorflow' "$(<"$work/out")"
  setup 2 torch --from
  setup 2 torch --from "$work/absent"
  expect_match "its message" '^error: --from: [^ ]*/absent contains no lib/libtorch.so$' "$(<"$work/out")"
  mkdir -p "$work/other/lib"
  : >"$work/other/lib/libtorch.so"
  setup 2 torch --from "$work/other"
  expect_match "its message" 'contains no version.py' "$(<"$work/out")"
  printf "__version__ = '2.9.1+cu128'\ncuda: Optional[str] = '12.8'\n" >"$work/other/version.py"
  setup 2 torch --from "$work/other"
  expect_match "its message" 'is LibTorch 2\.9\.1 \(CUDA 12\), but the programs need LibTorch 2\.11\.0 \(CUDA (13|12|none)\)' "$(<"$work/out")"
  local rc=0
  env -u HOME "$prefix/bin/trireme-setup" torch --user --from "$torch" >"$work/out" 2>&1 || rc=$?
  expect_equal "exit without HOME" 2 "$rc"
  expect_match "its message" '^error: HOME is not set' "$(<"$work/out")"
  rc=0
  bin/trireme-setup torch >"$work/out" 2>&1 || rc=$?
  expect_equal "exit in a checkout" 2 "$rc"
  expect_match "its message" 'no installed prefix of Trireme. In a checkout, bin/demo installs LibTorch' "$(<"$work/out")"
}

a_read_only_prefix_gets_a_libtorch_of_the_user() {
  local as_user=() line
  if ((EUID == 0)); then
    chmod 755 "$work" && chown -R 65534 "$HOME"
    as_user=(setpriv --reuid 65534 --regid 65534 --clear-groups)
  fi
  chmod -R a-w "$prefix"
  "${as_user[@]}" "$prefix/bin/trireme-setup" torch --from "$torch" >"$work/out" 2>&1 || broken "trireme-setup of a user failed: $(<"$work/out")"
  chmod -R u+w "$prefix"
  [[ ! -e $prefix/lib/trireme/torch ]] || broken "the prefix was changed"
  line=$(sed -nE 's/^  (export .*)/\1/p' "$work/out")
  (eval "$line" && "$prefix/bin/trireme" --version) >"$work/version" 2>&1 || broken "the printed line does not help: $(<"$work/version")"
  # shellcheck source=/dev/null
  (source "$HOME/.config/trireme/env.sh" && "$prefix/bin/trireme" --version) >"$work/version" 2>&1 || broken "the settings of the user do not help: $(<"$work/version")"
  "${as_user[@]}" "$prefix/bin/trireme-setup" torch --user --from "$torch" >"$work/out" 2>&1 || broken "a second call failed: $(<"$work/out")"
  expect_equal "lines in the settings of the user" 1 "$(wc -l <"$HOME/.config/trireme/env.sh")"
  : >"$work/a file"
  XDG_DATA_HOME="$work/a file" setup 2 torch --user --from "$torch"
  expect_match "the only message" "^error: the directory $work/a file/trireme/libtorch-[^ ]* is not writable\. Set XDG_DATA_HOME to [^"$'\n'"]*$" "$(<"$work/out")"
  if command -v tclsh >/dev/null; then
    line=$(tclsh /dev/stdin "$(find "$prefix/share/trireme/modulefiles/trireme" -type f ! -name '*.lua')" <<'EOF2'
foreach name {module-whatis conflict setenv prepend-path} { proc $name args {} }
proc append-path {variable value} { if {$variable eq "LD_LIBRARY_PATH"} { puts -nonewline "$value:" } }
set ModulesCurrentModulefile [lindex $argv 0]
source $ModulesCurrentModulefile
EOF2
    )
    LD_LIBRARY_PATH=$line "$prefix/bin/trireme" --version >"$work/version" 2>&1 || broken "the module does not find the user's LibTorch: $line: $(<"$work/version")"
  else
    printf 'NOT TESTED: the Tcl module\n'
  fi
}

a_prefix_gets_a_libtorch_for_all_users() {
  TRIREME_TORCH_ROOT=$torch setup 0 torch
  expect_match "its message" "^LibTorch 2\.11\.0 \(CUDA (13|12|none)\): $torch$" "$(tail -n1 "$work/out")"
  "$prefix/bin/trireme" --version >"$work/version" 2>&1 || broken "trireme does not start with the linked LibTorch: $(<"$work/version")"
  setup 0 torch --from "$(dirname "$torch")"  # again, from the directory above
  expect_equal "link" "$torch" "$(readlink "$prefix/lib/trireme/torch")"
  rm "$prefix/lib/trireme/torch" && mkdir "$prefix/lib/trireme/torch"
  setup 2 torch --from "$torch"
  expect_match "its message" 'so this prefix has a LibTorch of its own' "$(<"$work/out")"
}

for scenario in a_prefix_without_libtorch_does_not_start wrong_calls_are_refused a_read_only_prefix_gets_a_libtorch_of_the_user \
  a_prefix_gets_a_libtorch_for_all_users; do
  start=$SECONDS
  "$scenario"
  printf '%s: %d s\n' "$scenario" $((SECONDS - start))
done
finish
