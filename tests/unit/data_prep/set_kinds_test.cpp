#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "core/join.hpp"
#include "data/shards/set_kind.hpp"
#include "text/chat/record_forms.hpp"

namespace trireme::data_prep {
namespace {

TEST(SetKinds, EveryKindThatPackReadsHasARowForItsContent) {
  const auto has_row = [](std::string_view name) {
    return std::ranges::any_of(data::set_kinds(),
                               [&](const data::SetKind& row) { return row.name == name; });
  };
  for (const text::RecordKind& kind : text::record_kinds())
    EXPECT_TRUE(has_row(kind.stored_as.empty() ? kind.name : kind.stored_as)) << kind.name;
}

TEST(SetKinds, AKindOfItsOwnCanBeStoredAsAnotherKind) {
  EXPECT_EQ(&data::set_kind("ranked", "dpo"), &data::set_kind("dpo"));
  EXPECT_EQ(&data::set_kind("ranked", ""), &data::set_kind("pretrain"));
}

TEST(SetKinds, ARowIsFoundByItsNameAndItsForm) {
  for (const text::RecordKind& kind : text::record_kinds()) {
    EXPECT_EQ(text::find_record_kind(kind.name), &kind);
    EXPECT_EQ(&text::record_kind(kind.form), &kind);
    EXPECT_EQ(data::set_kind(kind.name, kind.stored_as).is_masked(), kind.form.has_value())
        << kind.name;
  }
  EXPECT_EQ(text::find_record_kind("ppo"), nullptr);
  EXPECT_FALSE(data::set_kind("ppo").is_masked());
}

TEST(SetKinds, ColumnsOfAKindHaveDifferentNamesAndDifferentContent) {
  for (const data::SetKind& kind : data::set_kinds()) {
    const data::DocumentTargets targets;
    std::set<std::string> names;
    std::set<const void*> contents;
    for (const data::NumberColumn& column : kind.numbers) {
      names.insert(column.name);
      contents.insert(&column.of(targets));
    }
    for (const data::SpanColumn& column : kind.spans) {
      names.insert({column.ptr, column.span});
      contents.insert(&column.of(targets));
    }
    for (const data::TextColumn& column : kind.texts) {
      names.insert({column.ptr, column.bytes});
      contents.insert(&column.of(targets));
    }
    const std::size_t pairs = kind.spans.size() + kind.texts.size();
    EXPECT_EQ(names.size(), kind.numbers.size() + 2 * pairs) << kind.name;
    EXPECT_EQ(contents.size(), kind.numbers.size() + pairs) << kind.name;
  }
}

TEST(SetKinds, NumberOfNamesIsThatOfTheList) {
  for (const text::RecordKind& kind : text::record_kinds()) {
    const std::size_t listed = kind.names.empty() ? 0 : split(kind.names, ',').size();
    EXPECT_EQ(kind.num_names, listed) << kind.name;
  }
  EXPECT_EQ(text::chat_kind_names(" and "), "sft, dpo, kto and rl");
  EXPECT_EQ(text::chat_kind_names(", ", text::ChatForm::pair), "dpo");
}

}  // namespace
}  // namespace trireme::data_prep
