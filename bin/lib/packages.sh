# shellcheck shell=bash
# shellcheck disable=SC2034  # read by setup.sh
# What the project needs: the one list. Sourced by bin/lib/setup.sh.
#
# A row: PACKAGE[|NAME_ON_ANOTHER_RELEASE] PROBE [ROOT_VARIABLE]
# Package names are those of Debian 12 and Ubuntu 24.04. A row whose probe succeeds needs no package, so
# site modules, hand-made prefixes and other distributions count as well.
#   cmd:NAME   a program in PATH        hdr:FILE  a header in the usual folders, CPATH, CMAKE_PREFIX_PATH
#   mod:NAME   a module of python3      pkg:NAME  dpkg says it is installed
# ROOT_VARIABLE, when set to a prefix, is searched too (docs/install.md, "Without root").

kBuildPackages=(
  "g++                cmd:c++"
  "cmake              cmd:cmake"
  "ninja-build        cmd:ninja"
  "git                cmd:git"
  "libopenmpi-dev     cmd:mpicxx                 TRIREME_MPI_ROOT"
  "openmpi-bin        cmd:mpirun                 TRIREME_MPI_ROOT"
  "libhdf5-dev        hdr:hdf5.h                 TRIREME_HDF5_ROOT"
  "libcli11-dev       hdr:CLI/CLI.hpp"
  "libspdlog-dev      hdr:spdlog/spdlog.h"
  "libtomlplusplus-dev hdr:toml++/toml.h"
  "nlohmann-json3-dev hdr:nlohmann/json.hpp"
  "libsimdjson-dev    hdr:simdjson.h"
  "libxxhash-dev      hdr:xxhash.h"
  "libssl-dev         hdr:openssl/evp.h"
  "libzstd-dev        hdr:zstd.h"
  "zlib1g-dev         hdr:zlib.h"
  "libboost-dev       hdr:boost/beast/http.hpp"
  "libgtest-dev       hdr:gtest/gtest.h"
)

# Needed to install LibTorch with pip; not where it is there already.
kPythonPackages=("python3-venv mod:ensurepip")

# Nice to have: without them the build is slower, chats are typed without editing, or the tests that need them are skipped (and say so).
kBuildExtras=(
  "ccache             cmd:ccache"
  "libedit-dev        hdr:histedit.h"
)
kTestExtras=(
  "shellcheck         cmd:shellcheck"
  "slurmctld          cmd:slurmctld"
  "slurmd             cmd:slurmd"
  "slurm-client       cmd:srun"
  "slurm-wlm-basic-plugins pkg:slurm-wlm-basic-plugins"  # holds mpi_pmix, which loads libpmix at run time
  "libpmix2|libpmix2t64 pkg:libpmix2|libpmix2t64"
  "zstd               cmd:zstd"  # tests/gpu/check bundle
  "munge              cmd:munged"
  "iproute2           cmd:ip"
)

# Python packages of the private environment .deps/python. The first is LibTorch, NCCL and the CUDA runtime; the
# others are oracles that tests compare with. Nothing of ours runs on Python.
# TRIREME_CUDA: 13 for drivers from 580 on, 12 for those from 525 on (docs.nvidia.com/deploy/cuda-compatibility).
kPipIndex=()
case ${TRIREME_CUDA:-13} in
  13)
    kTorchWheel="torch==2.11.0"
    # Headers (crt/) that those of the CUDA runtime include; since CUDA 13 its wheel leaves them to this one.
    kCudaHeadersWheel="nvidia-cuda-crt==13.0.88" ;;
  12)
    kTorchWheel="torch==2.11.0+cu126"
    kCudaHeadersWheel="nvidia-cuda-nvcc-cu12==12.6.85"  # the same headers
    kPipIndex=(--extra-index-url https://download.pytorch.org/whl/cu126) ;;
  *) printf 'error: TRIREME_CUDA=%s, must be 12 or 13\n' "$TRIREME_CUDA" >&2; exit 2 ;;
esac
kTestWheels=("numpy==2.4.6" "transformers==5.23.0" "safetensors==0.8.0" "jinja2==3.1.6" "peft==0.21.2")
