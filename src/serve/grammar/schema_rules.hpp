#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "core/files/json.hpp"
#include "serve/grammar/byte_grammar.hpp"
#include "serve/grammar/json_rules.hpp"
#include "serve/grammar/schema_values.hpp"

namespace trireme {

/// The treatment of a keyword that has no form here and is no assertion of draft 2020-12: format and
/// the content keywords, which a validator need not check, and words that JSON Schema does not know.
enum class OtherKeywords { refuse, pass };

/// JSON schemas (draft 2020-12) as parts of a grammar: every text of the grammar fits the schema, but
/// not every value that fits has a text. Known are type, properties, required, additionalProperties,
/// items, prefixItems, minItems, maxItems, minLength, maxLength, minimum and maximum (of integers; of
/// numbers 0 as a minimum), enum and const (of their values those that fit type, lengths and limits
/// beside them), anyOf, oneOf (as anyOf), allOf of one, $ref within the schema. Members come in the
/// order of `properties`; beyond these there are none but required ones. Annotations (title, description,
/// default, ..) are passed over, other keywords are refused.
class SchemaRules {
 public:
  /// `root` must outlive this.
  SchemaRules(ByteGrammar& grammar, const Json& root,
              OtherKeywords others = OtherKeywords::refuse);

  /// Texts for the whole schema. Throws SchemaProblem.
  [[nodiscard]] GrammarPiece compile();

 private:
  [[nodiscard]] GrammarPiece piece_of(const Json& schema, const std::string& path);
  [[nodiscard]] GrammarPiece of_reference(const std::string& reference, const std::string& path);
  [[nodiscard]] GrammarPiece of_alternatives(const Json& list, const std::string& path);
  [[nodiscard]] GrammarPiece of_types(const Json& schema, const std::string& path);
  [[nodiscard]] GrammarPiece of_type(const std::string& type, const Json& schema,
                                     const std::string& path);
  [[nodiscard]] GrammarPiece of_object(const Json& schema, const std::string& path);
  [[nodiscard]] GrammarPiece of_members(const Json& properties, const Json& schema,
                                        const std::string& path);
  [[nodiscard]] GrammarPiece of_array(const Json& schema, const std::string& path);
  [[nodiscard]] GrammarPiece of_number(const std::string& type, const Json& schema,
                                       const std::string& path);

  ByteGrammar& grammar_;
  const Json& root_;
  OtherKeywords others_;
  JsonRules json_;
  std::map<const Json*, std::uint32_t> references_;
  int depth_ = 0;
};

}  // namespace trireme
