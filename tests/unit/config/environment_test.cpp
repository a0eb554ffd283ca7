#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "config/config_set.hpp"
#include "unit/config/sample.hpp"

namespace trireme {
namespace {

using testing_config::Sample;

/// Sets variables for one test and removes them again.
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

TEST_F(Environment, AMistypedSectionIsAWarning) {
  define("TRIREME_OPTM_LR", "1");
  define("TRIREME_SERVE_PORT", "1");

  EXPECT_EQ(load(), "");
  ASSERT_EQ(set_.warnings().size(), 1U);
  EXPECT_NE(set_.warnings()[0].find("TRIREME_OPTM_LR"), std::string::npos);
}

TEST_F(Environment, OtherVariablesOfOursAreLeftAlone) {
  define("TRIREME_FAULT", "x");
  define("TRIREME_ALLOW_FAULTS", "1");
  define("TRIREME_TORCH_ROOT", "/opt");
  define("TRIREME_MODEL_ROOT", "/opt");

  EXPECT_EQ(load(), "");
  EXPECT_TRUE(set_.warnings().empty());
}

TEST_F(Environment, AWrongValueIsReportedWithTheVariable) {
  define("TRIREME_OPTIM_LR", "fast");

  EXPECT_EQ(load(), "optim.lr = fast, must be a finite number, such as 3e-4 (TRIREME_OPTIM_LR)");
}

}  // namespace
}  // namespace trireme
