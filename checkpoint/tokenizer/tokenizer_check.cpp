#include "checkpoint/tokenizer/tokenizer_check.hpp"

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "text/spec/vocab_files.hpp"
#include "text/tokenizer.hpp"

namespace trireme::checkpoint {

std::string tokenizer_problem(const std::map<std::string, std::string>& files,
                              std::string_view where) {
  if (!files.contains("tokenizer.json")) {
    std::map<std::string, std::string> converted = files;
    const auto error = comm::capture([&] { text::add_tokenizer_json(converted, where); });
    if (error) return error->what();
    return formatted(
        "{}: tokenizer.json is missing (or vocab.json with merges.txt). A tokenizer.model of "
        "SentencePiece alone is not supported: load and save the tokenizer once with transformers, "
        "which writes tokenizer.json",
        where);
  }
  const auto error = comm::capture([&] { (void)text::Tokenizer::from_files(files, where); });
  if (!error) return "";
  if (error->kind() != ErrorKind::data) throw Error(*error);
  return error->what();
}

void check_imported_tokenizer(const std::map<std::string, std::string>& files,
                              std::string_view where, std::optional<bool> required) {
  const std::string problem = tokenizer_problem(files, where);
  if (problem.empty()) return;
  if (required.value_or(false))
    fail(ErrorKind::data, "{}\n--require-tokenizer: nothing was imported", problem);
  log::warn(formatted(
      "{}\nThe model takes token ids only: it can be trained on token sets, generate from {{\"ids\"}} "
      "prompts, and be exported; pack, chats and text prompts refuse it.{}",
      problem, required ? " --require-tokenizer refuses such a model at import." : ""));
}

}  // namespace trireme::checkpoint
