#!/usr/bin/env bash
# Installs into a prefix, moves the prefix, makes it read-only, and runs the programs and the job scripts from there as another user.
# Usage: install_test.sh BUILD [copy|link]
set -euo pipefail
build=$(readlink -f "$1") libtorch=${2:-link}
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
source tests/support/shell.sh
source tests/package/prefix.sh

first="$work/apps/first"
prefix="$work/a moved prefix"

the_prefix_has_gnu_directories() {
  local file version
  install_into "$first" "$libtorch"
  expect_equal "mode of a new directory above the prefix" 755 "$(stat -c %a "$work/apps")"
  version=$("$first/bin/trireme" --version --json | sed -nE 's/.*"version":"([^"]*)".*/\1/p')
  for file in bin/trireme bin/trireme-data share/trireme/slurm/pretrain_a100.sbatch share/trireme/slurm/configs/pretrain_1024.toml \
    share/trireme/configs/pretrain_1024.toml share/trireme/monitoring/alerts.yml "share/trireme/modulefiles/trireme/$version.lua" \
    "share/trireme/modulefiles/trireme/$version" share/man/man1/trireme-pretrain.1 share/man/man1/trireme-data-pack.1 \
    share/bash-completion/completions/trireme share/zsh/site-functions/_trireme-data share/fish/vendor_completions.d/trireme.fish \
    share/doc/trireme/docs/install.md lib/trireme/torch/lib/libtorch_cpu.so; do
    [[ -s $first/$file ]] || broken "there is no $file in the prefix"
  done
  expect_equal "commit" "$(<"$build/revision")" "$("$first/bin/trireme" --version --json | sed -nE 's/.*"commit":"([^"]*)".*/\1/p')"
  expect_match "the keys of the versions" '"compiler":"g\+\+ .*"libtorch":"2.*"mpi":".*"hdf5":"1.*"nccl":.*"cpu_kernels":\["generic"' \
    "$("$first/bin/trireme" --version --json)"
}

# A build of Debian 12 must run with the C library and the libstdc++ of RHEL 9. Newer systems and compilers may need newer versions.
the_programs_need_no_new_system() {
  local program newest
  if [[ $(printf '%s\n' 2.36 "$(getconf GNU_LIBC_VERSION | cut -d' ' -f2)" | sort -V | tail -n1) != 2.36 ]] || (($(c++ -dumpversion | cut -d. -f1) > 12)); then
    printf 'NOT TESTED: the required versions, because this system is newer than Debian 12\n'
    return 0
  fi
  for program in "$first/bin/trireme" "$first/bin/trireme-data" "$first"/lib/trireme/*.so*; do
    for newest in GLIBC_2.34 GLIBCXX_3.4.29 CXXABI_1.3.13; do
      expect_equal "the newest ${newest%%_*} of ${program##*/}" "$newest" \
        "$({ printf '%s\n' "$newest"; objdump -T "$program" | sed -nE "s/.*\*UND\*.*\((${newest%%_*}_[0-9.]+)\).*/\1/p"; } | sort -V | tail -n1)"
    done
  done
}

# A link to LibTorch is the only reference to other directories, and only if the user asked for links.
nothing_refers_to_the_checkout() {
  local places=(-e "$checkout/" -e "$build/") found
  found=$(grep -rlF "${places[@]}" "$first" || true)
  expect_equal "files that name the checkout or the build" '' "$found"
  found=$(grep -rlF -e "$first" "$first" | sed "s|^$first/||" | grep -v '^share/trireme/modulefiles/' || true)
  expect_equal "files that name the prefix, without the modules" '' "$found"
  found=$(find "$first" -type l ! -path '*/slurm/configs' | sed "s|^$first/lib/trireme/||" | sort | xargs)
  if [[ $libtorch == copy ]]; then expect_equal "links" '' "$found"; else expect_match "links" '^(nvidia )?torch$' "$found"; fi
}

the_pages_have_no_dead_links() {
  local page link target dead=
  while IFS=: read -r page link; do
    target=${link%%#*}
    [[ -z $target || -e $(dirname "$page")/$target ]] || dead+="${page#"$first/"}: $link"$'\n'
  done < <(grep -roE '\]\([^)#:]+[^):]*\)' "$first/share/doc/trireme" --include='*.md' | sed -E 's/\]\((.*)\)$/\1/')
  expect_equal "links to files that are not in the prefix" '' "$dead"
}

# Prints the libraries that the loader finds for a program, without those of the C library, the compiler and the MPI.
outside_libraries() {
  ldd "$1" | sed -nE 's/^\t(\S+) => (.*) \(0x.*/\1 \2/p; s/^\t(\S+) => not found/\1 not found/p' |
    grep -vE '^lib(c|m|dl|rt|pthread|resolv|util|anl|nsl|mvec|gcc_s|stdc\+\+|mpi|open-rte|open-pal|hwloc|event\S*|udev|pmix)\.' |
    grep -vF " $2/" || true
}

the_prefix_can_be_moved() {
  local program run tiny=(--train.device cpu --train.precision fp32 --train.seq_len 32 --train.micro_batch 1 --train.global_batch 2 --model.preset tiny)
  mv "$first" "$prefix"
  mkdir "$first"  # an old prefix must not serve as a source of libraries
  for program in trireme trireme-data; do
    # The links of this test lead to the wheel, which the loader names by the link.
    expect_equal "libraries of $program outside the prefix" '' "$(outside_libraries "$prefix/bin/$program" "$prefix" | grep -v "^libudev" || true)"
    # shellcheck disable=SC2016  # the text of the search path
    expect_match "search path of $program" 'RPATH.*\[\$ORIGIN/\.\./lib/trireme:' "$(readelf -d "$prefix/bin/$program")"
  done
  chmod -R a-w "$prefix"
  run="$work/run of a user"
  mkdir "$run" && cd "$run"
  if ((EUID == 0)); then
    chmod 755 "$work" && chown 65534 "$run" "$HOME"
    as_user=(setpriv --reuid 65534 --regid 65534 --clear-groups)
  else
    as_user=()
  fi
  {
    "${as_user[@]}" "$prefix/bin/trireme-data" synth --output corpus.jsonl --documents 40 --seed 1 &&
      "${as_user[@]}" "$prefix/bin/trireme-data" tokenizer train --input corpus.jsonl --vocab-size 300 --output tok &&
      "${as_user[@]}" "$prefix/bin/trireme-data" pack --tokenizer tok --input corpus.jsonl --seq-len 32 --output set &&
      "${as_user[@]}" "$prefix/bin/trireme" pretrain --data set --run r --train.steps 2 "${tiny[@]}" &&
      "${as_user[@]}" "$prefix/bin/trireme" generate --checkpoint r --prompt a --max-tokens 2 --device cpu
  } >out 2>&1 || broken "a command of the moved prefix failed: $(tail -n5 out)"
  cd "$checkout"
}

# Slurm copies a script alone into its spool directory and keeps the path of the original as the job's Command.
job_scripts_run_from_the_prefix() {
  local line script=$prefix/share/trireme/slurm/pretrain_a100.sbatch quoted
  printf -v quoted %q "$prefix"
  line=$(DRY_RUN=1 "$script" --data d)
  expect_equal "the program of a script" yes "$([[ $line == *" $quoted/bin/trireme pretrain --data d "* ]] && printf yes || printf '%s' "$line")"
  mkdir -p "$work/path" "$work/spool"
  printf '#!/bin/sh\necho "JobId=7 JobName=x Command=%s --data d"\n' "$script" >"$work/path/scontrol"
  chmod +x "$work/path/scontrol"
  cp "$script" "$work/spool/slurm_script"
  line=$(cd "$work/spool" && PATH=$work/path:$PATH DRY_RUN=1 SLURM_JOB_ID=7 bash ./slurm_script --data d)
  expect_equal "the program of a job" yes "$([[ $line == *" $quoted/bin/trireme pretrain --data d "* ]] && printf yes || printf '%s' "$line")"
  line=$(cd "$work" && PATH=$work/path:$PATH DRY_RUN=1 "$prefix/share/trireme/slurm/debug.sh" -- x)
  expect_match "an interactive command" '^srun --mpi=pmix .* x $' "$line"
}

# settings SETTING: prints the value of --mpi and the option that the site's file adds.
mpi_of_job() { DRY_RUN=1 "$prefix/share/trireme/slurm/pretrain_a100.sbatch" --data d | sed -E 's/.*--mpi=(\S+) .*/\1/'; }

settings_are_read_in_order() {
  local rc=0 out
  expect_match "doctor without files" 'settings of job scripts: no file' "$("$prefix/bin/trireme" doctor 2>&1 || true)"
  chmod u+w "$prefix" && mkdir -p "$prefix/etc/trireme" "$HOME/.config/trireme"
  printf 'TRIREME_MPI=pmix_site\nTRIREME_LAUNCH=site\n' >"$prefix/etc/trireme/env.sh"
  expect_equal "MPI of the site" pmix_site "$(mpi_of_job)"
  printf 'TRIREME_MPI=pmix_user\n' >"$HOME/.config/trireme/env.sh"
  expect_equal "MPI of the user" pmix_user "$(mpi_of_job)"
  expect_match "other settings of the site" ' site .*/bin/trireme pretrain ' "$(DRY_RUN=1 "$prefix/share/trireme/slurm/pretrain_a100.sbatch" --data d)"
  printf 'TRIREME_MPI=pmix_named\n' >"$work/named.sh"
  export TRIREME_ENV=$work/named.sh
  expect_equal "MPI of TRIREME_ENV" pmix_named "$(mpi_of_job)"
  expect_equal "MPI of the environment" pmix_env "$(TRIREME_MPI=pmix_env mpi_of_job)"
  # The scripts and doctor must name the same files in the same order.
  out=$(bash -c 'source "$1/share/trireme/slurm/lib/settings.sh"; settings_files' - "$prefix")
  expect_equal "files of the scripts" "$prefix/etc/trireme/env.sh
$HOME/.config/trireme/env.sh
$TRIREME_ENV" "$out"
  expect_equal "files of doctor" "$out" "$("$prefix/bin/trireme" doctor 2>/dev/null | sed -nE 's/^  settings of job scripts: (.*) \([^(]*\)$/\1/p' || true)"
  expect_match "doctor's JSON" '"settings":\[\{"file":"[^"]*/etc/trireme/env.sh","source":"site"\}' "$("$prefix/bin/trireme" doctor --json 2>/dev/null || true)"
  export TRIREME_ENV=$work/absent.sh
  DRY_RUN=1 "$prefix/share/trireme/slurm/pretrain_a100.sbatch" --data d >"$work/out" 2>&1 || rc=$?
  expect_equal "exit with an absent file" 2 "$rc"
  expect_match "its message" "the settings file $work/absent.sh cannot be read" "$(<"$work/out")"
  expect_match "doctor's finding" "absent.sh .* cannot be read.*settings-unreadable" "$("$prefix/bin/trireme" doctor 2>&1 || true)"
  unset TRIREME_ENV
  rm -r "${prefix:?}/etc"
}

# Prints what a modulefile does, with programs that have the commands of the module systems.
tcl_module() { # tcl_module FILE
  tclsh /dev/stdin "$1" <<'EOF2'
foreach name {module-whatis conflict} { proc $name args {} }
foreach name {setenv prepend-path append-path} { proc $name {variable value} "puts \"$name \$variable \$value\"" }
set ModulesCurrentModulefile [lindex $argv 0]
source $ModulesCurrentModulefile
EOF2
}

lua_module() { # lua_module FILE
  "$lua" - "$1" <<'EOF2'
local file = arg[1]
function pathJoin(a, b) return a .. "/" .. b end
function isFile(path) local handle = io.open(path); if handle then handle:close() end; return handle ~= nil end
function myFileName() return file end
for _, name in ipairs({"help", "whatis", "conflict"}) do _G[name] = function() end end
for name, tcl in pairs({setenv = "setenv", prepend_path = "prepend-path", append_path = "append-path"}) do
  _G[name] = function(variable, value) print(tcl .. " " .. variable .. " " .. value) end
end
dofile(file)
EOF2
}

# A modulefile finds the moved prefix. A copy of it in the tree of a site names the prefix of the installation.
modules_name_the_prefix() {
  local kind version modules want lua=
  version=$("$prefix/bin/trireme" --version --json | sed -nE 's/.*"version":"([^"]*)".*/\1/p')
  modules=$prefix/share/trireme/modulefiles/trireme
  for lua in lua5.4 lua5.3 lua luajit ''; do if command -v "$lua" >/dev/null; then break; fi; done
  mkdir -p "$work/modulefiles"
  for kind in tcl lua; do
    local file=$modules/$version
    if [[ $kind == lua ]]; then file+=.lua; fi
    command -v "$([[ $kind == lua ]] && printf '%s' "${lua:-lua}" || printf tclsh)" >/dev/null || { printf 'NOT TESTED: the %s module\n' "$kind"; continue; }
    want="setenv TRIREME_ROOT $prefix
prepend-path PATH $prefix/bin
prepend-path MANPATH $prefix/share/man
append-path MANPATH 
append-path XDG_DATA_DIRS /usr/local/share:/usr/share
prepend-path XDG_DATA_DIRS $prefix/share"
    expect_equal "the $kind module without HOME" "$want" "$(unset HOME; "${kind}_module" "$file" 2>&1)"
    cp "$file" "$work/modulefiles/"
    expect_equal "a copy of the $kind module" "${want//"$prefix"/"$first"}" "$("${kind}_module" "$work/modulefiles/${file##*/}")"
  done
}

manual_pages_render_without_warnings() {
  local page
  command -v man >/dev/null || { printf 'NOT TESTED: manual pages, because there is no man\n'; return 0; }
  for page in "$prefix"/share/man/man1/*.1; do
    expect_equal "warnings of ${page##*/}" '' "$(man --warnings -E UTF-8 -l "$page" 2>&1 >/dev/null)"
  done
  page=$(MANPATH=$prefix/share/man man trireme-pretrain | col -b)
  for section in NAME SYNOPSIS DESCRIPTION OPTIONS 'CONFIGURATION KEYS' FILES ENVIRONMENT 'EXIT STATUS' EXAMPLES; do
    grep -qx "$section" <<<"$page" || broken "the page of trireme-pretrain has no section $section"
  done
  grep -qF -- '--optim.lr NUMBER' <<<"$page" || broken "the page of trireme-pretrain has no key optim.lr"
}

a_bad_prefix_is_one_message() {
  refused() { # refused DIRECTORY [COMMAND...]: the command installs into the directory
    local rc=0
    "${@:2}" cmake --install "$build" --prefix "$1" >"$work/out" 2>&1 || rc=$?
    expect_equal "exit for the prefix $1" 1 "$rc"
    expect_equal "messages" 1 "$(grep -ciE '^(CMake Error|error:)' "$work/out")"
  }
  : >"$work/file"
  refused "$work/file/prefix"
  expect_match "the message" "The prefix $work/file/prefix is not writable: $work/file is not a directory, or .* Choose another --prefix" "$(xargs <"$work/out")"
  refused "$work/other" env TRIREME_INSTALL_LIBTORCH=move
  expect_match "its message" 'TRIREME_INSTALL_LIBTORCH is move. It must be copy \(default\), cpu, link or none' "$(xargs <"$work/out")"
  mkdir -m 700 "$work/private"
  if ((EUID == 0)); then
    chmod 755 "$work"
    refused "$work/private/a prefix" setpriv --reuid 65534 --regid 65534 --clear-groups
    expect_match "its message" "is not writable: $work/private is not" "$(xargs <"$work/out")"
  fi
  # Only share belongs to somebody else.
  mkdir -p "$work/shared/share"
  if ((EUID == 0)); then
    chmod 777 "$work/shared" && chmod 755 "$work/shared/share"
    refused "$work/shared" setpriv --reuid 65534 --regid 65534 --clear-groups
  else
    chmod a-w "$work/shared/share"
    refused "$work/shared"
  fi
  expect_match "its message" "The prefix $work/shared is not writable: $work/shared/share is not" "$(xargs <"$work/out")"
  expect_equal "files in that prefix" "$work/shared/share" "$(find "$work/shared" -mindepth 1)"
}

the_manifest_names_all_files() {
  chmod -R u+w "$prefix"
  (cd "$prefix" && xargs -d '\n' rm -f -- <share/trireme/manifest.txt)
  expect_equal "files after the removal of all in the manifest" '' "$(find "$prefix" ! -type d)"
}

for scenario in the_prefix_has_gnu_directories the_programs_need_no_new_system nothing_refers_to_the_checkout the_pages_have_no_dead_links the_prefix_can_be_moved \
  job_scripts_run_from_the_prefix settings_are_read_in_order modules_name_the_prefix manual_pages_render_without_warnings a_bad_prefix_is_one_message the_manifest_names_all_files; do
  start=$SECONDS
  "$scenario"
  printf '%s: %d s\n' "$scenario" $((SECONDS - start))
done
finish
