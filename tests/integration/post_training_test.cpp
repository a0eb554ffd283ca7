/// Runs fine-tuning like a user does: on several ranks, killed, and resumed after the initial model
/// was deleted. Also tests what is refused.

#include "support/post_training.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using testing::Arguments;
using testing::cases;
using testing::Exit;
using testing::expect_steps;
using testing::PostTraining;
using testing::TaskCase;

TEST_F(PostTraining, AKilledRunResumesBitForBitWithoutItsInitialModel) {
  for (const TaskCase& one : cases()) {
    SCOPED_TRACE(one.name);
    const std::string start = formatted("start of {}", one.name);
    fs::copy(path("start"), path(start), fs::copy_options::recursive);
    const std::string whole = formatted("whole {}", one.name);
    const std::string broken = formatted("broken {}", one.name);
    ASSERT_EQ(train(one, whole, start, {.ranks = 2}).code, 0);
    ASSERT_NE(train(one, broken, start, {.ranks = 2, .fault = "train.step:1:4:kill9"}).code, 0);
    fs::remove_all(path(start));
    const Exit resumed = mpirun(2, {TRIREME_PROGRAM, one.task, "--run", path(broken).string()});
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_EQ(file(broken, "chain.txt"), file(whole, "chain.txt"));
    EXPECT_EQ(hash(broken), hash(whole));
    const Exit said = trireme(
        {"generate", "--checkpoint", path(broken).string(), "--prompt", "a", "--max-tokens", "2"});
    EXPECT_EQ(said.code, 0) << said.err;
  }
}

TEST_F(PostTraining, LossesAreThoseOfOneRank) {
  for (const TaskCase& one : cases()) {
    SCOPED_TRACE(one.name);
    const Arguments fp64{"--train.precision", "fp64"};
    const std::string alone = formatted("alone {}", one.name);
    const std::string cut = formatted("cut {}", one.name);
    ASSERT_EQ(train(one, alone, "start", {.ranks = 1}, fp64).code, 0);
    Arguments layout = fp64;
    layout.insert(layout.end(), {"--parallel.tp", "2", "--parallel.sequence_parallel", "true",
                                 "--parallel.zero", "3", "--parallel.recompute", "full"});
    ASSERT_EQ(train(one, cut, "start", {.ranks = 4}, layout).code, 0);
    expect_formulas(file(cut, "layout.json"));
    expect_steps(metrics(cut).steps, metrics(alone).steps);
  }
}

TEST_F(PostTraining, LossesInStagesAreThoseOfOneRank) {
  const std::string table = path("reference of stages").string();
  ASSERT_EQ(trireme({"dpo-reference", "--init", path("start").string(), "--data",
                     path("pairs").string(), "--output", table})
                .code,
            0);
  const std::vector<TaskCase> staged{
      {"staged sft", "sft", "chats", {"--sft.token_weights", "<think>=3"}},
      {"staged adapters", "sft", "chats", {"--lora.rank", "2", "--lora.dropout", "0.1"}},
      {"staged dpo", "dpo", "pairs", {"--dpo.reference", table, "--dpo.sft_weight", "0.1"}},
      {"staged live", "dpo", "pairs", {}},
      {"staged base", "dpo", "pairs", {"--lora.rank", "2"}},
      {"staged kto",
       "kto",
       "answers",
       {"--train.eval_every", "2", "--data.split", "18,6,0", "--lora.rank", "2"}},
      {"staged distill",
       "distill",
       "chats",
       {"--train.eval_every", "2", "--data.split", "20,4,0"}}};
  const auto validations = [](const std::string& run) {
    std::vector<double> losses;
    for (const Json& line : metrics(run).lines)
      if (line.contains("valid_loss")) losses.push_back(line["valid_loss"].get<double>());
    return losses;
  };
  for (const TaskCase& one : staged) {
    SCOPED_TRACE(one.name);
    const std::string alone = formatted("alone {}", one.name);
    ASSERT_EQ(train(one, alone, "start", {.ranks = 1}, {"--train.precision", "fp64"}).code, 0);
    ASSERT_EQ(train(one, one.name, "start", {.ranks = 2},
                    {"--train.precision", "fp64", "--parallel.pp", "2", "--parallel.schedule",
                     "zb-h1", "--parallel.recompute", "selective"})
                  .code,
              0);
    expect_formulas(file(one.name, "layout.json"));
    expect_steps(metrics(one.name).steps, metrics(alone).steps);
  }
  for (const std::string run : {"staged distill", "staged kto"}) {
    const auto valid = validations(run);
    const auto expected = validations("alone " + run);
    ASSERT_EQ(valid.size(), 2U) << run;
    ASSERT_EQ(expected.size(), 2U) << run;
    for (std::size_t i = 0; i < valid.size(); ++i) EXPECT_NEAR(valid[i], expected[i], 1e-10) << run;
  }
}

TEST_F(PostTraining, LossesOfShardedExpertsEqualThoseOfOneRank) {
  ASSERT_EQ(pretrain("experts", {"--train.steps", "2", "--model.num_experts", "4"}).code, 0);
  const Arguments fp64{"--train.precision", "fp64"};
  for (const TaskCase& one :
       {TaskCase{"dpo", "dpo", "pairs", {}}, TaskCase{"distill", "distill", "chats", {}}}) {
    SCOPED_TRACE(one.name);
    const std::string alone = formatted("experts alone {}", one.name);
    const std::string dealt = formatted("experts dealt {}", one.name);
    ASSERT_EQ(train(one, alone, "experts", {.ranks = 1}, fp64).code, 0);
    const Arguments layout{"--train.precision", "fp64", "--parallel.ep",   "2",
                           "--parallel.pp",     "2",    "--parallel.zero", "1"};
    ASSERT_EQ(train(one, dealt, "experts", {.ranks = 4}, layout).code, 0);
    expect_steps(metrics(dealt).steps, metrics(alone).steps);
  }
}

TEST_F(PostTraining, EvaluatesEquallyOnAnyNumberOfRanks) {
  std::ofstream(path("items.jsonl"))
      << R"({"ctx": "what is 3", "endings": [" it is 9", " no"], "label": 0})"
      << "\n"
      << R"({"ctx": "", "endings": ["a", "b c", "d"], "label": 2})"
      << "\n";
  const auto evaluate = [](int ranks, const Arguments& what) {
    Arguments words{TRIREME_PROGRAM, "eval", "--checkpoint",  path("start").string(),
                    "--batch",       "1",    "--predictions", path("predictions").string(),
                    "--json"};
    words.insert(words.end(), what.begin(), what.end());
    const Exit exit = mpirun(ranks, words);
    EXPECT_EQ(exit.code, 0) << exit.err;
    return exit.out + read_file(path("predictions"));
  };
  for (const Arguments& what : {Arguments{"--data", path("chats").string()},
                                Arguments{"--choices", path("items.jsonl").string()}}) {
    const std::string alone = evaluate(1, what);
    EXPECT_EQ(evaluate(3, what), alone);
    EXPECT_NE(alone.find(what[0] == "--data" ? "bits_per_byte" : "acc_norm"), std::string::npos);
  }
}

TEST_F(PostTraining, ARewardModelEqualsThatOfOneRankAndResumesBitForBit) {
  const TaskCase reward{"reward", "reward", "pairs", {"--reward.center", "0.01"}};
  const Arguments fp64{"--train.precision", "fp64"};
  ASSERT_EQ(train(reward, "reward alone", "start", {.ranks = 1}, fp64).code, 0);
  const auto expected = metrics("reward alone").steps;
  EXPECT_NE(expected.at(1).at("loss"), expected.at(2).at("loss"));
  for (const Arguments& more :
       {Arguments{"--parallel.tp", "2", "--parallel.sequence_parallel", "true", "--parallel.zero",
                  "3"},
        Arguments{"--parallel.pp", "2", "--parallel.cp", "2", "--parallel.zero", "1"}}) {
    SCOPED_TRACE(more[0]);
    Arguments layout = fp64;
    layout.insert(layout.end(), more.begin(), more.end());
    const std::string run = formatted("reward {}", more[0]);
    const Exit trained = train(reward, run, "start", {.ranks = 4}, layout);
    ASSERT_EQ(trained.code, 0) << trained.err;
    expect_steps(metrics(run).steps, expected);
  }

  ASSERT_EQ(train(reward, "reward", "start", {.ranks = 2}).code, 0);
  ASSERT_NE(
      train(reward, "reward killed", "start", {.ranks = 2, .fault = "train.step:1:4:kill9"}).code,
      0);
  const Exit resumed = mpirun(2, {TRIREME_PROGRAM, "reward", "--run", path("reward killed")});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(file("reward killed", "chain.txt"), file("reward", "chain.txt"));
  EXPECT_EQ(hash("reward killed"), hash("reward"));
}

TEST_F(PostTraining, ARewardModelLearnsAndIsEvaluated) {
  const TaskCase reward{"reward", "reward", "pairs", {}};
  ASSERT_EQ(train(reward, "learned", "start", {.ranks = 1}, {"--train.steps", "30"}).code, 0);
  const auto evaluate = [](int ranks) {
    const Exit exit =
        mpirun(ranks, {TRIREME_PROGRAM, "eval", "--reward", path("learned"), "--data",
                       path("pairs"), "--batch", "2", "--predictions", path("rewards"), "--json"});
    EXPECT_EQ(exit.code, 0) << exit.err;
    return exit.out + read_file(path("rewards"));
  };
  const std::string alone = evaluate(1);
  EXPECT_EQ(evaluate(3), alone);
  const Json figures = parse_json(alone.substr(0, alone.find('\n')), "eval");
  EXPECT_GT(figures.at("accuracy").get<double>(), 0.7);
  EXPECT_GT(figures.at("margin").get<double>(), 0);
  EXPECT_EQ(figures.at("num_pairs"), std::ranges::count(alone, '\n') - 1);  // a line for each pair

  expect_refused(trireme({"eval", "--reward", path("start"), "--data", path("pairs")}), 2,
                 {"has no reward head", "trireme reward"});
  expect_refused(trireme({"eval", "--reward", path("learned"), "--data", path("chats")}), 2,
                 {"has kind sft", "dpo is required"});
  expect_refused(trireme({"eval", "--data", path("pairs").string()}), 2,
                 {"--checkpoint MODEL or --reward MODEL"});
}

TEST_F(PostTraining, AStoredReferenceTrainsAsALiveOne) {
  const TaskCase& dpo = cases()[1];
  const Arguments fp64{"--train.precision", "fp64"};
  const std::string stored = path("reference").string();
  const Exit made =
      mpirun(2, {TRIREME_PROGRAM, "dpo-reference", "--init", path("start").string(), "--data",
                 path("pairs").string(), "--output", stored, "--precision", "fp64"});
  ASSERT_EQ(made.code, 0) << made.err;
  Arguments keys = fp64;
  keys.insert(keys.end(), {"--dpo.reference", fs::relative(stored).string()});
  ASSERT_EQ(train(dpo, "live", "start", {.ranks = 1}, fp64).code, 0);
  ASSERT_EQ(train(dpo, "stored", "start", {.ranks = 1}, keys).code, 0);
  const auto found = metrics("stored").losses();
  const auto expected = metrics("live").losses();
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-10);
  // Makes the path absolute, so that the run resumes from any directory.
  EXPECT_EQ(count(file("stored", "config.toml"), stored), 1U);

  const fs::path scores = fs::path(stored) / "reference.safetensors";
  const std::string whole = read_file(scores);
  write_file_atomic(scores, whole.substr(0, whole.size() / 2));
  expect_refused(train(dpo, "of half a table", "start", {.ranks = 1}, keys), 3, {"damaged"});
  EXPECT_FALSE(fs::exists(path("of half a table")));
  write_file_atomic(scores, whole);

  // The DPO reference may be any model, here a checkpoint.
  ASSERT_EQ(pretrain("stranger", {"--train.steps", "1"}).code, 0);
  Arguments live_keys = fp64;
  live_keys.insert(live_keys.end(), {"--dpo.reference", path("start").string()});
  ASSERT_EQ(train(dpo, "stored other", "stranger", {.ranks = 1}, keys).code, 0);
  ASSERT_EQ(train(dpo, "live other", "stranger", {.ranks = 1}, live_keys).code, 0);
  expect_steps(metrics("stored other").steps, metrics("live other").steps);

  keys.insert(keys.end(), {"--dpo.score", "answer"});
  expect_refused(train(dpo, "other score", "start", {.ranks = 1}, keys), 2, {"dpo-reference"});
}

TEST_F(PostTraining, ADamagedNewestCheckpointOfTheStartIsRefusedAndAnOlderOneCanBeNamed) {
  ASSERT_EQ(pretrain("hurt", {"--train.steps", "2", "--checkpoint.every", "1"}).code, 0);
  int damaged = 0;
  for (const auto& entry :
       fs::directory_iterator(path("hurt") / "checkpoints" / "step-000000002")) {
    if (entry.path().extension() != ".h5") continue;
    std::fstream shard(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    shard.seekp(static_cast<std::streamoff>(entry.file_size() / 2));
    shard << "damage";
    ++damaged;
  }
  ASSERT_GT(damaged, 0);
  const TaskCase dpo{"dpo", "dpo", "pairs", {}};
  expect_refused(train(dpo, "from hurt", "hurt", {.ranks = 1}), 3, {"step-000000001"});
  ASSERT_EQ(train(dpo, "from hurt", "hurt/checkpoints/step-000000001", {.ranks = 1}).code, 0);
  EXPECT_NEAR(metrics("from hurt").losses().front(), std::log(2.0), 1e-6) << "reference is start";
}

TEST_F(PostTraining, DataOfAnotherModelOrTaskIsRefused) {
  const TaskCase sft{"sft", "sft", "chats", {}};
  const auto refused = [&](const TaskCase& one, const std::string& start, const Arguments& keys,
                           const std::vector<std::string>& words) {
    expect_refused(train(one, "foreign", start, {.ranks = 1}, keys), 2, words);
  };
  refused(sft, "start", {"--lora.rank", "2", "--lora.targets", "nope"}, {"lora.targets", "q_proj"});
  refused(sft, "start", {"--lora.rank", "2", "--lora.dropout", "1"}, {"lora.dropout"});
  refused(sft, "start", {"--lora.rank", "-1"}, {"lora.rank"});
  EXPECT_FALSE(fs::exists(path("foreign")));

  ASSERT_EQ(train(sft, "adapted", "start", {.ranks = 1},
                  {"--lora.rank", "2", "--lora.alpha", "6", "--lora.targets", "q_proj,v_proj"})
                .code,
            0);
  // The checkpoint keeps the adapter keys that define the model, but not the keys of adapter
  // training.
  ASSERT_EQ(train(sft, "adapted on", "adapted", {.ranks = 1}, {"--lora.rank", "2"}).code, 0);
  EXPECT_EQ(count(file("adapted on", "config.toml"), "alpha = 6"), 1U);
  EXPECT_EQ(count(file("adapted on", "config.toml"), "q_proj,v_proj"), 1U);
  refused(sft, "adapted", {"--lora.rank", "3"}, {"lora.rank = 3", "have 2"});
  refused(sft, "adapted", {"--lora.rank", "2", "--lora.alpha", "5"}, {"lora.alpha", "6"});

  expect_refused(mpirun(1, {TRIREME_PROGRAM, "distill", "--run", path("adapted").string(),
                            "--distill.teacher", path("start").string()}),
                 2, {"to a run of `trireme sft`", "--init"});

  {
    std::ofstream texts(path("texts.jsonl"));  // every word of two letters
    for (int pair = 0; pair < 26 * 26; ++pair) {
      const std::string word{static_cast<char>('a' + pair / 26),
                             static_cast<char>('a' + pair % 26)};
      texts << formatted("{{\"text\": \"{} {}\"}}\n", word, word);
    }
  }
  const auto pack_chats = [](const char* vocab_size, const std::string& output) {
    const std::string tokenizer = path(output + " tokenizer").string();
    testing::Process(
        {TRIREME_DATA_PROGRAM, "tokenizer", "train", "--input", path("texts.jsonl").string(),
         "--vocab-size", vocab_size, "--output", tokenizer},
        {}, path("pack.log"))
        .wait(kLimit_s);
    ASSERT_EQ(
        testing::Process({TRIREME_DATA_PROGRAM, "pack", "--kind", "sft", "--tokenizer", tokenizer,
                          "--input", path("chats.jsonl").string(), "--template", "minimind-v3",
                          "--seq-len", "48", "--output", path(output).string()},
                         {}, path("pack.log"))
            .wait(kLimit_s)
            .code,
        0);
  };
  pack_chats("294", "other chats");
  pack_chats("800", "chats of more tokens");
  refused({"sft", "sft", "chats of more tokens", {}}, "start", {},
          {"another tokenizer than that of the weights", "trireme-data pack --tokenizer"});
  const TaskCase distill{"distill", "distill", "other chats", {}};
  refused(distill, "start", {}, {"distill.teacher", "another tokenizer", "choose another teacher"});
  expect_refused(trireme({"distill", "--init", path("start").string(), "--data",
                          path("chats").string(), "--run", path("foreign").string()}),
                 2, {"distill.teacher = ''", "distill needs a teacher", "Hugging Face directory"});
  const TaskCase taught{"distill", "distill", "chats", {}};
  expect_refused(train(taught, "foreign", "start", {.ranks = 1},
                       {"--distill.teacher", path("nobody").string()}),
                 3, {"distill.teacher = ", "nobody"});
  EXPECT_FALSE(fs::exists(path("foreign"))) << "the next command has that name for itself";
}

TEST_F(PostTraining, AnImportedRunIsTrainedInItsOwnDirectory) {
  ASSERT_EQ(trireme({"export", "--checkpoint", path("start").string(), "--output",
                     path("exported").string()})
                .code,
            0);
  ASSERT_EQ(
      trireme({"import", "--hf", path("exported").string(), "--output", path("imported").string()})
          .code,
      0);
  const Exit trained =
      trireme({"sft", "--run", path("imported").string(), "--data", path("chats").string(),
               "--train.steps", "1", "--train.device", "cpu"});
  EXPECT_EQ(trained.code, 0) << trained.err;
}

TEST_F(PostTraining, AnUnsuitableInitialModelIsRefused) {
  const auto sft = [](const Arguments& more) {
    Arguments words{
        "sft",           "--data", path("chats").string(), "--run", path("refused").string(),
        "--train.steps", "1",      "--train.device",       "cpu"};
    words.insert(words.end(), more.begin(), more.end());
    return trireme(words);
  };
  const std::string start = path("start").string();
  expect_refused(sft({}), 2, {"sft starts from a trained model", "--init"});
  expect_refused(sft({"--init", start, "--data", set().string()}), 2,
                 {"has kind pretrain, but sft is required"});
  expect_refused(sft({"--init", start, "--model.hidden_size", "64"}), 2, {"model.hidden_size"});
  expect_refused(sft({"--init", start, "--sft.token_weights", "what is=2"}), 2,
                 {"sft.token_weights"});
  EXPECT_FALSE(fs::exists(path("refused")));

  ASSERT_EQ(sft({"--init", start}).code, 0);
  fs::copy(path("start"), path("other"), fs::copy_options::recursive);
  expect_refused(sft({"--init", path("other").string()}), 2, {"this run started from"});
  const Arguments other_format{"--init", path("refused").string(),
                               "--data", path("chatml").string(),
                               "--run",  path("formats").string()};
  expect_refused(sft(other_format), 2, {"chatml", "minimind-v3", "data.allow_template_change"});
  Arguments allowed = other_format;
  allowed.insert(allowed.end(), {"--data.allow_template_change", "true"});
  EXPECT_EQ(sft(allowed).code, 0);
}

TEST_F(PostTraining, ATokenizerWithoutTheChatMarkersIsRefused) {
  // Chat markers that are ordinary text take many tokens.
  ASSERT_EQ(pack("sft", "chats", "llama3", "no_markers", "192").code, 0);
  ASSERT_EQ(pack("dpo", "pairs", "llama3", "pairs_no_markers", "192").code, 0);
  ASSERT_EQ(pretrain("long", {"--train.steps", "1", "--model.max_seq_len", "192"}).code, 0);
  const auto train = [](const char* task, const char* set, const Arguments& more = {}) {
    Arguments words{task,
                    "--init",
                    path("long").string(),
                    "--data",
                    path(set).string(),
                    "--run",
                    path("unmarked").string(),
                    "--train.steps",
                    "1",
                    "--train.device",
                    "cpu"};
    words.insert(words.end(), more.begin(), more.end());
    return trireme(words);
  };
  const std::vector<std::string> words{"--template llama3", "<|eot_id|>",
                                       "--allow-missing-markers"};
  expect_refused(train("sft", "no_markers"), 2, words);
  expect_refused(train("dpo", "pairs_no_markers"), 2, words);
  expect_refused(train("distill", "no_markers", {"--distill.teacher", path("long").string()}), 2,
                 words);
  // A validation set has its own format.
  expect_refused(train("sft", "chats",
                       {"--data.valid_path", path("no_markers").string(), "--train.eval_every", "1",
                        "--train.seq_len", "192", "--allow-other-template"}),
                 2, words);
  EXPECT_FALSE(fs::exists(path("unmarked")));
  const Exit allowed = train("sft", "no_markers", {"--allow-missing-markers"});
  EXPECT_EQ(allowed.code, 0) << allowed.err;
  EXPECT_NE(allowed.err.find("the model learns them as ordinary text"), std::string::npos);
  Arguments again{"sft", "--run", path("unmarked").string(), "--train.steps", "2"};
  EXPECT_EQ(trireme(again).code, 0);
}

}  // namespace
}  // namespace trireme
