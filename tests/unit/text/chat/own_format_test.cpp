#include "text/chat/own_format.hpp"

#include <gtest/gtest.h>

#include <array>

#include "core/error.hpp"
#include "unit/text/chat/chats.hpp"

namespace trireme::text {
namespace {

using enum Role;

constexpr std::array kNames{"minimind-v1", "minimind-v2", "minimind-v2.5", "minimind-v3",
                            "chatml",      "qwen3",       "llama3",        "plain"};

constexpr const char* kTurns =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

std::string name_of(const std::string& jinja) {
  const OwnFormat own = own_chat_format(jinja, "T");
  EXPECT_EQ(own.refusal, "");
  return own.format == nullptr ? "none" : own.format->name;
}

std::string prompt_of(const std::string& jinja) {
  return own_chat_format(jinja, "T")
      .format
      ->render(samples::chat_of({{user, "q"}}), {.begin_token = "<s>", .generation_prompt = true})
      .text;
}

TEST(OwnFormat, IsANamedFormatThatWritesTheSameText) {
  for (const char* name : kNames) {
    EXPECT_EQ(name_of(chat_template(name).jinja()), name);
    EXPECT_EQ(name_of(chat_template(name).jinja() + "{# #}"), name);
  }
  EXPECT_EQ(name_of(kTurns), "chatml") << "a template without tools and thoughts";
}

TEST(OwnFormat, IsTheJinjaTextIfAFormatWithTheSameMarkersWritesAnother) {
  const std::string system =
      cat("{% if messages[0].role != 'system' %}<|im_start|>system\nBe Q.<|im_end|>\n{% endif %}",
          kTurns);
  const std::string thinks =
      std::string(kTurns) + "{% if add_generation_prompt %}<think>\n{% endif %}";
  const std::string tools = cat("{% for t in tools or [] %}{{ t | tojson }}{% endfor %}", kTurns);
  const std::string thoughts =
      cat("{% for m in messages %}{{ m.reasoning_content or '' }}{% endfor %}", kTurns);
  const std::string llama =
      cat("{{ '<|start_header_id|>system<|end_header_id|>\n\nDate<|eot_id|>' }}",
          chat_template("llama3").jinja());
  const std::string switched = cat(kTurns, "{% if enable_thinking %}{{ '/think' }}{% endif %}");

  for (const std::string& jinja : {system, thinks, tools, thoughts, llama, switched}) {
    ASSERT_NE(nearest_chat_template(jinja), nullptr) << jinja;
    EXPECT_EQ(name_of(jinja), custom_template_name(jinja)) << jinja;
  }
  EXPECT_EQ(
      prompt_of(system),
      "<|im_start|>system\nBe Q.<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_TRUE(prompt_of(thinks).ends_with("<|im_start|>assistant\n<think>\n"));
  EXPECT_TRUE(prompt_of(llama).starts_with("<|start_header_id|>system<|end_header_id|>\n\nDate"));
  EXPECT_EQ(name_of("[INST] {{ messages[0].content }} [/INST]"),
            custom_template_name("[INST] {{ messages[0].content }} [/INST]"));
}

TEST(OwnFormat, IsTheNearestFormatIfTheJinjaTextIsNotSupported) {
  const OwnFormat near = own_chat_format("<|im_start|>{{ messages | xmlattr }}", "T");
  ASSERT_NE(near.format, nullptr);
  EXPECT_EQ(near.format->name, "chatml");
  EXPECT_NE(near.refusal.find("T, line 1"), std::string::npos) << near.refusal;
  EXPECT_NE(refusal_note(near).find("\nThe chat format chatml is used instead"), std::string::npos);
  const OwnFormat none = own_chat_format("[INST] {{ messages | xmlattr }}", "T");
  EXPECT_EQ(none.format, nullptr);
  EXPECT_NE(none.refusal, "");
  EXPECT_EQ(refusal_note(none), none.refusal);
  EXPECT_EQ(refusal_note({.format = near.format}), "");
}

}  // namespace
}  // namespace trireme::text
