#include "data/order/plan.hpp"

#include <gtest/gtest.h>

#include <array>

#include "core/error.hpp"
#include "unit/data/small_set.hpp"

namespace trireme::data {
namespace {

using Phases = std::vector<PlanPhase>;

TEST(Plan, ReadsOneSetAUnionAndABlend) {
  EXPECT_EQ(parse_plan("sets/web", "data.path"), (Phases{{1, 0, {{1, {"sets/web"}}}}}));
  EXPECT_EQ(parse_plan("a + b", "data.path"), (Phases{{1, 0, {{1, {"a", "b"}}}}}));
  EXPECT_EQ(parse_plan("0.7 a + 3e-1 c++", "data.path"),
            (Phases{{1, 0, {{0.7, {"a"}}, {0.3, {"c++"}}}}}));
  EXPECT_EQ(parse_plan("1 \"my sets/a;b\" + 2 2024", "data.path"),
            (Phases{{1, 0, {{1, {"my sets/a;b"}}, {2, {"2024"}}}}}));
}

TEST(Plan, AWrongPlaceIsNamedAsItWasTyped) {
  const auto message = [](std::string_view text) -> std::string {
    try {
      (void)parse_plan(text, "x");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto ends = [](const std::string& text, std::string_view end) {
    EXPECT_TRUE(text.ends_with(end)) << text;
  };
  ends(message(R"(1 "my sets" "b c")"), R"(after '1 "my sets" ' at '"b c"')");
  ends(message(R"(1 a + 2 "my sets)"), R"(after '1 a + 2 ' at '"my sets')");
  ends(message(R"(1 a + 2 "b c"d + 3 e)"), R"(after '1 a + 2 ' at '"b c"d')");
  ends(message(R"(1 a + 2 b"c d)"), R"(after '1 a + 2 ' at 'b"c')");
  ends(message(R"(1 "a\"b" c)"), R"(after '1 "a\"b" ' at 'c')");
}

TEST(Plan, ReadsPhases) {
  const Phases expected{{1, 512, {{7, {"a"}}, {3, {"b"}}}},
                        {1001, 0, {{1, {"b"}}, {1, {"c"}}}},
                        {2001, 4096, {{1, {"c"}}}}};

  EXPECT_EQ(parse_plan("at 512: 7 a + 3 b; from 1001: 1 b + 1 c; from 2001 at 4096: c", "x"),
            expected);
  EXPECT_EQ(parse_plan("\nfrom 1 at 512 : 7 a + 3 b\n\nfrom 1001:\t1 b + 1 c\n"
                       "from 2001 at 4096: c\n",
                       "x"),
            expected);
}

TEST(Plan, NoCharacterOfAPathIsLostInAValue) {
  EXPECT_EQ(parse_plan("0.5 a + 0.5 b#2", "x"), (Phases{{1, 0, {{0.5, {"a"}}, {0.5, {"b#2"}}}}}));
  EXPECT_EQ(parse_plan("1 #b", "x"), (Phases{{1, 0, {{1, {"#b"}}}}}));
  EXPECT_EQ(parse_plan(R"(1 "say \"a\" + \\b" + 2 it's|c&d)", "x"),
            (Phases{{1, 0, {{1, {R"(say "a" + \b)"}}, {2, {"it's|c&d"}}}}}));
  EXPECT_EQ(parse_plan(R"(1 "C:\dir" + 1 c\d + 1 "0.5" + 1 "from" + 1 "+" + 1 2024)", "x"),
            (Phases{{1,
                     0,
                     {{1, {"C:\\dir"}},
                      {1, {"c\\d"}},
                      {1, {"0.5"}},
                      {1, {"from"}},
                      {1, {"+"}},
                      {1, {"2024"}}}}}));
  for (const char* text : {R"(1 a"b)", R"(1 "a"b)", R"(0.5"a b")", R"("a""b")", R"("a\")", "a # b"})
    EXPECT_THROW(parse_plan(text, "x"), Error) << text;
  EXPECT_EQ(parse_plan(R"(a; from 5:"b c"; from 9 :"d")", "x").size(), 3U);
}

TEST(Plan, AFileHasCommentsAndMayBeginWithAByteOrderMark) {
  const testing::TestDirectory folder("plan");
  const std::string file = (folder.path() / "run.plan").string();
  for (const std::string mark : {"", "\xEF\xBB\xBF"}) {
    write_file_atomic(file, mark + "# two sets\n0.5 a + 0.5 b#2  # the newer b\nfrom 5: \"# c\"\n");

    EXPECT_EQ(read_plan(file, "data.path"),
              (Phases{{1, 0, {{0.5, {"a"}}, {0.5, {"b#2"}}}}, {5, 0, {{1, {"# c"}}}}}));
  }
  write_file_atomic(file, "\xEF\xBB\xBF{\"text\": \"a\"}\n");
  EXPECT_THROW(read_plan(file, "data.path"), Error);
}

TEST(Plan, RefusesWhatIsWrongAndSaysWhere) {
  for (const char* text :
       {"", "  ;;", "0.7 a + b", "0 a + 1 b", "-1 a + 1 b", "a + ", "a b", "a + a",
        "1 a + 1 b + 2 a", "a; b", "a; from 0: b", "a; from 10: b; from 10: c", "a; from 10 b",
        "a; from ten: b", "from 5: a", "a; from 9 at x: b", "\"a", "a + b; from 10: a"}) {
    EXPECT_THROW(parse_plan(text, "data.path"), Error) << text;
  }
  try {
    parse_plan("0.7 a + 0.3 b from 10: c", "data.path");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'from'"), std::string::npos) << error.what();
    EXPECT_EQ(error.kind(), ErrorKind::usage);
  }
}

TEST(Plan, AValueIsADirectoryAFileOrAPlan) {
  const testing::TestDirectory folder("plan");
  const std::string odd = (folder.path() / "1 a + 2 b").string();
  std::filesystem::create_directories(odd);
  write_file_atomic(folder.path() / "run.plan", "1 a + 2 b\nfrom 5: 1 a\n");

  EXPECT_EQ(read_plan(odd, "data.path"), (Phases{{1, 0, {{1, {odd}}}}}));
  EXPECT_EQ(read_plan("no/such/set", "data.path"), (Phases{{1, 0, {{1, {"no/such/set"}}}}}));
  EXPECT_EQ(read_plan("1 a + 2 b", "data.path"), (Phases{{1, 0, {{1, {"a"}}, {2, {"b"}}}}}));
  EXPECT_EQ(read_plan((folder.path() / "run.plan").string(), "data.path").size(), 2U);
}

TEST(Plan, TextsAreRefusedWithTheCommandThatPacksThem) {
  const testing::TestDirectory folder("plan");
  const std::filesystem::path texts = folder.path() / "texts";
  std::filesystem::create_directories(texts);
  for (const char* name : {"a.jsonl", "b.jsonl.gz", "c.jsonl.zst"}) {
    write_file_atomic(texts / name, "{\"text\": \"x\"}\n");
    const std::string path = (texts / name).string();
    for (const std::string& value : {path, "0.5 " + path + " + 0.5 set"}) {
      try {
        read_plan(value, "data.path");
        FAIL() << value;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::usage);
        EXPECT_NE(std::string(error.what()).find("trireme-data pack"), std::string::npos);
        EXPECT_NE(std::string(error.what()).find("--input " + path + " "), std::string::npos);
      }
    }
  }
  EXPECT_THROW(read_plan(texts.string(), "data.path"), Error);
  const std::string file = (texts / "a.jsonl").string();
  const auto advice = [&](const std::string& value, std::int64_t seq_len) {
    try {
      read_plan(value, "data.path", kTextKind, seq_len);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(advice(file, 640).find(" --seq-len 640 --output"), std::string::npos);
  EXPECT_NE(advice(file, 0).find(" --seq-len L --output"), std::string::npos);
  EXPECT_NE(advice("1 set; from 5 at 96: 1 " + file, 640).find(" --seq-len 96 --output"),
            std::string::npos);
  try {
    read_plan((texts / "a.jsonl").string(), "data.path", std::array<std::string_view, 1>{"sft"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("pack --kind sft --template NAME --tokenizer"),
              std::string::npos)
        << error.what();
  }
  try {
    read_plan((texts / "a.jsonl").string(), "data.path",
              std::array<std::string_view, 2>{"pretrain", "sft"});
    FAIL();
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("pack --kind pretrain --tokenizer"), std::string::npos) << what;
    EXPECT_NE(what.find("(conversations: --kind sft --template NAME)"), std::string::npos) << what;
  }

  write_file_atomic(texts / "manifest.json", "{}");  // a data set next to its sources

  EXPECT_EQ(read_plan(texts.string(), "data.path").size(), 1U);
}

TEST(Plan, AFileThatIsNoPlanIsRefusedByWhatItIs) {
  const testing::TestDirectory folder("plan");
  const auto refusal = [&](const char* name, const std::string& content, ErrorKind kind) {
    const std::string file = (folder.path() / name).string();
    write_file_atomic(file, content);
    try {
      read_plan(file, "data.path");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      EXPECT_NE(std::string(error.what()).find(file), std::string::npos) << error.what();
      return std::string(error.what());
    }
    return std::string("no error");
  };

  EXPECT_NE(refusal("garbage", std::string("\x7f\x01\0ab", 5), ErrorKind::data)
                .find("neither a token set (a directory that `trireme-data pack` wrote)"),
            std::string::npos);
  for (const char* records : {"{\"text\": \"a\"}\n", "\n [1]"})
    EXPECT_NE(refusal("records.json", records, ErrorKind::usage).find("trireme-data pack"),
              std::string::npos);
  EXPECT_EQ(refusal("good.plan", "# two\n\t1 a + 2 b\r\n", ErrorKind::usage), "no error");
}

TEST(Plan, RefusesABlendWhereOneSetIsWanted) {
  const testing::TestDirectory folder("one_set");
  const std::string odd = (folder.path() / "1 a + 2 b").string();
  std::filesystem::create_directories(odd);
  for (const std::string& path : {std::string(), std::string("sets/absent"), odd, odd + " c"})
    EXPECT_NO_THROW(refuse_blend(path, "data.valid_path")) << path;
  for (const std::string path : {"1 b#2", "\"sets/a\"", "0.5 a + 0.5 b", "a + b"}) {
    try {
      refuse_blend(path, "data.valid_path");
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(std::string(error.what()).find("data.valid_path = " + path + " reads as a blend"),
                std::string::npos)
          << error.what();
    }
  }
}

TEST(Plan, AnAbsolutePlanIsTheSameFromAnyDirectory) {
  const testing::TestDirectory folder("plan");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const std::string here = std::filesystem::current_path().string();
  std::filesystem::create_directories("1 a + 2 b");
  write_file_atomic("run.plan", "1 a + 2 b\n");

  EXPECT_EQ(absolute_plan("sets/web"), here + "/sets/web");
  EXPECT_EQ(absolute_plan("./sets//web/"), here + "/sets/web");
  EXPECT_EQ(absolute_plan("link/../web"), here + "/link/../web");
  EXPECT_EQ(absolute_plan("/data/web"), "/data/web");
  EXPECT_EQ(absolute_plan("1 a + 2 b"), here + "/1 a + 2 b");
  EXPECT_EQ(absolute_plan("run.plan"), here + "/run.plan");
  EXPECT_EQ(absolute_plan(""), "");
  EXPECT_EQ(absolute_plan("a b"), "a b");  // a mistake, which read_plan reports
  for (const char* plan : {"a + b", "0.7 a + 0.3 /b", "5 a", "1 \"my sets/a;b\" + 2 2024",
                           R"(1 "say \"a\" \\b" + 2 c#2 + 1 "# d" + 1 it's + 1 e\f)",
                           "at 512: 7 a + 3 b; from 1001: 1 b + 1 c\nfrom 2001 at 4096: c"}) {
    Phases expected = parse_plan(plan, "x");
    for (PlanPhase& phase : expected) {
      for (PlanSource& source : phase.sources)
        for (std::string& set : source.folders)
          if (!set.starts_with('/')) set = here + "/" + set;
    }
    EXPECT_EQ(parse_plan(absolute_plan(plan), "x"), expected) << absolute_plan(plan);
  }
  std::filesystem::create_directories("my project");
  std::filesystem::current_path("my project");
  EXPECT_EQ(parse_plan(absolute_plan("none"), "x").front().sources.front().folders,
            std::vector<std::string>{here + "/my project/none"});
  std::filesystem::current_path(before);
}

}  // namespace
}  // namespace trireme::data
