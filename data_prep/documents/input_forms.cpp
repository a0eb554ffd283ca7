#include "data_prep/documents/input_forms.hpp"

#include <algorithm>
#include <cstdint>

#include "comm/share.hpp"
#include "core/error.hpp"
#include "core/join.hpp"
#include "core/log.hpp"
#include "data_prep/documents/utf8_repair.hpp"
#include "text/chat/chat_reader.hpp"

namespace trireme::data_prep {
namespace {

/// Only records that begin in this part of an input decide its form.
constexpr std::uint64_t kRecognizedBytes = 1 << 20;
constexpr std::uint64_t kPartBytes = 64 << 10;

/// The result of recognize_input() for an input that has records, but none of a known form.
constexpr std::string_view kUnknownForm = "?";

/// Returns the form of a record, or null. Bad text of the record is replaced, because the form does
/// not depend on it.
const text::RecordForm* recognize_record(text::ChatReader& reader, std::string_view json) {
  if (const text::RecordForm* form = reader.recognize(json.data(), json.size())) return form;
  std::string repaired = repair_json_text(json).text;
  if (repaired == json) return nullptr;
  const std::size_t size = repaired.size();
  repaired.append(kRecordPadding, '\0');
  return reader.recognize(repaired.data(), size);
}

/// Returns the name of the form of the first record with a known form; "" for an input without
/// records.
std::string recognize_input(const InputFile& file, text::ChatForm chats) {
  text::ChatReader reader(chats);
  bool is_empty = true;
  const auto source = file.format->open(file);
  std::uint64_t bytes = 0;
  for (std::uint64_t begin = 0; begin < file.size && bytes < kRecognizedBytes;) {
    const InputRange range{0, begin, file.format->range_end(file, begin, kPartBytes)};
    bytes += file.format->range_bytes(file, range);
    const RecordBatch batch = source->read(range);
    for (const Record& record : batch.records) {
      if (record.text.find_first_not_of(" \t\r\n") == std::string_view::npos) continue;
      is_empty = false;
      if (record.too_long) continue;
      if (const text::RecordForm* form = recognize_record(reader, record.text))
        return std::string(form->name);
    }
    begin = range.end;
  }
  return is_empty ? "" : std::string(kUnknownForm);
}

/// Returns "messages in 2 inputs (a.jsonl, ...), alpaca in 1 input (b.json)", or for a single form
/// its name and keys. Returns "" if no form was recognized.
std::string describe_forms(const std::vector<InputFile>& files,
                           const std::vector<std::string>& names) {
  std::vector<std::string> parts;
  std::string only;
  for (const text::RecordForm& row : text::record_forms()) {
    const auto count = std::ranges::count(names, row.name);
    if (count == 0) continue;
    const auto first = static_cast<std::size_t>(std::ranges::find(names, row.name) - names.begin());
    only = cat(row.name, " ", row.keys);
    parts.push_back(formatted("{} in {} input{} ({}{})", row.name, count, count == 1 ? "" : "s",
                              files[first].name, count == 1 ? "" : ", ..."));
  }
  return parts.size() == 1 ? only : joined(parts, ", ");
}

void warn_of_unknown(const std::vector<InputFile>& files, const std::vector<std::string>& names,
                     const text::RecordForm& assumed) {
  std::vector<std::string> unknown;
  for (std::size_t i = 0; i < files.size(); ++i)
    if (names[i] == kUnknownForm) unknown.push_back(files[i].name);
  if (unknown.empty()) return;
  log::warn(formatted(
      "the first records of {}{} have no known record form; pack reads this input as {}. {} {}",
      unknown.front(),
      unknown.size() == 1 ? "" : formatted(" and {} more inputs", unknown.size() - 1), assumed.name,
      std::ranges::count(text::record_forms(), assumed.chats, &text::RecordForm::chats) == 1
          ? "The only form of this kind is"
          : "The forms are",
      text::record_form_names(assumed.chats)));
}

}  // namespace

std::vector<const text::RecordForm*> find_record_forms(const std::vector<InputFile>& files,
                                                       const DocumentRules& rules,
                                                       comm::Communicator& world) {
  const auto chats = chat_form(rules.config);
  if (!chats || !rules.fields.empty()) return {};
  const text::RecordForm& usual = text::default_record_form(*chats);
  std::vector<const text::RecordForm*> forms(files.size(), &usual);
  const std::string& asked = rules.config.chat.record_format;
  if (asked != kAutoFormat) {
    std::ranges::fill(forms, text::find_record_form(asked));
    return forms;
  }
  const std::vector<std::uint64_t> work(files.size(), 1);
  const std::vector<std::string> names = comm::distribute_work(
      world, work, [&](std::size_t i) { return recognize_input(files[i], *chats); });
  for (std::size_t i = 0; i < files.size(); ++i)
    if (const text::RecordForm* form = text::find_record_form(names[i])) forms[i] = form;
  if (world.rank() != 0) return forms;
  const std::string found = describe_forms(files, names);
  if (!found.empty())
    log::info(
        formatted("record form, recognized from the first records: {}; --format sets it", found));
  warn_of_unknown(files, names, usual);
  return forms;
}

std::string record_format(const DocumentRules& rules) {
  if (!chat_form(rules.config)) return "text";
  if (!rules.fields.empty()) return "fields";
  std::vector<std::string_view> names;
  for (const text::RecordForm* form : rules.forms)
    if (std::ranges::find(names, form->name) == names.end()) names.push_back(form->name);
  return joined(names, ", ");
}

}  // namespace trireme::data_prep
