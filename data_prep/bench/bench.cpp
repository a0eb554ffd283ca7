#include "data_prep/bench/bench.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "config/check_options.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json_lines.hpp"
#include "core/files/refusal.hpp"
#include "core/log.hpp"
#include "core/timer.hpp"
#include "data/shards/token_set.hpp"
#include "data_prep/documents/jsonl_record.hpp"
#include "data_prep/input/chunk_reader.hpp"
#include "data_prep/input/inputs.hpp"
#include "data_prep/input/partitions.hpp"
#include "data_prep/pack/pack.hpp"
#include "data_prep/tokenizer_path.hpp"
#include "data_prep/worker_pool.hpp"
#include "text/tokenizer.hpp"

namespace trireme::data_prep {
namespace {

constexpr std::uint64_t kChunkBytes = 1 << 20;  // same as in pack
constexpr std::size_t kMaxPasses = 1000;

/// Returns the CPU time of this process in seconds.
double cpu_s() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Worker {
  std::optional<TextFieldReader> reader;
  std::uint64_t documents = 0;
  std::uint64_t text_bytes = 0;
};

class EncodeBench {
 public:
  EncodeBench(const BenchConfig& config, WorkerPool& pool)
      : tokenizer_(load_tokenizer(config.tokenizer)),
        files_(inspect_records(config.inputs)),
        pool_(pool),
        lines_(files_, pool.num_threads()),
        workers_(static_cast<std::size_t>(pool.num_threads())) {
    options_ = {.add_special_tokens = false,
                .match_added_tokens = config.special_in_text == "allow"};
    for (Worker& worker : workers_) worker.reader.emplace(config.field, OnBadText::replace);
    chunks_ = split_chunks(files_, whole_files(files_), kChunkBytes);
    jsonl_bytes_ = bytes_of(files_, chunks_);
  }

  /// Reads all inputs, so that they are in the page cache.
  void read_inputs() {
    lines_.start(chunks_);
    pool_.run(
        chunks_.size(), [&](std::size_t i, int worker) { lines_.read(i, worker); }, [] {});
  }

  /// Encodes everything once and keeps the ids in memory until the end.
  void pass(BenchReport& report) {
    for (Worker& worker : workers_) worker.documents = worker.text_bytes = 0;
    std::vector<std::vector<std::uint32_t>> ids(chunks_.size());
    lines_.start(chunks_);
    pool_.run(
        chunks_.size(), [&](std::size_t i, int worker) { encode_chunk(i, worker, ids[i]); }, [] {});
    report.documents = report.text_bytes = report.tokens = 0;
    report.jsonl_bytes = jsonl_bytes_;
    for (const Worker& worker : workers_) {
      report.documents += worker.documents;
      report.text_bytes += worker.text_bytes;
    }
    for (const auto& chunk : ids) report.tokens += chunk.size();
  }

 private:
  void encode_chunk(std::size_t i, int worker_index, std::vector<std::uint32_t>& ids) {
    const InputFile& file = files_[chunks_[i].file];
    Worker& worker = workers_[static_cast<std::size_t>(worker_index)];
    const RecordBatch batch = lines_.read(i, worker_index);
    ids.reserve(bytes_of(files_, {chunks_[i]}) / 2);  // rarely more tokens than this
    for (const Record& record : batch.records) {
      const TextRecord read = worker.reader->read(record);
      if (read.status == RecordStatus::blank) continue;
      if (read.status != RecordStatus::text)
        fail(ErrorKind::data, "{}: {}", record_location(file, record.position), read.reason);
      const std::vector<std::uint32_t> more = tokenizer_.encode(read.text, options_);
      ids.insert(ids.end(), more.begin(), more.end());
      ++worker.documents;
      worker.text_bytes += read.text.size();
    }
  }

  text::Tokenizer tokenizer_;
  text::EncodeOptions options_;
  std::vector<InputFile> files_;
  WorkerPool& pool_;
  ChunkReader lines_;
  std::vector<Worker> workers_;
  std::vector<InputRange> chunks_;
  std::uint64_t jsonl_bytes_ = 0;
};

/// A temporary directory of this process, removed by the destructor.
class WorkFolder {
 public:
  explicit WorkFolder(const std::string& parent)
      : path_((parent.empty() ? std::filesystem::temp_directory_path()
                              : std::filesystem::path(parent)) /
              formatted("trireme-bench-{}", ::getpid())) {
    std::error_code code;
    std::filesystem::create_directory(path_, code);
    if (code) fail_to_write("create directory", path_, code.value());
  }

  ~WorkFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

void bench_pack(const BenchConfig& config, BenchReport& report) {
  const WorkFolder directory(config.work);
  PackConfig pack_config;
  pack_config.tokenizer = config.tokenizer;
  pack_config.inputs = config.inputs;
  pack_config.output = (directory.path() / "set").string();
  pack_config.seq_len = config.seq_len;
  pack_config.documents.text.field = config.field;
  pack_config.documents.text.special_in_text = config.special_in_text;
  pack_config.documents.on_bad_text = "replace";
  pack_config.threads = config.threads;
  pack_config.progress = "none";
  const double cpu = cpu_s();
  const Timer timer;
  pack(pack_config, nullptr);
  data::TokenSet::open(pack_config.output).verify(false);
  report.pack_s = timer.seconds();
  report.pack_cpu_s = cpu_s() - cpu;
}

double rate(double amount, double seconds) {
  return seconds > 0 ? amount / seconds : 0;
}

}  // namespace

double BenchReport::encode_mb_per_s() const {
  return rate(1e-6 * static_cast<double>(text_bytes), pass_s);
}

double BenchReport::tokens_per_s() const {
  return rate(static_cast<double>(tokens), pass_s);
}

double BenchReport::pack_mb_per_s() const {
  return rate(1e-6 * static_cast<double>(text_bytes), pack_s);
}

BenchReport run_bench(const BenchConfig& config) {
  config::throw_if_wrong(config);
  WorkerPool pool(thread_count(config.threads));
  BenchReport report;
  report.threads = pool.num_threads();
  {
    EncodeBench bench(config, pool);
    bench.read_inputs();
    std::vector<double> wall;
    std::vector<double> cpu;
    const Timer whole;
    do {
      const double cpu_before = cpu_s();
      const Timer timer;
      bench.pass(report);
      wall.push_back(timer.seconds());
      cpu.push_back(cpu_s() - cpu_before);
    } while (whole.seconds() < config.seconds && wall.size() < kMaxPasses);
    report.passes = wall.size();
    report.first_pass_s = wall.front();
    report.pass_s = median(wall);
    report.pass_cpu_s = median(cpu);
  }
  if (report.documents == 0) fail(ErrorKind::data, "no text in the inputs");
  if (!config.no_pack) bench_pack(config, report);
  return report;
}

std::string bench_json(const BenchReport& report) {
  const double text_mb = 1e-6 * static_cast<double>(report.text_bytes);
  Json json = {{"encode_mb_per_s", report.encode_mb_per_s()},
               {"tokens_per_s", report.tokens_per_s()}};
  json["pack_mb_per_s"] = report.pack_s > 0 ? Json(report.pack_mb_per_s()) : Json(nullptr);
  json["encode_first_pass_mb_per_s"] = rate(text_mb, report.first_pass_s);
  json["encode_mb_per_cpu_s"] = rate(text_mb, report.pass_cpu_s);
  json["pack_mb_per_cpu_s"] =
      report.pack_s > 0 ? Json(rate(text_mb, report.pack_cpu_s)) : Json(nullptr);
  json["threads"] = report.threads;
  json["passes"] = report.passes;
  json["documents"] = report.documents;
  json["text_bytes"] = report.text_bytes;
  json["jsonl_bytes"] = report.jsonl_bytes;
  json["tokens"] = report.tokens;
  return json_line(json);
}

std::string bench_text(const BenchReport& report) {
  const double text_mb = 1e-6 * static_cast<double>(report.text_bytes);
  const auto fixed = [](double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", value);
    return std::string(text);
  };
  std::string text =
      formatted("{} documents, {} MB of text, {} tokens, {}{}", report.documents, fixed(text_mb),
                report.tokens, report.threads, report.threads == 1 ? " thread\n" : " threads\n");
  text += formatted(
      "encode  {} MB/s (median of {} passes; the first {}), {} million tokens/s, {} MB per CPU second\n",
      fixed(report.encode_mb_per_s()), report.passes, fixed(rate(text_mb, report.first_pass_s)),
      fixed(1e-6 * report.tokens_per_s()), fixed(rate(text_mb, report.pass_cpu_s)));
  if (report.pack_s > 0) {
    text += formatted("pack    {} MB/s, shards written and verified, {} MB per CPU second\n",
                      fixed(report.pack_mb_per_s()), fixed(rate(text_mb, report.pack_cpu_s)));
  }
  return text;
}

}  // namespace trireme::data_prep
