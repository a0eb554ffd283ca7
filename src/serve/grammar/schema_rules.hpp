#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "core/files/json.hpp"
#include "serve/grammar/byte_grammar.hpp"
#include "serve/grammar/json_rules.hpp"
#include "serve/grammar/schema_values.hpp"

namespace trireme::serve {

/// Defines what happens with keywords that have no grammar but are not assertions of draft 2020-12
/// either: unknown formats and the content keywords, which a validator need not check, and unknown
/// keywords.
/// `refuse` throws SchemaProblem, `pass` ignores the keyword.
enum class OtherKeywords { refuse, pass };

/// Compiles a JSON schema (draft 2020-12) into a grammar. Every text of the grammar matches the
/// schema, but not every valid value has a text.
///
/// Supported keywords:
/// - type, properties, required, additionalProperties. Members must be in the order of
///   `properties`. Members that `properties` does not list are allowed only if they are required.
/// - items, prefixItems, minItems, maxItems, minLength, maxLength
/// - minimum, maximum, exclusiveMinimum and exclusiveMaximum. Numbers with limits have no exponents
/// - pattern (see strings_matching) and format (see strings_of_format), without minLength, maxLength
///   and each other
/// - enum and const. Values that do not match the other keywords of the schema are left out
/// - anyOf, oneOf (treated like anyOf), allOf with one schema, $ref to a part of the same schema
/// Annotations (title, description, default, ...) are ignored. Other keywords are refused.
class SchemaRules {
 public:
  /// `root` must outlive this object.
  SchemaRules(ByteGrammar& grammar, const Json& root, OtherKeywords others = OtherKeywords::refuse);

  /// Returns the grammar of the whole schema. Throws SchemaProblem.
  [[nodiscard]] GrammarSequence compile();

 private:
  [[nodiscard]] GrammarSequence compile_part(const Json& schema, const std::string& path);
  [[nodiscard]] GrammarSequence of_reference(const std::string& reference, const std::string& path);
  [[nodiscard]] GrammarSequence of_alternatives(const Json& list, const std::string& path);
  [[nodiscard]] GrammarSequence of_types(const Json& schema, const std::string& path);
  [[nodiscard]] GrammarSequence of_type(const std::string& type, const Json& schema,
                                        const std::string& path);
  [[nodiscard]] GrammarSequence of_string(const Json& schema, const std::string& path);
  [[nodiscard]] GrammarSequence of_object(const Json& schema, const std::string& path);
  [[nodiscard]] GrammarSequence of_members(const Json& properties, const Json& schema,
                                           const std::string& path);
  [[nodiscard]] GrammarSequence of_array(const Json& schema, const std::string& path);
  [[nodiscard]] GrammarSequence of_number(const std::string& type, const Json& schema,
                                          const std::string& path);

  ByteGrammar& grammar_;
  const Json& root_;
  OtherKeywords others_;
  JsonRules json_;
  std::map<const Json*, std::uint32_t> references_;
  int depth_ = 0;
};

}  // namespace trireme::serve
