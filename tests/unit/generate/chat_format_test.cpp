/// The chat format of a loaded model.

#include <gtest/gtest.h>

#include "checkpoint/hf/hf_export.hpp"
#include "checkpoint/load/load.hpp"
#include "comm/self/self_communicator.hpp"
#include "generate/load/load_model.hpp"
#include "text/chat/jinja_chat.hpp"
#include "unit/checkpoint/hf_models.hpp"

namespace trireme::generate {
namespace {

using checkpoint::Checkpoint;

/// Returns the chat format of a Hugging Face directory with this Jinja text.
text::ChatTemplatePtr format_of(const std::string& jinja) {
  const test::TempDirectory folder;
  test::save_model(folder / "run", test::small(true, true), 1);
  comm::SelfCommunicator alone;
  checkpoint::export_hf(Checkpoint::open(folder / "run/step-000000040"), folder / "hf", alone);
  test::overwrite(folder / "hf/chat_template.jinja", jinja);
  return load_model(folder / "hf", {}, at::kCPU)->chat;
}

TEST(ChatFormat, OfAnImportedModelIsItsOwnTemplate) {
  const std::string own =
      "{% if messages[0].role != 'system' %}<|im_start|>system\nBe Q.<|im_end|>\n{% endif %}"
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";
  text::Conversation chat;
  chat.messages.resize(1);
  chat.messages[0].content = "q";

  EXPECT_EQ(format_of(own)->render(chat, {.generation_prompt = true}).text,
            "<|im_start|>system\nBe Q.<|im_end|>\n<|im_start|>user\nq<|im_end|>\n");
  EXPECT_EQ(format_of(text::chat_template("qwen3").jinja())->name, "qwen3") << "an export";
  EXPECT_EQ(format_of(""), nullptr);
}

TEST(ChatFormat, OfAModelThatWasTrainedWithAJinjaTextIsThisText) {
  // The text writes samples without tools like chatml, but other texts for tools.
  const std::string jinja =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  const std::string name = text::custom_template_name(jinja);
  const test::TempDirectory folder;
  test::save_model(folder / "run", test::small(true, true), 1,
                   {{checkpoint::kChatTemplateValue, name}}, jinja);

  EXPECT_EQ(load_model(folder / "run", {}, at::kCPU)->chat->name, name);
}

TEST(ChatFormat, OfATemplateThatIsNotSupportedIsTheNearestOne) {
  testing::internal::CaptureStderr();
  const text::ChatTemplatePtr format = format_of("{{ '<|im_start|>' | xmlattr }}");
  const std::string log = testing::internal::GetCapturedStderr();

  ASSERT_NE(format, nullptr);
  EXPECT_EQ(format->name, "chatml");
  EXPECT_NE(log.find("the filter 'xmlattr' is not supported"), std::string::npos) << log;
  EXPECT_NE(log.find("The chat format chatml is used instead"), std::string::npos) << log;
}

}  // namespace
}  // namespace trireme::generate
