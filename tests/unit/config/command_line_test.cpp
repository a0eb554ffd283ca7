#include "config/command_line.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "core/files/file.hpp"
#include "unit/config/sample.hpp"
#include "unit/core/scratch.hpp"

namespace trireme::config {
namespace {

using testing_config::Sample;

/// A program with one command that has a configuration, and a group of two commands without one.
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
        .ranks(Ranks::all)
        .run([this] { return done("pretrain"); });
    line.group("checkpoint", "look at checkpoints");
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

TEST(CommandLine, AManualPageThatDoesNotExistIsNamedOnTwoLines) {
  const std::string two = Program().error({"man", "pretrian"});
  EXPECT_EQ(two.substr(0, two.find('\n')),
            "no command 'pretrian' has a manual page; did you mean 'pretrain'?");
  EXPECT_EQ(std::count(two.begin(), two.end(), '\n'), 1);
  EXPECT_TRUE(Program().error({"man", "checkpoint", "lst"}).find("did you mean 'list'?") < 80);
}

TEST(CommandLine, FindsCommandsOfTwoWords) {
  Program program;

  program.run({"checkpoint", "list", "some/run"});

  EXPECT_EQ(program.called, "list");
  EXPECT_EQ(program.folder, "some/run");
}

TEST(CommandLine, TakesListsNegativeNumbersAndValuesThatLookLikeCommands) {
  Program program;

  program.run({"checkpoint", "verify", "--input", "list", "verify", "--input", "-x", "[a,b]",
               "--temperature", "-0.5", "-n", "3"});

  EXPECT_EQ(program.inputs, (std::vector<std::string>{"list", "verify", "-x", "[a,b]"}));
  EXPECT_EQ(program.temperature, -0.5);
  EXPECT_EQ(program.max_tokens, 3);
}

TEST(CommandLine, WordsAfterTwoDashesAreTakenUnchanged) {
  std::vector<std::string> rest;
  bool dry_run = false;
  CommandLine line("trireme", "", [] { return std::string(); });
  line.command("submit", "queue it")
      .flag("--dry-run", dry_run, "print, do nothing")
      .rest("COMMAND", rest, "what to run", Need::required)
      .run([] { return 0; });
  const std::array words{"trireme", "submit", "--dry-run", "--", "pretrain", "--help", "--", "-x"};
  EXPECT_EQ(line.run(static_cast<int>(words.size()), words.data()), 0);
  EXPECT_TRUE(dry_run);
  EXPECT_EQ(rest, (std::vector<std::string>{"pretrain", "--help", "--", "-x"}));

  const std::string message = error_of([&] { (void)line.run(2, words.data()); }).what();
  EXPECT_NE(message.find("-- COMMAND is required: what to run"), std::string::npos) << message;
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

  program.run({"pretrain", "--optim.lr", "3", "--config", first.c_str(), "--run", "r", "--config",
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
                  .error({"list", "runs/first"})
                  .starts_with("unknown command 'list'; did you mean 'checkpoint list'?"));
  EXPECT_TRUE(
      Program().error({"hepl"}).starts_with("unknown command 'hepl'; did you mean 'help'?"));
  EXPECT_TRUE(
      Program()
          .error({"checkpoint"})
          .starts_with("'trireme checkpoint' needs a command\ncommands:\n  list    all of a "
                       "run\n  verify  check one\nsee: trireme checkpoint --help"));
  EXPECT_TRUE(Program().error({}).starts_with(
      "'trireme' needs a command\ncommands:\n  pretrain           train from scratch\n"));
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
                  .error({"pretrain", "--run", "r", "--nodes=2"})
                  .starts_with("unknown option '--nodes'; options of Slurm stand before the job "
                               "script: sbatch --nodes=VALUE SCRIPT ..."));
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

  for (const char* part :
       {"unknown option '--dry-rum'; did you mean '--dry-run'?", "--run DIR is required",
        "optim.lr = fast, must be a finite number", "cannot open absent.toml", "must be even more",
        "no preset 'huge'", "see: trireme pretrain --help"}) {
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

TEST(CommandLine, AFlagMayBeGivenItsValue) {
  Program off;
  off.run({"pretrain", "--run", "r", "--dry-run=false"});
  EXPECT_FALSE(off.dry_run);
  Program on;
  on.run({"pretrain", "--run", "r", "--dry-run=true"});
  EXPECT_TRUE(on.dry_run);
  EXPECT_TRUE(Program()
                  .error({"pretrain", "--run", "r", "--dry-run=no"})
                  .starts_with("--dry-run no: must be true or false"))
      << Program().error({"pretrain", "--run", "r", "--dry-run=no"});
}

TEST(CommandLine, AnEmptyValueIsAValueButNoDirectory) {
  Program program;

  program.run({"pretrain", "--run", "r", "--model.preset", ""});

  EXPECT_EQ(program.sample.model.preset, "");
  EXPECT_TRUE(program.set.is_set("model.preset"));
  EXPECT_TRUE(Program().error({"pretrain", "--run="}).starts_with("--run '' names nothing"));
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

TEST(CommandLine, HelpSaysWhichValuesWork) {
  const auto checked = [] {
    auto program = std::make_unique<Program>();
    program->check = [&sample = program->sample](ConfigSet& set) {
      set.problems().one_of("model.preset", sample.model.preset,
                            std::vector<std::string>{"tiny", "huge"});
    };
    return program;
  };

  const std::string help = checked()->output({"pretrain", "--help"});
  const std::string all = checked()->output({"pretrain", "--help-all"});

  EXPECT_NE(help.find("preset=tiny|huge"), std::string::npos) << help;
  EXPECT_NE(all.find("      one of tiny huge\n"), std::string::npos) << all;
}

TEST(CommandLine, OverviewAndVersionGoToStandardOutput) {
  EXPECT_NE(Program().output({"--help"}).find("checkpoint verify  check one"), std::string::npos);
  for (const std::vector<const char*>& words :
       std::vector<std::vector<const char*>>{{"--version"},
                                             {"-V"},
                                             {"checkpoint", "-V"},
                                             {"pretrain", "--version"},
                                             {"pretrain", "-V"}})
    EXPECT_EQ(Program().output(words), "trireme 0.1\n");
  Program program;
  program.run({"checkpoint", "verify", "--input", "-V"});
  EXPECT_EQ(program.inputs, std::vector<std::string>{"-V"});
}

TEST(CommandLine, AGroupHasItsOwnPage) {
  const std::string page = Program().output({"checkpoint", "--help"});

  EXPECT_EQ(page.find("pretrain"), std::string::npos) << page;
  EXPECT_TRUE(
      page.starts_with("trireme checkpoint - look at checkpoints\n\nusage: trireme "
                       "checkpoint COMMAND [options]\n"))
      << page;
  EXPECT_NE(page.find("\n  verify  check one\n"), std::string::npos) << page;
}

TEST(CommandLine, HelpTakesACommandInFrontOfItToo) {
  EXPECT_EQ(Program().output({"help"}), Program().output({"--help"}));
  EXPECT_EQ(Program().output({"help", "pretrain"}), Program().output({"pretrain", "--help"}));
  EXPECT_EQ(Program().output({"help", "checkpoint"}), Program().output({"checkpoint", "--help"}));
  EXPECT_EQ(Program().output({"help", "checkpoint", "list"}),
            Program().output({"checkpoint", "list", "--help"}));
  EXPECT_TRUE(Program()
                  .error({"help", "pretrian"})
                  .starts_with("unknown command 'pretrian'; did you mean 'pretrain'?"));
}

TEST(CommandLine, HelpHasAPageAndTakesNoMoreThanOneCommand) {
  EXPECT_TRUE(
      Program()
          .output({"help", "help"})
          .starts_with("trireme help - show the help of the program, a group or a command\n\n"
                       "usage: trireme help [COMMAND]\n"));
  EXPECT_EQ(Program().output({"help", "pretrain", "--help-all"}),
            Program().output({"pretrain", "--help-all"}));
  for (const std::vector<const char*>& words :
       std::vector<std::vector<const char*>>{{"help", "pretrain", "extra"},
                                             {"help", "checkpoint", "list", "extra", "more"},
                                             {"help", "help", "extra"}})
    EXPECT_TRUE(Program().error(words).starts_with("unexpected argument 'extra' after"))
        << Program().error(words);
  EXPECT_TRUE(Program()
                  .error({"help", "checkpoint", "extra"})
                  .starts_with("unknown command 'checkpoint extra'"));
}

TEST(CommandLine, ACommandOfOneRankRefusesMoreAndSaysWhatToType) {
  const auto refusal = [](std::vector<const char*> arguments, int ranks) {
    arguments.insert(arguments.begin(), "/opt/bin/trireme");
    try {
      Program().line.check_ranks(static_cast<int>(arguments.size()), arguments.data(), ranks);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return std::string(error.what());
    }
    return std::string();
  };

  const std::string text = refusal({"checkpoint", "list", "it's a run"}, 3);
  EXPECT_NE(text.find("'trireme checkpoint list' takes one rank, this start has 3"),
            std::string::npos)
      << text;
  EXPECT_TRUE(text.ends_with("trireme checkpoint list 'it'\\''s a run'")) << text;
  EXPECT_NE(refusal({"completion", "bash"}, 2), "");
  EXPECT_EQ(refusal({"checkpoint", "list", "r"}, 1), "");
  EXPECT_EQ(refusal({"checkpoint", "list", "--help"}, 2), "");
  EXPECT_EQ(refusal({"pretrain", "--run", "r"}, 2), "");
  EXPECT_EQ(refusal({"pretrian"}, 2), "");
}

TEST(CommandLine, HelpSaysHowManyRanksACommandTakes) {
  EXPECT_NE(Program().output({"checkpoint", "list", "--help"}).find("\nranks: one\n"),
            std::string::npos);
  EXPECT_NE(Program().output({"pretrain", "--help"}).find("\nranks: any number started by mpirun"),
            std::string::npos);
}

TEST(CommandLine, ACommandSaysOnWhichRanksItRuns) {
  const auto ranks = [](std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "trireme");
    return Program().line.ranks(static_cast<int>(arguments.size()), arguments.data());
  };

  EXPECT_EQ(ranks({"pretrain", "--run", "r"}), Ranks::all);
  for (const std::vector<const char*>& words :
       std::vector<std::vector<const char*>>{{"pretrain", "--help"},
                                             {"pretrain", "-V"},
                                             {"help", "pretrain"},
                                             {"checkpoint", "list", "r"},
                                             {"pretrian"},
                                             {}})
    EXPECT_EQ(ranks(words), Ranks::one);
}

}  // namespace
}  // namespace trireme::config
