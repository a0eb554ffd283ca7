#include "config/config_set.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "core/files/file.hpp"
#include "unit/config/sample.hpp"

namespace trireme::config {
namespace {

using testing_config::Sample;

/// Returns the message of finish(); "" if there is none.
std::string problems_of(const ConfigSet& set) {
  try {
    set.finish();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "";
}

std::string problems_of_toml(const std::string& text) {
  Sample sample;
  ConfigSet set(sample.fields());
  set.load_toml(text, "run.toml");
  return problems_of(set);
}

TEST(ConfigSet, ReadsEveryTypeFromToml) {
  Sample sample;
  ConfigSet set(sample.fields());

  set.load_toml(
      "[optim]\nname = \"a # b\"  # comment\nlr = 1e-3\nbeta1 = 1\nwarmup_steps = "
      "1_000\n[model]\nqk_norm = false\n",
      "run.toml");

  EXPECT_EQ(problems_of(set), "");
  EXPECT_EQ(sample.optim.name, "a # b");
  EXPECT_EQ(sample.optim.lr, 1e-3);
  EXPECT_EQ(sample.optim.beta1, 1.0);
  EXPECT_EQ(sample.optim.warmup_steps, 1000);
  EXPECT_FALSE(sample.model.qk_norm);
  EXPECT_EQ(set.origin("optim.lr"), "run.toml:3");
  EXPECT_EQ(set.origin("model.preset"), "default");
  EXPECT_TRUE(set.is_set("optim.lr"));
  EXPECT_FALSE(set.is_set("model.preset"));
}

TEST(ConfigSet, TakesDottedAndInlineTables) {
  Sample sample;
  ConfigSet set(sample.fields());

  set.load_toml("optim.lr = 0.5\nmodel = { hidden_size = 128 }\n", "run.toml");

  EXPECT_EQ(problems_of(set), "");
  EXPECT_EQ(sample.optim.lr, 0.5);
  EXPECT_EQ(sample.model.hidden_size, 128);
}

TEST(ConfigSet, NamesUnknownKeysWithPlaceAndNearest) {
  EXPECT_EQ(problems_of_toml("[optim]\n\n  lrr = 1\n"),
            "run.toml:3:3: unknown key 'optim.lrr'; did you mean 'optim.lr'?");
  EXPECT_EQ(problems_of_toml("lr = 1\n"),
            "run.toml:1:1: unknown key 'lr'; did you mean 'optim.lr'?");
  EXPECT_EQ(problems_of_toml("[model]\nlr = 1\n"),
            "run.toml:2:1: unknown key 'model.lr'; did you mean 'optim.lr'?");
  EXPECT_EQ(problems_of_toml("[optim]\nnothing_like_it = 1\n"),
            "run.toml:2:1: unknown key 'optim.nothing_like_it'");
  EXPECT_EQ(problems_of_toml("[optm]\nlr = 1\nmore = 2\n"),
            "run.toml:1:2: unknown section 'optm'; did you mean 'optim'?");
}

TEST(ConfigSet, NamesWrongTypesWithValueAndPlace) {
  EXPECT_EQ(problems_of_toml("[optim]\nlr = \"fast\"\n"),
            "optim.lr = \"fast\", must be a number (run.toml:2:1)");
  EXPECT_EQ(problems_of_toml("[optim]\nwarmup_steps = 1.5\n"),
            "optim.warmup_steps = 1.5, must be an integer (run.toml:2:1)");
  EXPECT_EQ(problems_of_toml("[optim]\nname = 3\n"),
            "optim.name = 3, must be a text in quotes (run.toml:2:1)");
  EXPECT_EQ(problems_of_toml("[model]\nqk_norm = 1\n"),
            "model.qk_norm = 1, must be true or false (run.toml:2:1)");
  EXPECT_EQ(problems_of_toml("[optim.lr]\nx = 1\n"),
            "optim.lr = a table, must be a number (run.toml:1:8)");
  EXPECT_EQ(problems_of_toml("[optim]\nlr = [1, 2]\n"),
            "optim.lr = an array, must be a number (run.toml:2:1)");
  EXPECT_EQ(problems_of_toml("[optim]\nlr = 2026-01-01\n"),
            "optim.lr = a date or time, must be a number (run.toml:2:1)");
  EXPECT_EQ(problems_of_toml("optim = 3\n"), "run.toml:1:1: unknown key 'optim'");
}

TEST(ConfigSet, RefusesNumbersThatAreNotFinite) {
  EXPECT_EQ(problems_of_toml("[optim]\nlr = inf\n"),
            "optim.lr = inf, must be a finite number, such as 3e-4 (run.toml:2)");
  EXPECT_NE(problems_of_toml("[optim]\nlr = nan\n"), "");
  EXPECT_NE(problems_of_toml("[optim]\nlr = 1e999\n"), "");
  EXPECT_NE(problems_of_toml("[optim]\nwarmup_steps = 99999999999999999999\n"), "");
}

TEST(ConfigSet, ReportsDuplicatesAndSyntaxWithPlace) {
  EXPECT_TRUE(problems_of_toml("[optim]\nlr = 1\nlr = 2\n").starts_with("run.toml:3:"))
      << problems_of_toml("[optim]\nlr = 1\nlr = 2\n");
  EXPECT_EQ(problems_of_toml("optim.lr = 1\n\"optim.lr\" = 2\n"),
            "run.toml:2:1: key 'optim.lr' is given twice");
  EXPECT_TRUE(problems_of_toml("[optim\n").starts_with("run.toml:1:"))
      << problems_of_toml("[optim\n");
  EXPECT_TRUE(problems_of_toml("a = \"\xff\"\n").starts_with("run.toml:1:"));
}

TEST(ConfigSet, ReportsEverythingAtOnce) {
  Sample sample;
  ConfigSet set(sample.fields());

  set.load_toml("[optim]\nlrr = 1\nlr = true\n", "a.toml");
  set.load_toml("[optim\n", "b.toml");
  set.load_file("no_such_file.toml");
  set.set("optim.beta1", "big", "--optim.beta1");
  set.set("optim.beta3", "1", "--optim.beta3");
  set.problems().add("optim.warmup_steps", sample.optim.warmup_steps,
                     "must be less than train.steps");

  const std::string all = problems_of(set);
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 6) << all;
  EXPECT_NE(all.find("a.toml:2:1: unknown key 'optim.lrr'"), std::string::npos) << all;
  EXPECT_NE(all.find("cannot open no_such_file.toml"), std::string::npos) << all;
  EXPECT_NE(all.find("optim.beta1 = big, must be a finite number, such as 3e-4 (--optim.beta1)"),
            std::string::npos)
      << all;
  EXPECT_NE(all.find("--optim.beta3: unknown key 'optim.beta3'; did you mean 'optim.beta1'?"),
            std::string::npos)
      << all;
  EXPECT_NE(all.find("optim.warmup_steps = 100, must be less than train.steps"), std::string::npos)
      << all;
}

TEST(ConfigSet, SuggestsAFileWithANearName) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "config_near";
  std::filesystem::create_directories(folder);
  write_file_atomic(folder / "pretrain.toml", "");
  Sample sample;
  ConfigSet set(sample.fields());

  set.load_file(folder / "pretrian.toml");

  EXPECT_NE(problems_of(set).find("; did you mean 'pretrain.toml'?"), std::string::npos)
      << problems_of(set);
}

TEST(ConfigSet, ComponentProblemsNameWhoSetTheValue) {
  Sample sample;
  ConfigSet set(sample.fields());
  set.load_toml("[optim]\nbeta1 = 1.2\n", "run.toml");
  set.set("optim.lr", "-1", "--optim.lr");

  set.problems().add("optim.beta1", sample.optim.beta1, "must be in [0, 1)");
  set.problems().add("optim.lr", sample.optim.lr, "must be positive");
  set.problems().add("model.hidden_size", sample.model.hidden_size, "must be a multiple of 128");

  EXPECT_EQ(problems_of(set),
            "optim.beta1 = 1.2, must be in [0, 1) (run.toml:2)\n"
            "optim.lr = -1, must be positive (--optim.lr)\n"
            "model.hidden_size = 64, must be a multiple of 128");
}

/// Runs the sources in `order`, a permutation of "pfgc" (preset, first file, second file, command
/// line).
std::string winner(const std::string& order, const std::string& key) {
  Sample sample;
  ConfigSet set(sample.fields());
  testing_config::Model shape{
      .preset = "big", .hidden_size = 1024, .qk_norm = false, .rope_theta = 5.0};
  for (const char source : order) {
    if (source == 'p') set.apply_preset(fields_of("model", shape), "preset big");
    if (source == 'f')
      set.load_toml("[model]\nhidden_size = 1\nrope_theta = 1\nqk_norm = true\n", "first.toml");
    if (source == 'g') set.load_toml("[model]\nhidden_size = 2\nrope_theta = 2\n", "second.toml");
    if (source == 'c') set.set("model.hidden_size", "3", "--model.hidden_size");
  }
  EXPECT_EQ(problems_of(set), "");
  return formatted("{} {}", set.value(key), set.origin(key));
}

TEST(ConfigSet, PrecedenceDoesNotDependOnTheOrderOfCalls) {
  std::string order = "cfgp";
  std::sort(order.begin(), order.end());
  do {
    if (order.find('f') > order.find('g')) continue;  // the order decides which file is the first
    EXPECT_EQ(winner(order, "model.hidden_size"), "3 --model.hidden_size") << order;
    EXPECT_EQ(winner(order, "model.rope_theta"), "2 second.toml:3") << order;
    EXPECT_EQ(winner(order, "model.qk_norm"), "true first.toml:4") << order;
    EXPECT_EQ(winner(order, "model.preset"), "big preset big") << order;
    EXPECT_EQ(winner(order, "optim.lr"), "3e-04 default") << order;
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(ConfigSet, APresetDoesNotCountAsSet) {
  Sample sample;
  ConfigSet set(sample.fields());
  testing_config::Model shape{.hidden_size = 8};

  set.apply_preset(fields_of("model", shape), "preset small");

  EXPECT_EQ(sample.model.hidden_size, 8);
  EXPECT_FALSE(set.is_set("model.hidden_size"));
}

TEST(ConfigSet, AnEarlierPartOfTheRunRanksBetweenPresetAndFiles) {
  for (const bool anew : {false, true}) {
    Sample sample;
    ConfigSet set(sample.fields());
    testing_config::Model shape{.preset = "big", .hidden_size = 1024, .rope_theta = 5.0};

    set.load_toml("[optim]\nbeta1 = 0.5\n", "run.toml");
    const std::vector<EarlierValue> values = earlier_values(
        "[model]\nhidden_size = 7\n[optim]\nbeta1 = 0.4\nlr = 2\nname = \"x\"\nold = 1\n",
        "r/config.toml");
    EXPECT_EQ(set.apply_earlier(values), "");
    EXPECT_EQ(set.apply_earlier({{"optim.lr", "3", "step-1"}, {"optim.warmup_steps", "4", "s"}}),
              "");
    set.apply_preset(fields_of("model", shape), "preset big", anew);
    set.load_toml("[optim]\nname = \"y\"\n", "last.toml");

    EXPECT_EQ(problems_of(set), "");
    EXPECT_EQ(set.origin("model.hidden_size"), anew ? "preset big" : "r/config.toml:2");
    EXPECT_EQ(sample.model.hidden_size, anew ? 1024 : 7);
    EXPECT_EQ(sample.optim.beta1, 0.5);
    EXPECT_EQ(sample.optim.lr, 2) << "the first call wins";
    EXPECT_EQ(set.origin("optim.lr"), "r/config.toml:5");
    EXPECT_EQ(sample.optim.warmup_steps, 4);
    EXPECT_EQ(sample.optim.name, "y");
    EXPECT_FALSE(set.is_set("optim.lr"));
    ASSERT_EQ(set.warnings().size(), 1U);
    EXPECT_NE(set.warnings()[0].find("r/config.toml:7: unknown key 'optim.old'"),
              std::string::npos);
  }
}

TEST(ConfigSet, NothingIsTakenFromADamagedEarlierPart) {
  Sample sample;
  ConfigSet set(sample.fields());

  EXPECT_NE(set.apply_earlier({{"optim.beta1", "0.5", "c:1"}, {"optim.lr", "fast", "c:2"}})
                .find("optim.lr = fast, must be a finite number"),
            std::string::npos);

  EXPECT_EQ(sample.optim.beta1, 0.9);
  EXPECT_EQ(problems_of(set), "");
  EXPECT_THROW((void)earlier_values("[optim\n", "config.toml"), Error);
}

TEST(ConfigSet, ResolvedTomlLoadsBackToTheSameValues) {
  Sample sample;
  ConfigSet set(sample.fields());
  set.set("optim.lr", "0.1", "--optim.lr");
  set.set("optim.beta1", "2.2250738585072014e-308", "--optim.beta1");
  set.set("optim.name", "quote \" slash \\ tab \t hash # end", "--optim.name");
  set.set("model.qk_norm", "false", "--model.qk_norm");

  Sample other;
  ConfigSet again(other.fields());
  again.load_toml(set.to_toml(), "config.toml");

  EXPECT_EQ(problems_of(again), "");
  EXPECT_EQ(again.to_toml(), set.to_toml());
  EXPECT_EQ(other.optim.lr, 0.1);
  EXPECT_EQ(other.optim.name, sample.optim.name);
  for (const std::string& key : set.keys()) EXPECT_TRUE(again.is_set(key)) << key;
}

TEST(ConfigSet, AKeyLeftOutIsNeitherSavedNorShownButExplained) {
  Sample sample;
  ConfigSet set(sample.fields());
  set.set("optim.beta1", "0.5", "--optim.beta1");

  set.leave_out("optim.beta1");

  EXPECT_EQ(set.to_toml().find("beta1"), std::string::npos) << set.to_toml();
  EXPECT_EQ(set.show(true).find("beta1"), std::string::npos) << set.show(true);
  EXPECT_EQ(std::ranges::count(set.keys(), "optim.beta1"), 0);
  EXPECT_EQ(std::ranges::count(set.names("optim"), "beta1"), 1);
  EXPECT_NE(set.help_text("optim").find("--optim.beta1"), std::string::npos);
  EXPECT_TRUE(set.is_set("optim.beta1")) << "so that a check can refuse it";
  set.leave_out("optim.beta1", false);
  EXPECT_NE(set.to_toml().find("beta1 = 0.5"), std::string::npos);
}

TEST(ConfigSet, ShowsOriginsOnRequest) {
  Sample sample;
  ConfigSet set(sample.fields());
  set.load_toml("[optim]\nlr = 1\n", "run.toml");

  EXPECT_NE(set.show(true).find("optim.lr            1      run.toml:2\n"), std::string::npos)
      << set.show(true);
  EXPECT_NE(set.show(true).find("default\n"), std::string::npos);
  EXPECT_EQ(set.show(false).find("run.toml"), std::string::npos);
}

TEST(ConfigSet, HelpNamesDefaultAndEnvironment) {
  Sample sample;
  ConfigSet set(sample.fields());
  set.set("optim.lr", "7", "--optim.lr");

  const std::string help = set.help_text("optim");

  EXPECT_NE(help.find("--optim.lr NUMBER"), std::string::npos) << help;
  EXPECT_NE(help.find("default 3e-04, environment TRIREME_OPTIM_LR"), std::string::npos) << help;
  EXPECT_EQ(help.find("model."), std::string::npos);
}

TEST(ConfigSet, RefusesKeysThatClash) {
  Sample sample;
  std::vector<Field> fields = sample.fields();
  fields.push_back({"optim_warmup.steps", &sample.optim.warmup_steps,
                    "same environment name as optim.warmup_steps"});

  EXPECT_THROW(ConfigSet set(fields), Error);
}

}  // namespace
}  // namespace trireme::config
