#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "core/files/file.hpp"
#include "unit/layering/rules.hpp"

namespace trireme::layering {
namespace {

/// Source files of src, data_prep, checkpoint, bin and tests, relative to the root, sorted.
std::vector<std::string> source_files() {
  const std::filesystem::path root = TRIREME_SOURCE_ROOT;
  std::vector<std::string> paths;
  for (const char* folder : {"src", "data_prep", "checkpoint", "bin", "tests"}) {
    if (!std::filesystem::is_directory(root / folder)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension().string();
      const bool is_source =
          extension == ".hpp" || extension == ".cpp" || extension == ".cu" || extension == ".cuh";
      if (entry.is_regular_file() && is_source)
        paths.push_back(entry.path().lexically_relative(root).generic_string());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

TEST(Layering, TheSourcesKeepTheRules) {
  const std::vector<std::string> paths = source_files();
  ASSERT_GT(paths.size(), 20U) << "no sources under " << TRIREME_SOURCE_ROOT;
  std::vector<std::string> problems;
  for (const std::string& path : paths) {
    const std::string content = read_file(std::filesystem::path(TRIREME_SOURCE_ROOT) / path);
    for (const std::string& problem : check_file(path, content)) problems.push_back(problem);
  }

  EXPECT_EQ(joined(problems), "");
  EXPECT_EQ(joined(check_headers(paths)), "") << "modules of src without a header";
}

/// What check_file says about a file with this one line.
std::string verdict(const std::string& path, const std::string& line) {
  return joined(check_file(path, line));
}

TEST(Layering, ModulesIncludeOnlyThoseBelow) {
  EXPECT_EQ(verdict("src/train/step/step.cpp", "#include \"optim/adamw.hpp\""), "");
  EXPECT_EQ(verdict("src/train/step/step.cpp", "#include \"train/step/step.hpp\""), "");
  EXPECT_EQ(verdict("bin/trireme.cpp", "#include \"data_prep/pack/pack.hpp\""), "");
  EXPECT_EQ(verdict("src/optim/adamw.cpp", "#include \"train/step/step.hpp\""),
            "src/optim/adamw.cpp:1: optim must not include train (\"train/step/step.hpp\")\n");
  EXPECT_NE(verdict("src/core/log.cpp", "#include \"config/config_set.hpp\""), "");
  EXPECT_NE(verdict("src/core/log.cpp", "  #  include <comm/communicator.hpp>"), "");
  EXPECT_NE(verdict("data_prep/pack/pack.cpp", "#include \"model/config.hpp\""), "");
  EXPECT_NE(verdict("checkpoint/save/save.cpp", "#include \"data_prep/pack/pack.hpp\""), "");
  EXPECT_NE(verdict("src/train/step/step.cpp", "#include \"bin/trireme.hpp\""), "");
}

TEST(Layering, SiblingsNeverIncludeOneAnother) {
  const std::vector<std::vector<std::string>> siblings{{"objective", "optim", "data", "text"},
                                                       {"train", "serve", "data_prep"}};
  for (const auto& row : siblings) {
    for (const std::string& one : row) {
      for (const std::string& other : row) {
        const std::string path = (one == "data_prep" ? "" : "src/") + one + "/x.cpp";
        EXPECT_EQ(verdict(path, "#include \"" + other + "/y.hpp\"").empty(), one == other)
            << one << " and " << other;
      }
    }
  }
}

TEST(Layering, OnlyTheUpperFloorsSeeConfig) {
  for (const char* path :
       {"src/train/x.cpp", "src/serve/x.cpp", "data_prep/x.cpp", "checkpoint/x.cpp", "bin/x.cpp"}) {
    EXPECT_EQ(verdict(path, "#include \"config/config_set.hpp\""), "") << path;
  }
  for (const char* path :
       {"src/comm/x.cpp", "src/parallel/x.cpp", "src/text/x.cpp", "src/data/x.cpp",
        "src/optim/x.cpp", "src/objective/x.cpp", "src/model/x.cpp"}) {
    EXPECT_NE(verdict(path, "#include \"config/config_set.hpp\""), "") << path;
  }
}

TEST(Layering, LibrariesAppearWhereTheyAreAllowed) {
  EXPECT_EQ(verdict("src/model/x.cpp", "#include <torch/torch.h>"), "");
  EXPECT_NE(verdict("src/comm/nccl/x.cpp", "#include <torch/torch.h>"), "");
  EXPECT_NE(verdict("src/data/x.cpp", "#include <ATen/ATen.h>"), "");
  EXPECT_NE(verdict("data_prep/x.cpp", "#include <c10/core/Device.h>"), "");
  EXPECT_NE(verdict("bin/x.cpp", "#include <torch/torch.h>"), "");
  EXPECT_EQ(verdict("src/core/log.cpp", "#include <spdlog/spdlog.h>"), "");
  EXPECT_NE(verdict("src/core/log.hpp", "#include <spdlog/spdlog.h>"), "");
  EXPECT_EQ(verdict("src/config/command_parser.cpp", "#include <CLI/CLI.hpp>"), "");
  EXPECT_NE(verdict("bin/trireme_data.cpp", "#include <CLI/CLI.hpp>"), "");
  EXPECT_NE(verdict("src/config/load.cpp", "#include <toml++/toml.h>"), "");
  EXPECT_NE(verdict("src/data/reader.cpp", "#include <hdf5.h>"), "");
  EXPECT_NE(verdict("src/train/x.cpp", "#include <mpi.h>"), "");
  EXPECT_EQ(verdict("src/comm/mpi/x.cpp", "#include <mpi.h>"), "");
  EXPECT_NE(verdict("src/comm/mpi/x.cpp", "#include <nccl.h>"), "");
}

TEST(Layering, FilesAreShortAndKnowNoMachine) {
  std::string lines(400, '\n');
  EXPECT_EQ(verdict("src/core/x.cpp", lines), "");
  EXPECT_EQ(verdict("src/core/x.cpp", lines + "\n"), "src/core/x.cpp: 401 lines, at most 400\n");

  EXPECT_NE(
      verdict("src/core/x.cpp", "const char* kPath = \"" + std::string("/ho") + "me/me/data\";"),
      "");
  EXPECT_NE(verdict("bin/x.cpp", "// see " + std::string("/ro") + "ot/notes"), "");
  EXPECT_EQ(verdict("src/core/x.cpp", "run/" + std::string("wo") + "rk/file"), "");
}

TEST(Layering, EveryModuleHasAHeader) {
  EXPECT_TRUE(check_headers({"src/core/a.hpp", "src/core/b.cpp", "src/cmake/pch.cpp"}).empty());
  EXPECT_EQ(check_headers({"src/core/a.hpp", "src/text/b.cpp"}), std::vector<std::string>{"text"});
}

TEST(Layering, AFolderThatNoLayerKnowsIsAProblem) {
  EXPECT_NE(verdict("src/newcomer/x.cpp", "int x;"), "");
  EXPECT_NE(verdict("src/x.cpp", "int x;"), "");
}

TEST(Layering, PlainTextThatLooksLikeAnIncludeIsLeftAlone) {
  EXPECT_EQ(verdict("src/core/x.cpp", "// #include \"train/step/step.hpp\""), "");
  EXPECT_EQ(verdict("src/core/x.cpp", "#include <string>"), "");
  EXPECT_EQ(verdict("src/cmake/torch_pch.cpp", "#include <torch/torch.h>"), "");
}

}  // namespace
}  // namespace trireme::layering
