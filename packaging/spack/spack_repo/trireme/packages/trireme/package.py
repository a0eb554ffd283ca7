# Builds Trireme with Spack 1.0 or newer. `packaging/README.md` tells how to use this file.

import glob
import os

from spack_repo.builtin.build_systems.cmake import CMakePackage, generator

from spack.package import *


class Trireme(CMakePackage):
    """Trireme trains language models on Slurm clusters: data preparation, pretraining, fine-tuning,
    preference learning, checkpoints, evaluation and serving, without Python at run time."""

    # Replace both addresses with those of your copy of the repository.
    homepage = "https://example.org/trireme"
    git = "https://example.org/trireme.git"

    version("main", branch="main")

    variant("cuda", default=False, description="Train on GPUs, with NCCL between them")
    variant("tests", default=False, description="Build the tests, for spack install --test=root")

    generator("ninja")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")

    depends_on("openmpi@4.1:")
    depends_on("hdf5@1.10:~mpi")
    depends_on("py-torch@2.11 ~cuda", when="~cuda")
    depends_on("py-torch@2.11 +cuda+nccl", when="+cuda")
    depends_on("cuda@12.6:", when="+cuda")
    depends_on("nccl", when="+cuda")

    depends_on("boost")
    depends_on("cli11")
    depends_on("libedit")
    depends_on("nlohmann-json")
    depends_on("openssl@3:")
    depends_on("simdjson+shared")
    depends_on("spdlog")
    depends_on("tomlplusplus")
    depends_on("xxhash")
    depends_on("zlib-api")
    depends_on("zstd libs=shared")
    depends_on("googletest", type="build", when="+tests")

    conflicts("%gcc@:11", msg="Trireme needs g++ 12 or newer.")
    requires("platform=linux", msg="Trireme runs on Linux.")

    def setup_build_environment(self, env):
        # The prefix contains links to the libraries of py-torch. Delete this line to copy them.
        env.set("TRIREME_INSTALL_LIBTORCH", "link")

    def cmake_args(self):
        torch = os.path.dirname(os.path.dirname(self["py-torch"].cmake_prefix_paths[0]))
        if not os.path.isdir(torch):  # the Python of Debian names another directory than that of an external wheel
            found = glob.glob(join_path(self.spec["py-torch"].prefix, "lib*", "python3*", "*-packages", "torch"))
            torch = found[0] if found else torch
        args = [
            self.define("TRIREME_TORCH_ROOT", torch),
            self.define("TRIREME_MPI_ROOT", self.spec["openmpi"].prefix),
            self.define("TRIREME_HDF5_ROOT", self.spec["hdf5"].prefix),
            self.define("TRIREME_PARQUET", "off"),
            self.define_from_variant("TRIREME_BUILD_TESTS", "tests"),
            self.define_from_variant("TRIREME_WITH_NCCL", "cuda"),
        ]
        if self.spec.satisfies("+cuda"):
            args.append(self.define("TRIREME_CUDA_ROOT", self.spec["cuda"].prefix))
            args.append(self.define("TRIREME_NCCL_ROOT", self.spec["nccl"].prefix))
        return args

    def check(self):
        if self.spec.satisfies("+tests"):
            with working_dir(self.build_directory):
                Executable(self.spec["cmake"].prefix.bin.ctest)("-L", "unit", "--output-on-failure")

    def setup_run_environment(self, env):
        env.set("TRIREME_ROOT", self.prefix)
