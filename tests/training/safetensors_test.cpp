// SPDX-License-Identifier: Apache-2.0
#include "kolo/training/checkpoint.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "kolo/error.hpp"
#include "scratch_directory.hpp"
#include "training/bytes.hpp"
#include "training/safetensors/safetensors.hpp"
#include "training/safetensors/safetensors_header.hpp"

namespace kolo::internal {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A file with this header, as it is, and this many bytes of data.
std::string file_of(const std::string& json, std::size_t data_bytes) {
  std::string bytes;
  append_little_endian(bytes, std::uint64_t{json.size()});
  return bytes + json + std::string(data_bytes, '\x01');
}

class SafetensorsFile : public testing::Test {
 protected:
  void put(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }
  [[nodiscard]] std::string bytes() const {
    std::ifstream stream(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }

  template <typename Error, typename Action>
  static Error error_of(const Action& action) {
    try {
      action();
    } catch (const Error& error) {
      return error;
    }
    throw std::logic_error("no exception");
  }
  [[nodiscard]] CheckpointError load_error() const {
    return error_of<CheckpointError>([&] { (void)load_safetensors(path_); });
  }

  // The bytes are copied to memory of their own size, so that AddressSanitizer sees each read
  // beyond their end.
  void expect_refused(const std::string& text, CheckpointFault fault,
                      const std::string& why) const {
    put(text);
    const CheckpointError error = load_error();
    EXPECT_EQ(error.fault(), fault) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(why));
    const std::unique_ptr<char[]> exact(new char[text.size()]);
    std::copy(text.begin(), text.end(), exact.get());
    EXPECT_THROW((void)from_safetensors({exact.get(), text.size()}), InvalidArgument) << text;
  }
  void expect_corrupt(const std::string& text, const std::string& why) const {
    expect_refused(text, CheckpointFault::corrupt, why);
  }

  testing_support::ScratchDirectory directory_;
  const fs::path path_ = directory_.path() / "a.safetensors";
  const std::vector<float> weight_{1, 2, 3, 4, 5, 6};
};

TEST_F(SafetensorsFile, HasEveryDType) {
  constexpr std::array all{DType::u8,  DType::i8,  DType::u16,    DType::i16, DType::u32,
                           DType::i32, DType::u64, DType::i64,    DType::f16, DType::bf16,
                           DType::f32, DType::f64, DType::boolean};
  const std::vector<std::uint64_t> elements{0x0101010101010101, 0, 0x0100010001000100};
  ConstTensorViews tensors;
  for (const DType dtype : all)
    tensors.emplace(fmt::format("dtype {}", static_cast<int>(dtype)),
                    ConstTensorView(elements.data(), Shape{3, 1}, dtype));
  tensors.emplace("none", ConstTensorView(nullptr, Shape{2, 0, 5}, DType::f32));
  tensors.emplace("scalar", ConstTensorView(elements.data(), Shape{}, DType::i64));
  save_safetensors(path_, tensors, {{"author", "m\xC3\xBCller"}, {"", "\"\n"}});
  const StateDict loaded = load_safetensors(path_);
  EXPECT_EQ(loaded.metadata, (Metadata{{"author", "m\xC3\xBCller"}, {"", "\"\n"}}));
  ASSERT_EQ(names_of(loaded.tensors), names_of(tensors));
  for (const auto& [name, view] : tensors) {
    const StoredTensor& stored = loaded.tensors.at(name);
    EXPECT_EQ(stored.dtype, view.dtype()) << name;
    EXPECT_EQ(stored.shape, view.shape()) << name;
    EXPECT_EQ(stored.bytes,
              std::string(static_cast<const char*>(view.data()), stored.bytes.size()));
  }
  EXPECT_EQ(loaded.tensors.at("dtype 12").bytes.size(), 3U);
  EXPECT_EQ(loaded.tensors.at("scalar").bytes.size(), 8U);
  EXPECT_EQ(from_safetensors(to_safetensors(StateDict(tensors))).tensors.size(), tensors.size());
}

TEST_F(SafetensorsFile, LoadsIntoTensorsByName) {
  const std::array<std::int64_t, 2> steps{7, 8};
  save_safetensors(path_,
                   {{"layer.weight", {weight_.data(), Shape{2, 3}}}, {"layer.steps", steps}});
  std::vector<float> weight(6);
  std::array<std::int64_t, 2> count{};
  const TensorViews into{{"weight", {weight.data(), Shape{2, 3}}}, {"steps", count}};
  const UnmatchedNames unmatched = load_safetensors(path_, into, {.prefix = "layer."});
  EXPECT_EQ(weight, weight_);
  EXPECT_EQ(count, steps);
  EXPECT_THAT(unmatched.missing, IsEmpty());
  EXPECT_THAT(unmatched.unexpected, IsEmpty());
}

TEST_F(SafetensorsFile, WithOtherNamesIsRefusedUnlessNotStrict) {
  save_safetensors(path_, {{"weight", weight_}, {"more", weight_}});
  std::vector<float> weight(6), bias(6, 9.0F);
  const TensorViews into{{"weight", weight}, {"bias", bias}};
  const auto error = error_of<InvalidArgument>([&] { load_safetensors(path_, into); });
  EXPECT_THAT(error.what(), HasSubstr("a.safetensors': the names of tensors differ. Missing in the "
                                      "file: 'bias'. Unexpected in the file: 'more'."));
  EXPECT_EQ(weight, std::vector<float>(6));
  const UnmatchedNames unmatched = load_safetensors(path_, into, {.strict = false});
  EXPECT_THAT(unmatched.missing, ElementsAre("bias"));
  EXPECT_THAT(unmatched.unexpected, ElementsAre("more"));
  EXPECT_EQ(weight, weight_);
  EXPECT_EQ(bias, std::vector<float>(6, 9.0F));
}

TEST_F(SafetensorsFile, OfOtherShapesIsRefusedAndChangesNothing) {
  save_safetensors(path_, {{"a", weight_}, {"b", {weight_.data(), Shape{2, 3}}}});
  std::vector<float> a(6), b(6);
  std::vector<std::int32_t> integers(6);
  for (const bool strict : {true, false}) {
    const auto error = error_of<InvalidArgument>([&] {
      load_safetensors(path_, {{"a", a}, {"b", {b.data(), Shape{3, 2}}}}, {.strict = strict});
    });
    EXPECT_THAT(error.what(),
                HasSubstr("tensor 'b' is f32 [2, 3] in the file but f32 [3, 2] in the program"));
    EXPECT_THROW(load_safetensors(path_, {{"a", integers}}, {.strict = false}), InvalidArgument);
  }
  EXPECT_EQ(a, std::vector<float>(6));
}

TEST_F(SafetensorsFile, TakesTheMetadataOfACheckpointWhoseTensorsHaveChanged) {
  std::vector<float> values{1.0F, 2.0F};
  const ConstTensorViews views{{"empty", ConstTensorView(nullptr, {0}, DType::f32)},
                               {"values", ConstTensorView(values)},
                               {"void", ConstTensorView(nullptr, {0, 3}, DType::f32)}};
  const Metadata of_other_data{{std::string(data_checksum_key), "00000000"},
                               {std::string(header_checksum_key), "00000000"}};
  EXPECT_EQ(from_safetensors(to_safetensors(StateDict(views, of_other_data))).tensors.size(), 3U);
  save_safetensors(path_, views, of_other_data);
  EXPECT_EQ(load_safetensors(path_).tensors.size(), 3U);
}

TEST_F(SafetensorsFile, RefusesToSaveWhatItCannot) {
  EXPECT_THROW(save_safetensors(path_, {{"\xFF", weight_}}), InvalidArgument);
  EXPECT_THROW(save_safetensors(path_, {{"a", weight_}}, {{"key", "\xFF"}}), InvalidArgument);
  EXPECT_THROW(save_safetensors(path_, {{"__metadata__", weight_}}), InvalidArgument);
  EXPECT_THROW(save_safetensors(path_, {{"a", {weight_.data(), Shape{-1, -6}}}}), InvalidArgument);
  const Device gpu{DeviceType::cuda, 0};
  EXPECT_THROW(save_safetensors(path_, {{"a", {weight_.data(), Shape{6}, gpu}}}), InvalidArgument);
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_THROW(save_safetensors("/nowhere/a.safetensors", {{"a", weight_}}), CheckpointError);
}

TEST(StateDict, OfTextComesBackAsText) {
  const StateDict state = "text";
  EXPECT_EQ(state.text(), "text");
  EXPECT_EQ(from_safetensors(to_safetensors(state)), state);
  EXPECT_TRUE(StateDict("").empty());
  EXPECT_EQ(StateDict().text(), "");
  const float one = 1;
  try {
    (void)StateDict({{"weight", one}}).text();
    ADD_FAILURE() << "no exception";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("it has the tensor 'weight'"));
  }
  const StateDict with_metadata(ConstTensorViews{}, {{"kind", "a hook"}});
  EXPECT_THROW((void)with_metadata.text(), InvalidArgument);
}

TEST(StateDict, HasTensorsOfTheSizeOfTheirShape) {
  StateDict state;
  state.tensors["a"] = {.dtype = DType::f32, .shape = Shape{2}, .bytes = std::string(8, '\0')};
  EXPECT_EQ(state.views().at("a").elements(), 2);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{7}, std::size_t{4096}}) {
    state.tensors["a"].bytes.assign(bytes, 'x');
    EXPECT_THROW((void)state.views(), InvalidArgument);
    EXPECT_THROW((void)to_safetensors(state), InvalidArgument);
  }
}

TEST_F(SafetensorsFile, MayHaveNullForItsMetadata) {
  put(file_of(R"({"__metadata__":null,"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1));
  const StateDict file = load_safetensors(path_);
  EXPECT_THAT(names_of(file.tensors), ElementsAre("a"));
  EXPECT_THAT(file.metadata, IsEmpty());
}

TEST_F(SafetensorsFile, WithAHostileHeaderIsRefused) {
  const auto tensor = [](const std::string& fields) { return "{\"a\":{" + fields + "}}"; };
  expect_corrupt(file_of("{\"a\":1}", 0), "tensor 'a' is no object");
  expect_corrupt(file_of("{", 4), "is not JSON");
  expect_corrupt(file_of("{}x", 0), "is not JSON");
  expect_corrupt(file_of("{\"\xFF\":1}", 0), "is not JSON");
  expect_corrupt(file_of(R"({"a":{"b":{"c":{"d":{"e":1}}}}})", 0), "nested too deeply");
  expect_corrupt(file_of("{\"a\":" + std::string(100000, '['), 0), "nested too deeply");
  expect_corrupt(file_of(tensor(R"("dtype":"U8","shape":[1])"), 1), "has no data_offsets");
  expect_corrupt(file_of(tensor(R"("dtype":"U8","data_offsets":[0,1])"), 1), "has no shape");
  expect_corrupt(file_of(tensor(R"("dtype":8,"shape":[1],"data_offsets":[0,1])"), 1), "is no text");
  expect_corrupt(file_of(R"({"__metadata__":{"a":1}})", 0), "its metadata 'a' is no text");
  expect_corrupt(file_of(R"({"__metadata__":[]})", 0), "its metadata is no object");
  expect_refused(file_of(tensor(R"("dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1])"), 1),
                 CheckpointFault::foreign, "'a' of dtype F8_E4M3, which Kolo does not have");
}

TEST_F(SafetensorsFile, WithHostileOffsetsIsRefused) {
  const auto u8 = [](const std::string& shape, const std::string& offsets) {
    return fmt::format(R"({{"dtype":"U8","shape":[{}],"data_offsets":[{}]}})", shape, offsets);
  };
  const auto one = [&](const std::string& shape, const std::string& offsets, std::size_t bytes) {
    return file_of("{\"a\":" + u8(shape, offsets) + "}", bytes);
  };
  expect_refused(one("9", "0,9", 8), CheckpointFault::truncated, "it has 8 of 9 bytes of data");
  expect_corrupt(one("7", "0,7", 8), "it has 8 bytes of data instead of 7");
  expect_corrupt(one("7", "1,8", 8), "tensor 'a' begins at 1, but the tensors before it end at 0");
  expect_corrupt(one("8", "8,0", 8), "has the offsets 8 to 0");
  expect_corrupt(one("4", "0,8", 8), "tensor 'a', u8 [4], has the offsets 0 to 8");
  expect_corrupt(one("8", "0,8,8", 8), "no valid shape and offsets");
  for (const char* number : {"-1", "1.5", "1e3", "9223372036854775808", "18446744073709551616",
                             "\"8\"", "null", "[8]"}) {
    expect_corrupt(one(number, "0,8", 8), "'a'");
    expect_corrupt(one("8", fmt::format("0,{}", number), 8), "'a'");
  }
  // Products that overflow, to the length of the data or to zero.
  expect_corrupt(one("4294967296,4294967296", "0,0", 0), "has the offsets 0 to 0");
  expect_corrupt(one("9223372036854775807,2,4", "0,8", 8), "has the offsets");
  expect_corrupt(one("9223372036854775807,2,0", "0,0", 0), "has the offsets");
  expect_refused(one("9223372036854775807", "0,9223372036854775807", 8), CheckpointFault::truncated,
                 "is truncated");
  const std::string overlapping =
      file_of(fmt::format("{{\"a\":{},\"b\":{}}}", u8("4", "0,4"), u8("4", "2,6")), 6);
  expect_corrupt(overlapping, "tensor 'b' begins at 2, but the tensors before it end at 4");
  const std::string hole =
      file_of(fmt::format("{{\"a\":{},\"b\":{}}}", u8("2", "0,2"), u8("2", "4,6")), 6);
  expect_corrupt(hole, "tensor 'b' begins at 4, but the tensors before it end at 2");
  const std::string twice =
      file_of(fmt::format("{{\"a\":{},\"a\":{}}}", u8("2", "0,2"), u8("2", "2,4")), 4);
  expect_corrupt(twice, "two members named 'a'");
}

TEST_F(SafetensorsFile, WithAHostileLengthIsRefused) {
  expect_refused("", CheckpointFault::truncated, "is truncated: it has 0 bytes");
  expect_refused("{}", CheckpointFault::truncated, "is truncated: it has 2 bytes");
  for (const std::uint64_t length :
       {std::uint64_t{100'000'001}, ~std::uint64_t{0}, ~std::uint64_t{7}, std::uint64_t{1} << 63}) {
    std::string bytes;
    append_little_endian(bytes, length);
    expect_refused(bytes + "{}", CheckpointFault::foreign, "is not a safetensors file");
  }
  std::string bytes;
  append_little_endian(bytes, std::uint64_t{3});
  expect_refused(bytes + "{}", CheckpointFault::truncated, "its header alone has 11");
  bytes.clear();
  append_little_endian(bytes, std::uint64_t{0});
  expect_corrupt(bytes + "{}", "is not JSON");
  expect_refused("PK\x03\x04 an archive of PyTorch", CheckpointFault::foreign,
                 "is not a safetensors file");
  EXPECT_THAT(from_safetensors(file_of("{}      ", 0)).tensors, IsEmpty());
}

TEST_F(SafetensorsFile, CutAnywhereIsRefused) {
  const std::string whole =
      to_safetensors(StateDict({{"a", weight_}, {"b", weight_}}, {{"key", "text"}}));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    put(whole.substr(0, length));
    ASSERT_EQ(load_error().fault(), CheckpointFault::truncated) << length;
  }
}

TEST_F(SafetensorsFile, IsReadInPiecesWhenTheyAreNeeded) {
  const StateDict state({{"a", weight_}, {"b", {weight_.data(), Shape{3, 2}}}}, {{"key", "text"}});
  put(to_safetensors(state));
  for (const bool keeps_open : {true, false}) {
    const StateView view = view_safetensors(path_, "file", keeps_open);
    EXPECT_EQ(view.copy(), state);
    std::array<float, 2> some{};
    view.tensors.at("b").read(3 * sizeof(float),
                              {reinterpret_cast<char*>(some.data()), sizeof some});
    EXPECT_THAT(some, ElementsAre(weight_[3], weight_[4]));
    std::string beyond(sizeof(float), ' ');
    EXPECT_THROW(view.tensors.at("b").read(6 * sizeof(float), beyond), CheckpointError);
  }
}

TEST_F(SafetensorsFile, InMemoryIsVerifiedByItsChecksum) {
  std::string bytes =
      to_safetensors(StateDict({{"a", weight_}}, {{std::string(data_checksum_key), ""}}));
  EXPECT_EQ(from_safetensors(bytes).tensors.size(), 1U);
  for (const std::size_t bit : {0U, 7U}) {
    std::string damaged = bytes;
    damaged.back() = static_cast<char>(damaged.back() ^ (1 << bit));
    const auto fault = error_of<SafetensorsFault>([&] { (void)read_safetensors(damaged); });
    EXPECT_EQ(fault.fault(), CheckpointFault::corrupt);
    EXPECT_THAT(fault.what(), HasSubstr("the checksum of its data is wrong"));
    put(damaged);
    EXPECT_THROW(verify_safetensors(path_, "file"), CheckpointError);
    EXPECT_THROW((void)from_safetensors(damaged), InvalidArgument);
  }
  bytes.pop_back();
  EXPECT_EQ(error_of<SafetensorsFault>([&] { (void)read_safetensors(bytes); }).fault(),
            CheckpointFault::truncated);
}

class SafetensorsSet : public SafetensorsFile {
 protected:
  void put_index(const std::string& text) const { std::ofstream(index_) << text; }
  [[nodiscard]] CheckpointError set_error() const {
    return error_of<CheckpointError>([&] { (void)load_safetensors(index_); });
  }

  const fs::path index_ = directory_.path() / "model.safetensors.index.json";
};

TEST_F(SafetensorsSet, IsReadByItsIndex) {
  save_safetensors(directory_.path() / "model-00001-of-00002.safetensors", {{"a", weight_}},
                   {{"format", "pt"}});
  save_safetensors(directory_.path() / "model-00002-of-00002.safetensors",
                   {{"b", weight_}, {"c", {weight_.data(), Shape{3, 2}}}}, {{"format", "pt"}});
  put_index(R"({"metadata": {"total_size": 72}, "weight_map": {
    "a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors",
    "c": "model-00002-of-00002.safetensors"}})");
  const StateDict set = load_safetensors(index_);
  EXPECT_THAT(names_of(set.tensors), ElementsAre("a", "b", "c"));
  EXPECT_EQ(set.metadata, (Metadata{{"format", "pt"}}));
  std::vector<float> c(6);
  load_safetensors(index_, {{"c", {c.data(), Shape{3, 2}}}}, {.strict = false});
  EXPECT_EQ(c, weight_);
}

TEST_F(SafetensorsSet, WithAHostileIndexIsRefused) {
  save_safetensors(path_, {{"a", weight_}});
  save_safetensors(directory_.path() / "b.safetensors", {{"a", weight_}});
  put_index(R"({"weight_map": {"a": "a.safetensors", "b": "a.safetensors"}})");
  EXPECT_THAT(set_error().what(), HasSubstr("lists tensor 'b' in 'a.safetensors', which does not"));
  put_index(R"({"weight_map": {"a": "a.safetensors", "b": "b.safetensors"}})");
  EXPECT_THAT(set_error().what(), HasSubstr("has the tensor 'a' of another file"));
  put_index(R"({"weight_map": {"a": "c.safetensors"}})");
  EXPECT_EQ(set_error().fault(), CheckpointFault::missing);
  for (const char* name : {"../a.safetensors", "/etc/passwd", "..", ".", "", "d/a.safetensors",
                           "a.safetensors\\u0000"}) {
    put_index(fmt::format(R"({{"weight_map": {{"a": "{}"}}}})", name));
    EXPECT_THAT(set_error().what(), HasSubstr("has no valid file name for tensor 'a'")) << name;
  }
  for (const char* text : {"", "{}", "[]", R"({"weight_map": []})", R"({"weight_map": {"a": 1}})",
                           R"({"weight_map": {"a": "a.safetensors", "a": "b.safetensors"}})"}) {
    put_index(text);
    EXPECT_EQ(set_error().fault(), CheckpointFault::corrupt) << text;
  }
  EXPECT_EQ(error_of<CheckpointError>([] { (void)load_safetensors("/nowhere/a.json"); }).fault(),
            CheckpointFault::missing);
}

}  // namespace
}  // namespace kolo::internal
