# shellcheck shell=bash
# Reads the settings files of the job scripts, and finds the programs. Sourced before ../env.sh.

# The prefix of an installation (its scripts are in share/trireme/slurm), a checkout, or the frozen copy of a submitted job.
settings_root=$(dirname "$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")")
settings_root=${settings_root%/share/trireme}

# Prints the directory of the programs that belong to these scripts.
programs_directory() {
  if [[ -f $settings_root/bin/trireme ]]; then
    printf '%s\n' "$settings_root/bin"
  else
    printf '%s\n' "$settings_root/build/release/bin"
  fi
}

# Prints the settings files that exist, in reading order: of the site, of the user, and the file that TRIREME_ENV names.
settings_files() {
  local file
  for file in "$settings_root/etc/trireme/env.sh" "${HOME:+$HOME/.config/trireme/env.sh}"; do
    [[ ! -e $file ]] || printf '%s\n' "$file"
  done
  [[ -z ${TRIREME_ENV:-} ]] || printf '%s\n' "$TRIREME_ENV"
}

# Sources the settings files; a later file wins over an earlier one. Then restores the variables of the environment of `sbatch`, which
# wins over all files. Ends the script with 2 if a file cannot be read or has a wrong syntax.
read_settings() {
  local file name files=() given=()
  for name in $(compgen -e); do
    if [[ $name =~ ^(TRIREME|NCCL|OMPI|PMIX|UCX|SLURM|OMP)_ ]]; then given+=("$name=${!name}"); fi
  done
  mapfile -t files < <(settings_files)
  for file in "${files[@]}"; do
    if [[ ! -f $file || ! -r $file ]]; then
      printf 'error: the settings file %s cannot be read. Make it a readable file, or delete it (TRIREME_ENV=%s)\n' "$file" "${TRIREME_ENV:-}" >&2
      exit 2
    fi
    if ! bash -n "$file"; then
      printf 'error: the settings file %s has a wrong syntax; the lines above name the place\n' "$file" >&2
      exit 2
    fi
    # A line such as `[[ -d /scratch ]] && export ...` may be false, so a failed command does not end the script.
    set +eu
    # shellcheck source=/dev/null
    source "$file"
    set -eu
  done
  for name in "${given[@]}"; do export "${name?}"; done
}
