#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "support/run_program.hpp"

/// A trained model, chat and preference data sets, and the post-training tasks that start from
/// them.
namespace trireme::testing {

struct TaskCase {
  const char* name;
  const char* task;
  const char* set;
  Arguments keys;
};

/// Expects the fp64 steps of a run to equal those of one rank.
inline void expect_steps(const std::map<std::int64_t, Json>& found,
                         const std::map<std::int64_t, Json>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [step, line] : expected) {
    for (const char* key :
         {"loss", "grad_norm", "margin", "kl", "num_targets", "num_pairs", "aux_loss"}) {
      if (!line.contains(key)) continue;
      const auto value = line.at(key).get<double>();
      EXPECT_NEAR(found.at(step).at(key).get<double>(), value,
                  1e-10 * std::max(std::abs(value), 1e-3))
          << key << step;
    }
    EXPECT_TRUE(line.contains("loss") && line.contains("grad_norm")) << step;
  }
}

inline const std::vector<TaskCase>& cases() {
  static const std::vector<TaskCase> all{
      {"sft", "sft", "chats", {"--sft.token_weights", "<think>=3"}},
      {"dpo", "dpo", "pairs", {"--dpo.sft_weight", "0.1"}},
      {"distill", "distill", "chats", {}},
      {"sft with adapters", "sft", "chats", {"--lora.rank", "2", "--lora.dropout", "0.1"}},
      {"dpo with adapters", "dpo", "pairs", {"--lora.rank", "2"}},
      {"kto", "kto", "answers", {"--kto.undesirable_weight", "1.5"}}};
  return all;
}

class PostTraining : public RunProgram {
 protected:
  static void SetUpTestSuite() {
    RunProgram::SetUpTestSuite();
    ASSERT_EQ(pretrain("start", {"--train.steps", "2"}).code, 0);
    write_records();
    for (const auto& [kind, name] :
         {std::array{"sft", "chats"}, std::array{"dpo", "pairs"}, std::array{"kto", "answers"}})
      ASSERT_EQ(pack(kind, name, "minimind-v3", name).code, 0);
    ASSERT_EQ(pack("sft", "chats", "chatml", "chatml").code, 0);
  }

  static Exit pack(const std::string& kind, const std::string& records,
                   const std::string& chat_template, const std::string& name,
                   const std::string& seq_len = "48") {
    return Process(
               {TRIREME_DATA_PROGRAM, "pack", "--kind", kind, "--tokenizer",
                (set() / "tokenizer").string(), "--input", path(records + ".jsonl").string(),
                "--template", chat_template, "--seq-len", seq_len, "--output", path(name).string()},
               {}, path("pack.log"))
        .wait(kLimit_s);
  }

  static void write_records() {
    std::ofstream chats(path("chats.jsonl"));
    std::ofstream pairs(path("pairs.jsonl"));
    std::ofstream answers(path("answers.jsonl"));
    for (int i = 0; i < 24; ++i) {
      const std::string user = formatted(R"({{"role": "user", "content": "what is {}"}})", i);
      const auto says = [&](int number) {
        return formatted(R"([{}, {{"role": "assistant", "content": "it is {}"}}])", user, number);
      };
      chats << formatted("{{\"conversations\": {}}}\n", says(i * i));
      pairs << formatted("{{\"chosen\": {}, \"rejected\": {}}}\n", says(i * i), says(i));
      answers << formatted("{{\"messages\": {}, \"label\": {}}}\n", says(i % 3 == 0 ? i : i * i),
                           i % 3 != 0);
    }
  }

  /// Runs four steps of a case. `start` names the initial model and the teacher.
  static Exit train(const TaskCase& one, const std::string& run, const std::string& start,
                    const Start& how, const Arguments& more = {}) {
    Arguments words{TRIREME_PROGRAM,
                    one.task,
                    "--init",
                    path(start).string(),
                    "--data",
                    path(one.set).string(),
                    "--run",
                    path(run).string(),
                    "--train.steps",
                    "4",
                    "--train.micro_batch",
                    "2",
                    "--train.global_batch",
                    "8",
                    "--train.device",
                    "cpu",
                    "--checkpoint.every",
                    "2",
                    "--optim.lr",
                    "1e-3"};
    if (std::string(one.task) == "distill")
      words.insert(words.end(), {"--distill.teacher", path(start).string()});
    words.insert(words.end(), one.keys.begin(), one.keys.end());
    words.insert(words.end(), more.begin(), more.end());
    std::map<std::string, std::string> environment;
    if (!how.fault.empty())
      environment = {{"TRIREME_FAULT", how.fault}, {"TRIREME_ALLOW_FAULTS", "1"}};
    if (how.ranks > 1) return mpirun(how.ranks, words, environment);
    words.erase(words.begin());
    return trireme(words, {.environment = environment});
  }

  /// Expects every number of layout.json that has a formula to equal the result of the formula.
  static void expect_formulas(const std::string& text) {
    const Json layout = parse_json(text, "layout.json");
    std::size_t compared = 0;
    for (const Json& row : layout.at("collectives")) {
      if (row.at("formula_bytes").is_null()) continue;
      EXPECT_EQ(row.at("moved_bytes"), row.at("formula_bytes")) << row.dump();
      ++compared;
    }
    EXPECT_GT(compared, 1U);
    for (const Json& rank : layout.at("per_rank")) {
      for (const char* key : {"weight_bytes", "grad_bytes", "optimizer_bytes"})
        EXPECT_EQ(rank.at(key), rank.at(cat(key, "_formula"))) << key;
    }
  }

  static std::string file(const std::string& run, const char* name) {
    return read_file(path(run) / name);
  }
};

}  // namespace trireme::testing
