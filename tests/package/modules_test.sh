#!/usr/bin/env bash
# Two installed versions with a real module system: module avail, load, switch and unload, and the uninstallation of one version.
# Usage: modules_test.sh BUILD lmod|tcl. The variables LMOD_CMD and MODULES_CMD, which the module systems set, name programs in other directories.
set -euo pipefail
build=$(readlink -f "$1") kind=$2
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
source tests/support/shell.sh

if [[ $kind == lmod ]]; then
  tool=("${LMOD_CMD:-/usr/share/lmod/lmod/libexec/lmod}")
else
  for file in "${MODULES_CMD:-}" /usr/lib/x86_64-linux-gnu/modulecmd.tcl /usr/share/Modules/libexec/modulecmd.tcl /usr/lib/environment-modules/modulecmd.tcl; do
    [[ ! -r $file ]] || break
  done
  tool=(tclsh "$file")
  command -v tclsh >/dev/null || skip "tclsh is not installed"
fi
[[ -r ${tool[-1]} ]] || skip "the module system $kind is not installed (Debian: lmod or environment-modules, which exclude each other)"

source tests/package/prefix.sh
for name in $(compgen -e | grep -E '^(LMOD_|__LMOD|_ModuleTable|__MODULES|LOADEDMODULES|_LMFILES_|MODULEPATH|MANPATH)'); do unset "$name"; done
module() { eval "$("${tool[@]}" bash "$@" 2>"$work/module.out" || true)" || true; }  # a refusal ends with 1

first=$work/apps/first second="$work/apps/the second" next=9.9.9

# loaded PREFIX: all variables lead to this prefix only.
loaded() {
  expect_equal "program" "$1/bin/trireme" "$(type -P trireme || true)"
  expect_equal "TRIREME_ROOT" "$1" "${TRIREME_ROOT:-}"
  expect_equal "prefixes in PATH, MANPATH and XDG_DATA_DIRS" "$(printf '%s\n' "$1/bin" "$1/share" "$1/share/man")" \
    "$(tr : '\n' <<<"$PATH:${MANPATH:-}:${XDG_DATA_DIRS:-}" | grep -F "$work/apps" | sort)"
  trireme --version --json >"$work/version" 2>&1 || broken "trireme of $1 does not start: $(<"$work/version")"
}

# The second version is a copy of the first one with another version in the name of its modulefile.
two_versions_are_available() {
  install_into "$first"
  version=$("$first/bin/trireme-data" --version --json | sed -nE 's/.*"version":"([^"]*)".*/\1/p')
  cp -a "$first" "$second"
  local modules=share/trireme/modulefiles/trireme
  mv "$second/$modules/$version" "$second/$modules/$next" && mv "$second/$modules/$version.lua" "$second/$modules/$next.lua"
  module use "$first/share/trireme/modulefiles"
  module use "$second/share/trireme/modulefiles"
  module -t avail
  expect_equal "module avail" "trireme/$version trireme/$next" "$(grep -oE '^trireme/[0-9.]+' "$work/module.out" | sort | xargs)"
  sed 's/^/  /' "$work/module.out"
}

one_version_is_loaded() {
  module load "trireme/$version"
  loaded "$first"
  if command -v man >/dev/null; then expect_equal "manual page" "$first/share/man/man1/trireme-pretrain.1" "$(man -w trireme-pretrain 2>&1)"; fi
  # Lmod replaces the version. Tcl modules refuse a second one.
  module load "trireme/$next"
  if [[ $kind == lmod ]]; then loaded "$second"; else loaded "$first"; fi
}

another_version_replaces_it() {
  module switch trireme "trireme/$next"
  loaded "$second"
  module switch "trireme/$next" "trireme/$version"
  loaded "$first"
}

nothing_stays_after_unload() {
  module unload trireme
  expect_equal "directories of the prefixes" '' "$(tr : '\n' <<<"$PATH:${MANPATH:-}:${XDG_DATA_DIRS:-}:${LD_LIBRARY_PATH:-}" | grep -F "$work/apps" || true)"
  expect_equal "TRIREME_ROOT" unset "${TRIREME_ROOT:-unset}"
}

one_version_is_uninstalled() {
  rm -r "$first"
  module -t avail
  expect_equal "module avail" "trireme/$next" "$(grep -oE '^trireme/[0-9.]+' "$work/module.out" | xargs)"
  module load trireme
  loaded "$second"
}

for scenario in two_versions_are_available one_version_is_loaded another_version_replaces_it nothing_stays_after_unload one_version_is_uninstalled; do
  start=$SECONDS
  "$scenario"
  printf '%s: %d s\n' "$scenario" $((SECONDS - start))
done
finish
