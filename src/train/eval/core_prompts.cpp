#include "train/eval/core_prompts.hpp"

#include <algorithm>
#include <iterator>

#include "core/error.hpp"
#include "reward/python_text.hpp"
#include "train/eval/python_random.hpp"

namespace trireme::train {
namespace {

using TokenIds = std::vector<std::uint32_t>;

constexpr std::uint64_t kShotSeed = 1234;
constexpr const char* kBetweenExamples = "\n\n";

/// Returns the context of an option, and the delimiter.
std::string opening(const CoreTask& task, const CoreItem& item, std::size_t option) {
  const std::string& context = item.context(option);
  if (task.type != CoreType::language_modeling) return context + task.delimiter;
  return std::string(reward::stripped(context)) + task.delimiter;
}

/// Returns the number of ids that all options share at their start.
std::size_t common_start(const std::vector<TokenIds>& options) {
  std::size_t length = options.front().size();
  for (const TokenIds& one : options) {
    const auto differs =
        std::mismatch(one.begin(), one.end(), options.front().begin(), options.front().end());
    length = std::min(length, static_cast<std::size_t>(differs.first - one.begin()));
  }
  return length;
}

/// Returns the number of ids that all options share at their end.
std::size_t common_end(const std::vector<TokenIds>& options) {
  std::size_t length = options.front().size();
  for (const TokenIds& one : options) {
    const auto differs =
        std::mismatch(one.rbegin(), one.rend(), options.front().rbegin(), options.front().rend());
    length = std::min(length, static_cast<std::size_t>(differs.first - one.rbegin()));
  }
  return length;
}

/// Returns the position of the first scored id of each option.
std::vector<std::size_t> first_scored(CoreType type, const std::vector<TokenIds>& options,
                                      const TokenIds& start, const std::string& where) {
  std::vector<std::size_t> first(options.size(), 0);
  switch (type) {
    case CoreType::multiple_choice:
      std::fill(first.begin(), first.end(), common_start(options));
      break;
    case CoreType::schema: {
      const std::size_t length = common_end(options);
      for (std::size_t i = 0; i < options.size(); ++i) {
        const std::size_t size = options[i].size();
        first[i] = length == size ? size : size - length;  // equal options: no id is scored
      }
      break;
    }
    case CoreType::language_modeling: {
      const TokenIds& whole = options.front();
      if (start.size() >= whole.size() || !std::equal(start.begin(), start.end(), whole.begin())) {
        fail(
            ErrorKind::data,
            "{}: the ids of the prompt without its continuation are not the start of the ids with it, so the continuation cannot be scored",
            where);
      }
      first.front() = start.size();
      break;
    }
  }
  return first;
}

}  // namespace

std::vector<std::size_t> draw_shots(const CoreTask& task, std::size_t index) {
  const std::size_t others = task.items.size() - 1;
  const auto wanted = std::min(others, static_cast<std::size_t>(task.shots));
  std::vector<std::size_t> drawn = PythonRandom(kShotSeed + index).sample(others, wanted);
  for (std::size_t& one : drawn) one += one >= index ? 1 : 0;  // the list skips the item itself
  return drawn;
}

CorePrompts core_prompts(const CoreTask& task, std::size_t index,
                         const std::vector<std::size_t>& shots) {
  std::string solved;
  for (const std::size_t shot : shots) {
    const CoreItem& example = task.items[shot];
    const auto gold = static_cast<std::size_t>(example.gold);
    solved += opening(task, example, gold) + example.continuation(gold) + kBetweenExamples;
  }
  const CoreItem& item = task.items[index];
  CorePrompts prompts;
  for (std::size_t option = 0; option < item.num_options(); ++option)
    prompts.options.push_back(solved + opening(task, item, option) + item.continuation(option));
  if (task.type == CoreType::language_modeling)
    prompts.start = reward::stripped(solved + opening(task, item, 0));
  return prompts;
}

EncodedCoreItem encode_core_item(const CoreTask& task, std::size_t index,
                                 const CorePrompts& prompts, const text::Tokenizer& tokenizer,
                                 std::uint32_t first_id, std::int64_t max_length) {
  const auto encoded = [&](const std::string& text) {
    TokenIds ids{first_id};
    const TokenIds rest =
        tokenizer.encode(text, {.add_special_tokens = false, .match_added_tokens = false});
    ids.insert(ids.end(), rest.begin(), rest.end());
    return ids;
  };
  const std::string& where = task.items[index].where;
  std::vector<TokenIds> options;
  for (const std::string& text : prompts.options) options.push_back(encoded(text));
  const TokenIds start =
      task.type == CoreType::language_modeling ? encoded(prompts.start) : TokenIds{};
  const std::vector<std::size_t> first = first_scored(task.type, options, start, where);
  EncodedCoreItem item;
  for (std::size_t i = 0; i < options.size(); ++i) {
    const std::int64_t cut = std::max<std::int64_t>(0, std::ssize(options[i]) - max_length);
    if (cut >= static_cast<std::int64_t>(first[i])) {
      fail(
          ErrorKind::data,
          "{}: the scored part of an option has {} tokens, but the model accepts at most {} (model.max_seq_len)",
          where, options[i].size() - first[i], max_length);
    }
    const auto begin = options[i].begin() + cut;
    const auto scored = options[i].begin() + static_cast<std::ptrdiff_t>(first[i]);
    item.options.push_back({{begin, scored}, {scored, options[i].end()}});
    item.is_cut = item.is_cut || cut > 0;
  }
  return item;
}

}  // namespace trireme::train
