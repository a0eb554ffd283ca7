#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/files/file.hpp"
#include "unit/layering/definitions.hpp"
#include "unit/layering/rules.hpp"

namespace trireme::layering {
namespace {

/// Returns all files of src, data_prep, checkpoint, bin and tests, relative to the root, sorted.
std::vector<std::string> all_files() {
  const std::filesystem::path root = TRIREME_SOURCE_ROOT;
  std::vector<std::string> paths;
  for (const char* folder : {"src", "data_prep", "checkpoint", "bin", "tests"}) {
    if (!std::filesystem::is_directory(root / folder)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      if (entry.is_regular_file() && entry.path().extension() != ".pyc")
        paths.push_back(entry.path().lexically_relative(root).generic_string());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool is_source(const std::string& path) {
  return path.ends_with(".hpp") || path.ends_with(".cpp") || path.ends_with(".cu") ||
         path.ends_with(".cuh");
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

TEST(Layering, TheSourcesKeepTheRules) {
  const std::vector<std::string> files = all_files();
  std::vector<std::string> paths;
  std::copy_if(files.begin(), files.end(), std::back_inserter(paths), is_source);
  ASSERT_GT(paths.size(), 20U) << "no sources under " << TRIREME_SOURCE_ROOT;
  std::vector<std::string> problems;
  for (const std::string& path : paths) {
    const std::string content = read_file(std::filesystem::path(TRIREME_SOURCE_ROOT) / path);
    for (const std::string& problem : check_file(path, content)) problems.push_back(problem);
  }

  EXPECT_EQ(joined(problems), "");
  EXPECT_EQ(joined(check_folders(files)), "");
  EXPECT_EQ(joined(check_headers(paths)), "") << "modules of src without a header";
}

TEST(Layering, OnlyTheSchedulersDirectoryKnowsItsVariablesAndPrograms) {
  for (const std::string& path : all_files()) {
    if (!is_source(path) || path.starts_with("src/scheduler/") || path.starts_with("tests/"))
      continue;
    const std::string content = read_file(std::filesystem::path(TRIREME_SOURCE_ROOT) / path);
    for (const char* word : {"SLURM_", "SLURMD_", "SBATCH", "slurm_", "\"slurm", "\"scontrol",
                             "\"sinfo", "\"squeue", "{\"srun", "{\"scancel", "{\"sbatch\", \"--"})
      EXPECT_EQ(content.find(word), std::string::npos)
          << path << " names " << word << ": ask scheduler() (src/scheduler/scheduler.hpp)";
  }
}

TEST(Layering, OneNameIsOneTypeInTheWholeProgram) {
  std::map<std::string, std::string> place;
  std::vector<std::string> twice;
  for (const std::string& path : all_files()) {
    if (!is_source(path)) continue;
    const std::string content = read_file(std::filesystem::path(TRIREME_SOURCE_ROOT) / path);
    for (const std::string& type : defined_types(content)) {
      const auto [first, is_new] = place.emplace(type, path);
      // Programs of tests/ are linked separately from one another, but together with the libraries.
      const bool apart = path.starts_with("tests/") && first->second.starts_with("tests/");
      if (!is_new && !apart) twice.push_back(type + ": " + first->second + " and " + path);
    }
  }
  EXPECT_GT(place.size(), 100U);
  EXPECT_EQ(joined(twice), "");
}

TEST(Layering, TypesAreFoundWhereverTheyAreDefined) {
  const auto types = [](std::string_view content) { return joined(defined_types(content)); };
  EXPECT_EQ(types("namespace a::b {\nstruct X;\nclass X final : public Y {\n struct In {};\n};\n}"),
            "a::b::X\n");
  EXPECT_EQ(
      types("namespace a { enum class E { x }; struct S { int i = f('{'); }; // struct C {\n}"),
      "a::E\na::S\n");
  EXPECT_EQ(types("namespace a { namespace { struct Local {}; } struct Z {}; }"), "a::Z\n");
  EXPECT_EQ(
      types("namespace a { template <class T> struct P { T t; }; template <> struct P<int> {}; }"),
      "a::P\n");
  EXPECT_EQ(types("namespace a { int f() { struct In {}; return 0; } auto t = \"struct Q {\"; }"),
            "");
}

/// Returns the problems that check_file finds in a file with this one line.
std::string complaint(const std::string& path, const std::string& line) {
  return joined(check_file(path, line));
}

TEST(Layering, ModulesIncludeOnlyThoseBelow) {
  EXPECT_EQ(complaint("src/train/step/step.cpp", "#include \"optim/adamw.hpp\""), "");
  EXPECT_EQ(complaint("src/train/step/step.cpp", "#include \"train/step/step.hpp\""), "");
  EXPECT_EQ(complaint("bin/trireme.cpp", "#include \"data_prep/pack/pack.hpp\""), "");
  EXPECT_EQ(complaint("src/optim/adamw.cpp", "#include \"train/step/step.hpp\""),
            "src/optim/adamw.cpp:1: optim must not include train (\"train/step/step.hpp\")\n");
  EXPECT_NE(complaint("src/core/log.cpp", "#include \"config/config_set.hpp\""), "");
  EXPECT_NE(complaint("src/core/log.cpp", "  #  include <comm/communicator.hpp>"), "");
  EXPECT_NE(complaint("data_prep/pack/pack.cpp", "#include \"model/config.hpp\""), "");
  EXPECT_NE(complaint("checkpoint/save/save.cpp", "#include \"data_prep/pack/pack.hpp\""), "");
  EXPECT_NE(complaint("src/train/step/step.cpp", "#include \"bin/trireme.hpp\""), "");
}

TEST(Layering, SubdirectoriesOfAModuleFollowTheirTable) {
  EXPECT_EQ(complaint("src/text/learn/x.cpp", "#include \"text/split/splitter.hpp\""), "");
  EXPECT_EQ(complaint("src/text/tokenizer.cpp", "#include \"text/bpe/bpe_model.hpp\""), "");
  EXPECT_EQ(complaint("src/data/order/x.cpp", "#include \"data/batch.hpp\""), "");
  EXPECT_EQ(complaint("src/data/shards/x.cpp", "#include \"data/batch.hpp\""),
            "src/data/shards/x.cpp:1: data/shards must not include data/* (\"data/batch.hpp\")\n");
  EXPECT_NE(complaint("src/text/unicode/x.cpp", "#include \"text/bpe/bpe_model.hpp\""), "");
  EXPECT_NE(complaint("src/train/step/x.cpp", "#include \"train/run/y.hpp\""), "");
  EXPECT_NE(complaint("src/train/cellar/x.cpp", "int x;"), "") << "a subdirectory without a row";
}

TEST(Layering, DirectoriesAreSmallAndHaveAReadme) {
  std::vector<std::string> paths{"src/core/README.md"};
  for (int i = 0; i < 59; ++i) paths.push_back("src/core/" + std::to_string(i));
  EXPECT_EQ(joined(check_folders(paths)), "");
  paths.emplace_back("src/core/60");
  EXPECT_EQ(joined(check_folders(paths)), "src/core: 61 files, at most 60\n");
  EXPECT_EQ(joined(check_folders({"src/text/bpe/x.cpp"})), "src/text/bpe: has no README.md\n");
  EXPECT_EQ(joined(check_folders({"tests/unit/x.cpp"})), "");
}

TEST(Layering, SiblingsNeverIncludeOneAnother) {
  const std::vector<std::vector<std::string>> siblings{{"objective", "optim", "data", "text"},
                                                       {"train", "serve", "data_prep"}};
  for (const auto& row : siblings) {
    for (const std::string& one : row) {
      for (const std::string& other : row) {
        const std::string path = (one == "data_prep" ? "" : "src/") + one + "/x.cpp";
        EXPECT_EQ(complaint(path, "#include \"" + other + "/y.hpp\"").empty(), one == other)
            << one << " and " << other;
      }
    }
  }
}

TEST(Layering, OnlyTheUpperLayersIncludeConfig) {
  for (const char* path : {"src/train/x.cpp", "src/serve/x.cpp", "data_prep/x.cpp", "bin/x.cpp"}) {
    EXPECT_EQ(complaint(path, "#include \"config/config_set.hpp\""), "") << path;
  }
  for (const char* path :
       {"src/comm/x.cpp", "src/parallel/x.cpp", "src/text/x.cpp", "src/data/x.cpp",
        "src/optim/x.cpp", "src/objective/x.cpp", "src/model/x.cpp"}) {
    EXPECT_NE(complaint(path, "#include \"config/config_set.hpp\""), "") << path;
  }
}

TEST(Layering, LibrariesAppearWhereTheyAreAllowed) {
  EXPECT_EQ(complaint("src/model/x.cpp", "#include <torch/torch.h>"), "");
  EXPECT_NE(complaint("src/comm/nccl/x.cpp", "#include <torch/torch.h>"), "");
  EXPECT_NE(complaint("src/data/x.cpp", "#include <ATen/ATen.h>"), "");
  EXPECT_NE(complaint("data_prep/x.cpp", "#include <c10/core/Device.h>"), "");
  EXPECT_NE(complaint("bin/x.cpp", "#include <torch/torch.h>"), "");
  EXPECT_EQ(complaint("src/core/log.cpp", "#include <spdlog/spdlog.h>"), "");
  EXPECT_NE(complaint("src/core/log.hpp", "#include <spdlog/spdlog.h>"), "");
  EXPECT_EQ(complaint("src/config/command_parser.cpp", "#include <CLI/CLI.hpp>"), "");
  EXPECT_NE(complaint("bin/trireme_data.cpp", "#include <CLI/CLI.hpp>"), "");
  EXPECT_NE(complaint("src/config/load.cpp", "#include <toml++/toml.h>"), "");
  EXPECT_NE(complaint("src/data/reader.cpp", "#include <hdf5.h>"), "");
  EXPECT_NE(complaint("src/train/x.cpp", "#include <mpi.h>"), "");
  EXPECT_EQ(complaint("src/comm/mpi/x.cpp", "#include <mpi.h>"), "");
  EXPECT_NE(complaint("src/comm/mpi/x.cpp", "#include <nccl.h>"), "");
}

TEST(Layering, FilesAreShortAndKnowNoMachine) {
  std::string lines(400, '\n');
  EXPECT_EQ(complaint("src/core/x.cpp", lines), "");
  EXPECT_EQ(complaint("src/core/x.cpp", lines + "\n"), "src/core/x.cpp: 401 lines, at most 400\n");

  EXPECT_NE(
      complaint("src/core/x.cpp", "const char* kPath = \"" + std::string("/ho") + "me/me/data\";"),
      "");
  EXPECT_NE(complaint("bin/x.cpp", "// see " + std::string("/ro") + "ot/notes"), "");
  EXPECT_EQ(complaint("src/core/x.cpp", "run/" + std::string("wo") + "rk/file"), "");
}

TEST(Layering, EveryModuleHasAHeader) {
  EXPECT_TRUE(check_headers({"src/core/a.hpp", "src/core/b.cpp", "src/cmake/pch.cpp"}).empty());
  EXPECT_EQ(check_headers({"src/core/a.hpp", "src/text/b.cpp"}), std::vector<std::string>{"text"});
}

TEST(Layering, AnUnknownDirectoryIsAProblem) {
  EXPECT_NE(complaint("src/newcomer/x.cpp", "int x;"), "");
  EXPECT_NE(complaint("src/x.cpp", "int x;"), "");
}

TEST(Layering, PlainTextThatLooksLikeAnIncludeIsLeftAlone) {
  EXPECT_EQ(complaint("src/core/x.cpp", "// #include \"train/step/step.hpp\""), "");
  EXPECT_EQ(complaint("src/core/x.cpp", "#include <string>"), "");
  EXPECT_EQ(complaint("src/cmake/torch_pch.cpp", "#include <torch/torch.h>"), "");
}

/// Returns the text between the first ```cpp and the next ```.
std::string first_code(const std::string& page) {
  const std::string opening = "```cpp\n";
  const std::size_t begin = page.find(opening);
  if (begin == std::string::npos) return "";
  const std::size_t end = page.find("```", begin + opening.size());
  return page.substr(begin + opening.size(), end - begin - opening.size());
}

TEST(Pages, TheTrainingThatSrcBeginsWithIsTheOneThatIsBuilt) {
  const std::filesystem::path root = TRIREME_SOURCE_ROOT;
  const std::string code = first_code(read_file(root / "src/README.md"));
  EXPECT_EQ(code, read_file(root / "tests/integration/simple_training.cpp"));
  EXPECT_LE(std::count(code.begin(), code.end(), '\n'), 100);
}

/// Returns the words in backquotes in the second column of all tables after `heading`.
std::vector<std::string> touched_paths(const std::string& page, const std::string& heading) {
  std::vector<std::string> paths;
  std::istringstream lines(page.substr(page.find(heading)));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| ")) continue;
    const std::size_t begin = line.find(" | ") + 3;
    std::string column = line.substr(begin, line.find(" | ", begin) - begin);
    for (std::size_t at = column.find('`'); at != std::string::npos; at = column.find('`')) {
      const std::size_t end = column.find('`', at + 1);
      paths.push_back(column.substr(at + 1, end - at - 1));
      column.erase(0, end + 1);
    }
  }
  return paths;
}

/// Returns README.md and all other Markdown files of the checkout, relative to its root.
std::vector<std::string> all_pages() {
  std::vector<std::string> pages;
  for (const std::string& path : all_files())
    if (path.ends_with(".md")) pages.push_back(path);
  const std::filesystem::path root = TRIREME_SOURCE_ROOT;
  for (const char* folder : {"docs", "slurm"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder))
      if (entry.path().extension() == ".md")
        pages.push_back(entry.path().lexically_relative(root).generic_string());
  }
  for (const auto& entry : std::filesystem::directory_iterator(root))
    if (entry.path().extension() == ".md") pages.push_back(entry.path().filename().string());
  return pages;
}

TEST(Pages, EveryPlaceThatCommandsWriteToIsIgnoredByGit) {
  const std::filesystem::path root = TRIREME_SOURCE_ROOT;
  const std::string ignored = "\n" + read_file(root / ".gitignore");
  int places = 0;
  for (const std::string& page : all_pages()) {
    if (page != "README.md" && !page.starts_with("docs/")) continue;
    std::istringstream words(read_file(root / page));
    for (std::string word, before; words >> word; before = word) {
      if (before != "--output" && before != "--run") continue;
      if (word.front() < 'a' || word.front() > 'z') continue;  // DIR, R, /tmp/x
      word.erase(std::min(word.size(), word.find_first_of("`),;")));
      const std::size_t slash = word.find('/');
      if (slash == std::string::npos && word.find('.') == std::string::npos) continue;  // prose
      const std::string line =
          "\n/" + (slash == std::string::npos ? word : word.substr(0, slash + 1)) + "\n";
      EXPECT_NE(ignored.find(line), std::string::npos)
          << page << ": " << word << " is not in .gitignore";
      ++places;
    }
  }
  EXPECT_GE(places, 10);
}

/// Returns GitHub's anchor of a heading: lower case, blanks as hyphens, without punctuation.
std::string anchor_of(const std::string& heading) {
  std::string anchor;
  for (const char c : heading) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_')
      anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (c == ' ')
      anchor += '-';
  }
  return anchor;
}

std::vector<std::string> anchors_of(const std::string& page) {
  std::vector<std::string> anchors;
  std::istringstream lines(page);
  bool in_code = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) in_code = !in_code;
    if (!in_code && line.starts_with("#"))
      anchors.push_back(anchor_of(line.substr(line.find_first_not_of("# "))));
  }
  return anchors;
}

TEST(Pages, EveryLinkLeadsToAFileAndAHeading) {
  const std::filesystem::path root = TRIREME_SOURCE_ROOT;
  int links = 0;
  for (const std::string& page : all_pages()) {
    const std::string text = read_file(root / page);
    for (std::size_t at = text.find("]("); at != std::string::npos; at = text.find("](", at + 1)) {
      const std::string link = text.substr(at + 2, text.find(')', at) - at - 2);
      if (link.empty() || link.starts_with("http") ||
          link.find_first_of(" \n*&[") != std::string::npos)
        continue;
      const std::size_t hash = link.find('#');
      const std::string path = link.substr(0, hash);
      const std::filesystem::path target =
          path.empty() ? root / page : (root / page).parent_path() / path;
      EXPECT_TRUE(std::filesystem::exists(target)) << page << ": " << link;
      if (hash != std::string::npos && std::filesystem::is_regular_file(target)) {
        const std::vector<std::string> anchors = anchors_of(read_file(target));
        EXPECT_EQ(std::count(anchors.begin(), anchors.end(), link.substr(hash + 1)), 1)
            << page << ": " << link;
      }
      ++links;
    }
  }
  EXPECT_GE(links, 150);
}

TEST(Pages, TheReadmeIsShortAndHasADiagram) {
  const std::string text = read_file(std::filesystem::path(TRIREME_SOURCE_ROOT) / "README.md");
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 150);
  EXPECT_NE(text.find("```mermaid"), std::string::npos);
}

TEST(Pages, EveryPlaceToAddThingsExists) {
  const std::filesystem::path root = TRIREME_SOURCE_ROOT;
  int places = 0;
  for (std::string path :
       touched_paths(read_file(root / "docs/extending.md"), "## Where to add things")) {
    if (path.find('/') == std::string::npos) continue;  // a C++ name
    const std::size_t name = path.find('<');
    if (name != std::string::npos) path.erase(path.rfind('/', name));
    EXPECT_TRUE(std::filesystem::exists(root / path)) << path;
    ++places;
  }
  EXPECT_GE(places, 120);
}

/// Returns the text without `<br/>`, which breaks the lines of a box.
std::string without_breaks(std::string text) {
  const std::string line_break = "<br/>";
  for (std::size_t at = text.find(line_break); at != std::string::npos; at = text.find(line_break))
    text.erase(at, line_break.size());
  return text;
}

TEST(Pages, EveryBoxOfTheFlowsIsAFile) {
  const std::filesystem::path root = TRIREME_SOURCE_ROOT;
  std::istringstream page(read_file(root / "docs/architecture.md"));
  int boxes = 0;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("  participant ")) continue;
    const std::string path = without_breaks(line.substr(line.find(" as ") + 4));
    EXPECT_TRUE(std::filesystem::is_regular_file(root / path)) << path;
    ++boxes;
  }
  EXPECT_GE(boxes, 20);
}

}  // namespace
}  // namespace trireme::layering
