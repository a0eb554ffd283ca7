#!/usr/bin/env bash
# Tests bin/demo, bin/test and their shared code: options, and how they detect missing packages.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
source tests/support/shell.sh
source bin/lib/setup.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

help_and_unknown_options() {
  local command rc
  for command in bin/demo bin/test .ci/run; do
    expect_match "$command --help" '^usage: bin/' "$(env -i PATH=/usr/bin:/bin HOME="$work" "$command" --help)"
    rc=0
    "$command" --no-such-option 2>"$work/err" || rc=$?
    expect_equal "exit of $command --no-such-option" 2 "$rc"
    expect_match "its message" 'unknown option --no-such-option' "$(<"$work/err")"
  done
}

missing_things_are_named_together() {
  local rc=0
  (
    # shellcheck disable=SC2030,SC2031
    kBuildPackages=("libone-dev hdr:one/absent.h TRIREME_HDF5_ROOT" "two|three cmd:absent-program" "sed cmd:sed")
    may_install=0
    install_system demo
  ) 2>"$work/err" || rc=$?
  expect_equal "exit" 4 "$rc"
  expect_match "the header" 'libone-dev +\(looked for one/absent.h\), or a prefix in TRIREME_HDF5_ROOT' "$(<"$work/err")"
  expect_match "the program" 'two +\(looked for absent-program\)' "$(<"$work/err")"
  expect_match "the command" 'apt-get install libone-dev two
' "$(<"$work/err")"
}

prefixes_and_modules_count() {
  mkdir -p "$work"/prefix/{include/one,bin}
  touch "$work/prefix/include/one/here.h"
  probe hdr:one/here.h && broken "a header was found before its prefix was given"
  probe hdr:one/here.h "$work/prefix" || broken "header under a root"
  CMAKE_PREFIX_PATH="/nowhere:$work/prefix" probe hdr:one/here.h || broken "header under CMAKE_PREFIX_PATH"
  CPATH="$work/prefix/include" probe hdr:one/here.h || broken "header in CPATH"
  printf '#!/bin/sh\n' >"$work/prefix/bin/some-program"
  chmod +x "$work/prefix/bin/some-program"
  probe cmd:some-program && broken "a program was found before its prefix was given"
  probe cmd:some-program "$work/prefix" || broken "program under a root"
}

versions_compare_as_numbers() {
  version_at_least 3.25.1 3.25 || broken "3.25.1 is at least 3.25"
  version_at_least 3.100 3.25 || broken "3.100 is at least 3.25"
  ! version_at_least 3.9 3.25 || broken "3.9 is not at least 3.25"
}

every_row_is_well_formed() {
  local row package test root rest
  # shellcheck disable=SC2031
  for row in "${kBuildPackages[@]}" "${kPythonPackages[@]}" "${kBuildExtras[@]}" "${kTestExtras[@]}"; do
    read -r package test root rest <<<"$row"
    [[ $package =~ ^[a-z0-9.+|-]+$ && $test =~ ^(cmd|hdr|mod|pkg):. && $root =~ ^(TRIREME_[A-Z0-9]+_ROOT)?$ && -z $rest ]] ||
      broken "row '$row' of bin/lib/packages.sh"
  done
}

# bin/demo installs no packages for tests. bin/test runs after it, and must find the tests that new packages enable.
a_package_that_came_since_is_found() {
  local times=$work/configured
  (
    cd "$work"
    cmake() { echo once >>"$times"; mkdir -p build/some; touch build/some/build.ninja; }
    # shellcheck disable=SC2317  # build_preset calls it
    ninja() { echo 'ninja: no work to do.'; }
    nice() { shift 2; "$@"; }
    # shellcheck disable=SC2030,SC2031,SC2034
    kTestExtras=("late cmd:a-late-program") kTestWheels=()
    build_preset some && build_preset some
    mkdir -p late && printf '#!/bin/sh\n' >late/a-late-program && chmod +x late/a-late-program
    PATH=$work/late:$PATH
    build_preset some && build_preset some
  ) >/dev/null
  expect_equal "runs of cmake" 2 "$(wc -l <"$times")"
}

a_libtorch_of_another_version_is_refused() {
  local rc root=$work/libtorch version major minor want
  mkdir -p "$root"/include/torch/{headeronly,csrc/api/include/torch}
  touch "$root/include/torch/csrc/api/include/torch/torch.h"
  for version in '2 11 0' '2 9 2' '3 11 2'; do
    read -r major minor want <<<"$version"
    printf '#define TORCH_VERSION_MAJOR %s\n#define TORCH_VERSION_MINOR %s\n#define TORCH_VERSION_PATCH 1\n' "$major" "$minor" >"$root/include/torch/headeronly/version.h"
    rc=0
    (cd "$work" && TRIREME_TORCH_ROOT=$root && install_torch) 2>"$work/err" || rc=$?
    expect_equal "exit for LibTorch $major.$minor" "$want" "$rc"
    ((want == 0)) || expect_match "its message" "^error: TRIREME_TORCH_ROOT = $root is LibTorch $major\.$minor, must be 2\.11: name another directory" "$(<"$work/err")"
  done
  rm "$root/include/torch/headeronly/version.h"
  rc=0
  TRIREME_TORCH_ROOT=$root bash -euo pipefail -c 'source bin/lib/setup.sh; cd "$1"; install_torch' - "$work" 2>"$work/err" || rc=$?
  expect_equal "exit without a version" 2 "$rc"
  expect_match "its message" 'is LibTorch of an unknown version, must be' "$(<"$work/err")"
}

help_and_unknown_options
a_libtorch_of_another_version_is_refused
a_package_that_came_since_is_found
missing_things_are_named_together
prefixes_and_modules_count
versions_compare_as_numbers
every_row_is_well_formed
finish
