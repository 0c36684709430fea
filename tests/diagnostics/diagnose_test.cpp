// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "analysis.hpp"
#include "diagnostics/recorder.hpp"
#include "record.hpp"
#include "report.hpp"

namespace diagnose {
namespace {

using kolo::DType;
using kolo::internal::Descriptor;
using kolo::internal::OperationType;
using kolo::internal::diagnostics::Recorder;
using kolo::internal::diagnostics::Tag;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int ranks = 3;

Descriptor allreduce(std::int64_t elements, DType dtype = DType::f32) {
  Descriptor descriptor;
  descriptor.type = OperationType::allreduce;
  descriptor.tensors = {{dtype, kolo::Shape{elements}}};
  return descriptor;
}

/// A made-up rank: what it does goes into a record.
class Rank {
 public:
  explicit Rank(int rank, std::int64_t events = 1000)
      : rank_(rank),
        recorder_({.flight_recorder = events}, {.session = 7, .rank = rank, .size = ranks}) {}

  void submit(const std::string& name, const Descriptor& descriptor, std::int64_t set = 0) {
    const auto bytes = descriptor.tensors.front().shape.elements() * 4;
    pending_.push_back({recorder_.submitted({.name = name,
                                             .number = unnamed_,
                                             .set = set,
                                             .bytes = bytes,
                                             .descriptor = descriptor},
                                            kolo::internal::diagnostics::Clock::now()),
                        descriptor});
    if (name.empty()) ++unnamed_;
  }

  /// All that is pending is agreed on.
  void start(std::uint64_t batch) {
    batch_ = batch;
    executing_ = true;
  }
  /// All that is pending is done, by a batch.
  void finish(std::uint64_t batch) {
    const auto now = kolo::internal::diagnostics::Clock::now();
    for (const auto& [tag, descriptor] : pending_) recorder_.finished(tag, batch, {now, now});
    pending_.clear();
    executing_ = false;
  }

  [[nodiscard]] std::string write(const std::string& directory) const {
    std::vector<kolo::internal::diagnostics::PendingOperation> pending;
    for (const auto& [tag, descriptor] : pending_)
      pending.push_back({tag, &descriptor, executing_, batch_});
    return recorder_.write(
        directory + "/" + kolo::internal::diagnostics::flight_record_name(7, rank_), "a test",
        pending);
  }

 private:
  int rank_;
  Recorder recorder_;
  std::vector<std::pair<Tag, Descriptor>> pending_{};
  std::uint64_t unnamed_ = 0;
  bool executing_ = false;
  std::uint64_t batch_ = 0;
};

class Diagnose : public testing::Test {
 protected:
  Diagnose() {
    std::string name = testing::TempDir() + "kolo-diagnose-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    directory_ = name;
    for (int rank = 0; rank < ranks; ++rank) world_.emplace_back(rank);
  }
  ~Diagnose() override { std::filesystem::remove_all(directory_); }

  void step(std::uint64_t batch) {
    for (Rank& rank : world_) {
      rank.submit("weight", allreduce(100));
      rank.submit("", allreduce(10));
      rank.finish(batch);
    }
  }

  [[nodiscard]] std::vector<Record> read(const std::vector<int>& which = {0, 1, 2}) const {
    std::vector<Record> records;
    for (const int rank : which)
      records.push_back(read_record(world_[static_cast<std::size_t>(rank)].write(directory_)));
    return records;
  }

  std::string directory_;
  std::deque<Rank> world_{};
};

const Finding* find(const Diagnosis& diagnosis, Finding::Kind kind) {
  for (const Finding& finding : diagnosis.findings)
    if (finding.kind == kind) return &finding;
  return nullptr;
}

TEST_F(Diagnose, FindsNothingWhereNothingIsWrong) {
  for (std::uint64_t i = 0; i < 5; ++i) step(i);
  const Diagnosis diagnosis = analyze(read());
  EXPECT_THAT(diagnosis.findings, IsEmpty());
  EXPECT_EQ(diagnosis.verdict, "nothing is pending, and the ranks agree");
}

TEST_F(Diagnose, NamesTheRankThatDidNotSubmit) {
  for (std::uint64_t i = 0; i < 5; ++i) step(i);
  for (const std::size_t rank : {0U, 2U}) world_[rank].submit("bias", allreduce(7));
  world_[1].submit("weight", allreduce(100));
  for (const std::size_t rank : {0U, 2U}) world_[rank].submit("weight", allreduce(100));
  const Diagnosis diagnosis = analyze(read());
  const Finding* const absent = find(diagnosis, Finding::Kind::not_submitted);
  ASSERT_NE(absent, nullptr);
  EXPECT_THAT(absent->culprits, ElementsAre(1));
  ASSERT_THAT(absent->operations, SizeIs(1));
  EXPECT_EQ(absent->operations[0].key.name, "bias");
  EXPECT_THAT(absent->operations[0].pending_on, ElementsAre(0, 2));
  EXPECT_THAT(diagnosis.verdict, HasSubstr("rank 1 has not submitted allreduce"));
  EXPECT_THAT(diagnosis.verdict, HasSubstr("\"weight\" (number 5)"));
  const Finding* const diverged = find(diagnosis, Finding::Kind::diverged);
  ASSERT_NE(diverged, nullptr);
  EXPECT_THAT(diverged->text, HasSubstr("after #4"));
  EXPECT_THAT(diverged->text, HasSubstr("ranks 0, 2: \"bias\" (number 0)"));
}

TEST_F(Diagnose, CountsWhatTheRingHasLost) {
  world_.clear();
  for (int rank = 0; rank < ranks; ++rank) world_.emplace_back(rank, 6);
  for (Rank& rank : world_) rank.submit("old", allreduce(3));
  for (Rank& rank : world_) rank.finish(0);
  for (std::uint64_t i = 1; i < 50; ++i) step(i);
  world_[0].submit("old", allreduce(3));
  world_[0].submit("", allreduce(3));
  const Diagnosis diagnosis = analyze(read());
  const Finding* const absent = find(diagnosis, Finding::Kind::not_submitted);
  ASSERT_NE(absent, nullptr);
  EXPECT_THAT(absent->culprits, ElementsAre(1, 2));
  EXPECT_THAT(absent->text, HasSubstr("\"old\" (number 1)"));
  EXPECT_THAT(absent->text, HasSubstr("#49"));
}

TEST_F(Diagnose, TellsWhatDiffers) {
  step(0);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    world_[rank].submit("head", allreduce(rank == 2 ? 9 : 10));
  const Diagnosis diagnosis = analyze(read());
  const Finding* const mismatch = find(diagnosis, Finding::Kind::mismatch);
  ASSERT_NE(mismatch, nullptr);
  EXPECT_THAT(mismatch->culprits, ElementsAre(2));
  EXPECT_THAT(mismatch->text, HasSubstr("allreduce f32, 36 bytes on rank 2"));
  EXPECT_THAT(mismatch->text, HasSubstr("allreduce f32, 40 bytes on ranks 0-1"));
}

TEST_F(Diagnose, TellsWhoHasNotBegunABatch) {
  step(0);
  for (Rank& rank : world_) rank.submit("head", allreduce(10));
  world_[0].start(1);
  world_[2].finish(1);
  const Diagnosis diagnosis = analyze(read());
  const Finding* const unfinished = find(diagnosis, Finding::Kind::unfinished);
  ASSERT_NE(unfinished, nullptr);
  EXPECT_THAT(unfinished->culprits, ElementsAre(1));
  EXPECT_THAT(unfinished->text,
              HasSubstr("executed on rank 0, done on rank 2, not begun on rank 1"));
}

TEST_F(Diagnose, NamesRanksWithoutARecord) {
  step(0);
  world_[0].submit("weight", allreduce(100));
  const std::vector<Record> records = read({0, 2});
  const Diagnosis diagnosis = analyze(records);
  EXPECT_THAT(diagnosis.missing, ElementsAre(1));
  EXPECT_THAT(diagnosis.verdict, HasSubstr("rank 1 left no record"));
  const nlohmann::json json = nlohmann::json::parse(to_json(diagnosis, records, {"a: b"}));
  EXPECT_EQ(json.at("missing"), std::vector<int>{1});
  EXPECT_EQ(json.at("not_read").front(), "a: b");
  EXPECT_THAT(to_text(diagnosis, records, {"a: b"}), HasSubstr("2 of 3 ranks left a record"));
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string complaint_about(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
  try {
    (void)read_record(path);
  } catch (const ReadError& error) {
    return error.what();
  }
  return "none";
}

TEST_F(Diagnose, RefusesDamagedFilesByFileAndLine) {
  step(0);
  const std::string path = world_[0].write(directory_);
  const std::string whole = text_of(path);
  EXPECT_EQ(complaint_about(path, whole), "none");
  EXPECT_EQ(complaint_about(path, ""), path + ": is empty");
  EXPECT_THAT(complaint_about(path, "{}\n"), HasSubstr(path + ": line 1: is no flight record"));
  EXPECT_THAT(complaint_about(path, whole + "{}\n"), HasSubstr("there is more"));
  const std::size_t last_line = whole.rfind('\n', whole.size() - 2) + 1;
  EXPECT_THAT(complaint_about(path, whole.substr(0, last_line)), HasSubstr("ends early"));
  const std::size_t second_line = whole.find('\n') + 1;
  const std::size_t third_line = whole.find('\n', second_line) + 1;
  EXPECT_THAT(complaint_about(path, whole.substr(0, second_line) + whole.substr(third_line)),
              HasSubstr(": line "));
  EXPECT_THAT(complaint_about(path, whole.substr(0, second_line) + "{\"event\":7}\n"),
              HasSubstr(path + ": line 2: "));
  // A message that printed the value would overflow the stack.
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  EXPECT_EQ(complaint_about(path, "{\"kolo_flight_record\":" + deep + "}\n"),
            path + ": line 1: is nested too deeply");
  EXPECT_THROW((void)read_record(directory_ + "/none"), ReadError);
  EXPECT_EQ(complaint_about(directory_, ""), directory_ + ": is a directory");
}

TEST_F(Diagnose, RefusesNumbersThatNoRecordHas) {
  step(0);
  const std::string path = world_[0].write(directory_);
  const std::string whole = text_of(path);
  const auto with = [&](const std::string& name, const std::string& value) {
    const std::size_t begin = whole.find('"' + name + "\":") + name.size() + 3;
    return whole.substr(0, begin) + value + whole.substr(whole.find_first_of(",}", begin));
  };
  EXPECT_EQ(complaint_about(path, with("size", "3")), "none");
  for (const char* value : {"4294967299", "2147483647", "3.0", "1e300", "-3", "null"})
    EXPECT_THAT(complaint_about(path, with("size", value)), HasSubstr(path + ": line 1: "))
        << value;
  for (const char* value : {"9223372036854775807", "18446744073709551615", "-1", "0.5"})
    EXPECT_THAT(complaint_about(path, with("wall_ns", value)), HasSubstr("wall_ns is ")) << value;
}

/// Whatever is in a file, it is read or refused.
TEST_F(Diagnose, BearsAnyDamage) {
  step(0);
  world_[0].submit("pending", allreduce(5));
  const std::string path = world_[0].write(directory_);
  const std::string whole = text_of(path);
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](std::size_t end) {
    return std::uniform_int_distribution<std::size_t>(0, end - 1)(random);
  };
  int refused = 0;
  for (int round = 0; round < 500; ++round) {
    std::string text = whole;
    for (std::size_t damage = 0; damage <= below(3); ++damage)
      text[below(text.size())] = static_cast<char>(below(256));
    if (below(4) == 0) text.resize(below(text.size()));
    if (complaint_about(path, text) != "none") {
      ++refused;
    } else {
      (void)analyze({read_record(path)});
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace diagnose
