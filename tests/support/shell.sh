# shellcheck shell=bash
# For tests written in bash: exit 0 passed, 1 failed, 77 skipped (CTest's SKIP_RETURN_CODE).

kSkipped=77
checks_failed=0

skip() { printf 'SKIPPED: %s\n' "$*"; exit "$kSkipped"; }
broken() { printf 'FAILED: %s\n' "$*" >&2; checks_failed=$((checks_failed + 1)); }

expect_equal() { # expect_equal WHAT WANT HAVE
  [[ $2 == "$3" ]] || broken "$1 is '$3', must be '$2'"
}

expect_match() { # expect_match WHAT REGEX HAVE
  [[ $3 =~ $2 ]] || broken "$1 is '$3', must match '$2'"
}

finish() {
  ((checks_failed == 0)) || { printf '%d checks failed\n' "$checks_failed" >&2; exit 1; }
  printf 'passed\n'
}
