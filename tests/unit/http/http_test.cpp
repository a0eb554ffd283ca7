#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "http/http_server.hpp"
#include "unit/core/scratch.hpp"
#include "unit/http/http_client.hpp"

namespace trireme::http {
namespace {

using testing::ClientAnswer;
using testing::get;
using testing::HttpClient;
using testing::post;

/// A server that answers with a description of the request. /slow delays its reply, /events sends
/// three events, /flood sends 20 MiB and then three events. A header names the path.
class Http : public ::testing::Test {
 protected:
  void SetUp() override { start({}); }

  void start(HttpConfig config) {
    server_.reset();
    server_ = std::make_unique<HttpServer>(
        config,
        HttpHandlers{
            .refuse =
                [](const HttpHead& head) {
                  return head.path == "/closed"
                             ? std::optional(HttpResponse{.status = 401, .body = "no"})
                             : std::nullopt;
                },
            .handle = [this](HttpRequest request,
                             const std::shared_ptr<HttpReply>& reply) { handle(request, reply); },
            .error_body =
                [](int status, std::string_view message) {
                  return formatted("{} {}", status, message);
                },
            .common_headers =
                [](const HttpHead& head) {
                  return HttpHeaders{{"X-Path", head.path}};
                }});
    server_->start();
  }

  void TearDown() override {
    kept_.reset();
    server_.reset();
  }

  ClientAnswer ask(const std::string& bytes) {
    HttpClient client(server_->port());
    client.send(bytes);
    return client.answer();
  }

  int status(const std::string& bytes) { return ask(bytes).status; }

  std::unique_ptr<HttpServer> server_;
  std::shared_ptr<HttpReply> kept_;
  std::atomic<bool> gone_ = false;
  std::atomic<bool> late_ = false;

 private:
  void handle(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
    if (request.head.path == "/slow") {
      reply->on_gone([this] { gone_ = true; });
      reply->on_late(0.05, [this] { late_ = true; });
      kept_ = reply;
    } else if (request.head.path == "/events") {
      reply->begin_events();
      for (const char* text : {"one", "two", "three"}) reply->write(text);
      reply->end();
    } else if (request.head.path == "/flood") {
      // With "first", the first event has all bytes. Otherwise each event has 1 MiB.
      const bool is_first = request.head.query == "first";
      constexpr std::size_t kMiB = std::size_t{1} << 20;
      reply->begin_events();
      for (int i = 0; i < (is_first ? 1 : 20); ++i)
        reply->write(std::string(is_first ? 20 * kMiB : kMiB, 'x'));
      for (const char* text : {"one", "two", "three"}) reply->write(text);
      reply->end();
    } else if (request.head.path == "/large") {
      reply->answer({.body = std::string(std::size_t{30} << 20, 'x')});
    } else if (request.head.path == "/throw") {
      throw std::runtime_error("it broke");
    } else if (request.head.path != "/nothing") {
      reply->answer({.body = request.head.method + " " + request.head.path + " " +
                             request.head.query + " " + request.body});
    }
  }
};

bool eventually(const std::function<bool()>& is_so) {
  for (int i = 0; i < 1000 && !is_so(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return is_so();
}

TEST_F(Http, AnswersOnOneConnectionAfterAnother) {
  HttpClient client(server_->port());
  client.send(get("/a?b=c"));
  EXPECT_EQ(client.answer().body, "GET /a b=c ");
  client.send(post("/d", "body") + get("/e"));  // two at once
  EXPECT_EQ(client.answer().body, "POST /d  body");
  EXPECT_EQ(client.answer().body, "GET /e  ");
  client.send(
      "POST /f HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n");
  EXPECT_EQ(client.answer().body, "POST /f  abcde");
  client.send(post("/h", "body") + "\r\n" + get("/i"));  // one line end too many
  EXPECT_EQ(client.answer().body, "POST /h  body");
  EXPECT_EQ(client.answer().body, "GET /i  ");
  client.send(get("/g", "Connection: close\r\n"));
  EXPECT_EQ(client.answer().body, "GET /g  ");
  EXPECT_TRUE(client.ends_within(5));
}

TEST_F(Http, HeadHasNoBodyAndOldClientsGetTheirs) {
  HttpClient client(server_->port());
  client.send(get("/a", "", "HEAD"));
  const std::string_view head = client.wait_for("\r\n\r\n");
  EXPECT_NE(head.find("Content-Length: 9\r\n"), std::string_view::npos);
  EXPECT_TRUE(head.ends_with("\r\n\r\n"));

  const ClientAnswer old = ask("GET /events HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.status, 200);
  EXPECT_EQ(old.body, "onetwothree");
}

TEST_F(Http, SendsEventsInChunks) {
  HttpClient client(server_->port());
  client.send(get("/events"));
  const ClientAnswer events = client.answer();
  EXPECT_EQ(HttpClient::header(events.head, "content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(events.body, "onetwothree");
  EXPECT_TRUE(events.is_whole);
  client.send(get("/after"));
  EXPECT_EQ(client.answer().status, 200);
}

TEST_F(Http, RefusesWhatIsNoClearRequest) {
  const std::string start = "POST / HTTP/1.1\r\nHost: x\r\n";
  for (const std::string& bytes :
       {start + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        start + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        start + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
        start + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        start + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        start + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        start + "Content-Length: -1\r\n\r\n", start + "Content-Length: 0x3\r\n\r\nabc",
        start + "Content-Length: 99999999999999999999999\r\n\r\n",
        start + "Content-Length : 3\r\n\r\nabc", start + "No colon\r\n\r\n",
        start + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", std::string("GET / HTTP/1.1\r\n\r\n"),
        std::string("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
        std::string("GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n"),
        std::string("GET / HTTP/2.0\r\nHost: x\r\n\r\n"), std::string("GET /\r\n\r\n"),
        std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
        std::string("GET /\0a HTTP/1.1\r\nHost: x\r\n\r\n", 29)}) {
    const ClientAnswer answer = ask(bytes);
    EXPECT_EQ(answer.status, 400) << bytes << answer.body;
    EXPECT_TRUE(answer.body.starts_with("400 ")) << answer.body;
  }
  EXPECT_EQ(status(get("/", "X: " + std::string(20'000, 'x') + "\r\n")), 400);
}

TEST_F(Http, RefusesBodiesThatAreTooLarge) {
  HttpConfig config;
  config.max_body_bytes = 1000;
  start(config);
  EXPECT_EQ(status(post("/a", std::string(1000, 'x'))), 200);
  const std::string huge(std::size_t{8} << 20, 'x');
  HttpClient client(server_->port());
  client.send(post("/a", huge));  // the answer is complete although the client sent everything
  EXPECT_EQ(client.answer().status, 413);
  EXPECT_EQ(
      status("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nFFFF\r\n" + huge),
      413);
  config.max_bodies_bytes = 500;
  start(config);
  EXPECT_EQ(status(post("/a", std::string(501, 'x'))), 503);
  EXPECT_EQ(status(post("/a", std::string(500, 'x'))), 200);
  // The memory of the first request was freed.
  EXPECT_EQ(status(post("/a", std::string(500, 'x'))), 200);
}

TEST_F(Http, RefusesBeforeTheBodyIsRead) {
  HttpClient client(server_->port());
  client.send("POST /closed HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n");
  EXPECT_EQ(client.answer().status, 401);
  client.send(std::string(1000, 'x'));
  EXPECT_TRUE(client.ends_within(10));  // the body is never taken for a next request

  HttpClient waiting(server_->port());
  waiting.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_TRUE(waiting.wait_for("\r\n\r\n").starts_with("HTTP/1.1 100 "));
  waiting.send("ok");
  EXPECT_EQ(waiting.answer().body, "POST /a  ok");
}

TEST_F(Http, SlowRequestsEnd) {
  HttpConfig config;
  config.head_s = 0.3;
  config.body_s = 0.3;
  config.idle_s = 0.3;
  start(config);
  HttpClient silent(server_->port());
  EXPECT_TRUE(silent.ends_within(5));
  EXPECT_EQ(status("GET / HT"), 408);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"), 408);
  HttpClient idle(server_->port());
  idle.send(get("/a"));
  EXPECT_EQ(idle.answer().status, 200);
  EXPECT_TRUE(idle.ends_within(5));
}

TEST_F(Http, ANewConnectionTakesThePlaceOfTheOneThatWaitsLongest) {
  HttpConfig config;
  config.max_connections = 8;
  config.head_s = 60;  // longer than eventually() waits
  start(config);
  std::vector<std::unique_ptr<HttpClient>> slow;
  for (int i = 0; i < 40; ++i) {
    slow.push_back(std::make_unique<HttpClient>(server_->port()));
    slow.back()->send("GET / HTTP/1.1\r\nX: ");
    ASSERT_EQ(status(get("/good")), 200) << i;
  }
  // The server closes a connection that lost its place in a later turn of its loop.
  EXPECT_TRUE(eventually([&] { return server_->num_connections() <= 12U; }));
}

TEST_F(Http, TellsThatThePeerHasGone) {
  {
    HttpClient client(server_->port());
    client.send(get("/slow"));
    ASSERT_TRUE(eventually([&] { return server_->num_answering() == 1; }));
  }
  EXPECT_TRUE(eventually([&] { return gone_.load(); }));
  EXPECT_EQ(server_->num_answering(), 0U);
  kept_->answer({});  // to a client that has gone
  kept_->write("x");

  gone_ = false;
  late_ = false;
  HttpClient client(server_->port());
  client.send(get("/slow"));
  EXPECT_TRUE(eventually([&] { return late_.load(); }));
  EXPECT_FALSE(gone_);
  kept_->answer({.body = "at last"});
  EXPECT_EQ(client.answer().body, "at last");
  EXPECT_FALSE(gone_);
}

TEST_F(Http, AnswersEvenIfTheHandlerDoesNot) {
  EXPECT_EQ(status(get("/nothing")), 500);
  EXPECT_EQ(status(get("/throw")), 500);
}

TEST_F(Http, APeerThatReadsSlowlyIsWaitedForOneThatDoesNotIsLetGo) {
  HttpConfig config;
  config.write_s = 1;
  start(config);
  HttpClient client(server_->port());
  client.send(get("/large"));
  EXPECT_TRUE(eventually([&] { return server_->num_connections() == 0; }));
  EXPECT_EQ(status(get("/a")), 200);
  const HttpClient slow(server_->port(), /*receive_bytes=*/1 << 18);
  slow.send(get("/large"));
  constexpr std::size_t kBytes = std::size_t{30} << 20;
  std::size_t received = 0;
  while (received < kBytes) {
    const std::size_t count = slow.take(std::min(std::size_t{4} << 20, kBytes - received));
    if (count == 0) break;
    received += count;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // 2.4 s in total
  }
  EXPECT_EQ(received, kBytes);
}

TEST_F(Http, OneLargeEventIsSentAndABacklogOfEventsIsCut) {
  const auto answer_to = [&](const char* target) {
    HttpClient client(server_->port(), /*receive_bytes=*/1 << 18);
    client.send(get(target));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // does not read yet
    return client.answer();
  };
  const ClientAnswer large = answer_to("/flood?first");
  EXPECT_TRUE(large.is_whole);
  EXPECT_EQ(large.body.size(), (std::size_t{20} << 20) + 11);
  EXPECT_TRUE(large.body.ends_with("onetwothree"));
  EXPECT_FALSE(answer_to("/flood").is_whole);
}

TEST_F(Http, ARefusalDependsOnItsOwnRequest) {
  HttpConfig config;
  config.max_body_bytes = 1000;
  start(config);
  HttpClient client(server_->port());
  client.send(get("/before", "", "HEAD"));
  EXPECT_NE(client.wait_for("\r\n\r\n").find("X-Path: /before"), std::string_view::npos);
  (void)client.answer(0.1);  // takes the head; there is no body
  client.send("no request\r\n\r\n");
  const ClientAnswer refused = client.answer();
  EXPECT_EQ(refused.status, 400);
  EXPECT_TRUE(refused.body.starts_with("400 ")) << refused.body;
  EXPECT_EQ(HttpClient::header(refused.head, "x-path"), "");

  const ClientAnswer large = ask(post("/large-body", std::string(1001, 'x')));
  EXPECT_EQ(large.status, 413);
  EXPECT_EQ(HttpClient::header(large.head, "x-path"), "/large-body");
}

TEST(HttpServer, RefusesAPlaceThatItCannotTake) {
  const HttpHandlers none;
  const HttpServer first({}, none);
  const Error taken = error_of([&] { const HttpServer second({.port = first.port()}, none); });
  EXPECT_EQ(taken.kind(), ErrorKind::usage);
  EXPECT_TRUE(contains(taken.what(), "cannot take 127.0.0.1 port")) << taken.what();
  EXPECT_TRUE(first.is_loopback());
  EXPECT_FALSE(HttpServer({.host = "0.0.0.0"}, none).is_loopback());
  EXPECT_EQ(
      error_of([&] { const HttpServer third({.host = "no.such.host.invalid"}, none); }).kind(),
      ErrorKind::usage);
}

}  // namespace
}  // namespace trireme::http
