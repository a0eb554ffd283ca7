#include "text/split/splitter.hpp"

#include <array>

namespace trireme::text {
namespace {

struct KnownPattern {
  SplitStep step;
  std::string_view regex;
};

// Sources: huggingface/tokenizers 0.23 (ByteLevel), openai/tiktoken 0.14 (`openai_public.py`), the
// tokenizer.json of Llama 3, Qwen 2 to 3.5 and Mistral.
constexpr std::array<KnownPattern, 7> kPatterns = {{
    {SplitStep::gpt2, kGpt2Pattern},
    {SplitStep::llama3,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitStep::qwen2,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitStep::qwen35,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitStep::cl100k,
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)"},
    {SplitStep::o200k,
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitStep::tekken,
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
}};

}  // namespace

std::string_view name_of(SplitStep step) {
  constexpr std::array<std::string_view, 10> kNames{
      "gpt2",  "llama3", "qwen2",  "qwen3.5",       "cl100k",
      "o200k", "tekken", "digits", "single_digits", "prefix_space"};
  return kNames[static_cast<std::size_t>(step)];
}

std::optional<SplitStep> step_of_pattern(std::string_view regex) {
  for (const KnownPattern& known : kPatterns) {
    if (known.regex == regex) return known.step;
  }
  return std::nullopt;
}

std::string_view regex_of(SplitStep step) {
  for (const KnownPattern& known : kPatterns) {
    if (known.step == step) return known.regex;
  }
  return {};
}

std::string_view known_patterns() {
  return "the exact patterns of gpt2, llama3 (also cl100k after conversion), qwen2, qwen3.5, "
         "cl100k, o200k, tekken";
}

}  // namespace trireme::text
