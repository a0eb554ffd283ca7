#!/usr/bin/env bash
# Tests that every shell script of the project passes shellcheck and stops at the first error.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
source tests/support/shell.sh
command -v shellcheck >/dev/null || skip "shellcheck is not installed (apt-get install shellcheck)"

mapfile -t scripts < <(
  find bin slurm tests .ci -type f \( -name '*.sh' -o -name '*.sbatch' \) | sort
  find bin .ci -maxdepth 1 -type f -exec grep -l '^#!.*bash' {} + | grep -v '\.sh$' | sort
)
((${#scripts[@]} > 10)) || broken "only ${#scripts[@]} scripts found"
for script in "${scripts[@]}"; do
  shellcheck -x "$script" || broken "shellcheck $script"
  if head -n1 "$script" | grep -q '^#!' && ! grep -q '^set -euo pipefail' "$script"; then
    broken "$script has no 'set -euo pipefail'"
  fi
done
finish
