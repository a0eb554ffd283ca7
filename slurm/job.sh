# shellcheck shell=bash
# shellcheck disable=SC2154  # every job script sets `here` to this directory before it sources this file
# Every job script sources only this file: the settings of the site, then the shared functions.

# shellcheck source=slurm/lib/settings.sh
source "$here/lib/settings.sh"
read_settings
# shellcheck source=slurm/env.sh
source "$here/env.sh"
# shellcheck source=slurm/lib.sh
source "$here/lib.sh"
