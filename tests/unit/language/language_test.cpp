#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "unit/language/allowed.hpp"
#include "unit/language/rules.hpp"

namespace trireme::language {
namespace {

namespace fs = std::filesystem;

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Returns all files of the project relative to the root, sorted, without build outputs.
std::vector<std::string> all_files() {
  const fs::path root = TRIREME_SOURCE_ROOT;
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(root))
    if (entry.is_regular_file()) paths.push_back(entry.path().filename().string());
  for (const char* directory :
       {"bin", "checkpoint", "ci", "data_prep", "docs", "slurm", "src", "tests"}) {
    if (!fs::is_directory(root / directory)) continue;
    auto entry = fs::recursive_directory_iterator(root / directory);
    for (; entry != fs::recursive_directory_iterator(); ++entry) {
      const std::string name = entry->path().filename().string();
      if (name == "node_modules" || name == "__pycache__" || name.starts_with(".")) {
        entry.disable_recursion_pending();
      } else if (entry->is_regular_file()) {
        paths.push_back(entry->path().lexically_relative(root).generic_string());
      }
    }
  }
  std::ranges::sort(paths);
  return paths;
}

TEST(Language, EveryFileHasOnlyTheFindingsThatAreListed) {
  const fs::path root = TRIREME_SOURCE_ROOT;
  std::vector<Finding> findings;
  std::vector<std::pair<std::size_t, std::string>> long_counts;
  std::size_t files = 0;
  std::size_t total_long = 0;
  for (const std::string& path : all_files()) {
    const std::string content = content_of(root / path);
    ++files;
    std::ranges::copy(check_file(path, content), std::back_inserter(findings));
    const std::size_t count = long_sentences(path, content);
    if (count > 0) long_counts.emplace_back(count, path);
    total_long += count;
  }
  ASSERT_GT(files, 100U) << "no sources under " << root;
  const std::string problems =
      check_allowed(root / "tests/unit/language/allowed.txt", findings, AllowedScope::files);
  if (!problems.empty()) ADD_FAILURE() << problems;

  std::cout << findings.size() << " findings; " << total_long
            << " sentences over 30 words in Markdown and HTML\n";
  std::ranges::sort(long_counts, std::greater<>());
  for (std::size_t i = 0; i < std::min(long_counts.size(), std::size_t{10}); ++i)
    std::cout << "  " << long_counts[i].first << "  " << long_counts[i].second << '\n';
}

std::size_t findings_in(const std::string& path, const std::string& content) {
  return check_file(path, content).size();
}

TEST(Language, CommentsThatOpenWithABareWordAreFound) {
  for (const char* text :
       {"Of this rank's weights, those that are trained.", "What one row holds.", "whether it runs",
        "How to start one run.", "As add_gradient, for a gradient.", "in tokens",
        "In bytes, as packed.", "In [0, 1) or none.", "The same for every layout."})
    EXPECT_NE(bare_opening(text), "") << text;
  for (const char* text :
       {"As in torch.optim.AdamW.", "In backward, each rank sends its chunk.",
        "In `shared` mode, readers wait.", "Offsets of the rows.", "Inputs in tokens.",
        "`of` is a key.", "Assigns what it is given.", "", "in_flight is a count."})
    EXPECT_EQ(bare_opening(text), "") << text;
}

TEST(Language, OnlyTheFirstLineOfACommentBlockIsChecked) {
  EXPECT_EQ(findings_in("src/x.cpp", "/// Returns the size\n/// of the row.\nint f();\n"), 0U);
  EXPECT_EQ(findings_in("src/x.cpp", "int f();\n// Of the row.\n"), 1U);
  EXPECT_EQ(findings_in("src/x.cpp", "int i;  // in tokens\n        // of a row\n"), 1U);
  EXPECT_EQ(findings_in("src/x.cpp", "}  // namespace x\n// Of a row.\n"), 1U);
  EXPECT_EQ(findings_in("src/x.cpp", "int i;  // in tokens\nint j;  // of a row\n"), 2U);
  EXPECT_EQ(findings_in("src/x.cpp", "f(/*of=*/1, 1'000, 'a');  /* in tokens */\n"), 1U);
  EXPECT_EQ(findings_in("src/x.cpp", "auto t = R\"(// of x)\"; auto u = \"// in x\\\" // of\";"),
            0U);
}

TEST(Language, CommentsOfScriptsAreChecked) {
  EXPECT_EQ(findings_in("slurm/x.sh", "#!/bin/bash\n# Of a job.\nx=1  # in s\necho '# of x'\n"),
            2U);
  EXPECT_EQ(
      findings_in("tests/x.py", "\"\"\"What it is.\n\nOf x.\n\"\"\"\nx = \"\"\"\n# of y\n\"\"\"\n"),
      1U);
  EXPECT_EQ(findings_in("tests/x.py", "def f():\n  \"\"\"Whether it is.\"\"\"\n  x = 1\n  # how\n"),
            2U);
  EXPECT_EQ(findings_in("src/CMakeLists.txt", "# As above.\nset(x 1)\n"), 1U);
  EXPECT_EQ(findings_in("src/x.js", "/* Of a page.\n   in x */\n\n// in s\nlet x = '// of';\n"),
            2U);
}

TEST(Language, PrivateWordsAreFoundOutsideCode) {
  EXPECT_EQ(findings_in("src/x.cpp", "// Writes the journal; the folder stays.\n"), 2U);
  EXPECT_EQ(findings_in("src/x.cpp", "// Writes `journal` to journal.jsonl and folder_of(x).\n"),
            0U);
  EXPECT_EQ(findings_in("src/x.cpp", "// Sums the main\n// weights of --folder \"leg\" a/leg\n"),
            1U);
  EXPECT_EQ(findings_in("src/x.cpp", "f(\"no such folder here\", \"folder\");\n"), 1U);
  EXPECT_EQ(findings_in("tests/x.cpp", "f(\"no such folder here\", \"folder\");\n"), 0U);
  EXPECT_EQ(findings_in("docs/x.md", "A [folder](folder.md) `x leg y`.\n```\nfolder\n```\n"), 1U);
  EXPECT_EQ(findings_in("docs/x.md", "Of course.\n"), 0U) << "openings are checked in comments";
  const std::vector<Finding> found =
      check_file("src/x.hpp", "int x;\n/// Returns\n/// its pace.\n");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].line, 3U);
}

TEST(Language, HelpIsChecked) {
  EXPECT_EQ(check_help("trireme x - how it runs\n").size(), 1U);
  EXPECT_EQ(
      check_help("trireme x - runs it\n\n  --a N   of the run\n  --b a|b  in tokens\n").size(), 2U);
  EXPECT_EQ(check_help("  --a N   size\n          of the run, in tokens\n").size(), 0U);
  EXPECT_EQ(check_help("  --m.a INT\n      whether it runs\n      default 0\n").size(), 1U);
  EXPECT_EQ(check_help("examples:\n  trireme x  of folder\n").size(), 0U);
  EXPECT_EQ(check_help("  DIR  the run folder\n").size(), 1U);
  const std::string words = std::string(60, 'a') + " " + std::string(60, 'b');
  EXPECT_EQ(check_help(words).size(), 1U);
  EXPECT_EQ(check_help(words + "ccc").size(), 0U) << "one word over 60 columns cannot be wrapped";
}

TEST(Language, SentencesOverThirtyWordsAreCounted) {
  std::string sentence;
  for (int i = 0; i < 31; ++i) sentence += "word ";
  EXPECT_EQ(long_sentences("docs/x.md", sentence + "\n\n" + sentence + "\n"), 2U);
  EXPECT_EQ(long_sentences("docs/x.md", "A. " + sentence.substr(5) + "\n"), 0U);
  EXPECT_EQ(long_sentences("docs/x.md", "| " + sentence.substr(80) + " | " + sentence), 1U);
}

class Allowed : public ::testing::Test {
 protected:
  Allowed() {
    unsetenv("TRIREME_LANGUAGE_UPDATE");
    std::ofstream(path_) << "# comment\na.cpp 1\nb.cpp 2\nhelp:trireme 1\n";
  }

  ~Allowed() override { fs::remove(path_); }

  std::string check(const std::vector<Finding>& findings) const {
    return check_allowed(path_, findings, AllowedScope::files);
  }

  const fs::path path_ =
      fs::temp_directory_path() / ("trireme_allowed_" + std::to_string(getpid()) + ".txt");
  const Finding a_{"a.cpp", 7, "bad"};
  const Finding b_{"b.cpp", 8, "bad"};
};

TEST_F(Allowed, MoreAndFewerFindingsThanListedAreProblems) {
  EXPECT_EQ(check({a_, b_, b_}), "");
  EXPECT_NE(check({a_, a_, b_, b_}).find("a.cpp:7: bad"), std::string::npos);
  EXPECT_NE(check({a_, b_}).find("Lower the number"), std::string::npos);
  EXPECT_NE(check({a_, b_, b_, {"c.cpp", 1, "bad"}}).find("c.cpp:1: bad"), std::string::npos);
}

TEST_F(Allowed, LowerNeverRaisesANumber) {
  setenv("TRIREME_LANGUAGE_UPDATE", "lower", 1);
  EXPECT_NE(check({a_, a_, b_}), "");
  EXPECT_NE(content_of(path_).find("\na.cpp 1\nb.cpp 1\nhelp:trireme 1\n"), std::string::npos);
}

TEST_F(Allowed, AllSetsEveryNumberOfItsScope) {
  setenv("TRIREME_LANGUAGE_UPDATE", "all", 1);
  EXPECT_EQ(check({a_, a_}), "");
  EXPECT_NE(content_of(path_).find("\na.cpp 2\nhelp:trireme 1\n"), std::string::npos);
}

}  // namespace
}  // namespace trireme::language
