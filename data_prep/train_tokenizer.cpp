#include <filesystem>
#include <map>
#include <mutex>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/log.hpp"
#include "data_prep/block_reader.hpp"
#include "data_prep/tokenizer_jobs.hpp"
#include "data_prep/worker_pool.hpp"
#include "text/word_counter.hpp"

namespace trireme {
namespace {

constexpr std::uint64_t kBlockBytes = 4 << 20;

/// Sums over blocks; guarded by `mutex`.
struct Totals {
  std::mutex mutex;
  std::uint64_t texts = 0;
  std::uint64_t bad_lines = 0;
  std::string first_bad;
};

void count_block(const TrainTokenizerConfig& config,
                 const InputFile& file,
                 LineBlock lines,
                 WordCounter& counter,
                 Totals& totals) {
  TextFieldReader reader(config.field, config.on_bad_text);
  std::uint64_t texts = 0;
  Line line;
  while (lines.next(line)) {
    const TextRecord record = reader.read(line);
    if (record.status == RecordStatus::blank) continue;
    if (record.status == RecordStatus::text) {
      ++texts;
      config.by_lines ? counter.add_lines(record.text) : counter.add(record.text);
      continue;
    }
    std::string place = cat(file.path.string(), ":", line.offset, ": ", record.reason);
    if (record.status == RecordStatus::bad_text) {
      fail(ErrorKind::data,
           place,
           "; --on-bad-text skip leaves such lines out, replace puts U+FFFD");
    }
    const std::lock_guard lock(totals.mutex);
    ++totals.bad_lines;
    if (totals.first_bad.empty()) totals.first_bad = std::move(place);
  }
  const std::lock_guard lock(totals.mutex);
  totals.texts += texts;
}

WordCounter count_words(const TrainTokenizerConfig& config) {
  const std::vector<InputFile> files = inspect_inputs(config.inputs);
  std::vector<ByteRange> all;
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < files.size(); ++i) {
    all.push_back({i, 0, files[i].size});
    bytes += files[i].size;
  }
  const std::vector<ByteRange> blocks = split_blocks(all, kBlockBytes);
  WorkerPool pool(thread_count(config.threads));
  BlockReader reader(files, pool.num_threads());
  reader.start(blocks);
  std::vector<WordCounter> counters(static_cast<std::size_t>(pool.num_threads()));
  Totals totals;
  Progress progress("count words", bytes, config.progress);
  pool.run(
      blocks.size(),
      [&](std::size_t i, int worker) {
        count_block(config,
                    files[blocks[i].file],
                    reader.read(i, worker),
                    counters[static_cast<std::size_t>(worker)],
                    totals);
        progress.add(blocks[i].end - blocks[i].begin, 0, 0);
      },
      [&] { progress.show(); });
  if (totals.texts == 0) {
    fail(ErrorKind::data,
         "no text in the inputs: ",
         totals.bad_lines,
         " bad lines",
         totals.first_bad.empty() ? "" : "; one is ",
         totals.first_bad);
  }
  if (totals.bad_lines != 0)
    log::warn(cat(totals.bad_lines, " bad lines were left out; one is ", totals.first_bad));
  for (std::size_t i = 1; i < counters.size(); ++i) counters[0].merge(counters[i]);
  return std::move(counters[0]);
}

/// Before the work: a folder that could hold the result. `files` null: only look for files that are
/// not ours.
void check_output(const std::filesystem::path& folder,
                  const std::map<std::string, std::string>* files) {
  if (!std::filesystem::exists(folder)) return;
  if (!std::filesystem::is_directory(folder))
    fail(ErrorKind::usage, "--output ", folder.string(), " is a file; give a folder");
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool named = name == "tokenizer.json" || name == "tokenizer_config.json";
    const bool same =
        named &&
        (files == nullptr || (files->contains(name) && read_file(entry.path()) == files->at(name)));
    if (!same) {
      fail(ErrorKind::usage,
           "--output ",
           folder.string(),
           " holds ",
           named ? "another " : "",
           "'",
           name,
           "'; nothing is overwritten, use another folder");
    }
  }
}

}  // namespace

void train_tokenizer(const TrainTokenizerConfig& config) {
  const std::filesystem::path folder = config.output;
  check_output(folder, nullptr);
  const WordCounter words = count_words(config);
  log::info(cat(words.size(), " different words; learning merges"));
  const Timer timer;
  const std::map<std::string, std::string> files = train_bpe(words, config.bpe);
  check_output(folder, &files);
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (code)
    fail(ErrorKind::resource, "cannot create folder ", folder.string(), ": ", code.message());
  for (const auto& [name, content] : files) write_file_atomic(folder / name, content);
  log::info(
      cat("tokenizer in ", folder.string(), ", merges took ", format_duration(timer.seconds())));
}

}  // namespace trireme
