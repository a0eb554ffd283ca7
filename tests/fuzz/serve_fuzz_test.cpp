/// Nearly valid requests: the server refuses an invalid request and answers the next one.

#include "fuzz/mutator.hpp"
#include "serve/grammar/answer_grammar.hpp"
#include "serve/grammar/grammar_reader.hpp"
#include "serve/grammar/schema_rules.hpp"
#include "serve/openai/completion_request.hpp"
#include "unit/serve/service_server.hpp"

namespace trireme {
namespace {

using testing::ClientAnswer;
using testing::get;
using testing::HttpClient;
using testing::kTools;
using testing::Mutator;
using testing::post;
using testing::said;

const std::vector<std::string> kBodies{
    R"({"model": "tiny", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content":
        [{"type": "text", "text": "hi 你 😀"}]}], "temperature": 0.5, "top_p": 0.9, "n": 2, "seed": 7,
        "stop": ["a", "b"], "max_tokens": 5, "logit_bias": {"3": -1.5}, "logprobs": true,
        "top_logprobs": 3})",
    R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": null,
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "add", "arguments":
        "{\"a\": 1}"}}]}, {"role": "tool", "tool_call_id": "c", "content": "1"}], )" +
        kTools + R"(, "tool_choice": "required"})",
    R"({"messages": [{"role": "user", "content": "q"}], "response_format": {"type": "json_schema",
        "json_schema": {"name": "n", "schema": {"type": "object", "properties": {"a": {"type":
        ["string", "null"], "maxLength": 5}, "b": {"$ref": "#/$defs/b"}}, "required": ["a"], "$defs":
        {"b": {"type": "array", "items": {"enum": [1, "x"]}, "maxItems": 3}}}}}})",
    R"({"prompt": ["the", "other"], "echo": true, "logprobs": 2, "max_tokens": 1})",
    R"({"prompt": [[1, 2], [3]], "max_tokens": 3, "stream": true, "stream_options":
        {"include_usage": true}})",
    R"({"content": "text <|im_end|>", "tokens": [1, 2, 3], "with_pieces": true})"};

const std::vector<std::string> kWords{"null",
                                      "true",
                                      "\"\"",
                                      "-1",
                                      "1e999",
                                      "1e-320",
                                      "18446744073709551616",
                                      "[",
                                      "]",
                                      "{",
                                      "}",
                                      "\\ud800",
                                      "\xFF",
                                      "\xED\xA0\x80",
                                      "\"messages\"",
                                      "\"content\"",
                                      "\"schema\"",
                                      "\"$ref\": \"#\"",
                                      "\"anyOf\": [",
                                      "\"n\": 128",
                                      "\"stop\": \"\"",
                                      "\"minItems\": 99999",
                                      "[[[[[[[[[[[[[[[[[[[[[[[[",
                                      "{\"a\":{\"a\":{\"a\":",
                                      "\"stream\": true"};

const std::vector<std::string> kPaths{"/v1/chat/completions", "/v1/completions", "/tokenize",
                                      "/detokenize", "/apply-template"};

/// Returns true for an HTTP status that a damaged request may get.
bool is_expected(int status) {
  return status == 200 || (status >= 400 && status < 414) || status == 429;
}

class ServeFuzz : public testing::ServiceServer {};

TEST_F(ServeFuzz, BodiesThatAreNearlyRight) {
  script = [](const generate::Request& request) {
    EXPECT_FALSE(request.prompt.empty());
    return said({"<tool_call>", "{\"name\": \"add\"}", "x"});
  };
  start({}, "minimind-v3");
  Mutator mutator(11, kWords);
  auto client = std::make_unique<HttpClient>(server_->port());
  std::size_t num_good = 0;
  const long grown = testing::fuzz("bodies", testing::fuzz_cases(100'000), [&](std::size_t i) {
    std::string body = kBodies[mutator.below(kBodies.size())];
    mutator.mutate(body);
    client->send(post(kPaths[mutator.below(kPaths.size())], body));
    const ClientAnswer answer = client->answer();
    ASSERT_TRUE(is_expected(answer.status)) << answer.status << ' ' << body << answer.body;
    ASSERT_TRUE(answer.is_whole) << body;
    num_good += answer.status == 200 ? 1 : 0;
    if (i % 1000 == 0) client = std::make_unique<HttpClient>(server_->port());
  });
  std::printf("%zu were answered\n", num_good);
  EXPECT_GT(num_good, testing::fuzz_cases(100'000) / 100);
  EXPECT_LT(grown, 200);
  EXPECT_EQ(source_->counters().running, 0);
}

TEST_F(ServeFuzz, HeadsThatAreNearlyRight) {
  Mutator mutator(12, {"\r\n",
                       "\r",
                       "\n",
                       "\r\n\r\n",
                       ":",
                       " ",
                       "Content-Length: 5\r\n",
                       "\0",
                       "Transfer-Encoding: chunked\r\n",
                       "Host: localhost\r\n",
                       "HTTP/1.0",
                       "//",
                       "../",
                       "%2e%2e/",
                       "?",
                       "#",
                       "\xFF",
                       "Expect: 100-continue\r\n",
                       "Connection: close\r\n",
                       "Origin: null\r\n",
                       "0\r\n\r\n"});
  const std::vector<std::string> seeds{
      get("/health"),
      get("/v1/models"),
      get("/metrics", "Origin: http://localhost\r\n"),
      post("/tokenize", R"({"content": "a"})"),
      get("/", "Authorization: Bearer x\r\n", "HEAD"),
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
      "10\r\n{\"content\": \"ab\"}\r\n0\r\n\r\n"};
  testing::fuzz("heads", testing::fuzz_cases(100'000) / 10, [&](std::size_t i) {
    std::string bytes = seeds[mutator.below(seeds.size())];
    mutator.mutate(bytes);
    HttpClient client(server_->port());
    client.send(bytes);
    if (mutator.one_in(4)) client.vanish();
    if (i % 16 != 0) return;  // the others go away at once
    const int status = client.answer(0.02).status;
    ASSERT_TRUE(status == 0 || is_expected(status)) << status << bytes;
  });
  EXPECT_EQ(ask(get("/health")).status, 200);
}

TEST(GrammarFuzz, SchemasThatAreNearlyRight) {
  const std::vector<std::string> seeds{
      R"({"type": "object", "properties": {"a": {"type": ["string", "null"], "maxLength": 5}, "b":
          {"$ref": "#/$defs/b"}}, "required": ["a"], "$defs": {"b": {"type": "array", "items":
          {"enum": [1, "x"]}, "minItems": 1, "maxItems": 3}}})",
      R"({"anyOf": [{"type": "integer", "minimum": -12, "maximum": 999}, {"const": {"k": [true]}}]})",
      R"({"$defs": {"n": {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/n"},
          {"type": "null"}]}}}}, "$ref": "#/$defs/n"})"};
  Mutator mutator(13, kWords);
  std::size_t num_good = 0;
  const long grown = testing::fuzz("schemas", testing::fuzz_cases(100'000), [&](std::size_t) {
    std::string schema = seeds[mutator.below(seeds.size())];
    mutator.mutate(schema);
    try {
      const serve::TextGrammar grammar = serve::json_schema_grammar(schema);
      serve::GrammarReader reader(grammar.grammar, grammar.start);
      serve::GrammarReader::State state = reader.start();
      // Follows random transitions that the grammar allows: no state without a transition may be
      // reached.
      for (int i = 0; i < 60 && !reader.may_end(state); ++i) {
        std::vector<serve::GrammarReader::State> next;
        for (int byte = 0; byte < 256; ++byte) {
          const auto after = reader.step(state, static_cast<unsigned char>(byte));
          if (after != serve::GrammarReader::kDead) next.push_back(after);
        }
        ASSERT_FALSE(next.empty()) << schema;
        state = next[mutator.below(next.size())];
      }
      ++num_good;
    } catch (const serve::SchemaProblem&) {
    } catch (const Error& error) {
      ASSERT_TRUE(error.kind() == ErrorKind::data || error.kind() == ErrorKind::usage) << schema;
    }
  });
  std::printf("%zu were grammars\n", num_good);
  EXPECT_GT(num_good, testing::fuzz_cases(100'000) / 100);
  EXPECT_LT(grown, 200);
}

}  // namespace
}  // namespace trireme
