#include <cmath>

#include "serve/openai/embedding_request.hpp"
#include "unit/serve/service_server.hpp"

namespace trireme::serve {
namespace {

using testing::post;

class Embeddings : public testing::ServiceServer {
 protected:
  void SetUp() override {
    script = [](const generate::Request& request) {
      std::vector<generate::Delta> deltas(1);
      deltas[0].embedding = {3.0F * static_cast<float>(request.prompt.size()), -4.0F, 0.0F};
      deltas[0].finish = generate::FinishReason::length;
      return deltas;
    };
    ServiceServer::SetUp();
  }

  static std::string ask_for(const std::string& fields) {
    return post("/v1/embeddings", "{" + fields + "}");
  }
};

TEST_F(Embeddings, HaveUnitLengthAndTheOrderOfTheInputs) {
  const Json reply = json(ask_for(R"("input": [[5], [6, 7]], "model": "tiny")"));

  EXPECT_EQ(reply.at("object"), "list");
  EXPECT_EQ(reply.at("model"), "tiny");
  ASSERT_EQ(reply.at("data").size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    const Json& one = reply["data"][i];
    EXPECT_EQ(one.at("object"), "embedding");
    EXPECT_EQ(one.at("index"), i);
    const double x = 3.0 * static_cast<double>(i + 1);
    EXPECT_NEAR(one.at("embedding").at(0).get<double>(), x / std::hypot(x, 4), 1e-7);
    EXPECT_NEAR(one.at("embedding").at(1).get<double>(), -4 / std::hypot(x, 4), 1e-7);
  }
  EXPECT_EQ(reply.at("usage"), Json::parse(R"({"prompt_tokens": 3, "total_tokens": 3})"));
  const generate::Request asked = source_->last_request();
  EXPECT_TRUE(asked.embedding);
  EXPECT_EQ(asked.max_tokens, 0);
}

TEST_F(Embeddings, TakeTextsAndTokens) {
  for (const char* input : {R"("hi")", R"(["hi", "you"])", "[1, 2]", "[[1], [2, 3]]"}) {
    const Json reply = json(ask_for(formatted(R"("input": {}, "user": "u")", input)));
    const Json given = Json::parse(input);
    const bool is_one = given.is_string() || given[0].is_number();
    EXPECT_EQ(reply.at("data").size(), is_one ? 1U : 2U) << input;
  }
  (void)json(ask_for(R"("input": "hi")"));
  EXPECT_EQ(source_->last_request().prompt, model_->encode("hi"));
}

TEST_F(Embeddings, InBase64AreTheBytesOfTheFloats) {
  const Json reply = json(ask_for(R"("input": [5], "encoding_format": "base64")"));
  EXPECT_EQ(reply["data"][0]["embedding"], base64_of({0.6F, -0.8F, 0.0F}));
  // Python: base64.b64encode(struct.pack("<4f", 1, -2.5, 0.1, 3))
  EXPECT_EQ(base64_of({1.0F, -2.5F, 0.1F, 3.0F}), "AACAPwAAIMDNzMw9AABAQA==");
  EXPECT_EQ(base64_of({1.0F}), "AACAPw==");
  EXPECT_EQ(base64_of({1.0F, 1.0F}), "AACAPwAAgD8=");
  EXPECT_EQ(base64_of({1.0F, 1.0F, 1.0F}), "AACAPwAAgD8AAIA/");
}

TEST_F(Embeddings, ErrorsNameTheField) {
  source_->max_context = 3;
  const std::vector<std::pair<const char*, const char*>> refused{
      {R"("model": "tiny")", "input"},
      {R"("input": "")", "input"},
      {R"("input": [])", "input"},
      {R"("input": [1, "a"])", "input"},
      {R"("input": [[1, 2], "a"])", "input"},
      {R"("input": ["a", [1, 2]])", "input"},
      {R"("input": {"a": 1})", "input"},
      {R"("input": [1, 2, 3, 4])", "input"},
      {R"("input": [1], "encoding_format": "int8")", "encoding_format"},
      {R"("input": [1], "dimensions": 2)", "dimensions"},
      {R"("input": [1], "task": "x")", "task"}};
  for (const auto& [fields, param] : refused)
    EXPECT_EQ(json(ask_for(fields), 400).at("error").at("param"), param) << fields;
  EXPECT_EQ(json(ask_for(R"("input": [1], "model": "x")"), 404).at("error").at("param"), "model");
}

TEST(UnitLength, LeavesAVectorOfZerosUnchanged) {
  std::vector<float> zeros(3, 0.0F);
  scale_to_unit_length(zeros);
  EXPECT_EQ(zeros, std::vector<float>(3, 0.0F));
}

}  // namespace
}  // namespace trireme::serve
