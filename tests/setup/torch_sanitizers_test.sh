#!/usr/bin/env bash
# torch_sanitizers_test.sh: the layers above LibTorch under the address and undefined-behaviour sanitizers. Builds
# build/asan-torch, which takes long: label slow. LibTorch itself is not built for them, so what happens inside it stays unseen.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."

export LSAN_OPTIONS=suppressions=$PWD/tests/support/leaks.supp:print_suppressions=0
export UBSAN_OPTIONS=print_stacktrace=1
export ASAN_OPTIONS=allocator_may_return_null=1  # tests make allocations that must fail

cmake --preset asan -B build/asan-torch >/dev/null
ninja -C build/asan-torch
ctest --test-dir build/asan-torch -L unit -R '^unit/(parallel|ops|objective|optim|model|train|serve)/' --output-on-failure --no-tests=error
