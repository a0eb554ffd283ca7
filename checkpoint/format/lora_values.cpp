#include "checkpoint/format/lora_values.hpp"

#include "core/error.hpp"
#include "core/fields.hpp"
#include "core/number.hpp"
#include "core/problems.hpp"

namespace trireme {
namespace {

std::string lora_text(const std::string& value) {
  return value;
}

std::string lora_text(bool value) {
  return value ? "true" : "false";
}

std::string lora_text(std::int64_t value) {
  return cat(value);
}

std::string lora_text(double value) {
  return number_text(value);
}

bool read_lora(const std::string& text, std::string& value) {
  value = text;
  return true;
}

bool read_lora(const std::string& text, bool& value) {
  value = text == "true";
  return value || text == "false";
}

bool read_lora(const std::string& text, std::int64_t& value) {
  const auto number = parse_integer(text);
  value = number.value_or(0);
  return number.has_value();
}

bool read_lora(const std::string& text, double& value) {
  const auto number = parse_number(text);
  value = number.value_or(0);
  return number.has_value();
}

}  // namespace

void put_lora_values(const LoraConfig& config, std::map<std::string, std::string>& values) {
  LoraConfig::fields(config, [&](const char* name, const auto& value, const auto&...) {
    values[cat("lora.", name)] = lora_text(value);
  });
}

bool holds_adapters(const std::map<std::string, std::string>& values) {
  const auto rank = values.find("lora.rank");
  return rank != values.end() && rank->second != "0";
}

LoraConfig lora_from_values(const std::map<std::string, std::string>& values,
                            std::string_view where) {
  LoraConfig config;
  LoraConfig::fields(config, [&](const char* name, auto& value, const auto&...) {
    const auto found = values.find(cat("lora.", name));
    if (found == values.end() || !read_lora(found->second, value)) {
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

}  // namespace trireme
