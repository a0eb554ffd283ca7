#include "report/html_report.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "unit/report/run_files.hpp"

namespace trireme::report {
namespace {

class HtmlReportTest : public RunFiles {
 protected:
  static Json data_in(const std::string& html) {
    const std::string mark = "type=\"application/json\">";
    const std::size_t begin = html.find(mark) + mark.size();
    return Json::parse(html.substr(begin, html.find("</script>", begin) - begin));
  }
};

TEST_F(HtmlReportTest, IsOneFileThatLoadsNothing) {
  write_known_run();

  const std::string html = html_report({read_run(run().root, 2000)}, 2000);

  for (const char* outside : {"http://", "https://", "src=", "<link", "@import", "url(", "fetch(",
                              "XMLHttpRequest", "@data@"})
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
}

TEST_F(HtmlReportTest, HoldsTheSeriesOfTheStepsThatCount) {
  write_known_run();

  const Json known = data_in(html_report({read_run(run().root, 2000)}, 2000))["runs"][0];

  EXPECT_EQ(known["series"]["count"], 5) << "steps 3 and 4 of attempt 1 were repeated";
  EXPECT_EQ(known["series"]["first"], 1);
  EXPECT_EQ(known["series"]["every"], 1);
  EXPECT_EQ(known["series"]["loss"], "AADAQAAAoEAAAIBAAABAQAAAAEA=") << "6 5 4 3 2 as floats";
  EXPECT_EQ(known["parts"]["comm_exposed"], Json::parse("[1.0,0.0,0.0,0.0,0.0]"));
  EXPECT_EQ(known["parts"]["train"], Json::parse("[3.0,6.0,5.0,5.0,5.0]"));
  EXPECT_EQ(known["validations"], Json::parse("[[5,2.5]]"));
  EXPECT_EQ(known["spans"][0], Json::parse(R"(["queue",1000.0,1100.0,-1])"));
  EXPECT_EQ(known["attempts"][0]["failed"], true);
}

TEST_F(HtmlReportTest, HoldsTheMetricsOfTheTaskOfTheStepsThatCount) {
  write_known_run();
  write(run().metrics(),
        {R"({"step":2,"loss":1,"reward":2,"attempt":0})",
         R"({"step":3,"loss":1,"reward":9,"attempt":0})", R"({"resumed_from":2,"attempt":1})",
         R"({"step":3,"loss":1,"reward":3,"margin":4,"attempt":1})",
         R"({"eval_step":3,"valid_loss":-4,"valid_reward":4,"attempt":1})"});

  const Json known = data_in(html_report({read_run(run().root, 2000)}, 2000))["runs"][0];

  EXPECT_EQ(known["series"]["task"]["reward"], "AAAAQAAAQEA=") << "2 and 3 as floats";
  EXPECT_EQ(known["series"]["task"]["margin"], "AADAfwAAgEA=") << "NaN and 4 as floats";
  EXPECT_EQ(known["validations"], Json::parse("[[3,4.0]]")) << "the reward, not the loss";
}

TEST_F(HtmlReportTest, ListsOnlyTheKeysThatDiffer) {
  write_known_run();
  RunReport one = read_run(run().root, 2000);
  RunReport two = one;
  two.config["optim.lr"] = "0.25";
  two.config.erase("train.steps");

  const Json data = data_in(html_report({one, two}, 2000));

  EXPECT_EQ(data["differences"],
            Json::parse(R"([["optim.lr",["0.5","0.25"]],["train.steps",["5",null]]])"));
}

TEST_F(HtmlReportTest, NoNameEndsTheScript) {
  write_known_run();
  RunReport one = read_run(run().root, 2000);
  one.name = "</script><b>";

  EXPECT_EQ(data_in(html_report({one}, 2000))["runs"][0]["run"], "</script><b>");
}

}  // namespace
}  // namespace trireme::report
