#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "config/config_set.hpp"
#include "config/program_variables.hpp"
#include "core/files/file.hpp"
#include "unit/config/sample.hpp"

namespace trireme::config {
namespace {

using testing_config::Sample;

/// Sets variables for one test and removes them afterwards.
class Environment : public testing::Test {
 protected:
  void define(const std::string& name, const std::string& value) {
    ::setenv(name.c_str(), value.c_str(), 1);
    names_.push_back(name);
  }

  void TearDown() override {
    for (const std::string& name : names_) ::unsetenv(name.c_str());
  }

  std::string load() {
    set_.load_environment();
    try {
      set_.finish();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  Sample sample_;
  ConfigSet set_{sample_.fields()};

 private:
  std::vector<std::string> names_;
};

TEST_F(Environment, SetsKeysBySectionAndName) {
  define("TRIREME_OPTIM_WARMUP_STEPS", "7");
  define("TRIREME_MODEL_QK_NORM", "false");

  EXPECT_EQ(load(), "");
  EXPECT_EQ(sample_.optim.warmup_steps, 7);
  EXPECT_FALSE(sample_.model.qk_norm);
  EXPECT_EQ(set_.origin("optim.warmup_steps"), "TRIREME_OPTIM_WARMUP_STEPS");
}

TEST_F(Environment, WinsOverFilesAndLosesToTheCommandLine) {
  define("TRIREME_OPTIM_LR", "2");
  define("TRIREME_OPTIM_BETA1", "0.2");
  set_.set("optim.lr", "3", "--optim.lr");

  EXPECT_EQ(load(), "");
  set_.load_toml("[optim]\nlr = 1\nbeta1 = 0.1\n", "late.toml");

  EXPECT_EQ(sample_.optim.lr, 3.0);
  EXPECT_EQ(sample_.optim.beta1, 0.2);
}

TEST_F(Environment, AnEmptyVariableCountsAsUnset) {
  define("TRIREME_OPTIM_LR", "");

  EXPECT_EQ(load(), "");
  EXPECT_FALSE(set_.is_set("optim.lr"));
}

TEST_F(Environment, AnUnknownKeyOfAKnownSectionIsAProblem) {
  define("TRIREME_OPTIM_LRR", "1");

  EXPECT_EQ(load(),
            "environment variable TRIREME_OPTIM_LRR matches no key of section 'optim'; did you "
            "mean 'TRIREME_OPTIM_LR'?");
}

TEST_F(Environment, AMistypedSectionIsAProblem) {
  define("TRIREME_OPTM_LR", "1");

  EXPECT_EQ(load(),
            "environment variable TRIREME_OPTM_LR matches no configuration key; did you mean "
            "'TRIREME_OPTIM_LR'?");
}

TEST_F(Environment, AMistypedVariableOfTheJobScriptsIsAProblem) {
  define("TRIREME_MAX_FAILURE", "3");

  EXPECT_NE(load().find("did you mean 'TRIREME_MAX_FAILURES'?"), std::string::npos);
}

TEST_F(Environment, AVariableThatIsNearNothingIsAWarning) {
  define("TRIREME_SERVE_PORT", "1");

  EXPECT_EQ(load(), "");
  ASSERT_EQ(set_.warnings().size(), 1U);
  EXPECT_NE(set_.warnings()[0].find("TRIREME_SERVE_PORT"), std::string::npos);
}

TEST_F(Environment, OtherTriremeVariablesAreAccepted) {
  for (const std::string_view name : kProgramVariables) define(std::string(name), "x");

  EXPECT_EQ(load(), "");
  EXPECT_TRUE(set_.warnings().empty());
}

/// Adds the names that `pattern` finds in a file; its first group is the name.
void find_names(const std::filesystem::path& file, const std::regex& pattern,
                std::set<std::string>& names) {
  const std::string text = read_file(file);
  for (std::sregex_iterator it(text.begin(), text.end(), pattern); it != std::sregex_iterator();
       ++it)
    names.insert((*it)[1]);
}

TEST_F(Environment, EveryVariableThatWeReadIsKnown) {
  const std::filesystem::path root = TRIREME_SOURCE_ROOT;
  const std::regex in_script(R"((?:^|[^D])(TRIREME_[A-Z0-9_]*[A-Z0-9]))");  // without -DTRIREME_...
  const std::regex in_code(R"((?:getenv|environ\.get|environ)[(\[]\s*"(TRIREME_[A-Z0-9_]+)\")");
  std::set<std::string> names;

  for (const char* folder : {"slurm", "bin", "src", "data_prep", "checkpoint", "tests"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      const std::string kind = entry.path().extension().string();
      const bool is_script = folder == std::string("slurm") || folder == std::string("bin");
      if (kind == ".cpp" || kind == ".hpp" || kind == ".py") {
        find_names(entry.path(), in_code, names);
      } else if (entry.is_regular_file() && is_script &&
                 (kind == ".sh" || kind == ".sbatch" || kind.empty())) {
        find_names(entry.path(), in_script, names);
      }
    }
  }

  EXPECT_GE(names.size(), 15U) << "the search finds nothing any more";
  for (const std::string& name : names)
    EXPECT_NE(std::find(kProgramVariables.begin(), kProgramVariables.end(), name),
              kProgramVariables.end())
        << name << " is not in config/program_variables.hpp";
}

TEST_F(Environment, AWrongValueIsReportedWithTheVariable) {
  define("TRIREME_OPTIM_LR", "fast");

  EXPECT_EQ(load(), "optim.lr = fast, must be a finite number, such as 3e-4 (TRIREME_OPTIM_LR)");
}

}  // namespace
}  // namespace trireme::config
