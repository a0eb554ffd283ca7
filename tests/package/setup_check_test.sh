#!/usr/bin/env bash
# Runs trireme-setup check in an installed prefix. The programs are changed so that the loader of the system does not find what they need: a newer
# C library, another MPI. Usage: setup_check_test.sh BUILD
set -euo pipefail
build=$(readlink -f "$1")
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
source tests/support/shell.sh
source tests/package/prefix.sh

prefix="$work/a prefix"
torch=$(sed -nE 's/^TRIREME_TORCH_DIR:PATH=(.*)/\1/p' "$build/CMakeCache.txt")
unset TRIREME_TORCH_ROOT TRIREME_MPI_ROOT LD_LIBRARY_PATH

check() { # check EXIT: its output is in $work/out
  local rc=0
  "$prefix/bin/trireme-setup" check >"$work/out" 2>&1 || rc=$?
  expect_equal "exit of trireme-setup check" "$1" "$rc"
  sed 's/^/  /' "$work/out"
  (($1 == 0)) || expect_equal "messages" 1 "$(wc -l <"$work/out")"
}

# Replaces a text in a program by a text of the same length.
change() { # change PROGRAM OLD NEW
  cp "$prefix/bin/$1" "$work/$1"
  LC_ALL=C sed -i "s/$2/$3/g" "$prefix/bin/$1"
  ! cmp -s "$work/$1" "$prefix/bin/$1" || broken "$1 does not contain $2"
}
restore() { cp "$work/$1" "$prefix/bin/$1"; }

a_machine_without_libtorch_is_refused() {
  install_into "$prefix" none
  check 2
  expect_match "the message" '^error: The programs do not find .*libtorch_cpu\.so.*\. Type: trireme-setup torch$' "$(<"$work/out")"
}

a_libtorch_of_another_version_is_refused() {
  local directory="$work/another" name
  mkdir -p "$directory/torch/lib"
  for name in "$torch"/lib/*; do ln -s "$name" "$directory/torch/lib/"; done
  printf "__version__ = '2.9.1+cu128'\ncuda: Optional[str] = '12.8'\n" >"$directory/torch/version.py"
  ln -s "$directory/torch" "$prefix/lib/trireme/torch"
  ln -s "$(dirname "$torch")/nvidia" "$prefix/lib/trireme/nvidia"
  check 2
  expect_match "the message" 'is LibTorch 2\.9\.1 \(CUDA 12\), but the programs need LibTorch 2\.11\.0 .*Type: trireme-setup torch$' "$(<"$work/out")"
  "$prefix/bin/trireme-setup" torch --from "$torch" >"$work/out" 2>&1 || broken "trireme-setup torch: $(<"$work/out")"
}

a_machine_that_fits_is_accepted() {
  check 0
  expect_match "the libraries" 'libmpi\.so\.40  /.*libtorch_cpu\.so  /' "$(<"$work/out")"
  expect_equal "the last line" 'The programs can run on this machine.' "$(tail -n1 "$work/out")"
}

an_older_c_library_is_refused() {
  change trireme-data GLIBC_2.34 GLIBC_9.34
  check 2
  expect_match "the message" '^error: The C library of this machine \(/.*/libc\.so\.6\) offers GLIBC_2\.[0-9]+, but the programs need GLIBC_9\.34\. Use an archive' "$(<"$work/out")"
  restore trireme-data
}

an_older_cpp_library_is_refused() {
  change trireme GLIBCXX_3.4.29 GLIBCXX_9.4.29
  check 2
  expect_match "the message" 'The C\+\+ library .*/libstdc\+\+\.so\.6\) offers GLIBCXX_3\.4\.[0-9]+, but the programs need GLIBCXX_9\.4\.29\. Load the module' "$(<"$work/out")"
  restore trireme
}

an_mpi_of_another_abi_is_refused() {
  change trireme libmpi.so.40 libmpi.so.77
  mkdir -p "$work/mpich/lib"
  : >"$work/mpich/lib/libmpi.so.12"
  LD_LIBRARY_PATH=$work/mpich/lib check 2
  expect_match "the message" "^error: The programs need libmpi\.so\.77, but this machine has $work/mpich/lib/libmpi\.so\.12.*\. Load the module of an MPI" "$(<"$work/out")"
  "$prefix/bin/trireme-setup" torch --from "$torch" >"$work/out" 2>&1 || broken "trireme-setup torch needs the MPI: $(<"$work/out")"
  expect_match "its note" '^note: libmpi\.so\.77 is missing\. ' "$(<"$work/out")"
  restore trireme
}

# A copy of a file can end too early, for example on a full disk.
damaged_files_are_refused() {
  cp "$prefix/bin/trireme-data" "$work/trireme-data"
  truncate -s 300000 "$prefix/bin/trireme-data"
  check 2
  expect_match "the message" '^error: bin/trireme-data does not start \(exit code [1-9][0-9]*.*Install Trireme again' "$(<"$work/out")"
  restore trireme-data
  cp "$prefix/share/trireme/libtorch" "$work/facts"
  : >"$prefix/share/trireme/libtorch"
  check 2
  expect_match "the message" '^error: .*/share/trireme/libtorch is damaged.*Install Trireme again\.$' "$(<"$work/out")"
  cp "$work/facts" "$prefix/share/trireme/libtorch"
}

wrong_calls_are_refused() {
  local rc=0
  "$prefix/bin/trireme-setup" check --user >"$work/out" 2>&1 || rc=$?
  expect_equal "exit of check --user" 2 "$rc"
  expect_match "its message" 'unknown option --user of check' "$(<"$work/out")"
  rc=0
  bin/trireme-setup check >"$work/out" 2>&1 || rc=$?
  expect_equal "exit in a checkout" 2 "$rc"
}

for scenario in a_machine_without_libtorch_is_refused a_libtorch_of_another_version_is_refused a_machine_that_fits_is_accepted an_older_c_library_is_refused \
  an_older_cpp_library_is_refused an_mpi_of_another_abi_is_refused damaged_files_are_refused wrong_calls_are_refused; do
  start=$SECONDS
  "$scenario"
  printf '%s: %d s\n' "$scenario" $((SECONDS - start))
done
finish
