#include "data_prep/documents/document_config.hpp"

#include <set>

#include "core/join.hpp"
#include "data/shards/schema.hpp"
#include "data_prep/documents/document_rules.hpp"
#include "text/chat/chat_template.hpp"

namespace trireme {
namespace {

void check_fields(const DocumentConfig& config, Problems& problems) {
  const std::string& given = config.chat.record_fields;
  if (given.empty()) return;
  const std::vector<std::string> names = split(given, ',');
  const auto refuse = [&](const char* what) {
    problems.add(formatted("--fields {}{}", given, what));
  };
  if (config.kind == schema::kKindPretrain)
    return refuse(
        " is for --kind sft and dpo; for pretrain give the one field of the text as --field");
  if (config.kind == schema::kKindSft && names.size() != 2)
    return refuse(": --kind sft takes two names, USER,ASSISTANT: --fields question,answer");
  if (config.kind == schema::kKindDpo && names.size() != 3)
    return refuse(": --kind dpo takes three names, PROMPT,CHOSEN,REJECTED");
  const std::set<std::string> different(names.begin(), names.end());
  if (different.contains("") || different.size() != names.size())
    refuse(": each name must be there once and not be empty");
}

void check_ignored(const DocumentConfig& config, Problems& problems) {
  if (config.ignore_fields.empty()) return;
  for (const std::string& name : split(config.ignore_fields, ',')) {
    if (!name.empty()) continue;
    problems.add("--ignore-fields", config.ignore_fields,
                 "must be names with one comma between them: id,source");
    return;
  }
}

void check_probability(const char* option, double value, Problems& problems) {
  if (value != ChatConfig{}.add_system && !(value >= 0 && value <= 1))
    problems.add(option, value, "must be in [0, 1]");
}

}  // namespace

std::string chat_template_placeholder() {
  std::string names = chat_template_names();
  for (std::size_t at = names.find(", "); at != std::string::npos; at = names.find(", "))
    names.replace(at, 2, 1, '|');
  return names;
}

void check(const DocumentConfig& config, Problems& problems) {
  check_fields(config, problems);
  if (config.kind != schema::kKindDpo && config.chat.cut_pairs != ChatConfig{}.cut_pairs)
    problems.add(formatted("--cut-pairs {} is for --kind dpo", config.chat.cut_pairs));
  check_ignored(config, problems);
  if (config.kind == schema::kKindPretrain) {
    if (!config.chat.format.empty())
      problems.add(formatted("--template {} is for --kind sft and dpo", config.chat.format));
  } else if (config.kind == schema::kKindSft || config.kind == schema::kKindDpo) {
    check_probability("--add-system", config.chat.add_system, problems);
    check_probability("--drop-empty-think", config.chat.drop_empty_think, problems);
    chat_template(config.chat.format);  // throws Error(usage) that lists them
  }
}

}  // namespace trireme
