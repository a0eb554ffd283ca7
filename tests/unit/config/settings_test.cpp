#include <gtest/gtest.h>

#include <array>

#include "config/command_line.hpp"
#include "core/files/file.hpp"
#include "unit/core/scratch.hpp"

namespace trireme::config {
namespace {

/// The settings of one command, like a component declares them.
struct PackSettings {
  std::string kind = "text";
  std::vector<std::string> inputs;
  std::string output;
  std::int64_t seq_len = 512;
  double share = 0.5;
  bool begin_token = true;
  bool force = false;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("kind", self.kind, "what lines are", {.values = {"text", "chat", "pair"}});
    visit("input", self.inputs, "files", {.placeholder = "FILE...", .required = true});
    visit("output", self.output, "folder", {.placeholder = "DIR", .required = true});
    visit("seq_len", self.seq_len, "tokens", {.placeholder = "L", .least = 2, .most = 4096});
    visit("share", self.share, "of them", {.placeholder = "P", .least = 0});
    visit("begin_token", self.begin_token, "before each", {.placeholder = "true|false"});
    visit("force", self.force, "replace");
  }
};

void check(const PackSettings& settings, Problems& problems) {
  if (settings.kind == "pair" && settings.seq_len < 100)
    problems.add("--seq-len", settings.seq_len, "must be 100 or more for pairs");
}

/// A program with one command, which takes settings.
struct PackProgram {
  CommandLine line{"packer", "packs", [] { return std::string("packer 0.1"); }};
  std::shared_ptr<const PackSettings> settings;
  int calls = 0;

  PackProgram() {
    Command& command = line.command("pack", "texts to tokens");
    settings = command.settings<PackSettings>("pack", SettingsFile::toml);
    command.run([this] {
      ++calls;
      return 0;
    });
  }

  std::string error(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), {"packer", "pack"});
    try {
      line.run(static_cast<int>(arguments.size()), arguments.data());
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
    return "";
  }
};

class CommandSettings : public Scratch {
 protected:
  std::string file(const std::string& text) {
    write_file_atomic(at("pack.toml"), text);
    return at("pack.toml").string();
  }
};

TEST_F(CommandSettings, AreOptionsOfOneDeclaration) {
  PackProgram packer;

  EXPECT_EQ(packer.error({"--input", "a", "b", "--output=o", "--seq-len", "8", "--force",
                          "--begin-token", "false", "--input", "c", "--kind", "chat"}),
            "");

  EXPECT_EQ(packer.calls, 1);
  EXPECT_EQ(packer.settings->inputs, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(packer.settings->output, "o");
  EXPECT_EQ(packer.settings->seq_len, 8);
  EXPECT_EQ(packer.settings->kind, "chat");
  EXPECT_TRUE(packer.settings->force);
  EXPECT_FALSE(packer.settings->begin_token);
  EXPECT_EQ(packer.settings->share, 0.5);
}

TEST_F(CommandSettings, AFileHasThemAsKeysAndAnOptionWins) {
  const std::string toml = file(
      "[pack]\ninput = [\"a\", \"b\"]\noutput = \"from file\"\nseq_len = 16\nshare = 1\n"
      "begin_token = false\nforce = true\n");
  PackProgram packer;

  EXPECT_EQ(packer.error({"--seq-len", "8", "--config", toml.c_str()}), "");

  EXPECT_EQ(packer.settings->inputs, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(packer.settings->output, "from file");
  EXPECT_EQ(packer.settings->seq_len, 8);
  EXPECT_EQ(packer.settings->share, 1.0);
  EXPECT_FALSE(packer.settings->begin_token);
  EXPECT_TRUE(packer.settings->force);
  PackProgram other;
  const std::string one = file("[pack]\ninput = \"a\"\noutput = \"o\"\n");
  EXPECT_EQ(other.error({"--config", one.c_str(), "--input", "c", "d"}), "");
  EXPECT_EQ(other.settings->inputs, (std::vector<std::string>{"c", "d"}));
}

TEST_F(CommandSettings, WrongOnesAreReportedAtOnceWithTheirPlace) {
  const std::string toml = file(
      "[pack]\nkind = \"txt\"\nseq-len = 3\nseq_len = 1\nshare = \"x\"\ninput = [1]\n"
      "output = \"\"\n[pak]\n");

  const std::string all = PackProgram().error({"--config", toml.c_str(), "--output-dir", "x"});

  for (const char* part :
       {"--kind txt, must be text, chat or pair; did you mean 'text'? (", "pack.toml:2)",
        "pack.toml:3:1: unknown key 'pack.seq-len'; did you mean 'pack.seq_len'?",
        "--seq-len 1, must be in [2, 4096] (", "pack.toml:4)",
        "pack.share = \"x\", must be a number", "pack.input = an array, must be a text in quotes",
        "--input FILE... is required: files", "--output '' names nothing",
        "unknown section 'pak'; did you mean 'pack'?", "unknown option '--output-dir'",
        "see: packer pack --help"})
    EXPECT_NE(all.find(part), std::string::npos) << part << " not in\n" << all;
  PackProgram option_wins;
  EXPECT_EQ(option_wins.error({"--input", "a", "--output", "o", "--seq-len", "1"}),
            "--seq-len 1, must be in [2, 4096]\nsee: packer pack --help");
  EXPECT_EQ(PackProgram().error({"--input", "a", "--output", "o", "--seq-len", "many"}),
            "--seq-len many: must be an integer, in plain digits, of at most 64 bits\nsee: packer "
            "pack --help");
  EXPECT_EQ(PackProgram().error({"--input", "a", "--output", "o", "--seq-len", "9", "--kind",
                                 "pair", "--share", "-1"}),
            "--share -1, must be 0 or more\n--seq-len 9, must be 100 or more for pairs\nsee: "
            "packer pack --help");
}

TEST_F(CommandSettings, HelpAndCompletionFollow) {
  const std::array<const char*, 3> words{"packer", "pack", "--help"};
  testing::internal::CaptureStdout();
  EXPECT_EQ(PackProgram().line.run(3, words.data()), 0);
  std::fflush(stdout);
  const std::string help = testing::internal::GetCapturedStdout();
  const std::array<const char*, 3> completion{"packer", "completion", "bash"};
  testing::internal::CaptureStdout();
  EXPECT_EQ(PackProgram().line.run(3, completion.data()), 0);
  std::fflush(stdout);
  const std::string script = testing::internal::GetCapturedStdout();

  for (const char* part :
       {"usage: packer pack [--config FILE] --input FILE... --output DIR [options]\n",
        "--kind text|chat|pair", "what lines are [text]", "--seq-len L", "tokens [512]",
        "files (required)", "before each [true]", "--force  ", "  replace\n", "[pack]"})
    EXPECT_NE(help.find(part), std::string::npos) << part << " not in\n" << help;
  EXPECT_NE(script.find("--kind) value=1 words='text chat pair'"), std::string::npos) << script;
  EXPECT_NE(script.find("--begin-token) value=1 words='true false'"), std::string::npos) << script;
  EXPECT_NE(script.find("--config) value=1"), std::string::npos) << script;
}

}  // namespace
}  // namespace trireme::config
