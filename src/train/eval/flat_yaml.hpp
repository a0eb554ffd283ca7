#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Reads the part of YAML 1.2 that a list of tasks needs: under one key of the document, a block
/// list of mappings with scalars and lists of scalars. Scalars may be plain, single-quoted or
/// double-quoted; quoted ones may continue on further lines. Comments are allowed. Other keys of
/// the document are skipped. A document that begins with "{" is read as JSON.
/// Source: YAML 1.2.2, sections 6.5, 7.3 and 8.2.
namespace trireme::train {

struct YamlField {
  std::string where;                // for example "core.yaml:12"
  std::optional<std::string> text;  // a scalar; an absent value is the empty text
  std::optional<std::vector<std::string>> list;
  // Neither text nor list: a value of another form. Only a reader of this field must refuse it.
};

struct YamlRecord {
  std::string where;  // its first line
  std::map<std::string, YamlField, std::less<>> fields;
};

/// Returns the mappings of the list `key` in `content`. `name` is the file in errors. Throws
/// Error(data) with file and line if the text is not of this form, and if there is no list `key`.
std::vector<YamlRecord> read_yaml_records(std::string_view content, std::string_view name,
                                          std::string_view key);

}  // namespace trireme::train
