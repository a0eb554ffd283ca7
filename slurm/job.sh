# shellcheck shell=bash
# shellcheck disable=SC2154  # every job script sets `here`, this directory, when it looks for this file
# Every job script sources this file and nothing else: the facts of the site, then what the scripts share.

# shellcheck source=slurm/env.sh
source "$here/env.sh"
# shellcheck source=slurm/lib.sh
source "$here/lib.sh"
