#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/fields.hpp"
#include "data/sequences/pack_documents.hpp"
#include "data_prep/input/input_format.hpp"
#include "data_prep/tokenizer_path.hpp"
#include "data_prep/worker_pool.hpp"

namespace trireme::data_prep {

/// Options of `trireme-data bench`.
struct BenchConfig {
  std::string tokenizer;
  std::vector<std::string> inputs;
  std::string field = "text";
  std::string special_in_text = "allow";
  std::int64_t threads = 1;
  double seconds = 2;
  std::int64_t seq_len = 2048;
  std::string work;
  bool no_pack = false;
  bool json = false;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("tokenizer", self.tokenizer, kTokenizerPathHelp,
          {.placeholder = "DIR|FILE", .required = true});
    visit("input", self.inputs, input_help(), {.placeholder = "FILE...", .required = true});
    visit("field", self.field, "field that holds the text", {.placeholder = "NAME"});
    visit("special_in_text", self.special_in_text,
          "treat added tokens inside a text as tokens or as plain characters",
          {.values = {"allow", "text"}});
    visit("threads", self.threads, "number of threads; 0: all CPUs of this process",
          {.placeholder = "N", .least = 0, .most = kMaxThreads});
    visit("seconds", self.seconds, "minimum duration of the encode passes (at least one pass)",
          {.placeholder = "S", .least = 0, .most = 3600});
    visit("seq_len", self.seq_len, "tokens of a packed sequence",
          {.placeholder = "L", .least = data::kMinSeqLen, .most = data::kMaxSeqLen});
    visit("work", self.work,
          "temporary directory for the packed set; default: the temporary directory of the system",
          {.placeholder = "DIR"});
    visit("no_pack", self.no_pack, "encode only");
    visit("json", self.json, "print one JSON document on one line");
  }
};

/// All rates refer to the bytes of the texts (UTF-8), not of the JSON lines.
struct BenchReport {
  int threads = 0;
  std::uint64_t documents = 0;
  std::uint64_t text_bytes = 0;
  std::uint64_t jsonl_bytes = 0;
  std::uint64_t tokens = 0;
  std::uint64_t passes = 0;
  double first_pass_s = 0;  // wall time, with empty word caches
  double pass_s = 0;        // wall time, median of all passes
  double pass_cpu_s = 0;    // CPU time of all threads, median of all passes
  double pack_s = 0;        // wall time to write and read back the shards; 0: not run
  double pack_cpu_s = 0;

  [[nodiscard]] double encode_mb_per_s() const;
  [[nodiscard]] double tokens_per_s() const;
  [[nodiscard]] double pack_mb_per_s() const;
};

/// Reads the inputs once into the page cache. Then measures passes from JSON Lines to ids in
/// memory, and one `pack` with its verification. On a shared machine, compare CPU times.
///   memory  4 bytes per token of all inputs
/// Throws Error(data) for a line without a text, Error(usage) like pack.
BenchReport run_bench(const BenchConfig& config);

/// Returns one JSON object with the fields and rates above; names of sizes and times have units.
std::string bench_json(const BenchReport& report);
std::string bench_text(const BenchReport& report);

}  // namespace trireme::data_prep
