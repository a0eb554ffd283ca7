/// Runs the commands besides training like users do: bench on several ranks, prune on a full disk,
/// prompts.

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <list>
#include <map>
#include <sstream>

#include "checkpoint/format/folder.hpp"
#include "checkpoint/save/save.hpp"
#include "comm/self/self_communicator.hpp"
#include "core/files/file.hpp"
#include "support/run_program.hpp"
#include "unit/checkpoint/support.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using testing::Arguments;
using testing::Exit;
using testing::Process;

class Commands : public testing::RunProgram {
 protected:
  static void expect_refused(const Exit& exit, int code, const std::vector<std::string>& words) {
    EXPECT_EQ(exit.code, code) << exit.err;
    for (const std::string& word : words)
      EXPECT_NE(exit.err.find(word), std::string::npos) << "no '" << word << "' in: " << exit.err;
  }
};

TEST_F(Commands, BenchStepRefusesWhatNoRunCouldTrain) {
  const auto bench = [&](const Arguments& options) {
    Arguments arguments{"bench", "step", "--steps", "1"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return trireme(arguments);
  };
  expect_refused(bench({"--train.seq_len", "1"}), 2, {"train.seq_len = 1"});
  expect_refused(bench({"--train.seq_len", "40000"}), 2, {"train.seq_len = 40000", "32768"});
  expect_refused(bench({"--train.accumulation", "3", "--train.global_batch", "16"}), 2,
                 {"train.accumulation = 3"});
  expect_refused(bench({"--train.micro_batch", "100000000", "--train.seq_len", "512"}), 2,
                 {"train.micro_batch = 100000000"});
}

/// The three products of each linear layer take equally many operations, and the times of all kinds
/// of work add up to the step.
TEST_F(Commands, BenchStepCountsTheWorkOfAStep) {
  const Exit exit =
      trireme({"bench", "step", "--steps", "2", "--ops", "--json", "--model.preset", "tiny",
               "--train.seq_len", "32", "--train.device", "cpu", "--train.threads", "1",
               "--train.micro_batch", "2", "--train.accumulation", "1"});
  ASSERT_EQ(exit.code, 0) << exit.err;
  const Json json = parse_json(exit.out, "bench");
  std::map<std::string, double> flops;
  double all_ms = 0;
  double all_flops = 0;
  for (const Json& work : json.at("ops")) {
    const double ms = work.at("ms").get<double>();
    flops[work.at("name")] = 1e6 * ms * work.at("gflops").get<double>();
    all_ms += ms;
    all_flops += flops[work.at("name")];
  }
  EXPECT_EQ(flops.size(), 15U);
  const double attention = flops.at("attention_forward") + flops.at("attention_backward");
  EXPECT_NEAR(json.at("flops_attention").get<double>(), attention, 1e-6 * attention);
  EXPECT_NEAR(json.at("flops_matmul").get<double>(), all_flops - attention, 1e-6 * all_flops);
  EXPECT_NEAR(all_ms, 1e3 * json.at("step_time_s").get<double>(), 0.02 * all_ms);
  const Json& model = json.at("model");
  const auto size = [&](const char* key) { return model.at(key).get<double>(); };
  const double width = size("hidden_size");
  const double heads = (2 * size("num_heads") + 2 * size("num_kv_heads")) * size("head_dim");
  const double weights = size("num_layers") * width * (heads + 3 * size("intermediate_size"));
  const double product = 2 * 2 * 32 * weights;
  for (const char* name : {"matmul_forward", "matmul_dx", "matmul_dw"})
    EXPECT_NEAR(flops.at(name), product, 1e-6 * product) << name;
  EXPECT_GT(flops.at("head"), 0);
  EXPECT_GT(flops.at("attention_backward"), 2.4 * flops.at("attention_forward"));
  EXPECT_EQ(flops.at("norm"), 0);
  EXPECT_NEAR(
      json.at("ceiling_share").get<double>() * json.at("ceiling_tokens_per_s").get<double>(),
      json.at("tokens_per_s").get<double>(), 1e-6 * json.at("tokens_per_s").get<double>());
  EXPECT_GT(json.at("clock_tokens_per_s").get<double>(), 0);
  EXPECT_GT(json.at("peak_gflops").get<double>(), 0);
}

TEST_F(Commands, BenchLadderTurnsEveryFastPathOffOnce) {
  const auto ladder = [&](const Arguments& options) {
    Arguments arguments{"bench",           "ladder", "--steps",           "1",
                        "--train.seq_len", "128",    "--train.device",    "cpu",
                        "--train.threads", "1",      "--train.precision", "bf16"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return trireme(arguments);
  };
  const Exit exit = ladder({"--json", "--train.plain_ops", "dropout, rope"});
  ASSERT_EQ(exit.code, 0) << exit.err;
  const Json rungs = parse_json(exit.out, "ladder").at("rungs");
  std::vector<std::string> names;
  double largest_delta = 0;
  for (const Json& rung : rungs) {
    names.push_back(rung.at("off"));
    EXPECT_GT(rung.at("step_time_s").get<double>(), 0);
    EXPECT_NEAR(rung.at("loss").get<double>(), 8.8, 0.3) << rung;  // log 6,400
    largest_delta = std::max(largest_delta, rung.at("loss_delta").get<double>());
  }
  std::erase(names, "matmul");  // depends on the kind of CPU
  EXPECT_EQ(names,
            (std::vector<std::string>{"none", "attention", "cross_entropy", "gated_activation",
                                      "grad_norm", "optimizer", "rms_norm"}));
  EXPECT_EQ(rungs[0].at("loss_delta"), 0.0);
  EXPECT_GT(largest_delta, 0);  // other kernels round differently
  EXPECT_LT(largest_delta, 1e-3);
  expect_refused(ladder({"--train.plain_ops", "rms_nrm"}), 2,
                 {"train.plain_ops = rms_nrm", "did you mean 'rms_norm'"});
  expect_refused(ladder({"--train.fused_ops", "false"}), 2, {"train.fused_ops = false"});
}

TEST_F(Commands, NoFileTakesThePlaceOfAPipeOrOfTheInput) {
  const fs::path pipe = path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string texts = path("texts.jsonl").string();
  std::ofstream(texts) << "{\"text\": \"one\"}\n";
  const auto encode = [&](const std::string& output) {
    return Process({TRIREME_DATA_PROGRAM, "tokenizer", "encode", "--tokenizer",
                    (set() / "tokenizer").string(), "--input", texts, "--output", output},
                   {}, path("encode.log"))
        .wait(kLimit_s);
  };

  expect_refused(encode(pipe.string()), 2, {"is a device, a pipe or a socket"});
  expect_refused(encode(texts), 2, {"is the input"});
  EXPECT_TRUE(fs::is_fifo(pipe));
  EXPECT_EQ(read_file(texts), "{\"text\": \"one\"}\n");
}

/// Two ranks share one state: each writes its shard, and only one rank prints.
TEST_F(Commands, BenchCheckpointSharesTheStateOverItsRanks) {
  const auto bench = [](const Arguments& more) {
    Arguments all{TRIREME_PROGRAM,       "bench", "checkpoint", "--repeats", "1", "--folder",
                  path("bench").string()};
    all.insert(all.end(), more.begin(), more.end());
    return mpirun(2, all);
  };

  const Exit measured = bench({"--bytes", "33554432", "--json"});
  ASSERT_EQ(measured.code, 0) << measured.err;
  const Json json = parse_json(measured.out, "bench");  // the output is one object, not two
  EXPECT_EQ(json["ranks"], 2);
  EXPECT_EQ(json["bytes"], 33554432);
  EXPECT_EQ(json["copy_bytes"], 33554432 / 2);
  expect_refused(bench({"--byts", "8"}), 2, {"did you mean '--bytes'"});
}

/// Verifies a checkpoint of two shards on one rank and on two: text, bytes and exit codes are the
/// same.
TEST_F(Commands, TheRanksOfMpirunShareVerifyHashReshardAndExport) {
  ASSERT_EQ(
      pretrain("shared", {"--train.steps", "2", "--checkpoint.every", "1"}, {.ranks = 2}).code, 0);
  const std::string run = path("shared").string();
  const auto both = [&](const Arguments& arguments) {
    Arguments all{TRIREME_PROGRAM};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Exit alone = trireme(arguments);
    const Exit shared = mpirun(2, all);
    EXPECT_EQ(shared.code, alone.code) << shared.err;
    EXPECT_EQ(shared.out, alone.out);
    return shared;
  };

  EXPECT_EQ(both({"checkpoint", "verify", run}).code, 0);
  EXPECT_EQ(both({"checkpoint", "hash", run}).code, 0);
  for (const int ranks : {1, 2}) {
    const auto place = [&](const char* name) { return path(formatted("{}{}", name, ranks)); };
    EXPECT_EQ(mpirun(ranks, {TRIREME_PROGRAM, "checkpoint", "reshard", run, "--ranks", "3", "-o",
                             place("steps").string()})
                  .code,
              0);
    EXPECT_EQ(mpirun(ranks, {TRIREME_PROGRAM, "export", "--checkpoint", run, "--output",
                             place("hf").string()})
                  .code,
              0);
  }
  EXPECT_EQ(test::differing(path("steps1") / "step-000000002", path("steps2") / "step-000000002"),
            "");
  EXPECT_EQ(test::differing(path("hf1"), path("hf2")), "");

  damage(path("shared") / "checkpoints/step-000000001");
  const Exit bad = both({"checkpoint", "verify", run});
  EXPECT_EQ(bad.code, 3);
  EXPECT_EQ(count(bad.err, "is damaged"), 1U) << bad.err;
  const Exit failed = mpirun(
      2,
      {TRIREME_PROGRAM, "checkpoint", "reshard", run, "--ranks", "4", "-o", path("none").string()},
      {{"TRIREME_FAULT", "checkpoint.shard.create:1:2:enospc"}, {"TRIREME_ALLOW_FAULTS", "1"}});
  EXPECT_EQ(failed.code, 4) << failed.err;
  EXPECT_EQ(count(failed.err, "trireme: error: rank 1: "), 1U) << failed.err;
  EXPECT_EQ(count(failed.err, "trireme: error: "), 1U) << failed.err;
  EXPECT_TRUE(fs::is_empty(path("none")));
}

/// The failing save simulates a disk that is full until the older checkpoints are deleted.
TEST_F(Commands, ADataSetIsNoCheckpoint) {
  const std::string data = set().string();
  for (const char* command : {"list", "inspect", "verify"})
    expect_refused(trireme({"checkpoint", command, data}), 3,
                   {"holds no checkpoint: it is a data set. `trireme-data inspect " + data});
}

TEST_F(Commands, ALowerKeepLastFreesSpaceBeforeTheNextSave) {
  const Arguments kept{"--checkpoint.every", "1", "--checkpoint.keep_last", "4", "--train.steps"};
  Arguments first = kept;
  first.emplace_back("4");
  ASSERT_EQ(pretrain("full", first).code, 0);
  ASSERT_EQ(saved_steps("full").size(), 4U);
  Arguments second{"--checkpoint.every", "1", "--checkpoint.keep_last", "2", "--train.steps", "5"};

  const Exit exit = pretrain("full", second, {.fault = "checkpoint.shard.create:0:1:enospc"});

  EXPECT_EQ(exit.code, 4) << exit.err;
  EXPECT_EQ(saved_steps("full"), (std::vector<std::int64_t>{4, 3}));
  EXPECT_EQ(pretrain("full", second).code, 0);
  EXPECT_EQ(saved_steps("full"), (std::vector<std::int64_t>{5, 4}));
}

TEST_F(Commands, GenerateTakesPromptsFromOptionStandardInputAndFile) {
  ASSERT_EQ(pretrain("model", {"--train.steps", "2"}).code, 0);
  const auto generate = [](const Arguments& more, const std::string& input = "") {
    Arguments all{
        "sh",       "-c",           "printf '%b' \"$0\" | \"$@\"", input,          TRIREME_PROGRAM,
        "generate", "--checkpoint", path("model").string(),        "--max-tokens", "5",
        "--device", "cpu"};
    all.insert(all.end(), more.begin(), more.end());
    return Process(all, {{"OMP_NUM_THREADS", "1"}}, path("generate.log")).wait(kLimit_s);
  };
  std::ofstream(path("prompts.jsonl")) << "{\"prompt\": \"One\"}\n\n"
                                          "{\"prompt\": \"The end\", \"id\": 7}\n"
                                          "{\"prompt\": \"One\"}\n";
  std::ofstream(path("bad.jsonl")) << "{\"prompt\": \"One\"}\n{\"text\": \"One\"}\n";
  std::ofstream(path("long.jsonl")) << "{\"prompt\": \"" << std::string(2000, 'x') << "\"}\n";
  const std::string file = path("prompts.jsonl").string();

  const Exit alone = generate({"--prompt", "The end", "--json"});
  const Exit all = generate({"--prompts", file, "--json"});
  ASSERT_EQ(all.code, 0) << all.err;
  std::vector<Json> lines;
  std::istringstream text(all.out);
  for (std::string line; std::getline(text, line);) lines.push_back(parse_json(line, "line"));
  ASSERT_EQ(lines.size(), 3U);
  for (std::size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i]["index"], i);
  Json expected = parse_json(alone.out, "alone");
  EXPECT_EQ(lines[1]["ids"], expected["ids"]);
  EXPECT_EQ(lines[1]["text"], expected["text"]);
  EXPECT_EQ(lines[0]["ids"], lines[2]["ids"]);
  EXPECT_EQ(generate({"--prompt", "-", "--json"}, "The end\\n").out, alone.out);
  const Exit plain = generate({"--prompt", "The end"});
  EXPECT_EQ(plain.out, expected["text"].get<std::string>() + "\n");
  EXPECT_NE(generate({"--prompts", file}).out.find("==> " + file + ":3 <==\n" + plain.out),
            std::string::npos);

  EXPECT_EQ(generate({"--prompts", "-", "--json"}, read_file(file)).out, all.out);
  expect_refused(generate({"--prompts", "-"}, "{}"), 3, {"standard input:1", "prompt"});

  expect_refused(generate({"--prompts", path("bad.jsonl").string()}), 3, {"bad.jsonl:2", "prompt"});
  expect_refused(generate({"--prompts", path("long.jsonl").string()}), 3,
                 {"long.jsonl:1", "max_seq_len"});
  expect_refused(generate({"--prompts", path("absent.jsonl").string()}), 3, {"absent.jsonl"});
  EXPECT_EQ(generate({"--prompt", ""}).code, 0);  // starts at the beginning-of-text token
  expect_refused(generate({}), 2, {"--prompt", "--prompts"});
  expect_refused(generate({"--prompt", "x", "--prompts", file}), 2, {"either"});
  expect_refused(generate({"--prompt", "two", "texts"}), 2, {"quote it"});
  expect_refused(generate({"--prompt", "x", "--top-p", "0"}), 2, {"--top-p 0", "(0, 1]"});
}

TEST_F(Commands, NamesTheOptionThatIsWrongAsItWasGiven) {
  ASSERT_EQ(pretrain("long", {"--train.steps", "1", "--model.max_seq_len", "8192"}).code, 0);
  const auto refused = [](const Arguments& command, const Arguments& more, const char* words) {
    Arguments all = command;
    all.insert(all.end(), {"--checkpoint", path("long").string()});
    all.insert(all.end(), more.begin(), more.end());
    const Exit exit = trireme(all);
    expect_refused(exit, 2, {words});
    EXPECT_EQ(exit.err.find("train."), std::string::npos) << exit.err;
    EXPECT_EQ(exit.err.find("--max-context"), std::string::npos) << exit.err;
  };
  const Arguments generate{"generate", "--prompt", "x"};
  const Arguments eval{"eval", "--data", set().string()};
  for (const Arguments& command : {generate, eval, {"chat"}, {"serve", "--port", "0"}}) {
    refused(command, {"--precision", "int8"}, "--precision int8, must be fp32, bf16");
    refused(command, {"--weights", "int4"}, "--weights is int4. It must be precision or int8.");
    refused(command, {"--device", "x"}, "--device x, must be auto");
    refused(command, {"--threads", "3000000000"}, "--threads 3000000000, must be in [0, 1024]");
    refused(command, {"--threads", "-1"}, "--threads -1, must be in [0, 1024]");
  }
  for (const Arguments& command : {generate, {"chat"}, {"serve", "--port", "0"}})
    refused(command, {"--cuda-graph", "yes"}, "--cuda-graph yes, must be auto, true or false");
  refused(generate, {"--weights", "int8", "--precision", "fp64", "--device", "cpu"},
          "--weights int8 does not support --precision fp64");
  refused(generate, {"--kv-cache-mib", "1", "--max-tokens", "8000"}, " or lower --max-tokens");
  refused(generate, {"--kv-cache-mib", "9223372036854775807"}, "--kv-cache-mib 92");
  refused(generate, {"--batch", "9223372036854775807"}, "--batch 92");
  refused(generate, {"--repetition-penalty", "1e-310", "--top-p", "0.9"}, "--repetition-penalty");
  refused(generate, {"--temperature", "1e-310"}, "--temperature");
  refused(generate, {"--presence-penalty", "-1e308"}, "--presence-penalty -1e+308, must be");
}

/// Copies a run's newest checkpoint and sets the weights of the first block to NaN.
void save_with_nans(const fs::path& run, const fs::path& folder) {
  const checkpoint::Checkpoint good = checkpoint::Checkpoint::open(
      checkpoint::locate_checkpoints(run).path / checkpoint::step_directory_name(2));
  checkpoint::StateDict state;
  state.values = good.manifest().values;
  for (const checkpoint::SavedFile& file : good.manifest().files)
    state.files[file.name] = good.file(file.name);
  std::list<std::vector<std::byte>> storage;
  for (const auto& [name, tensor] : good.manifest().tensors) {
    if (!name.starts_with("param/")) continue;
    storage.push_back(good.read_logical(name));
    if (name.find("layers.0.") != std::string::npos)
      std::fill(storage.back().begin(), storage.back().end(), std::byte{0xff});
    state.tensors.push_back({name, tensor.dtype, tensor.shape, parallel::Slice::whole(tensor.shape),
                             storage.back(), /*owner=*/true});
  }
  comm::SelfCommunicator alone;
  checkpoint::save_checkpoint(folder, 2, state, alone, {.run_id = "nans"});
}

TEST_F(Commands, GenerateEndsWith6WhereLogitsAreNotFinite) {
  ASSERT_EQ(pretrain("model", {"--train.steps", "2"}).code, 0);
  save_with_nans(path("model"), path("nans"));
  const Exit exit = trireme({"generate", "--checkpoint", path("nans").string(), "--prompt", "The",
                             "--device", "cpu", "--json"});
  expect_refused(exit, 6, {"not finite"});
  EXPECT_EQ(parse_json(exit.out, "line")["finish_reason"], "error");
}

TEST_F(Commands, GenerateTakesIdsChatsAndHuggingFaceDirectories) {
  ASSERT_EQ(pretrain("model", {"--train.steps", "2"}).code, 0);
  const auto generate = [](const std::string& place, const Arguments& more) {
    Arguments all{TRIREME_PROGRAM,
                  "generate",
                  "--checkpoint",
                  path(place).string(),
                  "--json",
                  "--max-tokens",
                  "6",
                  "--device",
                  "cpu"};
    all.insert(all.end(), more.begin(), more.end());
    return Process(all, {{"OMP_NUM_THREADS", "1"}}, path("generate.log")).wait(kLimit_s);
  };
  ASSERT_EQ(Process({TRIREME_PROGRAM, "export", "--checkpoint", path("model").string(), "--output",
                     path("exported").string()},
                    {}, path("export.log"))
                .wait(kLimit_s)
                .code,
            0);
  std::ofstream(path("mixed.jsonl"))
      << "{\"prompt\": \"The\"}\n{\"ids\": [5, 6, 7]}\n"
         "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi <|im_end|>\"}]}\n";
  std::ofstream(path("foreign.jsonl")) << "{\"ids\": [5, 999999]}\n";
  std::ofstream(path("no_ids.jsonl")) << "{\"ids\": [5, -1]}\n";
  const Arguments prompts{"--prompts", path("mixed.jsonl").string()};

  const Exit run = generate("model", prompts);
  Arguments one_by_one = prompts;
  one_by_one.insert(one_by_one.end(), {"--batch", "1"});

  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(generate("model", one_by_one).out, run.out);
  EXPECT_EQ(generate("exported", prompts).out, run.out);
  std::vector<Json> lines;
  std::istringstream text(run.out);
  for (std::string line; std::getline(text, line);) lines.push_back(parse_json(line, "line"));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[1]["prompt_tokens"], 3);
  EXPECT_EQ(lines[1]["completion_tokens"], lines[1]["ids"].size());
  EXPECT_EQ(lines[1]["logprobs"].size(), lines[1]["ids"].size());
  EXPECT_TRUE(lines[1]["finish_reason"] == "length" || lines[1]["finish_reason"] == "stop");
  const Exit chat = generate("model", {"--chat", "--prompt", "Hi <|im_end|>"});
  Json answer = parse_json(chat.out, "chat");
  EXPECT_EQ(answer["prompt_tokens"], lines[2]["prompt_tokens"]);
  EXPECT_EQ(answer["ids"], lines[2]["ids"]);
  expect_refused(generate("model", {"--prompts", path("foreign.jsonl").string()}), 3,
                 {"foreign.jsonl:1", "999999"});
  expect_refused(generate("model", {"--prompts", path("no_ids.jsonl").string()}), 3,
                 {"no_ids.jsonl:1", "ids"});
}

}  // namespace
}  // namespace trireme
