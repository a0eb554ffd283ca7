#!/usr/bin/env bash
# Packs archives with bin/package. The archive of kind cuda has no LibTorch; trireme-setup gives it one. The programs of the archive of kind
# cpu run in a root directory that has only the C library, libgcc_s, libstdc++, bash and Open MPI: a data set is packed, and a model is trained, resumed
# and asked. Usage: archive_test.sh BUILD
set -euo pipefail
build=$(readlink -f "$1")
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
source tests/support/shell.sh
source tests/package/prefix.sh

wrong_options_are_refused() {
  local rc=0
  bin/package --kind rocm --output "$work" >"$work/out" 2>&1 || rc=$?
  expect_equal "exit for an unknown kind" 2 "$rc"
  expect_match "its message" '--kind rocm, must be cpu or cuda' "$(<"$work/out")"
  rc=0
  bin/package --kind cpu --output "$work/absent" >"$work/out" 2>&1 || rc=$?
  expect_equal "exit for an absent directory" 2 "$rc"
  rc=0
  bin/package --kind cpu --output "$work" --build "$work" >"$work/out" 2>&1 || rc=$?
  expect_equal "exit for a directory without programs" 2 "$rc"
  expect_match "its message" 'has no programs. Build first' "$(<"$work/out")"
}

an_archive_has_one_directory() {
  bin/package --kind cpu --output "$work" --build "$build" >"$work/out" 2>&1 || { broken "bin/package: $(<"$work/out")"; finish; }
  cat "$work/out"
  mkdir "$work/root"
  tar -C "$work/root" -xf "$work"/trireme-*-linux-x86_64-cpu.tar.zst
  expect_match "the directory of the archive" '^trireme-[0-9.]+$' "$(ls "$work/root")"
  top=$(ls "$work/root")
  expect_equal "leftovers beside the archive" '' "$(find "$work" -maxdepth 1 -name '.trireme-package*')"
  expect_match "the required versions" '^requires  GLIBC_2\.[0-9]+ GLIBCXX_3\.4\.[0-9]+ CXXABI_1\.3' "$(tail -n1 "$work/out")"
  expect_match "the file of the newest C library" '^GLIBC_2\.[0-9]+ (bin|lib)/' "$(<"$work/root/$top/share/trireme/requirements.txt")"
  expect_equal "files that name the checkout or the build" '' "$(grep -rlF -e "$checkout/" -e "$build/" -e "$work" "$work/root" || true)"
}

# Copies what the system must have into the root, and records libraries that the archive should have brought.
make_root() {
  local root=$work/root file name paths program
  mkdir -p "$root"/{bin,tmp,etc,dev,proc}
  chmod 1777 "$root/tmp"
  printf 'root:x:0:0:root:/tmp:/bin/bash\n' >"$root/etc/passwd"
  for program in "$(command -v bash)" "$root/$top/bin/trireme" "$root/$top/bin/trireme-data"; do
    while read -r file; do
      name=${file##*/}
      [[ $file != "$root"/* && ! -e $root$file ]] || continue
      [[ $program == */bash || $name =~ ^(ld-linux|lib(c|m|dl|rt|pthread|resolv|util|anl|nsl|mvec|gcc_s|stdc\+\+|mpi|open-rte|open-pal|hwloc|event|udev|pmix|z|cap))[^/]*$ ]] ||
        broken "the archive has no $name"
      mkdir -p "$root${file%/*}" && cp -L "$file" "$root$file"
    done < <(ldd "$program" | grep -oE '/\S+ \(' | tr -d ' (')
  done
  cp -L "$(command -v bash)" "$root/bin/bash"
  # The plug-ins, texts and settings of Open MPI.
  while read -r paths; do
    mkdir -p "$root$paths"
    cp -rL "$paths/." "$root$paths"
  done < <(ompi_info --all --parsable | sed -nE 's/^path:(pkglibdir|pkgdatadir|sysconfdir):(.*)/\2/p' | sort -u | while read -r file; do [[ ! -d $file ]] || printf '%s\n' "$file"; done)
  for file in $(find "$root" -path '*openmpi*' -name 'mca_*.so' -exec ldd {} + | grep -oE '=> /\S+' | cut -d' ' -f2 | sort -u); do
    [[ $file == "$root"/* || -e $root$file ]] || { mkdir -p "$root${file%/*}" && cp -L "$file" "$root$file"; }
  done
}

the_archive_runs_in_a_bare_root() {
  if ((EUID != 0)) || ! unshare --mount true 2>/dev/null || ! command -v ompi_info >/dev/null; then
    printf 'NOT TESTED: the bare root, which needs root and ompi_info\n'
    return 0
  fi
  make_root
  cat >"$work/root/commands" <<'EOF2'
set -euo pipefail
cd /tmp
tiny=(--train.device cpu --train.precision fp32 --train.seq_len 32 --train.micro_batch 1 --train.global_batch 2 --model.preset tiny)
trireme-data synth --output corpus.jsonl --documents 40 --seed 1
trireme-data tokenizer train --input corpus.jsonl --vocab-size 300 --output tok
trireme-data pack --tokenizer tok --input corpus.jsonl --seq-len 32 --output set
trireme pretrain --data set --run r --train.steps 2 "${tiny[@]}"
trireme pretrain --data set --run r --train.steps 4 "${tiny[@]}"
trireme export --checkpoint r --output hf
trireme generate --checkpoint r --prompt a --max-tokens 2 --device cpu
EOF2
  # shellcheck disable=SC2016  # expanded in the inner shell
  unshare --mount bash -c 'mount --rbind /dev "$1/dev" && mount -t proc proc "$1/proc" && exec env -i HOME=/tmp OMP_NUM_THREADS=1 \
    PATH="/$2/bin:/bin" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$3" "$1" /bin/bash /commands' - "$work/root" "$top" "$(PATH=$PATH:/usr/sbin command -v chroot)" >"$work/out" 2>&1 ||
    broken "a command failed in the bare root: $(tail -n5 "$work/out")"
  expect_match "the resumed run" 'step 4/4' "$(<"$work/out")"
  [[ -s $work/root/tmp/hf/model.safetensors ]] || broken "the export has no model.safetensors"
}

an_archive_for_gpus_has_no_libtorch() {
  local unpacked=$work/cuda torch
  torch=$(sed -nE 's/^TRIREME_TORCH_DIR:PATH=(.*)/\1/p' "$build/CMakeCache.txt")
  if [[ ! -e $torch/lib/libtorch_cuda.so ]]; then
    printf 'NOT TESTED: the archive of kind cuda, because the LibTorch of the build is for CPUs\n'
    return 0
  fi
  bin/package --kind cuda --output "$work" --build "$build" >"$work/out" 2>&1 || { broken "bin/package: $(<"$work/out")"; return 0; }
  mkdir "$unpacked"
  tar -C "$unpacked" -xf "$work"/trireme-*-linux-x86_64-cuda.tar.zst
  unpacked=$(echo "$unpacked"/trireme-*)
  expect_equal "files of LibTorch" '' "$(find "$unpacked" -name 'libtorch*.so*' -o -name 'libc10*' -o -name 'libcu*' -o -name 'libnccl*' | grep -v 'libcurl')"
  ! "$unpacked/bin/trireme" --version >"$work/out" 2>&1 || broken "trireme starts without LibTorch"
  "$unpacked/bin/trireme-setup" torch --from "$torch" >"$work/out" 2>&1 || broken "trireme-setup failed: $(<"$work/out")"
  "$unpacked/bin/trireme" --version >"$work/out" 2>&1 || broken "trireme does not start after trireme-setup: $(<"$work/out")"
}

wrong_options_are_refused
an_archive_for_gpus_has_no_libtorch
an_archive_has_one_directory
the_archive_runs_in_a_bare_root
finish
