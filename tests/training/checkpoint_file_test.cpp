// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/checkpoint_files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint_contents.hpp"
#include "kolo/error.hpp"
#include "kolo/training/checkpoint.hpp"
#include "scratch_directory.hpp"
#include "training/bytes.hpp"
#include "training/safetensors/disk_file.hpp"
#include "training/safetensors/safetensors.hpp"

namespace kolo::internal {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::Contents;
using testing_support::file_of;
using testing_support::read;

std::string bytes_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

void put(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

CheckpointError error_of(const fs::path& path) {
  try {
    (void)read(path);
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
  void write(CheckpointHeader header, const fs::path& path = {}) const {
    header.ranks = static_cast<int>(per_rank_.size());
    write_checkpoint_file(path.empty() ? path_ : path, header, file_of(parts_, per_rank_));
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
    const Contents contents = read(path_);
    EXPECT_EQ(contents.parts, parts_);
    EXPECT_EQ(contents.per_rank, per_rank_);
    EXPECT_EQ(contents.header.step, header.step);
    EXPECT_EQ(contents.header.metric, header.metric);
    EXPECT_EQ(contents.header.serial, header.serial);
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
        ASSERT_THROW((void)view_checkpoint(find_checkpoint(path_)), CheckpointError) << place;
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
  EXPECT_EQ(error_of(directory_.path()).fault(), CheckpointFault::missing);
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
  EXPECT_THROW(write({}, "/nowhere/a.safetensors"), CheckpointError);
}

/// A checkpoint of three files in a folder.
class CheckpointFolder : public CheckpointFile {
 protected:
  CheckpointFolder() {
    for (int file = 0; file < header_.files; ++file) write_file(file);
    write_checkpoint_index(folder_, header_);
  }

  [[nodiscard]] fs::path file(int number) const { return checkpoint_file(folder_, number, 3); }

  void write_file(int number) const {
    const auto value = static_cast<float>(number);
    write_checkpoint_file(file(number), header_,
                          flatten({{"model", StateView({{std::to_string(number), value}})}}));
  }

  const fs::path folder_ = directory_.path();
  CheckpointHeader header_{.step = 4, .metric = 0.5, .serial = 2, .files = 3, .key = "a1"};
};

TEST_F(CheckpointFolder, IsReadAsAWhole) {
  const CheckpointSet set = find_checkpoint(folder_);
  EXPECT_EQ(set.header.step, 4);
  EXPECT_EQ(set.header.metric, 0.5);
  EXPECT_EQ(set.header.serial, 2U);
  const Contents contents = read(folder_);
  EXPECT_THAT(names_of(contents.parts.at("model").tensors), testing::ElementsAre("0", "1", "2"));
  // The index, and any of the files, stand for the folder.
  for (const fs::path& path : {folder_ / "model.safetensors.index.json", file(1)})
    EXPECT_EQ(find_checkpoint(path).identity, set.identity) << path;
  EXPECT_EQ(load_safetensors(folder_ / "model.safetensors.index.json").tensors.size(), 3U);
}

TEST_F(CheckpointFolder, WithoutOneOfItsFilesIsNone) {
  fs::remove(file(1));
  const CheckpointError error = error_of(folder_);
  EXPECT_EQ(error.fault(), CheckpointFault::missing);
  EXPECT_THAT(error.what(), HasSubstr("lacks its file 'model-00002-of-00003.safetensors'"));
}

TEST_F(CheckpointFolder, WithADamagedIndexIsNone) {
  const fs::path index = folder_ / "model.safetensors.index.json";
  const std::string whole = bytes_of(index);
  for (const char* key : {"kolo.serial\": \"", "kolo.metric\": \"", "model.1\": \"model-"}) {
    std::string changed = whole;
    char& digit = changed[whole.find(key) + std::string_view(key).size()];
    digit = digit == '1' ? '2' : '1';
    put(index, changed);
    EXPECT_EQ(error_of(folder_).fault(), CheckpointFault::corrupt) << key;
    EXPECT_THROW((void)read_checkpoint_header(folder_), CheckpointError) << key;
  }
  put(index, whole);
  EXPECT_EQ(read(folder_).header.serial, 2U);
}

TEST_F(CheckpointFolder, IsFoundByABareName) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  EXPECT_EQ(find_checkpoint("model.safetensors.index.json").files.size(), 3U);
  EXPECT_EQ(find_checkpoint(file(2).filename()).path, ".");
  fs::current_path(before);
}

TEST_F(CheckpointFolder, WithAFileOfAnotherSaveIsNone) {
  header_.key = "b2";
  write_file(1);
  const CheckpointError error = error_of(folder_);
  EXPECT_EQ(error.fault(), CheckpointFault::corrupt);
  EXPECT_THAT(error.what(), HasSubstr("00002-of-00003.safetensors' belongs to another checkpoint"));
  EXPECT_THROW((void)load_safetensors(folder_), CheckpointError);
}

TEST_F(CheckpointFolder, WithAFileOfAnotherStepGetsNoIndex) {
  header_.step = 5;
  write_file(1);
  header_.step = 4;
  EXPECT_THROW(write_checkpoint_index(folder_, header_), CheckpointError);
}

TEST_F(CheckpointFolder, WithoutATensorOfItsIndexIsNone) {
  write_checkpoint_file(file(1), header_, {});
  EXPECT_THAT(error_of(folder_).what(), HasSubstr("lacks the tensor 'model.1'"));
}

TEST_F(CheckpointFolder, WithATensorTwiceIsNone) {
  write_checkpoint_file(file(1), header_, flatten({{"model", StateView({{"0", weight_}})}}));
  EXPECT_THAT(error_of(folder_).what(), HasSubstr("has the tensor 'model.0' of another file"));
  EXPECT_THROW(write_checkpoint_index(folder_, header_), CheckpointError);
}

TEST_F(CheckpointFolder, IsNotReadFromFilesThatWereReplaced) {
  const StateView view = view_safetensors(file(1), "checkpoint", false);
  write_file(1);
  try {
    (void)view.copy();
    ADD_FAILURE() << "no exception";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("was replaced while it was being read"));
  }
}

TEST_F(CheckpointFolder, IsMergedIntoOneFile) {
  merge_checkpoint(folder_, path_);
  const Contents merged = read(path_);
  EXPECT_EQ(merged.parts, read(folder_).parts);
  EXPECT_EQ(merged.header.step, 4);
  const fs::path weights = directory_.path() / "weights.safetensors";
  merge_checkpoint(folder_, weights, "model");
  float two = 0;
  EXPECT_THAT(load_safetensors(weights, {{"2", two}}, {.strict = false}).missing, IsEmpty());
  EXPECT_EQ(two, 2);
  EXPECT_THROW(merge_checkpoint(folder_, weights, "other"), InvalidArgument);
  fs::create_symlink(weights, directory_.path() / "link");
  for (const fs::path& occupied : {file(1), folder_ / "model.safetensors.index.json",
                                   directory_.path() / "link", fs::path("/dev/null"), folder_})
    EXPECT_THROW(merge_checkpoint(folder_, occupied), InvalidArgument) << occupied;
  EXPECT_THROW(merge_checkpoint(path_, path_, "model"), InvalidArgument);
  put(file(1), bytes_of(file(1)).substr(0, 300));
  EXPECT_THROW(merge_checkpoint(folder_, path_), CheckpointError);
  EXPECT_EQ(read(path_).parts, merged.parts);
}

TEST(Checksum, IsThatOfZlibAndPng) {
  EXPECT_EQ(crc32("123456789"), 0xCBF43926U);
  EXPECT_EQ(crc32("6789", crc32("12345")), 0xCBF43926U);
  EXPECT_EQ(crc32(""), 0U);
}

}  // namespace
}  // namespace kolo::internal
