#include "data/shards/set_kind.hpp"

#include <algorithm>
#include <array>

#include "data/shards/schema.hpp"

namespace trireme::data {
namespace {

using Targets = const DocumentTargets&;
using Numbers = const std::vector<std::uint32_t>&;
using Spans = const SpanTable&;

constexpr std::array kMaskSpans{
    SpanColumn{schema::kLossPtr, schema::kLossSpan, [](Targets all) -> Spans { return all.loss; }},
};

constexpr std::array kPairNumbers{
    NumberColumn{schema::kPairPrompt, [](Targets all) -> Numbers { return all.pairs.prompt_len; }},
    NumberColumn{schema::kPairChosen, [](Targets all) -> Numbers { return all.pairs.chosen_len; }},
    NumberColumn{schema::kPairRejected,
                 [](Targets all) -> Numbers { return all.pairs.rejected_len; }},
};

constexpr std::array kPairSpans{
    SpanColumn{schema::kChosenPtr, schema::kChosenSpan,
               [](Targets all) -> Spans { return all.pairs.chosen; }},
    SpanColumn{schema::kRejectedPtr, schema::kRejectedSpan,
               [](Targets all) -> Spans { return all.pairs.rejected; }},
};

constexpr std::array kRecordTexts{
    TextColumn{schema::kRecordPtr, schema::kRecordBytes,
               [](Targets all) -> const TextTable& { return all.records; }},
};

constexpr std::array kKinds{
    SetKind{.name = "pretrain", .document = "text"},
    SetKind{.name = "sft", .document = "conversation", .spans = kMaskSpans},
    SetKind{.name = "dpo",
            .document = "pair",
            .sample = SampleForm::pair,
            .keeps = keeps_targets,
            .numbers = kPairNumbers,
            .spans = kPairSpans},
    SetKind{.name = "kto",
            .document = "labeled answer",
            .sample = SampleForm::answer,
            .keeps = keeps_answer,
            .numbers = kPairNumbers,
            .spans = kPairSpans},
    SetKind{.name = "rl",
            .document = "prompt",
            .sample = SampleForm::prompt,
            .spans = kMaskSpans,
            .texts = kRecordTexts},
};

}  // namespace

void DocumentTargets::append(const DocumentTargets& other) {
  loss.append(other.loss);
  pairs.append(other.pairs);
  records.append(other.records);
}

std::span<const SetKind> set_kinds() {
  return kKinds;
}

const SetKind& set_kind(std::string_view kind, std::string_view stored_as) {
  const std::string_view name = stored_as.empty() ? kind : stored_as;
  const auto* found = std::find_if(kKinds.begin(), kKinds.end(),
                                   [&](const SetKind& row) { return row.name == name; });
  return found == kKinds.end() ? kKinds.front() : *found;
}

}  // namespace trireme::data
