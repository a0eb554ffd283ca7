#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

/// `trireme-data bench`.
struct BenchConfig {
  std::string tokenizer;
  std::vector<std::string> inputs;
  std::string field = "text";
  std::string special_in_text = "allow";  // as in pack
  std::int64_t threads = 1;               // 0: the processors at hand
  double seconds = 2;                     // of encode passes; at least one pass is made
  bool pack = true;
  std::int64_t seq_len = 2048;  // of pack
  std::string work;             // folder for the packed set, removed again; "": the system's
};

/// All rates are of the texts (bytes of UTF-8), not of the jsonl around them.
struct BenchReport {
  int threads = 0;
  std::uint64_t documents = 0;
  std::uint64_t text_bytes = 0;
  std::uint64_t jsonl_bytes = 0;
  std::uint64_t tokens = 0;
  std::uint64_t passes = 0;
  double first_pass_s = 0;  // wall: with empty caches of words
  double pass_s = 0;        // wall, median of all passes
  double pass_cpu_s = 0;    // processor time of all threads, median of all passes
  double pack_s = 0;        // wall, until the shards are written and read back; 0: not done
  double pack_cpu_s = 0;

  [[nodiscard]] double encode_mb_per_s() const;
  [[nodiscard]] double tokens_per_s() const;
  [[nodiscard]] double pack_mb_per_s() const;
};

/// Reads the inputs once, so that they are in the page cache; then times passes from jsonl to ids
/// in memory, and one `pack` with its verification. On a shared machine compare processor times.
///   memory  4 bytes a token of all inputs
/// Throws Error(data) for a line without a text, Error(usage) as pack.
BenchReport run_bench(const BenchConfig& config);

/// One JSON object with the fields and rates above, sizes and times with their units in the name.
std::string bench_json(const BenchReport& report);
std::string bench_text(const BenchReport& report);

}  // namespace trireme
