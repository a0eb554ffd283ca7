# shellcheck shell=bash
# Shared by bin/demo and bin/test: installs missing packages, configures, builds. Source it at the top of the checkout.
# Every step first checks if it has anything to do, so a second run uses no network and changes no files.

source bin/lib/packages.sh

kMinCmake=3.25
kMinGcc=12
kTorchRelease=2.11
may_install=1  # --no-install sets 0
PATH=$PATH:/usr/sbin:/sbin  # slurmctld, ip
export PATH

say() { printf 'setup: %s\n' "$*"; }
die() { # die CODE MESSAGE...
  local code=$1
  shift
  printf 'error: %s\n' "$@" >&2
  exit "$code"
}

# CMake options -DNAME=VALUE; TRIREME_*_ROOT are exported, because the probes read them, too.
cmake_defines=()
add_define() {
  local name=${1#-D}
  cmake_defines+=("$1")
  if [[ $name == TRIREME_*_ROOT=* ]]; then
    export "${name?}"
  fi
}

# --- what is missing ---------------------------------------------------------------------------------------------

has_header() { # has_header FILE [PREFIX]
  local dir dirs=(/usr/include /usr/local/include /usr/include/hdf5/serial)
  local IFS=':;'
  for dir in ${2:-} ${CMAKE_PREFIX_PATH:-}; do dirs+=("$dir/include"); done
  for dir in ${CPATH:-} ${C_INCLUDE_PATH:-} ${CPLUS_INCLUDE_PATH:-}; do dirs+=("$dir"); done
  for dir in "${dirs[@]}"; do
    [[ -n $dir && -e $dir/$1 ]] && return 0
  done
  return 1
}

has_package() { # has_package NAME|NAME: true if any of them is installed
  local name
  for name in ${1//|/ }; do
    [[ $(dpkg-query -W -f='${db:Status-Abbrev}' "$name" 2>/dev/null) == ii* ]] && return 0
  done
  return 1
}

probe() { # probe KIND:WHAT [PREFIX]
  local kind=${1%%:*} what=${1#*:} prefix=${2:-}
  case $kind in
    cmd) [[ -n $prefix && -x $prefix/bin/$what ]] || command -v "$what" >/dev/null ;;
    hdr) has_header "$what" "$prefix" ;;
    mod) python3 -c "import $what" 2>/dev/null ;;
    pkg) has_package "$what" ;;
    *) die 1 "unknown probe $1 in bin/lib/packages.sh" ;;
  esac
}

missing_rows() { # prints the rows with a probe that fails
  local row package test root
  for row in "$@"; do
    read -r package test root <<<"$row"
    [[ -n $root ]] && root=${!root:-}
    probe "$test" "$root" || printf '%s\n' "$row"
  done
}

# --- system packages ---------------------------------------------------------------------------------------------

as_root() {
  if ((EUID == 0)); then "$@"; else sudo -n "$@"; fi
}

can_install() {
  command -v apt-get >/dev/null && { ((EUID == 0)) || sudo -n true 2>/dev/null; }
}

apt_install() { # apt_install ROW...: writes its output to the log only
  local row package name names=()
  mkdir -p build
  say "apt-get update"
  as_root apt-get -o DPkg::Lock::Timeout=300 -qq update >>build/apt.log 2>&1 || say "apt-get update failed, see build/apt.log"
  for row in "$@"; do
    package=${row%%[[:space:]]*}
    for name in ${package//|/ }; do  # use the first name that exists in this release
      if apt-cache show "$name" >/dev/null 2>&1; then
        names+=("$name")
        break
      fi
    done
  done
  ((${#names[@]})) || return 1
  say "apt-get install ${names[*]}"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -y --no-install-recommends \
    install "${names[@]}" >>build/apt.log 2>&1
}

explain_missing() { # explain_missing ROW...
  local row package test root
  {
    printf 'error: missing on this machine:\n'
    for row in "$@"; do
      read -r package test root <<<"$row"
      printf '  %-22s (looked for %s)%s\n' "${package%%|*}" "${test#*:}" "${root:+, or a prefix in $root}"
    done
    printf 'With root:    apt-get install'
    for row in "$@"; do
      package=${row%%[[:space:]]*}
      printf ' %s' "${package%%|*}"
    done
    printf '\nWithout root: load the modules of your site, or give prefixes in CMAKE_PREFIX_PATH or as -DTRIREME_{MPI,HDF5,TORCH,CUDA,NCCL}_ROOT=DIR\n'
    printf '              (docs/install.md, "Without root").\n'
  } >&2
  exit 4
}

version_at_least() { # version_at_least HAVE WANT
  [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n1) == "$2" ]]
}

check_tools() {
  local version cxx=${CXX:-c++}
  version=$(cmake --version | sed -n '1s/[^0-9]*//p')
  version_at_least "$version" "$kMinCmake" ||
    die 4 "cmake is $version, must be $kMinCmake or newer: load a newer module, or: python3 -m pip install --user cmake"
  if ! "$cxx" --version | grep -qi clang; then
    version=$("$cxx" -dumpfullversion)
    version_at_least "$version" "$kMinGcc" ||
      die 4 "$cxx is GCC $version, must be $kMinGcc or newer: load a newer module or set CXX"
  fi
}

install_system() { # install_system tests|demo
  local required wanted=("${kBuildPackages[@]}") extras=("${kBuildExtras[@]}") optional
  [[ -n ${TRIREME_TORCH_ROOT:-} ]] || wheel_installed "$kTorchWheel" || wanted+=("${kPythonPackages[@]}")
  [[ $1 == tests ]] && extras+=("${kTestExtras[@]}")
  mapfile -t required < <(missing_rows "${wanted[@]}")
  mapfile -t optional < <(missing_rows "${extras[@]}")
  if ((${#required[@]} + ${#optional[@]})) && ((may_install)) && can_install; then
    apt_install "${required[@]}" "${optional[@]}" || { ((${#required[@]})) && apt_install "${required[@]}"; } ||
      say "apt-get install failed: $(tail -n1 build/apt.log)"
    mapfile -t required < <(missing_rows "${wanted[@]}")
    mapfile -t optional < <(missing_rows "${extras[@]}")
  fi
  ((${#required[@]} == 0)) || explain_missing "${required[@]}"
  local row
  for row in "${optional[@]}"; do
    say "without ${row%%[[:space:]|]*}: tests that need it are skipped"
  done
  check_tools
}

# --- LibTorch and the Python packages of the tests ---------------------------------------------------------------

kPython=.deps/python

wheel_installed() { # wheel_installed NAME==VERSION; checks RECORD, which pip writes last
  local record name=${1%%==*}
  for record in "$kPython"/lib/python3*/site-packages/"${name//-/_}-${1##*==}"*.dist-info/RECORD; do
    [[ -e $record ]] && return 0
  done
  return 1
}

pip_install() {
  if [[ ! -x $kPython/bin/python ]]; then
    say "python environment $kPython"
    python3 -m venv "$kPython" >>build/pip.log 2>&1 || return 1
  fi
  say "pip install $*"
  "$kPython/bin/python" -m pip --disable-pip-version-check install --no-input "${kPipIndex[@]}" "$@" >>build/pip.log 2>&1
}

# Prints the directory of torch 2.11 in the site's python3 (a module, for example); fails if there is none.
site_torch() {
  python3 - 2>/dev/null <<'PYTHON'
import importlib.metadata, importlib.util, os, sys
if not importlib.metadata.version("torch").startswith("2.11."):
    sys.exit(1)
print(os.path.dirname(importlib.util.find_spec("torch").origin))
PYTHON
}

install_torch() {
  local free_kib folder release wheel wanted=()
  mkdir -p build .deps
  if [[ -n ${TRIREME_TORCH_ROOT:-} ]]; then
    [[ -e $TRIREME_TORCH_ROOT/include/torch/csrc/api/include/torch/torch.h ]] ||
      die 4 "TRIREME_TORCH_ROOT = $TRIREME_TORCH_ROOT contains no include/torch/csrc/api/include/torch/torch.h: give the torch directory of a wheel or an unpacked LibTorch"
    release=$(sed -nE 's/^#define TORCH_VERSION_(MAJOR|MINOR) ([0-9]+).*/\2/p' "$TRIREME_TORCH_ROOT/include/torch/headeronly/version.h" 2>/dev/null | paste -sd. || true)
    [[ $release == "$kTorchRelease" ]] ||
      die 2 "TRIREME_TORCH_ROOT = $TRIREME_TORCH_ROOT is LibTorch ${release:-of an unknown version}, must be $kTorchRelease: name another directory, or unset the variable to let pip install $kTorchWheel"
    return
  fi
  for wheel in "$kTorchWheel" "${kCudaHeaderWheels[@]}"; do
    wheel_installed "$wheel" || wanted+=("$wheel")
  done
  ((${#wanted[@]})) || return 0
  if [[ ${wanted[0]} == "$kTorchWheel" ]]; then
    if folder=$(site_torch); then
      say "LibTorch of the site's python3: $folder"
      export TRIREME_TORCH_ROOT=$folder
      return
    fi
    ((may_install)) || die 4 "LibTorch 2.11 is missing (no $kTorchWheel in $kPython, no TRIREME_TORCH_ROOT) and --no-install was given"
    free_kib=$(df -Pk .deps | awk 'NR == 2 {print $4}')
    ((free_kib > 9000000)) || die 4 "$((free_kib / 1048576)) GiB free under .deps, $kTorchWheel and its libraries need 9: make room, or set TRIREME_TORCH_ROOT"
  elif ((!may_install)); then
    return 0  # a CUDA toolkit may have these headers; without them the build has no CUDA or no NCCL, and prints that
  fi
  pip_install "${wanted[@]}" ||
    die 4 "could not install ${wanted[*]}: $(grep -a '^ERROR' build/pip.log | tail -n1) (all of it: build/pip.log)" \
      "offline: carry the wheels in and set PIP_NO_INDEX=1 PIP_FIND_LINKS=DIR, or set TRIREME_TORCH_ROOT (docs/install.md, \"Without root\")"
}

install_test_wheels() {
  local wheel wanted=()
  for wheel in "${kTestWheels[@]}"; do
    wheel_installed "$wheel" || wanted+=("$wheel")
  done
  ((${#wanted[@]})) || return 0
  if ((!may_install)) || ! pip_install "${wanted[@]}"; then
    say "without ${wanted[*]}: comparisons with them are skipped"
  fi
}

# --- build -------------------------------------------------------------------------------------------------------

# Prints the number of compile jobs: a file that includes torch needs about 2 GiB.
build_jobs() {
  local cores gib
  cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)  # these variables are meant for ranks, not for compilers
  gib=$(awk '/^MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
  local jobs=$((gib / 2 < cores ? gib / 2 : cores))
  printf '%s\n' "$((jobs > 0 ? jobs : 1))"
}

failed_build() { # failed_build LOG
  {
    printf 'error: the build failed; first errors of %s:\n' "$1"
    grep -a -n -m 12 -E '(error|Error)[: ]|FAILED:|undefined reference|No such file|not found' "$1" || tail -n 20 "$1"
  } >&2
  return 1
}

build_targets=()  # empty: all targets

# Prints the missing packages of optional tests, one per line. CMake registers tests according to the packages that it finds.
lacking_for_tests() {
  local wheel
  missing_rows "${kTestExtras[@]}"
  for wheel in "${kTestWheels[@]}"; do wheel_installed "$wheel" || printf '%s\n' "$wheel"; done
}

# build_preset PRESET [CMAKE_ARGUMENT...]: builds build_targets in build/PRESET; the whole output goes to build/PRESET.log
build_preset() {
  local preset=$1 name jobs
  shift
  local dir=build/$preset log=build/$preset.log arguments=("$@" "${cmake_defines[@]}")
  for name in TORCH CUDA NCCL MPI HDF5 ARROW; do
    name=TRIREME_${name}_ROOT
    [[ -n ${!name:-} ]] && arguments+=("-D$name=${!name}")
  done
  mkdir -p build
  local configured_with
  configured_with="${arguments[*]} ${CXX:-} without: $(lacking_for_tests | tr -s ' \n' ' ')"
  if [[ ! -e $dir/build.ninja || $(cat "$dir/configured_with" 2>/dev/null) != "$configured_with" ]]; then
    say "configure $dir"
    cmake --preset "$preset" --fresh "${arguments[@]}" >"$log" 2>&1 || { failed_build "$log"; return 1; }
    printf '%s\n' "$configured_with" >"$dir/configured_with"
  fi
  jobs=$(build_jobs)
  local start=$SECONDS
  # print one line per 10 % of the build
  if ! NINJA_STATUS='[%f/%t] ' nice -n 5 ninja -C "$dir" -j "$jobs" "${build_targets[@]}" 2>&1 | tee "$log" |
    awk -v dir="$dir" 'match($0, /^\[[0-9]+\/[0-9]+\]/) {
        split(substr($0, 2, RLENGTH - 2), n, "/")
        tenth = int(10 * n[1] / n[2])
        if (n[2] > 20 && tenth > last) { last = tenth; printf "setup: %s %d of %d\n", dir, n[1], n[2]; fflush() }
      }'; then
    failed_build "$log"
    return 1
  fi
  grep -q 'ninja: no work to do' "$log" || say "built $dir in $((SECONDS - start)) s"
}
