#include "bin/start_limit.hpp"

#include <cstdlib>
#include <fstream>

#include "unit/core/scratch.hpp"

namespace trireme {
namespace {

class StartLimitTest : public Scratch {
 protected:
  void SetUp() override {
    Scratch::SetUp();
    ::unsetenv("TRIREME_TRAIN_START_TIMEOUT_S");
    std::filesystem::create_directories(at("run"));
    write("run/config.toml", "[train]\nstart_timeout_s = 10\n");
    write("a.toml", "[train]\nsteps = 5\nstart_timeout_s = 20.5\n");
    write("b.toml", "train.start_timeout_s = 30\n");
  }

  void TearDown() override {
    ::unsetenv("TRIREME_TRAIN_START_TIMEOUT_S");
    Scratch::TearDown();
  }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(at(name)) << text;
  }

  static comm::StartLimit limit_of(const std::vector<std::string>& words) {
    std::vector<const char*> argv{"trireme", "pretrain"};
    for (const std::string& word : words) argv.push_back(word.c_str());
    return start_limit(static_cast<int>(argv.size()), argv.data());
  }
};

TEST_F(StartLimitTest, TheKeyIsReadAsTheParserWillReadIt) {
  const std::string run = at("run").string();
  const std::string a = at("a.toml").string();
  const std::string b = at("b.toml").string();

  EXPECT_EQ(limit_of({}).timeout_s, 300);
  EXPECT_EQ(limit_of({"--run", at("none").string()}).timeout_s, 300);
  EXPECT_EQ(limit_of({"--run", run}).timeout_s, 10);
  EXPECT_EQ(limit_of({"--run=" + run, "--config", a}).timeout_s, 20.5);
  EXPECT_EQ(limit_of({"--config", a, "--config=" + b, "--run", run}).timeout_s, 30);
  ::setenv("TRIREME_TRAIN_START_TIMEOUT_S", "40", 1);
  EXPECT_EQ(limit_of({"--config", a, "--run", run}).timeout_s, 40);
  EXPECT_EQ(limit_of({"--train.start_timeout_s", "50", "--config", a}).timeout_s, 50);
  EXPECT_EQ(limit_of({"--train.start_timeout_s", "50", "--train.start_timeout_s=6e1"}).timeout_s,
            60);
}

TEST_F(StartLimitTest, WrongValuesAreLeftToTheParser) {
  for (const char* text : {"0", "-1", "soon", "nan", "inf"})
    EXPECT_EQ(limit_of({"--train.start_timeout_s", text}).timeout_s, 300) << text;
  EXPECT_EQ(limit_of({"--train.start_timeout_s"}).timeout_s, 300);
  write("broken.toml", "[train\nstart_timeout_s = 5\n");
  EXPECT_EQ(limit_of({"--config", at("broken.toml").string()}).timeout_s, 300);
  EXPECT_EQ(limit_of({"--config", at("run").string()}).timeout_s, 300);
}

TEST_F(StartLimitTest, MarksLieBesideTheRunOrTheOutput) {
  EXPECT_EQ(limit_of({"--run", "/runs/a"}).marks, "/runs/a.start");
  EXPECT_EQ(limit_of({"--run=/runs/a//"}).marks, "/runs/a.start");
  EXPECT_EQ(limit_of({"--output", "/sets/b", "-o", "/sets/c/../d"}).marks, "/sets/d.start");
  EXPECT_EQ(limit_of({"--run", "."}).marks, std::filesystem::current_path().string() + ".start");
  EXPECT_EQ(limit_of({"--run", "/"}).marks, "");
  EXPECT_EQ(limit_of({"--checkpoint", "/runs/a"}).marks, "");
}

}  // namespace
}  // namespace trireme
