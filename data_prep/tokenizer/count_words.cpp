#include "data_prep/tokenizer/count_words.hpp"

#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/log.hpp"
#include "data_prep/input/chunk_reader.hpp"
#include "data_prep/input/inputs.hpp"
#include "data_prep/input/partitions.hpp"
#include "data_prep/worker_pool.hpp"

namespace trireme::data_prep {
namespace {

constexpr std::uint64_t kCountedChunkBytes = 4 << 20;

/// Sums over the chunks of one thread, then over a rank, then over all ranks.
struct Totals {
  std::uint64_t texts = 0;
  std::uint64_t bad_lines = 0;
};

/// The state of one thread.
struct Worker {
  explicit Worker(const TrainTokenizerConfig& config,
                  const std::shared_ptr<const text::CutTokens>& cut)
      : reader(config.field, on_bad_text_named(config.on_bad_text)),
        words(split_pattern_named(config.pattern), cut) {}

  TextFieldReader reader;
  text::WordCounter words;
  Totals totals;
  std::optional<std::string> bad;  // position of an invalid record
};

void count_chunk(const TrainTokenizerConfig& config, const InputFile& file,
                 const RecordBatch& batch, Worker& worker) {
  const bool by_lines = config.unit == "line";
  for (const Record& record : batch.records) {
    const TextRecord read = worker.reader.read(record);
    if (read.status == RecordStatus::blank) continue;
    if (read.status == RecordStatus::text) {
      ++worker.totals.texts;
      by_lines ? worker.words.add_lines(read.text) : worker.words.add(read.text);
      continue;
    }
    const std::string place =
        formatted("{}: {}", record_location(file, record.position), read.reason);
    if (read.status == RecordStatus::bad_text) {
      fail(ErrorKind::data, "{}; --on-bad-text skip drops such lines, replace writes U+FFFD",
           place);
    }
    ++worker.totals.bad_lines;
    if (!worker.bad) worker.bad = place;
  }
}

/// Merges all workers into workers[0], pair by pair in parallel: with many threads a serial merge
/// takes as long as counting.
void add_up(std::vector<Worker>& workers, WorkerPool& pool) {
  for (std::size_t step = 1; step < workers.size(); step *= 2) {
    const std::size_t pairs = (workers.size() - step + 2 * step - 1) / (2 * step);
    pool.run(
        pairs,
        [&](std::size_t pair, int) {
          Worker& into = workers[pair * 2 * step];
          Worker& from = workers[pair * 2 * step + step];
          into.words.merge(from.words);
          from.words.clear();
          into.totals.texts += from.totals.texts;
          into.totals.bad_lines += from.totals.bad_lines;
          if (!into.bad) into.bad = from.bad;
        },
        [] {});
  }
}

Worker count_on_this_rank(const TrainTokenizerConfig& config,
                          const std::vector<text::ReservedToken>& reserved,
                          comm::Communicator* world) {
  const auto rank = static_cast<std::size_t>(world == nullptr ? 0 : world->rank());
  const auto size = static_cast<std::size_t>(world == nullptr ? 1 : world->size());
  const std::vector<InputFile> files = inspect_records(config.inputs, config.threads, world);
  const std::vector<InputRange> every_chunk =
      split_chunks(files, whole_files(files), kCountedChunkBytes);
  // Assign neighboring chunks to a rank, because a compressed input is read forward.
  const auto first_of = [&](std::size_t r) {
    return every_chunk.begin() + static_cast<std::ptrdiff_t>(every_chunk.size() * r / size);
  };
  const std::vector<InputRange> chunks(first_of(rank), first_of(rank + 1));
  std::shared_ptr<const text::CutTokens> cut;
  if (config.special_in_text == "allow") {
    std::vector<std::string> tokens;
    for (const text::ReservedToken& token : reserved) tokens.push_back(token.content);
    cut = std::make_shared<const text::CutTokens>(std::move(tokens));
  }
  WorkerPool pool(thread_count(config.threads));
  ChunkReader lines(files, pool.num_threads());
  lines.start(chunks);
  std::vector<Worker> workers;
  for (int i = 0; i < pool.num_threads(); ++i) workers.emplace_back(config, cut);
  ProgressDisplay progress(size == 1 ? "count words" : formatted("count words, rank {}", rank),
                           bytes_of(files, chunks), rank == 0 ? config.progress : "none");
  pool.run(
      chunks.size(),
      [&](std::size_t i, int worker) {
        count_chunk(config, files[chunks[i].file], lines.read(i, worker),
                    workers[static_cast<std::size_t>(worker)]);
        progress.add(bytes_of(files, {chunks[i]}), 0, 0);
      },
      [&] { progress.show(); });
  add_up(workers, pool);
  return std::move(workers[0]);
}

}  // namespace

text::WordCounter count_words(const TrainTokenizerConfig& config,
                              const std::vector<text::ReservedToken>& reserved,
                              comm::Communicator* world) {
  Worker mine = count_on_this_rank(config, reserved, world);
  const std::string one_is = mine.bad ? "; one of them: " + *mine.bad : std::string();
  if (mine.totals.bad_lines != 0)
    log::warn(formatted("{} invalid records were skipped{}", mine.totals.bad_lines, one_is));
  Totals all = mine.totals;
  if (world != nullptr) {
    const std::uint64_t sums[] = {mine.totals.texts, mine.totals.bad_lines};
    std::uint64_t totals[2] = {};
    world
        ->all_reduce({.input = sums,
                      .output = totals,
                      .count = 2,
                      .dtype = DType::u64,
                      .op = comm::ReduceOp::sum,
                      .tag = "texts"})
        ->wait();
    all = {totals[0], totals[1]};
    gather_words(mine.words, *world);
  }
  if (all.texts == 0)
    fail(ErrorKind::data, "the inputs contain no text: {} invalid records{}", all.bad_lines,
         one_is);
  return std::move(mine.words);
}

}  // namespace trireme::data_prep
