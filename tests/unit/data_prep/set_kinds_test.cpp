#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "core/join.hpp"
#include "data/shards/set_content.hpp"
#include "text/chat/record_forms.hpp"

namespace trireme::data_prep {
namespace {

TEST(SetKinds, EveryKindThatPackReadsHasARowForItsContent) {
  const auto has_row = [](std::string_view name) {
    return std::ranges::any_of(data::set_contents(),
                               [&](const data::SetContent& row) { return row.name == name; });
  };
  for (const text::RecordKind& kind : text::record_kinds())
    EXPECT_TRUE(has_row(kind.stored_as.empty() ? kind.name : kind.stored_as)) << kind.name;
}

TEST(SetKinds, AKindOfItsOwnCanBeStoredAsAnotherKind) {
  EXPECT_EQ(&data::set_content("ranked", "dpo"), &data::set_content("dpo"));
  EXPECT_EQ(&data::set_content("ranked", ""), &data::set_content("pretrain"));
}

TEST(SetKinds, ARowIsFoundByItsNameAndItsForm) {
  for (const text::RecordKind& kind : text::record_kinds()) {
    EXPECT_EQ(text::find_record_kind(kind.name), &kind);
    EXPECT_EQ(&text::record_kind(kind.form), &kind);
    EXPECT_EQ(data::set_content(kind.name, kind.stored_as).is_masked(), kind.form.has_value())
        << kind.name;
  }
  EXPECT_EQ(text::find_record_kind("ppo"), nullptr);
  EXPECT_FALSE(data::set_content("ppo").is_masked());
}

TEST(SetKinds, ColumnsOfAKindHaveDifferentNamesAndDifferentContent) {
  for (const data::SetContent& content : data::set_contents()) {
    const data::DocumentTargets targets;
    std::set<std::string> names;
    std::set<const void*> columns;
    for (const data::NumberColumn& column : content.numbers) {
      names.insert(column.name);
      columns.insert(&column.of(targets));
    }
    for (const data::SpanColumn& column : content.spans) {
      names.insert({column.ptr, column.span});
      columns.insert(&column.of(targets));
    }
    for (const data::TextColumn& column : content.texts) {
      names.insert({column.ptr, column.bytes});
      columns.insert(&column.of(targets));
    }
    const std::size_t pairs = content.spans.size() + content.texts.size();
    EXPECT_EQ(names.size(), content.numbers.size() + 2 * pairs) << content.name;
    EXPECT_EQ(columns.size(), content.numbers.size() + pairs) << content.name;
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
