#include "config/manual_pages.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>

#include "core/files/file.hpp"
#include "unit/config/sample.hpp"
#include "unit/core/scratch.hpp"

namespace trireme::config {
namespace {

using testing_config::Sample;

/// A program with a command of keys and a command of two words.
struct Documented {
  Sample sample;
  ConfigSet set{sample.fields()};
  std::string folder;
  CommandLine line{"trireme", "trains language models", [] { return std::string("trireme 0.1\n"); },
                   [] { return std::string("{\"version\":\"0.1\"}\n"); }};

  Documented() {
    line.command("pretrain", "train from scratch")
        .option("--run", &folder, "DIR", "where the run lives", Need::required)
        .config(set,
                [this](ConfigSet& loaded) {
                  loaded.problems().one_of("model.preset", sample.model.preset,
                                           std::vector<std::string>{"tiny", "huge"});
                })
        .example("trireme pretrain --run r --optim.lr 1e-3")
        .run([] { return 0; });
    line.command("checkpoint list", "list all of a run")
        .positional("RUN", &folder, "a run folder")
        .run([] { return 0; });
  }

  int run(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "trireme");
    return line.run(static_cast<int>(arguments.size()), arguments.data());
  }

  std::string output(const std::vector<const char*>& arguments) {
    testing::internal::CaptureStdout();
    EXPECT_EQ(run(arguments), 0);
    std::fflush(stdout);
    return testing::internal::GetCapturedStdout();
  }
};

TEST(ManualPages, ACommandHasTheTablesOfItsHelp) {
  const std::string page = Documented().output({"man", "pretrain"});

  EXPECT_TRUE(page.starts_with(
      ".TH TRIREME\\-PRETRAIN 1 \"\" \"trireme 0.1\" \"Trireme manual\"\n.nh\n.ad l\n.SH NAME\n"
      "trireme\\-pretrain \\- train from scratch\n.SH SYNOPSIS\n"))
      << page;
  for (const char* part :
       {".SH DESCRIPTION\nTrain from scratch.\n", ".SH OPTIONS\n", ".SH CONFIGURATION KEYS\n",
        ".SS [optim]\n", ".SH FILES\n", ".SH ENVIRONMENT\n", ".SH EXIT STATUS\n",
        "\\fB\\-\\-run DIR\\fR\n", "\\fB\\-\\-optim.lr NUMBER\\fR\n", "one of tiny huge\n",
        "environment TRIREME_OPTIM_LR\n", ".TP\n\\fB93\\fR\n", "\\fBRUN/STOP\\fR\n",
        "trireme pretrain \\-\\-run r \\-\\-optim.lr 1e\\-3\n"})
    EXPECT_NE(page.find(part), std::string::npos) << part << page;
}

TEST(ManualPages, ACommandWithoutKeysHasNoSectionForThem) {
  const std::string page = Documented().output({"man", "checkpoint", "list"});

  EXPECT_EQ(page.find("CONFIGURATION KEYS"), std::string::npos) << page;
  EXPECT_EQ(page.find("RUN/STOP"), std::string::npos) << page;
}

TEST(ManualPages, TheProgramListsItsCommands) {
  const std::string page = Documented().output({"man"});

  EXPECT_NE(page.find("\\fBtrireme\\-checkpoint\\-list\\fR(1)\n"), std::string::npos) << page;
}

TEST(ManualPages, AnUnknownCommandIsRefused) {
  Documented program;
  const std::string message = error_of([&] { (void)program.run({"man", "pretrian"}); }).what();

  EXPECT_TRUE(
      message.starts_with("no command 'pretrian' has a manual page; did you mean 'pretrain'?"))
      << message;
}

TEST(ManualPages, AllPagesAreWrittenToADirectory) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "man1";

  EXPECT_EQ(Documented().output({"man", "--output", folder.c_str()}), "");

  for (const char* name : {"trireme.1", "trireme-pretrain.1", "trireme-checkpoint-list.1"})
    EXPECT_TRUE(read_file(folder / name).starts_with(".TH ")) << name;
  Documented program;
  const Error error = error_of([&] {
    (void)program.run({"man", "pretrain", "--output", folder.c_str()});
  });
  EXPECT_EQ(error.kind(), ErrorKind::usage);
  EXPECT_NE(std::string(error.what()).find("Leave out 'pretrain'"), std::string::npos);
}

TEST(ManualPages, TheVersionIsALineOfJsonForScripts) {
  EXPECT_EQ(Documented().output({"--version", "--json"}), "{\"version\":\"0.1\"}\n");
  EXPECT_EQ(Documented().output({"--version"}), "trireme 0.1\n\n");
  for (const std::vector<const char*>& words : std::vector<std::vector<const char*>>{
           {"--version", "--jsn"}, {"--version", "--json", "x"}}) {
    Documented program;
    const Error error = error_of([&] { (void)program.run(words); });
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_EQ(std::string(error.what()),
              formatted("unexpected argument '{}' after 'trireme --version'{}", words.back(),
                        words.size() == 2 ? "; did you mean '--json'?" : ""));
  }
}

}  // namespace
}  // namespace trireme::config
