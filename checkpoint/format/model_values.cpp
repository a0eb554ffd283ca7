#include "checkpoint/format/model_values.hpp"

#include <charconv>
#include <cmath>
#include <set>

#include "checkpoint/format/model_head.hpp"
#include "checkpoint/format/state.hpp"
#include "core/error.hpp"
#include "core/fields.hpp"
#include "core/number.hpp"
#include "core/problems.hpp"

namespace trireme::checkpoint {
namespace {

constexpr const char* kSection = "model";

std::string text_of(const bool& value) {
  return value ? "true" : "false";
}

std::string text_of(const std::string& value) {
  return value;
}

std::string text_of(const std::vector<std::string>&) {
  fail(ErrorKind::internal, "a model has no list among its values");
}

template <class Number>
std::string text_of(const Number& value) {
  char digits[64];
  const auto [end, code] = std::to_chars(digits, digits + sizeof digits, value);
  TRIREME_ASSERT(code == std::errc{});
  return {digits, end};
}

bool parse(const std::string& text, bool& value) {
  value = text == "true";
  return text == "true" || text == "false";
}

bool parse(const std::string&, std::vector<std::string>&) {
  return false;  // a model has no list among its values
}

bool parse(const std::string& text, std::string& value) {
  value = text;
  return true;
}

template <class Number>
bool parse(const std::string& text, Number& value) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc{} && end == text.data() + text.size() &&
         std::isfinite(static_cast<double>(value));
}

}  // namespace

void put_model_values(const model::ModelConfig& config,
                      std::map<std::string, std::string>& values) {
  model::ModelConfig copy = config;
  for (const Field& field : fields_of(kSection, copy)) {
    values[field.key] = std::visit([](const auto* value) { return text_of(*value); }, field.value);
  }
}

model::ModelConfig model_from_values(const std::map<std::string, std::string>& values,
                                     std::string_view where) {
  model::ModelConfig config;
  std::set<std::string> known;
  for (const Field& field : fields_of(kSection, config)) {
    known.insert(field.key);
    const auto found = values.find(field.key);
    if (found == values.end()) continue;
    const bool good =
        std::visit([&](auto* value) { return parse(found->second, *value); }, field.value);
    if (!good)
      fail(ErrorKind::data, "{}: value {} = '{}' is not of its type", where, field.key,
           found->second);
  }
  for (const auto& [key, text] : values) {
    if (key.starts_with("model.") && !known.contains(key)) {
      fail(ErrorKind::data, "{}: value {} is unknown; was it written by a newer version?", where,
           key);
    }
  }
  if (config.hidden_size == 0 || config.vocab_size == 0) {
    fail(ErrorKind::data,
         "{}: holds no model shape (values model.hidden_size, model.vocab_size, ...)", where);
  }
  try {
    model::resolve(config, 0);
  } catch (const Error& error) {
    fail(ErrorKind::data, "{}: {}", where, error.what());
  }
  return config;
}

bool is_model_value(std::string_view key) {
  return key.starts_with("model.") || key == kChatTemplateValue || key == kImportedTemplateValue ||
         key == kImportedJinjaValue || key == kHfFamilyValue || key == kHeadValue;
}

void put_lora_values(const model::LoraConfig& config, std::map<std::string, std::string>& values) {
  model::LoraConfig::fields(config, [&](const char* name, const auto& value, const auto&...) {
    values[cat("lora.", name)] = text_of(value);
  });
}

bool holds_adapters(const std::map<std::string, std::string>& values) {
  const auto rank = values.find("lora.rank");
  return rank != values.end() && rank->second != "0";
}

model::LoraConfig lora_from_values(const std::map<std::string, std::string>& values,
                                   std::string_view where) {
  model::LoraConfig config;
  model::LoraConfig::fields(config, [&](const char* name, auto& value, const auto&...) {
    const auto found = values.find(cat("lora.", name));
    if (found == values.end() || !parse(found->second, value)) {
      fail(ErrorKind::data, "{}: value lora.{} {}", where, name,
           found == values.end() ? std::string("is missing")
                                 : formatted("= '{}' is not of its type", found->second));
    }
  });
  Problems problems;
  check(config, problems);
  if (!config.on()) problems.add("lora.rank", config.rank, "must be 1 or more");
  if (!problems.empty()) fail(ErrorKind::data, "{}: {}", where, problems.lines().front());
  return config;
}

}  // namespace trireme::checkpoint
