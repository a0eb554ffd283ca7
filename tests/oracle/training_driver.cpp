// Trains many small tokenizers for training_oracle.py; not a user program.
//   training_driver CASES.jsonl OUT_DIR
// Each line: {"texts": [...], "lines": bool, "cut": bool, "reserved": [...], "vocab_size",
// "min_frequency", "max_token_length", "limit_alphabet", "all_bytes",
// "pattern"}; line i gives OUT_DIR/i.json.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "text/learn/bpe_trainer.hpp"

namespace {

using namespace trireme;

std::string train(const Json& given) {
  text::BpeTrainOptions options;
  options.bos_token = options.eos_token = options.pad_token = options.unk_token = "";
  options.vocab_size = given.value("vocab_size", options.vocab_size);
  options.min_frequency = given.value("min_frequency", options.min_frequency);
  options.all_bytes = given.value("all_bytes", true);
  if (given.contains("max_token_length"))
    options.max_token_length = given["max_token_length"].get<std::uint32_t>();
  if (given.contains("limit_alphabet"))
    options.limit_alphabet = given["limit_alphabet"].get<std::uint32_t>();
  const auto reserved = given.at("reserved").get<std::vector<std::string>>();
  options.reserved.clear();
  for (const std::string& token : reserved) options.reserved.push_back({token, true});
  text::SplitStep pattern = text::SplitStep::gpt2;
  for (int step = 0; step <= static_cast<int>(text::SplitStep::tekken); ++step) {
    if (name_of(static_cast<text::SplitStep>(step)) == given.value("pattern", "gpt2"))
      pattern = static_cast<text::SplitStep>(step);
  }
  text::WordCounter counter(pattern, given.value("cut", false)
                                         ? std::make_shared<const text::CutTokens>(reserved)
                                         : nullptr);
  for (const Json& text : given.at("texts")) {
    const auto one = text.get<std::string>();
    given.value("lines", false) ? counter.add_lines(one) : counter.add(one);
  }
  return text::train_bpe(counter, options).at("tokenizer.json");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 3) fail(ErrorKind::usage, "usage: training_driver CASES.jsonl OUT_DIR");
    std::ifstream in(argv[1]);
    std::size_t number = 0;
    for (std::string line; std::getline(in, line); ++number) {
      const std::filesystem::path path =
          std::filesystem::path(argv[2]) / formatted("{}.json", number);
      std::ofstream(path, std::ios::binary) << train(parse_json(line, argv[1]));
    }
    return kExitDone;
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return exit_code(error.kind());
  }
}
