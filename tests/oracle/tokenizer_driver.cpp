// Runs the tokenizer over jsonl for tokenizer_oracle.py; not a user program.
//   train OUTPUT_DIR OPTIONS.json IN.jsonl     {"text"} lines; options: vocab_size, min_frequency,
//                                              max_token_length, lines, reserved
//   encode TOKENIZER IN.jsonl OUT.jsonl        {"text"} lines to {"ids", "raw"} (raw: no added
//                                              tokens are matched)
//   decode TOKENIZER IN.jsonl OUT.jsonl        {"ids"} lines to {"all", "skip", "stream"}
//   bench TOKENIZER IN.jsonl SECONDS           prints MB/s of encode on one thread, cold and warm
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "text/learn/bpe_trainer.hpp"
#include "text/tokenizer.hpp"

namespace {

using namespace trireme;
using Clock = std::chrono::steady_clock;

/// Returns the processor time of this thread: on a shared machine, the wall clock includes other
/// processes.
double thread_cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<Json> read_lines(const std::string& path) {
  std::ifstream in(path);
  if (!in) fail(ErrorKind::usage, "{}: cannot be opened", path);
  std::vector<Json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(parse_json(line, path));
  return lines;
}

std::vector<std::string> read_texts(const std::string& path) {
  std::vector<std::string> texts;
  for (const Json& line : read_lines(path))
    texts.push_back(json_get<std::string>(line, "text", path));
  return texts;
}

void train(const std::string& folder, const std::string& options_path, const std::string& input) {
  const Json given = read_json(options_path);
  text::BpeTrainOptions options;
  options.vocab_size = given.value("vocab_size", options.vocab_size);
  options.min_frequency = given.value("min_frequency", options.min_frequency);
  if (given.contains("max_token_length"))
    options.max_token_length = given["max_token_length"].get<std::uint32_t>();
  if (given.contains("reserved")) {
    options.reserved.clear();
    for (const auto& token : given["reserved"])
      options.reserved.push_back({token.get<std::string>(), true});
    options.bos_token = options.eos_token = options.pad_token = options.unk_token = "";
  }
  const std::vector<std::string> texts = read_texts(input);
  const auto start = Clock::now();
  text::WordCounter counter;
  for (const std::string& text : texts)
    given.value("lines", false) ? counter.add_lines(text) : counter.add(text);
  const double counted = seconds_since(start);
  const auto files = text::train_bpe(counter, options);
  std::cout << "train_s " << seconds_since(start) << " of which counting " << counted << ", words "
            << counter.size() << '\n';
  std::filesystem::create_directories(folder);
  for (const auto& [name, content] : files)
    write_file_atomic(std::filesystem::path(folder) / name, content);
}

void encode(const text::Tokenizer& tokenizer, const std::string& input, const std::string& output) {
  std::ofstream out(output);
  for (const std::string& text : read_texts(input)) {
    const Json line = {{"ids", tokenizer.encode(text)},
                       {"raw", tokenizer.encode(text, {.add_special_tokens = false,
                                                       .match_added_tokens = false})}};
    out << line << '\n';
  }
}

void decode(const text::Tokenizer& tokenizer, const std::string& input, const std::string& output) {
  std::ofstream out(output);
  for (const Json& line : read_lines(input)) {
    const auto ids = line.at("ids").get<std::vector<std::uint32_t>>();
    text::StreamDecoder stream(tokenizer);
    std::string streamed;
    for (const std::uint32_t id : ids) streamed += stream.push(id);
    streamed += stream.finish();
    out << Json{{"all", tokenizer.decode(ids)},
                {"skip", tokenizer.decode(ids, true)},
                {"stream", streamed}}
        << '\n';
  }
}

void bench(const text::Tokenizer& tokenizer, const std::string& input, double seconds) {
  const std::vector<std::string> texts = read_texts(input);
  double bytes = 0;
  for (const std::string& text : texts) bytes += static_cast<double>(text.size());
  std::size_t tokens = 0;
  const auto pass = [&] {
    const double start = thread_cpu_s();
    tokens = 0;
    for (const std::string& text : texts) tokens += tokenizer.encode(text).size();
    return bytes / 1e6 / (thread_cpu_s() - start);
  };
  const double cold = pass();
  double best = 0;
  double sum = 0;
  int rounds = 0;
  for (const auto start = Clock::now(); seconds_since(start) < seconds; ++rounds) {
    const double rate = pass();
    best = std::max(best, rate);
    sum += rate;
  }
  std::cout << "bytes " << bytes << " tokens " << tokens << " MB/cpu-s cold " << cold << " mean "
            << sum / rounds << " best " << best << " rounds " << rounds << '\n';
}

int run(const std::vector<std::string>& args) {
  if (args.size() != 4)
    fail(ErrorKind::usage, "usage: tokenizer_driver train|encode|decode|bench A B C");
  if (args[0] == "train") {
    train(args[1], args[2], args[3]);
    return kExitDone;
  }
  const text::Tokenizer tokenizer = text::Tokenizer::load(args[1]);
  if (args[0] == "encode") encode(tokenizer, args[2], args[3]);
  if (args[0] == "decode") decode(tokenizer, args[2], args[3]);
  if (args[0] == "bench") bench(tokenizer, args[2], std::stod(args[3]));
  return kExitDone;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const trireme::Error& error) {
    std::cerr << error.what() << '\n';
    return trireme::exit_code(error.kind());
  }
}
