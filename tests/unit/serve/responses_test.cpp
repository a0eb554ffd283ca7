#include "serve/openai/response_request.hpp"
#include "unit/serve/service_server.hpp"

namespace trireme::serve {
namespace {

using testing::ClientAnswer;
using testing::post;
using testing::said;

const std::string kAdd = R"("tools": [{"type": "function", "name": "add", "parameters": {"type":
    "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}])";

class Responses : public testing::ServiceServer {
 protected:
  static std::string ask_for(const std::string& fields) {
    return post("/v1/responses", "{" + fields + "}");
  }

  /// Returns the events of a stream. Checks their names and numbers.
  std::vector<Json> stream(const std::string& fields) {
    const ClientAnswer answer = ask(ask_for(fields + R"(, "stream": true)"));
    EXPECT_EQ(answer.status, 200) << answer.body;
    std::vector<Json> events;
    std::string_view rest = answer.body;
    for (std::size_t end = 0; (end = rest.find("\n\n")) != std::string_view::npos;) {
      const std::string_view event = rest.substr(0, end);
      const std::size_t line = event.find("\ndata: ");
      events.push_back(Json::parse(event.substr(line + 7)));
      EXPECT_EQ(event.substr(0, line), "event: " + events.back().at("type").get<std::string>());
      EXPECT_EQ(events.back().at("sequence_number"), events.size() - 1);
      rest.remove_prefix(end + 2);
    }
    EXPECT_EQ(rest, "");
    return events;
  }

  static std::vector<std::string> types(const std::vector<Json>& events) {
    std::vector<std::string> names;
    for (const Json& event : events)
      names.push_back(event.at("type").get<std::string>().substr(std::strlen("response.")));
    return names;
  }

  [[nodiscard]] std::string prompt() const {
    return tokenizer().decode(source_->last_request().prompt);
  }
};

TEST_F(Responses, AnswerAText) {
  const Json reply = json(ask_for(
      R"("input": "hi", "instructions": "Be kind.", "max_output_tokens": 5, "temperature": 0,
         "metadata": {"k": "v"}, "store": false)"));

  EXPECT_TRUE(reply.at("id").get<std::string>().starts_with("resp_"));
  EXPECT_EQ(reply.at("object"), "response");
  EXPECT_EQ(reply.at("status"), "completed");
  EXPECT_EQ(reply.at("model"), "tiny");
  EXPECT_EQ(reply.at("max_output_tokens"), 5);
  EXPECT_EQ(reply.at("temperature"), 0);
  EXPECT_EQ(reply.at("metadata").at("k"), "v");
  EXPECT_EQ(reply.at("instructions"), "Be kind.");
  ASSERT_EQ(reply.at("output").size(), 1U);
  const Json& item = reply["output"][0];
  EXPECT_EQ(item.at("type"), "message");
  EXPECT_EQ(item.at("status"), "completed");
  EXPECT_EQ(item.at("content").at(0).at("type"), "output_text");
  EXPECT_EQ(item["content"][0].at("text"), "Hello");
  EXPECT_EQ(source_->last_request().max_tokens, 5);
  EXPECT_EQ(source_->last_request().sampling.temperature, 0);
  EXPECT_TRUE(prompt().starts_with(
      "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"))
      << prompt();
  EXPECT_EQ(reply.at("usage").at("input_tokens"), source_->last_request().prompt.size());
  EXPECT_EQ(reply["usage"].at("output_tokens"), 2);
}

TEST_F(Responses, StreamTheDocumentedEvents) {
  const std::vector<Json> all = stream(R"("input": "hi")");

  EXPECT_EQ(types(all), (std::vector<std::string>{
                            "created", "in_progress", "output_item.added", "content_part.added",
                            "output_text.delta", "output_text.delta", "output_text.done",
                            "content_part.done", "output_item.done", "completed"}));
  EXPECT_EQ(all[0].at("response").at("status"), "in_progress");
  EXPECT_EQ(all[0]["response"].at("output"), Json::array());
  EXPECT_EQ(all[4].at("delta"), "Hel");
  EXPECT_EQ(all[5].at("delta"), "lo");
  EXPECT_EQ(all[5].at("item_id"), all[2].at("item").at("id"));
  EXPECT_EQ(all[6].at("text"), "Hello");
  const Json& last = all[9].at("response");
  EXPECT_EQ(last.at("id"), all[0]["response"].at("id"));
  EXPECT_EQ(last.at("output").at(0), all[8].at("item"));
  EXPECT_EQ(last.at("usage").at("output_tokens"), 2);
}

TEST_F(Responses, ALimitMakesThemIncomplete) {
  script = [](const generate::Request&) { return said({"Hel"}, generate::FinishReason::length); };
  const Json reply = json(ask_for(R"("input": "hi", "max_output_tokens": 1)"));
  EXPECT_EQ(reply.at("status"), "incomplete");
  EXPECT_EQ(reply.at("incomplete_details").at("reason"), "max_output_tokens");
  EXPECT_EQ(reply["output"][0].at("status"), "incomplete");
  EXPECT_EQ(types(stream(R"("input": "hi")")).back(), "incomplete");
}

TEST_F(Responses, AFailureEndsTheStream) {
  script = [](const generate::Request&) {
    std::vector<generate::Delta> deltas = said({"He"});
    deltas[1].finish = generate::FinishReason::error;
    deltas[1].error = Error(ErrorKind::numeric, "not finite");
    return deltas;
  };
  const Json last = stream(R"("input": "hi")").back();
  EXPECT_EQ(last.at("type"), "response.failed");
  EXPECT_EQ(last.at("response").at("error").at("message"), "not finite");
  EXPECT_EQ(json(ask_for(R"("input": "hi")"), 500).at("error").at("message"), "not finite");
}

TEST_F(Responses, ThoughtsAndCallsAreItems) {
  script = [](const generate::Request&) {
    auto deltas = said({"why", "\n</think>\n\nSum:\n<tool_",
                        "call>\n{\"name\": \"add\", \"arguments\":", " {\"a\": 1}}\n</tool_call>"});
    deltas.back().cached_tokens = 16;
    return deltas;
  };
  const std::string fields = R"("input": "hi", "reasoning": {"effort": "low"}, )" + kAdd;
  const Json reply = json(ask_for(fields));

  ASSERT_EQ(reply.at("output").size(), 3U) << reply;
  EXPECT_EQ(reply["output"][0].at("type"), "reasoning");
  EXPECT_EQ(reply["output"][0].at("content").at(0).at("text"), "why");
  EXPECT_EQ(reply["output"][1].at("content").at(0).at("text"), "Sum:");
  EXPECT_EQ(reply["output"][2].at("type"), "function_call");
  EXPECT_EQ(reply["output"][2].at("name"), "add");
  EXPECT_EQ(Json::parse(reply["output"][2].at("arguments").get<std::string>()), Json({{"a", 1}}));
  EXPECT_NE(prompt().find("\"name\": \"add\""), std::string::npos);
  EXPECT_EQ(reply.at("usage").at("output_tokens"), 4);
  EXPECT_EQ(reply["usage"].at("output_tokens_details").at("reasoning_tokens"), 1);
  EXPECT_EQ(reply["usage"].at("input_tokens_details").at("cached_tokens"), 16);

  const std::vector<Json> all = stream(fields);
  const std::vector<std::string> names = types(all);
  EXPECT_EQ(std::count(names.begin(), names.end(), "reasoning_text.delta"), 1);
  EXPECT_EQ(std::count(names.begin(), names.end(), "function_call_arguments.done"), 1);
  EXPECT_EQ(std::count(names.begin(), names.end(), "output_item.done"), 3);

  // The items of a response are valid input of the next request.
  Json input = reply.at("output");
  input.insert(input.begin(), Json{{"role", "user"}, {"content", "hi"}});
  input.push_back({{"type", "function_call_output"},
                   {"call_id", reply["output"][2].at("call_id")},
                   {"output", "2"}});
  (void)json(ask_for(R"("input": )" + input.dump()));
  EXPECT_NE(prompt().find("Sum:\n<tool_call>\n{\"name\": \"add\""), std::string::npos) << prompt();
  EXPECT_NE(prompt().find("<tool_response>\n2\n</tool_response>"), std::string::npos) << prompt();
}

TEST_F(Responses, AFormatRestrictsTheTokens) {
  const std::string schema = R"("schema": {"type": "object", "properties": {}})";
  (void)json(ask_for(R"("input": "hi", "text": {"format": {"type": "json_schema", "name": "x", )" +
                     schema + "}}"));
  EXPECT_NE(source_->last_request().mask, nullptr);
  (void)json(ask_for(R"("input": "hi", "text": {"format": {"type": "text"}})"));
  EXPECT_EQ(source_->last_request().mask, nullptr);
  const Json error =
      json(ask_for(R"("input": "hi", "text": {"format": {"type": "json_schema", "name": "x",
                      "schema": {"type": "array", "contains": {}}}})"),
           400);
  EXPECT_EQ(error.at("error").at("param"), "text.format.schema.contains") << error;
}

TEST_F(Responses, ErrorsNameTheField) {
  source_->max_context = 30;
  const std::string item = R"("input": [{)";
  const std::vector<std::pair<std::string, const char*>> refused{
      {R"("model": "tiny")", "input"},
      {R"("input": [])", "input"},
      {R"("input": 3)", "input"},
      {item + R"("role": "tool", "content": "x"}])", "input[0].role"},
      {item + R"("role": "user", "content": [{"type": "input_image"}]}])",
       "input[0].content[0].type"},
      {item + R"("type": "item_reference", "id": "x"}])", "input[0].type"},
      {item + R"("type": "function_call", "name": "f", "arguments": "{}"}])", "input[0].call_id"},
      {item + R"("type": "function_call_output", "call_id": "c", "output": "x"}])",
       "input[0].call_id"},
      {item + R"("role": "user", "content": "x", "z": 1}])", "input[0].z"},
      {R"("input": ")" + std::string(200, 'x') + "\"", "input"},
      {R"("input": "hi", "previous_response_id": "r")", "previous_response_id"},
      {R"("input": "hi", "store": true)", "store"},
      {R"("input": "hi", "background": true)", "background"},
      {R"("input": "hi", "truncation": "auto")", "truncation"},
      {R"("input": "hi", "seed": 1)", "seed"},
      {R"("input": "hi", "max_output_tokens": 0)", "max_output_tokens"},
      {R"("input": "hi", "temperature": -1)", "temperature"},
      {R"("input": "hi", "reasoning": {"effort": "much"})", "reasoning.effort"},
      {R"("input": "hi", "reasoning": {"summary": "auto"})", "reasoning.summary"},
      {R"("input": "hi", "text": {"format": {"type": "xml"}})", "text.format.type"},
      {R"("input": "hi", "text": {"verbosity": "low"})", "text.verbosity"},
      {R"("input": "hi", "tools": [{"type": "web_search"}])", "tools[0].type"},
      {R"("input": "hi", "tools": [{"type": "function", "name": "a b"}])", "tools[0].name"},
      {R"("input": "hi", "tool_choice": {"type": "function", "name": "sub"}, )" + kAdd,
       "tool_choice.name"},
      {R"("input": "hi", "tool_choice": "all", )" + kAdd, "tool_choice"}};
  for (const auto& [fields, param] : refused) {
    const Json error = json(ask_for(fields), 400).at("error");
    EXPECT_EQ(error.at("param"), param) << error;
  }
}

}  // namespace
}  // namespace trireme::serve
