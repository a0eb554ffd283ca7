#include "config/command_line.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "core/file.hpp"
#include "unit/config/sample.hpp"

namespace trireme {
namespace {

using testing_config::Sample;

/// A program with one command that has a configuration, and a group of two that have none.
struct Program {
  Sample sample;
  ConfigSet set{sample.fields()};
  std::string run_folder;
  std::int64_t max_tokens = 16;
  double temperature = 1.0;
  bool dry_run = false;
  std::vector<std::string> inputs;
  std::string folder;
  std::string called;
  std::function<void(ConfigSet&)> check = [](ConfigSet&) {};
  CommandLine line{"trireme", "trains language models", [] { return std::string("trireme 0.1"); }};

  Program() {
    line.command("pretrain", "train from scratch")
        .option("--run", &run_folder, "DIR", "where the run lives", Need::required)
        .flag("--dry-run", dry_run, "print, do nothing")
        .config(set, [this](ConfigSet& loaded) { check(loaded); })
        .alias("--rate", "optim.lr")
        .example("trireme pretrain --run r --optim.lr 1e-3")
        .run([this] { return done("pretrain"); });
    line.command("checkpoint list", "all of a run")
        .positional("RUN", &folder, "a run folder")
        .run([this] { return done("list"); });
    line.command("checkpoint verify", "check one")
        .option("--input", &inputs, "FILE", "files")
        .option("--max-tokens,-n", &max_tokens, "N", "tokens")
        .option("--temperature", &temperature, "T", "0 is greedy")
        .run([this] { return done("verify"); });
  }

  int done(const std::string& name) {
    called = name;
    return 0;
  }

  int run(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "trireme");
    return line.run(static_cast<int>(arguments.size()), arguments.data());
  }

  std::string error(const std::vector<const char*>& arguments) {
    try {
      run(arguments);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
    return "no error";
  }

  std::string output(const std::vector<const char*>& arguments) {
    testing::internal::CaptureStdout();
    EXPECT_EQ(run(arguments), 0);
    EXPECT_EQ(called, "");
    std::fflush(stdout);
    return testing::internal::GetCapturedStdout();
  }
};

TEST(CommandLine, SetsOptionsAndKeys) {
  Program program;

  program.run(
      {"pretrain", "--run", "r", "--optim.lr", "1e-3", "--model.qk_norm=false", "--dry-run"});

  EXPECT_EQ(program.called, "pretrain");
  EXPECT_EQ(program.run_folder, "r");
  EXPECT_TRUE(program.dry_run);
  EXPECT_EQ(program.sample.optim.lr, 1e-3);
  EXPECT_FALSE(program.sample.model.qk_norm);
  EXPECT_EQ(program.set.origin("optim.lr"), "--optim.lr");
}

TEST(CommandLine, FindsCommandsOfTwoWords) {
  Program program;

  program.run({"checkpoint", "list", "some/run"});

  EXPECT_EQ(program.called, "list");
  EXPECT_EQ(program.folder, "some/run");
}

TEST(CommandLine, TakesListsNegativeNumbersAndValuesThatLookLikeCommands) {
  Program program;

  program.run({"checkpoint",
               "verify",
               "--input",
               "list",
               "verify",
               "--input",
               "-x",
               "[a,b]",
               "--temperature",
               "-0.5",
               "-n",
               "3"});

  EXPECT_EQ(program.inputs, (std::vector<std::string>{"list", "verify", "-x", "[a,b]"}));
  EXPECT_EQ(program.temperature, -0.5);
  EXPECT_EQ(program.max_tokens, 3);
}

TEST(CommandLine, AnAliasIsTheSameOptionAndTheLastOneWins) {
  Program program;

  program.run({"pretrain", "--run", "r", "--optim.lr", "1", "--rate", "2"});

  EXPECT_EQ(program.sample.optim.lr, 2.0);
}

TEST(CommandLine, LaterConfigFilesWinAndOptionsWinOverThem) {
  const auto folder = std::filesystem::path(testing::TempDir());
  const std::string first = (folder / "first.toml").string();
  const std::string second = (folder / "second.toml").string();
  write_file_atomic(first, "[optim]\nlr = 1\nbeta1 = 0.1\nwarmup_steps = 1\n");
  write_file_atomic(second, "[optim]\nlr = 2\nbeta1 = 0.2\n");
  Program program;

  program.run({"pretrain",
               "--optim.lr",
               "3",
               "--config",
               first.c_str(),
               "--run",
               "r",
               "--config",
               second.c_str()});

  EXPECT_EQ(program.sample.optim.lr, 3.0);
  EXPECT_EQ(program.sample.optim.beta1, 0.2);
  EXPECT_EQ(program.sample.optim.warmup_steps, 1);
}

TEST(CommandLine, SuggestsCommandsOptionsAndKeys) {
  EXPECT_TRUE(Program()
                  .error({"pretrian"})
                  .starts_with("unknown command 'pretrian'; did you mean 'pretrain'?"));
  EXPECT_TRUE(Program()
                  .error({"checkpoint", "lits"})
                  .starts_with("unknown command 'checkpoint lits'; did you mean 'list'?"));
  EXPECT_TRUE(Program()
                  .error({"checkpoint"})
                  .starts_with("'trireme checkpoint' needs a command\ncommands: list, verify\n"));
  EXPECT_TRUE(Program().error({}).starts_with(
      "'trireme' needs a command\ncommands: pretrain, checkpoint\n"));
  EXPECT_TRUE(Program()
                  .error({"pretrain", "--run", "r", "--optim.lrr", "1"})
                  .starts_with("unknown option '--optim.lrr'; did you mean '--optim.lr'?\nsee: "));
  EXPECT_TRUE(Program()
                  .error({"pretrain", "--run", "r", "--lr=1"})
                  .starts_with("unknown option '--lr'; did you mean '--optim.lr'?"));
  EXPECT_TRUE(Program()
                  .error({"pretrain", "--rum", "r"})
                  .starts_with("unknown option '--rum'; did you mean '--run'?"));
  EXPECT_TRUE(Program()
                  .error({"pretrain", "--run", "r", "more"})
                  .starts_with("unexpected argument 'more'"));
}

TEST(CommandLine, ReportsEverythingAtOnce) {
  Program program;
  program.check = [](ConfigSet& set) {
    set.problems().add("model.hidden_size", 64, "must be even more");
    fail(ErrorKind::usage, "no preset 'huge'");
  };

  const std::string all =
      program.error({"pretrain", "--dry-rum", "--optim.lr", "fast", "--config", "absent.toml"});

  for (const char* part : {"unknown option '--dry-rum'; did you mean '--dry-run'?",
                           "--run DIR is required",
                           "optim.lr = fast, must be a finite number",
                           "cannot open absent.toml",
                           "must be even more",
                           "no preset 'huge'",
                           "see: trireme pretrain --help"}) {
    EXPECT_NE(all.find(part), std::string::npos) << part << " not in\n" << all;
  }
  EXPECT_EQ(program.called, "");
}

TEST(CommandLine, NamesWrongValuesAndMissingOnes) {
  EXPECT_TRUE(Program()
                  .error({"checkpoint", "verify", "-n", "many"})
                  .starts_with("--max-tokens many: must be an integer"));
  EXPECT_TRUE(Program()
                  .error({"checkpoint", "verify", "--temperature"})
                  .starts_with("--temperature needs a value"))
      << Program().error({"checkpoint", "verify", "--temperature"});
  EXPECT_TRUE(Program()
                  .error({"pretrain", "--run", "r", "--model.qk_norm"})
                  .starts_with("--model.qk_norm needs a value"))
      << Program().error({"pretrain", "--run", "r", "--model.qk_norm"});
  EXPECT_TRUE(Program().error({"checkpoint", "list"}).starts_with("RUN is required"));
}

TEST(CommandLine, AnEmptyValueIsAValue) {
  Program program;

  program.run({"pretrain", "--run=", "--model.preset", ""});

  EXPECT_EQ(program.run_folder, "");
  EXPECT_EQ(program.sample.model.preset, "");
  EXPECT_TRUE(program.set.is_set("model.preset"));
}

TEST(CommandLine, HelpFitsAScreenAndHelpAllExplainsEveryKey) {
  const std::string help = Program().output({"pretrain", "--help"});
  const std::string all = Program().output({"pretrain", "--help-all"});

  EXPECT_LE(std::count(help.begin(), help.end(), '\n'), 40) << help;
  EXPECT_EQ(help, Program().output({"pretrain", "-h"}));
  EXPECT_NE(help.find("usage: trireme pretrain [--config FILE] --run DIR"), std::string::npos)
      << help;
  EXPECT_NE(help.find("--rate VALUE"), std::string::npos) << help;
  EXPECT_NE(help.find("trireme pretrain --run r --optim.lr 1e-3"), std::string::npos) << help;
  EXPECT_EQ(help.find("TRIREME_OPTIM_LR"), std::string::npos);
  for (const std::string& key : Program().set.keys()) {
    EXPECT_NE(all.find("--" + key + " "), std::string::npos) << key;
    EXPECT_NE(all.find(environment_name(key)), std::string::npos) << key;
  }
}

TEST(CommandLine, OverviewAndVersionGoToStandardOutput) {
  EXPECT_NE(Program().output({"--help"}).find("checkpoint verify  check one"), std::string::npos);
  EXPECT_EQ(Program().output({"checkpoint", "--help"}).find("pretrain "), std::string::npos);
  EXPECT_EQ(Program().output({"--version"}), "trireme 0.1\n");
}

}  // namespace
}  // namespace trireme
