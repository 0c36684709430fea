// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/checkpoint_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "kolo/error.hpp"
#include "kolo/training/checkpoint.hpp"
#include "scratch_directory.hpp"
#include "training/bytes.hpp"
#include "training/checkpoint/disk_file.hpp"
#include "training/checkpoint/safetensors.hpp"

namespace kolo::internal {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string bytes_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

void put(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

CheckpointError error_of(const fs::path& path) {
  try {
    (void)parse_checkpoint(path, read_checkpoint(path));
  } catch (const CheckpointError& error) {
    return error;
  }
  ADD_FAILURE() << "no exception";
  return {CheckpointFault::io, path, ""};
}

// Makes this process's writes fail beyond this file size, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(::rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const ::rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    static_cast<void>(std::signal(SIGXFSZ, handler_));
  }

 private:
  ::rlimit before_{};
  void (*handler_)(int);
};

class CheckpointFile : public testing::Test {
 protected:
  void write(const CheckpointHeader& header) const {
    write_checkpoint(path_, header, parts_, encoded());
  }
  [[nodiscard]] std::vector<std::string> encoded() const {
    std::vector<std::string> encoded;
    for (const NamedStates& parts : per_rank_) encoded.push_back(encode_parts(parts));
    return encoded;
  }

  // A correct file with other metadata.
  void put_metadata(const Metadata& metadata) const {
    StateDict file = load_safetensors(path_);
    for (const auto& [key, text] : metadata) {
      if (text.empty()) file.metadata.erase(key);
      if (!text.empty()) file.metadata[key] = text;
    }
    put(path_, to_safetensors(file));
  }

  void expect_contents(const CheckpointHeader& header) const {
    const CheckpointContents contents = parse_checkpoint(path_, read_checkpoint(path_));
    EXPECT_EQ(contents.parts, parts_);
    EXPECT_EQ(contents.per_rank, per_rank_);
    for (const CheckpointHeader& found : {contents.header, read_checkpoint_header(path_)}) {
      EXPECT_EQ(found.step, header.step);
      EXPECT_EQ(found.metric, header.metric);
      EXPECT_EQ(found.serial, header.serial);
    }
  }

  testing_support::ScratchDirectory directory_;
  const fs::path path_ = directory_.path() / "a.safetensors";
  const std::vector<float> weight_{1, 2, 3, 4, 5, 6};
  const std::int64_t steps_ = 7;
  NamedStates parts_{
      {"model", StateDict({{"weight", {weight_.data(), Shape{2, 3}}}, {"steps", steps_}})},
      {"sampler", "some bytes, " + std::string(30, '\xAB') + std::string(1, '\0')}};
  std::vector<NamedStates> per_rank_{{{"random", "zero"}}, {}, {{"random", "two"}}};
};

TEST_F(CheckpointFile, ComesBackAsItWasWritten) {
  write({.step = 1LL << 40, .metric = 1.0 / 3.0, .serial = max_serial});
  expect_contents({.step = 1LL << 40, .metric = 1.0 / 3.0, .serial = max_serial});
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_.path()), {}), 1);
  parts_ = {};
  per_rank_ = {};
  write({.step = 3});
  expect_contents({.step = 3});
}

TEST_F(CheckpointFile, HasTheTensorsOfItsPartsByName) {
  write({.step = 7, .metric = 0.25, .serial = 3});
  const StateDict file = load_safetensors(path_);
  EXPECT_THAT(names_of(file.tensors),
              testing::ElementsAre("model.steps", "model.weight", "per_rank.0.random",
                                   "per_rank.2.random", "sampler"));
  const StoredTensor& weight = file.tensors.at("model.weight");
  EXPECT_EQ(weight.dtype, DType::f32);
  EXPECT_EQ(weight.shape, (Shape{2, 3}));
  EXPECT_EQ(weight.bytes, std::string(reinterpret_cast<const char*>(weight_.data()), 24));
  EXPECT_EQ(file.tensors.at("per_rank.2.random").bytes, "two");
  EXPECT_EQ(file.metadata.at("kolo.step"), "7");
  EXPECT_EQ(file.metadata.at("kolo.metric"), "0.25");
  EXPECT_EQ(file.metadata.at("kolo.ranks"), "3");

  std::vector<float> loaded(6);
  std::int64_t steps = 0;
  load_safetensors(path_, {{"weight", {loaded.data(), Shape{2, 3}}}, {"steps", steps}},
                   {.prefix = "model."});
  EXPECT_EQ(loaded, weight_);
  EXPECT_EQ(steps, 7);
}

TEST_F(CheckpointFile, KeepsPartsOfAnyNameAndState) {
  const StateDict tensors({{"x", weight_}, {"", steps_}}, {{"key", "text"}});
  StateDict mixed = tensors;
  mixed.tensors[""] = {.dtype = DType::u8, .shape = Shape{2}, .bytes = "ab"};
  for (const StateDict& state :
       {tensors, mixed, StateDict(to_safetensors(tensors)), StateDict(),
        StateDict(ConstTensorViews{}, {{"key", "text"}}), StateDict("PK\x03\x04 and more")}) {
    for (const char* name : {"", "%", ".", "a", "a.b", "a.b.c", "per_rank", "per_rank.0", "kolo",
                             "%2E", "__metadata__", "\xFF\x01", "spaces too", "\xC3\xA9"})
      parts_[name] = state;
    per_rank_ = {parts_, {}, parts_};
    write({.step = 1});
    expect_contents({.step = 1});
    parts_ = {};
  }
}

TEST_F(CheckpointFile, CutAnywhereIsTruncated) {
  write({.step = 1, .metric = 0.5});
  const std::string whole = bytes_of(path_);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    put(path_, whole.substr(0, length));
    const CheckpointError error = error_of(path_);
    ASSERT_EQ(error.fault(), CheckpointFault::truncated) << length << ": " << error.what();
    ASSERT_EQ(error.path(), path_);
    ASSERT_THAT(error.what(), HasSubstr(path_.string()));
  }
}

TEST_F(CheckpointFile, AnyByteChangedIsCorrupt) {
  write({.step = 1, .metric = 0.5});
  const std::string whole = bytes_of(path_);
  const std::string_view view = whole;
  const std::size_t header_end = 8 + from_little_endian<std::uint64_t>(view);
  for (std::size_t place = 0; place < whole.size(); ++place) {
    for (const int bits : {0x10, 0x01}) {
      std::string changed = whole;
      changed[place] = static_cast<char>(changed[place] ^ bits);
      put(path_, changed);
      const CheckpointFault fault = error_of(path_).fault();
      // The first bytes are the length of the header, the next one begins it.
      if (place > 8) {
        ASSERT_EQ(fault, CheckpointFault::corrupt) << place;
      }
      if (place < header_end) {
        ASSERT_THROW((void)read_checkpoint_header(path_), CheckpointError) << place;
      }
    }
  }
}

TEST_F(CheckpointFile, LongerThanItSaysIsCorrupt) {
  write({.step = 1, .metric = 0.5});
  put(path_, bytes_of(path_) + "x");
  EXPECT_EQ(error_of(path_).fault(), CheckpointFault::corrupt);
}

TEST_F(CheckpointFile, OfAnotherProgramNeedsOnlyAStep) {
  write({.step = 5, .metric = 0.5, .serial = 2});
  const Metadata foreign{{"kolo.writer.version", ""},    {"kolo.writer.crc32.header", ""},
                         {"kolo.writer.crc32.data", ""}, {"kolo.serial", ""},
                         {"kolo.metric", "1e-3"},        {"format", "np"}};
  put_metadata(foreign);
  expect_contents({.step = 5, .metric = 1e-3});
  put_metadata({{"kolo.step", ""}});
  EXPECT_EQ(error_of(path_).fault(), CheckpointFault::foreign);
  EXPECT_THAT(error_of(path_).what(), HasSubstr("has no 'kolo.step'"));
  put_metadata({{"kolo.step", "5"}, {"kolo.ranks", "2"}});
  EXPECT_THAT(error_of(path_).what(), HasSubstr("'per_rank.2.random', which belongs to no part"));
  using Entries = std::vector<std::pair<std::string, std::string>>;
  for (const auto& [key, text] : Entries{{"kolo.step", "five"},
                                         {"kolo.step", "-1"},
                                         {"kolo.step", "5 "},
                                         {"kolo.metric", "good"},
                                         {"kolo.serial", "2147483648"},
                                         {"kolo.ranks", "-1"},
                                         {"kolo.ranks", "2000000000"}}) {
    put_metadata({{"kolo.step", "5"}, {"kolo.ranks", "3"}, {"kolo.metric", "1"}});
    put_metadata({{key, text}});
    EXPECT_EQ(error_of(path_).fault(), CheckpointFault::corrupt) << key << ' ' << text;
  }
  save_safetensors(path_, {{"model.__metadata__", steps_}}, {{"kolo.step", "5"}});
  EXPECT_EQ(error_of(path_).fault(), CheckpointFault::foreign);
}

TEST_F(CheckpointFile, WithoutItsChecksumsIsCorrupt) {
  for (const char* key : {"kolo.writer.crc32.header", "kolo.writer.crc32.data"}) {
    write({.step = 5});
    put_metadata({{key, ""}});
    EXPECT_THAT(error_of(path_).what(), HasSubstr("it has no checksum")) << key;
  }
}

TEST_F(CheckpointFile, OfALaterVersionIsForeign) {
  write({.step = 1});
  put_metadata({{"kolo.writer.version", "2"}});
  EXPECT_EQ(error_of(path_).fault(), CheckpointFault::foreign);
  EXPECT_THAT(error_of(path_).what(), HasSubstr("version 2"));
  put(path_, "#!/bin/sh");
  EXPECT_EQ(error_of(path_).fault(), CheckpointFault::foreign);
}

TEST_F(CheckpointFile, ThatIsNotThereIsMissing) {
  EXPECT_EQ(error_of("/nowhere/a.safetensors").fault(), CheckpointFault::missing);
  EXPECT_EQ(error_of(directory_.path() / "other.safetensors").fault(), CheckpointFault::missing);
  EXPECT_EQ(error_of(directory_.path()).fault(), CheckpointFault::io);
}

TEST_F(CheckpointFile, WithReceivedPartsOfAWrongChecksumIsNotWritten) {
  const StateDict with_checksum({{"random.", steps_}}, {{std::string(data_checksum_key), ""}});
  std::vector<std::string> received = encoded();
  received[2] = to_safetensors(with_checksum);
  write_checkpoint(path_, {.step = 1}, parts_, received);
  const std::string before = bytes_of(path_);
  received[2].back() ^= 1;
  EXPECT_THROW(write_checkpoint(path_, {.step = 2}, parts_, received), SafetensorsFault);
  EXPECT_EQ(bytes_of(path_), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_.path()), {}), 1);
}

TEST_F(CheckpointFile, AFailedWriteLeavesTheOldFileAndNothingElse) {
  write({.step = 1, .metric = 0.5});
  const std::string before = bytes_of(path_);
  {
    const FileSizeLimit full(100);
    EXPECT_THROW(write({.step = 2, .metric = 0.5}), CheckpointError);
  }
  EXPECT_EQ(bytes_of(path_), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_.path()), {}), 1);
  EXPECT_THROW(write_checkpoint("/nowhere/a.safetensors", {}, parts_, encoded()), CheckpointError);
}

TEST(Checksum, IsThatOfZlibAndPng) {
  EXPECT_EQ(crc32("123456789"), 0xCBF43926U);
  EXPECT_EQ(crc32("6789", crc32("12345")), 0xCBF43926U);
  EXPECT_EQ(crc32(""), 0U);
}

}  // namespace
}  // namespace kolo::internal
