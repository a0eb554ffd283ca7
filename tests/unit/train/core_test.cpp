#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "core/error.hpp"
#include "train/eval/core_bundle.hpp"
#include "train/eval/core_prompts.hpp"
#include "train/eval/flat_yaml.hpp"
#include "train/eval/python_random.hpp"
#include "unit/text/text_samples.hpp"

namespace trireme::train {
namespace {

using Positions = std::vector<std::size_t>;

std::string data_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data);
    return error.what();
  }
  return "accepted";
}

// Expected values: CPython 3.11, `random.Random(seed)`.
TEST(PythonRandom, DrawsTheBitsOfPython) {
  PythonRandom random(1234);
  EXPECT_EQ(random.bits(), 4150886329U);
  EXPECT_EQ(random.bits(), 3342196574U);
  EXPECT_EQ(random.bits(), 1892932127U);
  for (int i = 3; i < 1247; ++i) (void)random.bits();
  EXPECT_EQ(random.bits(), 408172097U);  // the third block of 624 words
  EXPECT_EQ(PythonRandom(0).bits(), 3626764237U);
  EXPECT_EQ(PythonRandom((std::uint64_t{1} << 40) + 7).bits(), 2635837658U);
}

TEST(PythonRandom, SamplesLikePythonFromShortAndLongLists) {
  const auto sample = [](std::size_t n, std::size_t k) {
    return PythonRandom(1234 + n).sample(n, k);
  };
  EXPECT_EQ(sample(21, 5), (Positions{12, 11, 4, 20, 3}));  // the longest list that is copied
  EXPECT_EQ(sample(22, 5), (Positions{17, 3, 14, 13, 8}));
  EXPECT_EQ(sample(85, 10), (Positions{51, 36, 62, 9, 57, 1, 32, 42, 37, 84}));
  EXPECT_EQ(sample(86, 10), (Positions{18, 19, 69, 17, 54, 2, 24, 1, 7, 48}));
  EXPECT_EQ(sample(1000, 10), (Positions{806, 650, 904, 87, 100, 412, 517, 819, 609, 535}));
  EXPECT_EQ(sample(3, 3), (Positions{0, 1, 2}));
  EXPECT_EQ(sample(3, 0), Positions{});
}

TEST(PythonRandom, ShufflesLikePython) {
  std::vector<int> list{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  PythonRandom(1337).shuffle(list);
  EXPECT_EQ(list, (std::vector<int>{6, 0, 1, 4, 10, 7, 3, 11, 2, 5, 8, 9}));
  std::vector<int> none;
  PythonRandom(1337).shuffle(none);
  EXPECT_TRUE(none.empty());
}

TEST(FlatYaml, ReadsTheFormsOfTaskLists) {
  const auto records = read_yaml_records(
      "# a comment\nseed: 1\nmodel:\n  name: x\n  list:\n  - 1\n\nicl_tasks:\n-\n  label: a b  # text\n"
      "  num: [10, 'x, y']\n  quoted: \"\\nAnswer: \" # after\n-\r\n  label: 'it''s'\r\n"
      "- label: \"#1\"\n  block:\n  - 10\n  - \"b\"\n  deeper:\n    - 3\n  empty:\n  other:\n"
      "    key: 1\n  folded: >\n    text\n  long: '\n\n    Answer: '\n  two: \"a\n    b\"\nafter: 1\n",
      "f", "icl_tasks");
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(records[0].where, "f:9");
  EXPECT_EQ(records[0].fields.at("label").text, "a b");
  EXPECT_EQ(records[0].fields.at("label").where, "f:10");
  EXPECT_EQ(records[0].fields.at("num").list, (std::vector<std::string>{"10", "x, y"}));
  EXPECT_EQ(records[0].fields.at("quoted").text, "\nAnswer: ");
  EXPECT_EQ(records[1].fields.at("label").text, "it's");
  const auto& third = records[2].fields;
  EXPECT_EQ(third.at("label").text, "#1");
  EXPECT_EQ(third.at("block").list, (std::vector<std::string>{"10", "b"}));
  EXPECT_EQ(third.at("deeper").list, std::vector<std::string>{"3"});
  EXPECT_EQ(third.at("empty").text, "");
  EXPECT_FALSE(third.at("other").text || third.at("other").list);
  EXPECT_FALSE(third.at("folded").text || third.at("folded").list);
  EXPECT_EQ(third.at("long").text, "\nAnswer: ");
  EXPECT_EQ(third.at("two").text, "a b");
}

TEST(FlatYaml, ReadsJson) {
  const auto records = read_yaml_records(
      "{\"icl_tasks\": [{\"label\": \"a\", \"num\": [10], \"x\": {}}]}", "f", "icl_tasks");
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].fields.at("label").text, "a");
  EXPECT_EQ(records[0].fields.at("num").list, std::vector<std::string>{"10"});
  EXPECT_FALSE(records[0].fields.at("x").text);
}

TEST(FlatYaml, RefusesOtherFormsWithTheirLine) {
  for (const auto& [bad, line] :
       std::vector<std::pair<std::string, int>>{{"x: 1\n", 0},
                                                {"l:\n", 2},
                                                {"l: 3\n", 1},
                                                {"l:\n- a: 1\n  a: 2\n", 3},
                                                {"l:\n- a: 1\n   b: 2\n  c d\n", 4},
                                                {"l:\n- a: \"x\n", 3},
                                                {"l:\n- a: 'x' y\n", 2},
                                                {"l:\n- a: &x 1\n", 2},
                                                {"l:\n- a: [1\n", 2},
                                                {"l:\n- a: \"\\q\"\n", 2},
                                                {"l:\n-\n", 3},
                                                {"l:\n- a: b: c\n", 2},
                                                {"l:\n- a:1\n", 2},
                                                {"l:\n\t- a: 1\n", 2}}) {
    const std::string problem = data_error([&bad] { (void)read_yaml_records(bad, "f", "l"); });
    EXPECT_TRUE(problem.starts_with(line == 0 ? "f has no key" : cat("f:", line, ":")))
        << bad << problem;
  }
}

TEST(Csv, ReadsQuotedFields) {
  const auto rows = read_csv("a,b\r\n\"x, \"\"y\"\"\n2\",1\n\nonly\n", "f");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].at("a"), "x, \"y\"\n2");
  EXPECT_EQ(rows[0].at("b"), "1");
  EXPECT_EQ(rows[1].at("b"), "");
  EXPECT_NE(data_error([] { (void)read_csv("a\n\"x", "f"); }).find("closing quote"),
            std::string::npos);
}

CoreTask task_of(CoreType type, std::int64_t shots, std::vector<CoreItem> items) {
  CoreTask task{"t", type, shots, " ", 0, std::move(items)};
  for (std::size_t i = 0; i < task.items.size(); ++i) task.items[i].where = cat("t.jsonl:", i + 1);
  return task;
}

TEST(CorePrompts, MultipleChoiceTrimsNothing) {
  CoreTask task = task_of(CoreType::multiple_choice, 1,
                          {{{" q1 "}, {"a", "b "}, 1, 1, ""}, {{"q2\n"}, {" c", "d"}, 0, 2, ""}});
  task.delimiter = "\nAnswer: ";
  EXPECT_EQ(draw_shots(task, 0), Positions{1});
  const CorePrompts prompts = core_prompts(task, 0, {1});
  EXPECT_EQ(prompts.options, (std::vector<std::string>{"q2\n\nAnswer:  c\n\n q1 \nAnswer: a",
                                                       "q2\n\nAnswer:  c\n\n q1 \nAnswer: b "}));
}

TEST(CorePrompts, SchemaHasSeveralContexts) {
  const CoreTask task = task_of(
      CoreType::schema, 1, {{{"A ", "B"}, {"end"}, 0, 1, ""}, {{"C", "D"}, {" rest"}, 1, 2, ""}});
  EXPECT_EQ(core_prompts(task, 0, {1}).options,
            (std::vector<std::string>{"D  rest\n\nA  end", "D  rest\n\nB end"}));
}

TEST(CorePrompts, LanguageModelingTrimsContextsAndTheStart) {
  const CoreTask task =
      task_of(CoreType::language_modeling, 1,
              {{{" one\u00A0\n"}, {"two "}, 0, 1, ""}, {{"three\t"}, {" four"}, 0, 2, ""}});
  const CorePrompts prompts = core_prompts(task, 0, {1});
  EXPECT_EQ(prompts.options, std::vector<std::string>{"three  four\n\none two "});
  EXPECT_EQ(prompts.start, "three  four\n\none");
}

TEST(CorePrompts, FewItemsAreAllDrawn) {
  const CoreTask task =
      task_of(CoreType::language_modeling, 10,
              {{{"a"}, {"b"}, 0, 1, ""}, {{"c"}, {"d"}, 0, 2, ""}, {{"e"}, {"f"}, 0, 3, ""}});
  Positions drawn = draw_shots(task, 1);
  std::sort(drawn.begin(), drawn.end());
  EXPECT_EQ(drawn, (Positions{0, 2}));
}

class CoreIds : public ::testing::Test {
 protected:
  [[nodiscard]] std::vector<std::uint32_t> ids(const std::string& text) const {
    std::vector<std::uint32_t> all{kFirst};
    const auto rest =
        tokenizer_.encode(text, {.add_special_tokens = false, .match_added_tokens = false});
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
  }

  [[nodiscard]] EncodedCoreItem encoded(const CoreTask& task,
                                        std::int64_t max_length = 1000) const {
    return encode_core_item(task, 0, core_prompts(task, 0, {}), tokenizer_, kFirst, max_length);
  }

  static constexpr std::uint32_t kFirst = 1;
  text::Tokenizer tokenizer_ = text::samples::small_tokenizer();
};

TEST_F(CoreIds, ScoresWhatDiffersBetweenChoices) {
  const auto item = encoded(
      task_of(CoreType::multiple_choice, 0, {{{"<|im_end|>"}, {"x y", "x z z"}, 0, 1, ""}}));
  const auto first = ids("<|im_end|> x y");  // the special token is plain text
  const auto second = ids("<|im_end|> x z z");
  EXPECT_GT(first.size(), 6U);
  const auto context = item.options[0].context;
  EXPECT_EQ(item.options[1].context, context);
  EXPECT_TRUE(std::equal(context.begin(), context.end(), second.begin()));
  EXPECT_EQ(context.size() + item.options[0].ending.size(), first.size());
  EXPECT_NE(item.options[0].ending.front(), item.options[1].ending.front());
}

TEST_F(CoreIds, ScoresTheCommonEndOfSchemas) {
  const auto item = encoded(task_of(CoreType::schema, 0, {{{"a q", "b w w"}, {"x y"}, 0, 1, ""}}));
  EXPECT_EQ(item.options[0].ending, item.options[1].ending);
  EXPECT_NE(item.options[0].context.back(), item.options[1].context.back());
}

TEST_F(CoreIds, EqualOptionsHaveNothingToScore) {
  for (const CoreTask& task :
       {task_of(CoreType::multiple_choice, 0, {{{"a"}, {"x", "x"}, 0, 1, ""}}),
        task_of(CoreType::schema, 0, {{{"a", "a"}, {"x"}, 0, 1, ""}})})
    for (const ContextAndEnding& option : encoded(task).options) EXPECT_TRUE(option.ending.empty());
}

TEST_F(CoreIds, LongPromptsLoseTheirBeginning) {
  const CoreTask task =
      task_of(CoreType::language_modeling, 0, {{{"a b c d e f g"}, {"h i"}, 0, 1, ""}});
  const auto whole = encoded(task);
  EXPECT_FALSE(whole.is_cut);
  const auto all = ids("a b c d e f g h i");
  const auto ending = std::ssize(whole.options[0].ending);
  const auto cut = encoded(task, ending + 1);
  EXPECT_TRUE(cut.is_cut);
  EXPECT_EQ(cut.options[0].ending, whole.options[0].ending);
  EXPECT_EQ(cut.options[0].context, std::vector<std::uint32_t>{whole.options[0].context.back()});
  EXPECT_FALSE(encoded(task, std::ssize(all)).is_cut);
  EXPECT_NE(data_error([&] { (void)encoded(task, ending); }).find("t.jsonl:1: the scored part"),
            std::string::npos);
}

TEST_F(CoreIds, AContinuationThatJoinsItsContextIsRefused) {
  CoreTask task = task_of(CoreType::language_modeling, 0, {{{"the re"}, {"turn"}, 0, 1, ""}});
  task.delimiter = "";  // "return" is one token
  EXPECT_NE(data_error([&] { (void)encoded(task); }).find("t.jsonl:1: the ids of the prompt"),
            std::string::npos);
}

class CoreBundle : public ::testing::Test {
 protected:
  CoreBundle() {
    std::string list = "icl_tasks:\n";
    std::string table = "Eval Task,Random baseline\n";
    for (std::size_t i = 0; i < kNumCoreTasks; ++i) {
      list += cat("-\n  label: t", i, "\n  dataset_uri: d.jsonl\n  num_fewshot: [2]\n",
                  "  icl_task_type: language_modeling\n");
      table += cat("t", i, ",", i, "\n");
    }
    put("core.yaml", list);
    put("eval_meta_data.csv", table);
    put("eval_data/d.jsonl",
        "{\"context\": \"a\", \"continuation\": 5}\n{\"context\": \"b\", \"continuation\": \"c\"}\n");
  }

  ~CoreBundle() override { std::filesystem::remove_all(root_); }

  void put(const std::string& name, const std::string& content) const {
    const std::filesystem::path file = root_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << content;
  }

  void replace(const std::string& name, const std::string& from, const std::string& to) const {
    std::ifstream file(root_ / name);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    put(name, text.replace(at, from.size(), to));
  }

  void expect_problem(const std::string& part) const {
    const std::string problem = data_error([this] { (void)read_core_bundle(root_, 0); });
    EXPECT_NE(problem.find(part), std::string::npos) << problem;
  }

  std::filesystem::path root_ =
      std::filesystem::path(::testing::TempDir()) / ("trireme-core-" + std::to_string(::getpid()));
};

TEST_F(CoreBundle, IsReadWithBaselinesAndShuffledItems) {
  const auto tasks = read_core_bundle(root_, 0);
  ASSERT_EQ(tasks.size(), kNumCoreTasks);
  EXPECT_EQ(tasks[21].label, "t21");
  EXPECT_EQ(tasks[21].baseline, 21);
  EXPECT_EQ(tasks[0].shots, 2);
  EXPECT_EQ(tasks[0].delimiter, " ");
  ASSERT_EQ(tasks[0].items.size(), 2U);
  for (const CoreItem& item : tasks[0].items)
    EXPECT_EQ(item.continuation(0), item.line == 1 ? "5" : "c");
  EXPECT_EQ(read_core_bundle(root_, 1)[3].items.size(), 1U);
}

TEST_F(CoreBundle, NamesWhatIsMissing) {
  replace("core.yaml", "t21\n", "t21\n  extra: 1\n");
  EXPECT_EQ(read_core_bundle(root_, 0).size(), kNumCoreTasks);
  replace(
      "core.yaml",
      "-\n  label: t7\n  dataset_uri: d.jsonl\n  num_fewshot: [2]\n  icl_task_type: language_modeling\n",
      "");
  expect_problem("lists 21 tasks. CORE is the mean over 22 tasks; missing: t7");
  replace("core.yaml", "label: t3\n", "label: copa\n");
  expect_problem("winograd");
}

TEST_F(CoreBundle, NamesAMissingBaselineOrFile) {
  replace("eval_meta_data.csv", "t7,7\n", "");
  expect_problem("eval_meta_data.csv has no row for task 't7'");
  put("eval_meta_data.csv", "Eval Task,Category\nt1,x\n");
  expect_problem("eval_meta_data.csv has no column 'Random baseline'");
  std::filesystem::remove(root_ / "eval_meta_data.csv");
  expect_problem("eval_meta_data.csv: No such file");
}

TEST_F(CoreBundle, RefusesInvalidTasksWithTheirLine) {
  replace("eval_meta_data.csv", "t7,7\n", "t7,100\n");
  expect_problem("'Random baseline' of task 't7' is '100'");
  replace("eval_meta_data.csv", "t7,100\n", "t7,7\n");
  replace("core.yaml", "label: t3\n", "label: t2\n");
  expect_problem("core.yaml:17: task 't2' appears twice");
  replace("core.yaml", "[2]", "2");
  expect_problem("core.yaml:5: num_fewshot must be a list");
  replace("core.yaml", "language_modeling", "generation");
  expect_problem("icl_task_type of task 't0' is 'generation'. It must be one of: multiple_choice");
  replace("core.yaml", "  dataset_uri: d.jsonl\n", "");
  expect_problem("core.yaml:2: the task has no key 'dataset_uri'");
}

TEST_F(CoreBundle, RefusesInvalidRecordsWithTheirLine) {
  const std::string good = "{\"query\": \"a\", \"choices\": [\"b\", \"c\"], \"gold\": 0}\n";
  replace("core.yaml", "language_modeling", "multiple_choice");
  for (const std::string bad : {"{", "[]", "{\"choices\": [\"b\", \"c\"], \"gold\": 0}",
                                "{\"query\": \"a\", \"choices\": [\"b\"], \"gold\": 0}",
                                "{\"query\": \"a\", \"choices\": [\"b\", \"c\"], \"gold\": 2}",
                                "{\"query\": \"a\", \"choices\": [\"b\", \"c\"], \"gold\": -1}",
                                "{\"query\": \"a\", \"choices\": [\"b\", true], \"gold\": 0}",
                                "{\"query\": \"a\", \"choices\": [\"b\", \"c\"]}"}) {
    put("eval_data/d.jsonl", good + bad);
    expect_problem("d.jsonl:2");
  }
  put("eval_data/d.jsonl", "\n");
  expect_problem("d.jsonl has no record");
  std::filesystem::remove(root_ / "eval_data/d.jsonl");
  expect_problem("d.jsonl: No such file");
}

}  // namespace
}  // namespace trireme::train
