// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <gmock/gmock.h>

#include <initializer_list>
#include <string>
#include <vector>

namespace perf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Options parse(std::initializer_list<const char*> arguments) {
  std::vector<const char*> argv{"kolo-perf"};
  argv.insert(argv.end(), arguments);
  return parse_options(static_cast<int>(argv.size()), argv.data());
}

std::string complaint(std::initializer_list<const char*> arguments) {
  try {
    static_cast<void>(parse(arguments));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no complaint";
}

TEST(PerfOptions, HaveDefaults) {
  const Options options = parse({});
  EXPECT_EQ(options.answer, "");
  EXPECT_EQ(options.mode, Mode::busy);
  EXPECT_EQ(options.format, Format::table);
  EXPECT_THAT(options.operations, ElementsAre(Operation::allreduce));
  EXPECT_THAT(options.sizes, ElementsAre(4, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20));
  EXPECT_THAT(options.dtypes, ElementsAre(kolo::DType::f32));
  EXPECT_EQ(options.reduce_op, kolo::ReduceOp::sum);
  EXPECT_TRUE(options.gradients.empty());
  EXPECT_THAT(options.peers, ElementsAre(Peer::flat));
  EXPECT_THAT(options.memories, ElementsAre(Memory::own));
  EXPECT_EQ(options.warmup, 5);
  EXPECT_EQ(options.iterations, 20);
}

TEST(PerfOptions, ListGradientsAsLinesOfAFile) {
  EXPECT_EQ(parse({"--list-gradients", "2x8B"}).answer, "gradient.0 2\ngradient.1 2\n");
  EXPECT_THAT(parse({"--list-gradients", "resnet50"}).answer,
              testing::StartsWith("conv1.weight 64x3x7x7\nbn1.weight 64\n"));
}

TEST(PerfOptions, TakeListsWithCommas) {
  const Options options =
      parse({"--operation", "allgather,barrier", "--sizes", "4,1K", "--dtype", "bf16,i8",
             "--reduce-op", "max", "--iterations=3", "--warmup", "0"});
  EXPECT_THAT(options.operations, ElementsAre(Operation::allgather, Operation::barrier));
  EXPECT_THAT(options.sizes, ElementsAre(4, 1024));
  EXPECT_THAT(options.dtypes, ElementsAre(kolo::DType::bf16, kolo::DType::i8));
  EXPECT_EQ(options.reduce_op, kolo::ReduceOp::max);
  EXPECT_EQ(options.iterations, 3);
  EXPECT_EQ(options.warmup, 0);
}

TEST(PerfOptions, TakeSeriesOfSizes) {
  EXPECT_THAT(parse({"--min-size", "1K", "--max-size", "16K", "--factor", "4"}).sizes,
              ElementsAre(1 << 10, 4 << 10, 16 << 10));
  EXPECT_THAT(parse({"--max-size", "64"}).sizes, ElementsAre(4, 16, 64));
}

TEST(PerfOptions, TakeGradientsAndPeers) {
  const Options options = parse({"--gradients", "resnet50,10x1KB", "--peer", "each,packed"});
  EXPECT_THAT(options.gradients, ElementsAre("resnet50", "10x1KB"));
  EXPECT_THAT(options.peers, ElementsAre(Peer::each, Peer::packed));
}

TEST(PerfOptions, TakeModesAndFormats) {
  EXPECT_EQ(parse({"--mode", "from-sleep"}).mode, Mode::from_sleep);
  EXPECT_EQ(parse({"--mode", "idle", "--seconds", "0.5"}).mode, Mode::idle);
  EXPECT_EQ(parse({"--csv"}).format, Format::csv);
  EXPECT_EQ(parse({"--json"}).format, Format::json);
}

TEST(PerfOptions, AnswerQuestions) {
  EXPECT_THAT(parse({"--help"}).answer, HasSubstr("conv1.weight  64x3x7x7"));
  EXPECT_THAT(parse({"--version"}).answer, HasSubstr("kolo-perf "));
}

TEST(PerfOptions, SayWhatIsWrong) {
  EXPECT_THAT(complaint({"--bogus"}), HasSubstr("--bogus"));
  EXPECT_THAT(complaint({"more"}), HasSubstr("more"));
  EXPECT_THAT(complaint({"--sizes", "4,many"}), HasSubstr("'many'"));
  EXPECT_THAT(complaint({"--dtype", "f33"}), HasSubstr("'f33' is none of f32"));
  EXPECT_THAT(complaint({"--operation", "reduce"}), HasSubstr("'reduce' is none of allreduce"));
  EXPECT_THAT(complaint({"--reduce-op", "adasum"}), HasSubstr("'adasum' is none of sum"));
  EXPECT_THAT(complaint({"--mode", "sleepy"}), HasSubstr("'sleepy' is none of busy"));
  EXPECT_THAT(complaint({"--peer", "none"}), HasSubstr("'none' is none of flat"));
  EXPECT_THAT(complaint({"--iterations", "0"}), HasSubstr("--iterations"));
  EXPECT_THAT(complaint({"--warmup", "-1"}), HasSubstr("--warmup"));
  EXPECT_THAT(complaint({"--seconds", "0"}), HasSubstr("--seconds"));
}

TEST(PerfOptions, RefuseWhatExcludesEachOther) {
  EXPECT_THAT(complaint({"--gradients", "vgg16", "--sizes", "4"}), HasSubstr("excludes"));
  EXPECT_THAT(complaint({"--gradients", "vgg16", "--operation", "barrier"}), HasSubstr("excludes"));
  EXPECT_THAT(complaint({"--sizes", "4", "--max-size", "8"}), HasSubstr("excludes"));
  EXPECT_THAT(complaint({"--csv", "--json"}), HasSubstr("excludes"));
}

}  // namespace
}  // namespace perf
