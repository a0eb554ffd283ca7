#include "data/shards/set_content.hpp"

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

constexpr std::array kContents{
    SetContent{.name = "pretrain", .document = "text"},
    SetContent{.name = "sft", .document = "conversation", .spans = kMaskSpans},
    SetContent{.name = "dpo",
               .document = "pair",
               .sample = SampleForm::pair,
               .keeps = keeps_targets,
               .numbers = kPairNumbers,
               .spans = kPairSpans},
    SetContent{.name = "kto",
               .document = "labeled answer",
               .sample = SampleForm::answer,
               .keeps = keeps_answer,
               .numbers = kPairNumbers,
               .spans = kPairSpans},
    SetContent{.name = "rl",
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

std::span<const SetContent> set_contents() {
  return kContents;
}

const SetContent& set_content(std::string_view kind, std::string_view stored_as) {
  const std::string_view name = stored_as.empty() ? kind : stored_as;
  const auto* found = std::find_if(kContents.begin(), kContents.end(),
                                   [&](const SetContent& row) { return row.name == name; });
  return found == kContents.end() ? kContents.front() : *found;
}

}  // namespace trireme::data
