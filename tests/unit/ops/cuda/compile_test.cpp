#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "ops/cuda/cubin_cache.hpp"
#include "ops/cuda/gpu_launcher.hpp"
#include "ops/cuda/nvrtc.hpp"
#include "ops/cuda/report.hpp"
#include "ops/cuda/rms_norm.hpp"

/// Tests the compiler and the cache of kernels. No GPU is needed.
namespace trireme::ops::testing {
namespace {

namespace fs = std::filesystem;

/// Returns why NVRTC cannot be used, or "".
std::string nvrtc_problem() {
  try {
    cuda::nvrtc_version();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

class CudaCache : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "cubin_cache_XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
  }

  void TearDown() override {
    std::error_code code;
    fs::remove_all(root_, code);
  }

  std::string get(const std::vector<fs::path>& directories, const std::string& result) {
    return cuda::read_or_make(directories, "kernel.cubin", [&] {
      ++made_;
      return result;
    });
  }

  static std::size_t files_in(const fs::path& directory) {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
  }

  fs::path root_;
  int made_ = 0;
};

TEST_F(CudaCache, MakesAFileOnce) {
  const fs::path directory = root_ / "a" / "b";
  EXPECT_EQ(get({directory}, "one"), "one");
  EXPECT_EQ(get({directory}, "two"), "one");
  EXPECT_EQ(made_, 1);
  EXPECT_EQ(files_in(directory), 1U) << "no temporary file remains";
}

TEST_F(CudaCache, ReplacesADamagedFile) {
  get({root_}, "one");
  for (const std::string& damaged : {std::string("short"), read_file(root_ / "kernel.cubin") + "x",
                                     std::string(64, '\0'), std::string()}) {
    write_file_atomic(root_ / "kernel.cubin", damaged);
    made_ = 0;
    EXPECT_EQ(get({root_}, "again"), "again");
    EXPECT_EQ(get({root_}, "unused"), "again");
    EXPECT_EQ(made_, 1);
  }
}

TEST_F(CudaCache, UsesTheNextDirectoryIfTheFirstCannotBeWritten) {
  write_file_atomic(root_ / "file", "");
  const fs::path refused = root_ / "file" / "below";  // also refused to root, unlike a mode
  EXPECT_EQ(get({refused, root_ / "next"}, "one"), "one");
  EXPECT_EQ(get({refused, root_ / "next"}, "two"), "one");
  EXPECT_EQ(made_, 1);
  EXPECT_EQ(get({refused}, "three"), "three") << "no directory can be written";
}

TEST_F(CudaCache, IsSafeForManyProcesses) {
  constexpr int kProcesses = 8;
  const std::string result(100000, 'k');
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      bool right = true;
      for (int j = 0; j < 20; ++j) {
        right = right && get({root_}, result) == result;
        if (j % 4 == 0) ::unlink((root_ / "kernel.cubin").c_str());
      }
      ::_exit(right ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(get({root_}, result), result);
  EXPECT_EQ(files_in(root_), 1U);
}

TEST_F(CudaCache, DirectoryFollowsTheEnvironment) {
  ::setenv("TRIREME_KERNEL_CACHE", "/x/kernels", 1);
  EXPECT_EQ(cuda::cache_directories().front(), "/x/kernels");
  ::unsetenv("TRIREME_KERNEL_CACHE");
  ::setenv("XDG_CACHE_HOME", "/x/cache", 1);
  EXPECT_EQ(cuda::cache_directories().front(), "/x/cache/trireme/kernels");
  ::unsetenv("XDG_CACHE_HOME");
  ::setenv("HOME", "/x/user", 1);
  EXPECT_EQ(cuda::cache_directories().front(), "/x/user/.cache/trireme/kernels");
}

TEST(CudaCompile, NamesDifferByKernelElementAndArchitecture) {
  if (const std::string problem = nvrtc_problem(); !problem.empty()) GTEST_SKIP() << problem;
  using cuda::Element;
  const std::string name = cuda::cubin_name(cuda::kRmsNormForward, Element::bf16, "sm_80");
  EXPECT_EQ(name, cuda::cubin_name(cuda::kRmsNormForward, Element::bf16, "sm_80"));
  EXPECT_NE(name, cuda::cubin_name(cuda::kRmsNormForward, Element::bf16, "sm_90"));
  EXPECT_NE(name, cuda::cubin_name(cuda::kRmsNormForward, Element::f16, "sm_80"));
  cuda::Kernel other = cuda::kRmsNormForward;
  other.max_threads = 128;  // another program
  EXPECT_NE(name, cuda::cubin_name(other, Element::bf16, "sm_80"));
}

TEST(CudaCompile, CompilesEveryKernelForBf16WithoutSpills) {
  if (const std::string problem = nvrtc_problem(); !problem.empty()) GTEST_SKIP() << problem;
  const std::vector<cuda::KernelFigures> figures = cuda::figures({"sm_80"});
  EXPECT_GE(figures.size(), cuda::all_kernels().size());
  for (const cuda::KernelFigures& one : figures) {
    EXPECT_GT(one.cubin_bytes, 1000) << one.name;
    EXPECT_EQ(one.spill_bytes, 0) << one.name;
    EXPECT_GT(one.registers, 0) << one.name;
    EXPECT_GE(one.occupancy, 0.25) << one.name;
    EXPECT_LE(one.occupancy, 1) << one.name;
  }
}

TEST(CudaCompile, AnErrorNamesTheKernelAndTheLine) {
  if (const std::string problem = nvrtc_problem(); !problem.empty()) GTEST_SKIP() << problem;
  try {
    cuda::compile_program("extern \"C\" __global__ void broken() { wrong }", "broken", "sm_80");
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("kernel broken does not compile for sm_80"), std::string::npos) << text;
    EXPECT_NE(text.find("broken.cu(1)"), std::string::npos) << text;
  }
  EXPECT_THROW(cuda::compile(cuda::kRmsNormForward, cuda::Element::bf16, "sm_50"), Error);
}

TEST(CudaCompile, ReadsTheReportOfPtxas) {
  const cuda::KernelFigures figures = cuda::figures_of_log(
      "ptxas         .     16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n"
      "ptxas info    : Used 40 registers, used 1 barriers, 128 bytes smem, 440 bytes cmem[0]\n");
  EXPECT_EQ(figures.registers, 40);
  EXPECT_EQ(figures.spill_bytes, 20);
  EXPECT_EQ(figures.shared_bytes, 128);
  EXPECT_THROW(cuda::figures_of_log("nothing"), Error);
}

/// Values of NVIDIA's occupancy calculator.
TEST(CudaCompile, ComputesOccupancyByTheLimits) {
  EXPECT_DOUBLE_EQ(cuda::occupancy_of("sm_80", 256, 32, 0), 1.0);       // warps
  EXPECT_DOUBLE_EQ(cuda::occupancy_of("sm_80", 256, 64, 0), 0.5);       // registers
  EXPECT_DOUBLE_EQ(cuda::occupancy_of("sm_80", 32, 32, 0), 0.5);        // blocks
  EXPECT_DOUBLE_EQ(cuda::occupancy_of("sm_80", 256, 32, 81920), 0.25);  // shared memory
  EXPECT_DOUBLE_EQ(cuda::occupancy_of("sm_89", 256, 32, 0), 1.0);
}

}  // namespace
}  // namespace trireme::ops::testing
