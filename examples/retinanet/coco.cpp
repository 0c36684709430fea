// SPDX-License-Identifier: Apache-2.0
#include "coco.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <utility>

namespace retinanet {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

// Outlines make up most of the file. They are dropped while parsing, to save memory.
json parse_without_outlines(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) fail("it cannot be opened");
  const auto keep = [](int, json::parse_event_t event, json& parsed) {
    return event != json::parse_event_t::key || parsed != "segmentation";
  };
  return json::parse(stream, keep);
}

// Runs `read` and prefixes its exception's message with the place in the file.
template <typename Read>
void within(const std::string& where, const Read& read) {
  try {
    read();
  } catch (const std::exception& error) {
    fail(fmt::format("{}: {}", where, error.what()));
  }
}

const json& list_of(const json& document, const char* key) {
  const json& list = document.at(key);
  if (!list.is_array()) fail(fmt::format("'{}' is no list", key));
  return list;
}

// Describes an entry of a list, with its id if it has one.
template <typename Read>
void for_each_entry(const json& document, const char* key, const char* kind, const Read& read) {
  std::size_t place = 0;
  for (const json& entry : list_of(document, key)) {
    const bool has_id =
        entry.is_object() && entry.contains("id") && entry["id"].is_number_integer();
    const std::string name = has_id ? fmt::format("{} {}", kind, entry["id"].get<std::int64_t>())
                                    : fmt::format("{} at place {}", kind, place);
    within(name, [&] { read(entry); });
    ++place;
  }
}

std::int64_t integer(const json& entry, const char* key) {
  const json& value = entry.at(key);
  if (!value.is_number_integer()) fail(fmt::format("'{}' is no integer", key));
  return value.get<std::int64_t>();
}

double number(const json& value, const char* name) {
  if (!value.is_number() || !std::isfinite(value.get<double>())) {
    fail(fmt::format("'{}' is no number", name));
  }
  return value.get<double>();
}

std::size_t pixels(const json& entry, const char* key) {
  const std::int64_t count = integer(entry, key);
  if (count < 1 || count > 1'000'000) fail(fmt::format("'{}' is {}", key, count));
  return static_cast<std::size_t>(count);
}

// Consecutive numbers for ids with gaps, in the order of the ids.
std::map<std::int64_t, std::size_t> numbered(const std::set<std::int64_t>& ids) {
  std::map<std::int64_t, std::size_t> numbers;
  for (const std::int64_t id : ids) numbers.emplace(id, numbers.size());
  return numbers;
}

class Reader {
 public:
  Reader(const json& document, fs::path directory) : directory_(std::move(directory)) {
    if (!document.is_object()) fail("it is no object");
    number_entries(document, "categories", "category", categories_);
    number_entries(document, "images", "picture", pictures_);
    data_.categories.resize(categories_.size());
    data_.pictures.resize(pictures_.size());
    for_each_entry(document, "categories", "category", [&](const json& entry) {
      data_.categories[categories_.at(integer(entry, "id"))] = entry.at("name");
    });
    for_each_entry(document, "images", "picture", [&](const json& entry) { read_picture(entry); });
    for_each_entry(document, "annotations", "annotation",
                   [&](const json& entry) { read_annotation(entry); });
  }

  [[nodiscard]] DataSet take() { return std::move(data_); }

 private:
  using Numbers = std::map<std::int64_t, std::size_t>;

  static void number_entries(const json& document, const char* key, const char* kind,
                             Numbers& numbers) {
    std::set<std::int64_t> ids;
    for_each_entry(document, key, kind, [&](const json& entry) {
      if (!ids.insert(integer(entry, "id")).second) fail("its id occurs twice");
    });
    numbers = numbered(ids);
  }

  void read_picture(const json& entry) {
    Picture& picture = data_.pictures[pictures_.at(integer(entry, "id"))];
    picture.id = integer(entry, "id");
    picture.file = directory_ / entry.at("file_name").get<std::string>();
    picture.width = pixels(entry, "width");
    picture.height = pixels(entry, "height");
  }

  void read_annotation(const json& entry) {
    const std::int64_t id = integer(entry, "id");
    if (!annotations_.insert(id).second) fail("its id occurs twice");
    const std::int64_t picture_id = integer(entry, "image_id");
    const auto picture = pictures_.find(picture_id);
    if (picture == pictures_.end()) fail(fmt::format("there is no picture {}", picture_id));
    const std::int64_t category_id = integer(entry, "category_id");
    const auto category = categories_.find(category_id);
    if (category == categories_.end()) fail(fmt::format("there is no category {}", category_id));
    Picture& owner = data_.pictures[picture->second];
    owner.annotations.push_back({.object = {.box = read_box(entry.at("bbox"), owner),
                                            .category = static_cast<std::int64_t>(category->second),
                                            .crowd = integer(entry, "iscrowd") != 0},
                                 .area = number(entry.at("area"), "area")});
  }

  // COCO has boxes without area, and boxes that rounding puts less than a pixel outside.
  static Box read_box(const json& values, const Picture& picture) {
    if (!values.is_array() || values.size() != 4) fail("'bbox' has no four numbers");
    std::array<double, 4> box{};
    for (std::size_t i = 0; i < box.size(); ++i) box[i] = number(values[i], "bbox");
    const auto [x, y, box_width, box_height] = box;
    const auto width = static_cast<double>(picture.width);
    const auto height = static_cast<double>(picture.height);
    if (box_width < 0.0 || box_height < 0.0 || x <= -1.0 || y <= -1.0 ||
        x + box_width >= width + 1.0 || y + box_height >= height + 1.0) {
      fail(fmt::format(
          "its box, x {}, y {}, width {}, height {}, is not inside picture {} of {} x {}", x, y,
          box_width, box_height, picture.id, picture.width, picture.height));
    }
    return {.left = x, .top = y, .right = x + box_width, .bottom = y + box_height};
  }

  fs::path directory_;
  Numbers categories_, pictures_;  // by id
  std::set<std::int64_t> annotations_;
  DataSet data_;
};

fs::path first_of(const std::vector<fs::path>& candidates) {
  for (const fs::path& candidate : candidates) {
    if (fs::exists(candidate)) return candidate;
  }
  fail(fmt::format("there is no '{}'", candidates.front().string()));
}

}  // namespace

std::size_t DataSet::objects() const {
  std::size_t count = 0;
  for (const Picture& picture : pictures) {
    for (const Annotation& annotation : picture.annotations) {
      count += annotation.object.crowd ? 0U : 1U;
    }
  }
  return count;
}

DataSet read_coco(const fs::path& annotations, const fs::path& pictures) {
  DataSet data;
  within(fmt::format("cannot read '{}'", annotations.string()),
         [&] { data = Reader(parse_without_outlines(annotations), pictures).take(); });
  return data;
}

DataSet read_part(const fs::path& directory, const std::string& part) {
  const fs::path annotations =
      first_of({directory / "annotations" / fmt::format("instances_{}2017.json", part),
                directory / "annotations" / fmt::format("instances_{}.json", part)});
  const fs::path pictures =
      first_of({directory / (part + "2017"), directory / part,
                directory / "images" / (part + "2017"), directory / "images" / part});
  return read_coco(annotations, pictures);
}

std::vector<Truth> truths_of(const DataSet& data) {
  std::vector<Truth> truths;
  for (std::size_t place = 0; place < data.pictures.size(); ++place) {
    for (const Annotation& annotation : data.pictures[place].annotations) {
      truths.push_back({.picture = static_cast<std::int64_t>(place),
                        .category = annotation.object.category,
                        .box = annotation.object.box,
                        .area = annotation.area,
                        .crowd = annotation.object.crowd});
    }
  }
  return truths;
}

}  // namespace retinanet
