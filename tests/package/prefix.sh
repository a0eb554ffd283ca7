# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # checkout, for the tests; build: the build directory, which the test sets
# Installs the build into a directory below $work, for the tests of this directory. Sourced after support/shell.sh.

checkout=$PWD
work=$(mktemp -d /tmp/trireme-package.XXXXXX)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
export HOME=$work/home
mkdir -p "$HOME"
unset TRIREME_ENV TRIREME_HOME TRIREME_ROOT TRIREME_BIN XDG_DATA_DIRS

# install_into PREFIX [copy|link|none]: installs below $work as an administrator with a strict umask and a relative name of the prefix does.
# Directories above the prefix need not exist. With link, the prefix has links to LibTorch, which saves four gigabytes of copies; with none,
# it has no LibTorch.
install_into() {
  (umask 077 && cd "$work" && TRIREME_INSTALL_LIBTORCH=${2:-link} cmake --install "$build" --prefix "${1#"$work"/}/") >"$work/install.log" 2>&1 || {
    broken "cmake --install ended with $?: $(tail -n5 "$work/install.log")"
    finish
  }
}
