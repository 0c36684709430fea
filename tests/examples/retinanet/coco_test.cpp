// SPDX-License-Identifier: Apache-2.0
#include "coco.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "temporary_directory.hpp"

namespace {

using namespace retinanet;
using nlohmann::json;
using testing::HasSubstr;

// Ids with gaps and out of order; the second image has a crowd.
json example() {
  return json::parse(R"({
    "images": [{"id": 70, "file_name": "b.jpg", "width": 40, "height": 30},
               {"id": 9, "file_name": "a.jpg", "width": 20, "height": 10}],
    "annotations": [
      {"id": 501, "image_id": 70, "category_id": 90, "bbox": [1, 2.5, 10, 20], "area": 150.5,
       "iscrowd": 0, "segmentation": [[1, 2, 3, 4, 5, 6]]},
      {"id": 502, "image_id": 9, "category_id": 1, "bbox": [0, 0, 20, 10], "area": 200,
       "iscrowd": 0},
      {"id": 900, "image_id": 70, "category_id": 13, "bbox": [0, 0, 40, 30], "area": 600,
       "iscrowd": 1, "segmentation": {"counts": [5, 3], "size": [30, 40]}}],
    "categories": [{"id": 90, "name": "toothbrush"}, {"id": 1, "name": "person"},
                   {"id": 13, "name": "stop sign"}]})");
}

class Coco : public testing::Test {
 protected:
  [[nodiscard]] DataSet read(const std::string& content) const {
    return read_coco(directory_.write("instances.json", content), "pictures");
  }

  // The message after the name of the file.
  [[nodiscard]] std::string error_of(const std::string& content) const {
    try {
      (void)read(content);
    } catch (const std::runtime_error& error) {
      const std::string start =
          "cannot read '" + (directory_.path() / "instances.json").string() + "': ";
      const std::string text = error.what();
      EXPECT_EQ(text.substr(0, start.size()), start);
      return text.substr(std::min(start.size(), text.size()));
    }
    return {};
  }

  [[nodiscard]] std::string error_of(const json& document) const {
    return error_of(document.dump());
  }

  TemporaryDirectory directory_;
};

TEST_F(Coco, NumbersCategoriesAndPicturesInTheOrderOfTheirIds) {
  const DataSet data = read(example().dump());
  EXPECT_EQ(data.categories, (std::vector<std::string>{"person", "stop sign", "toothbrush"}));
  ASSERT_EQ(data.pictures.size(), 2U);
  EXPECT_EQ(data.pictures[0].id, 9);
  EXPECT_EQ(data.pictures[0].file, "pictures/a.jpg");
  EXPECT_EQ(data.pictures[1].id, 70);
  EXPECT_EQ(data.pictures[1].width, 40U);
  EXPECT_EQ(data.pictures[1].height, 30U);
  EXPECT_EQ(data.objects(), 2U);

  ASSERT_EQ(data.pictures[1].annotations.size(), 2U);
  const Annotation& brush = data.pictures[1].annotations[0];
  EXPECT_EQ(brush.object.category, 2);
  EXPECT_FALSE(brush.object.crowd);
  EXPECT_EQ(brush.area, 150.5);
  EXPECT_EQ(brush.object.box.left, 1);
  EXPECT_EQ(brush.object.box.top, 2.5);
  EXPECT_EQ(brush.object.box.right, 11);
  EXPECT_EQ(brush.object.box.bottom, 22.5);
  EXPECT_TRUE(data.pictures[1].annotations[1].object.crowd);
}

// COCO has 80 categories with ids from 1 to 90.
TEST_F(Coco, KnowsEightyCategoriesByNumbersBelowEighty) {
  json document = example();
  document["categories"].clear();
  document["annotations"].clear();
  for (int id = 1; id <= 90; ++id) {
    if (id % 9 == 5) continue;  // ten gaps
    document["categories"].push_back({{"id", id}, {"name", std::to_string(id)}});
    json annotation = example()["annotations"][1];
    annotation["id"] = annotation["category_id"] = id;
    document["annotations"].push_back(annotation);
  }
  const DataSet data = read(document.dump());
  ASSERT_EQ(data.categories.size(), 80U);
  const auto& annotations = data.pictures[0].annotations;
  ASSERT_EQ(annotations.size(), 80U);
  for (std::size_t i = 0; i < 80; ++i) {
    EXPECT_EQ(annotations[i].object.category, static_cast<std::int64_t>(i));
    EXPECT_EQ(data.categories[i], std::to_string(document["categories"][i]["id"].get<int>()));
  }
}

TEST_F(Coco, GivesWhatIsToBeFound) {
  const std::vector<Truth> truths = truths_of(read(example().dump()));
  ASSERT_EQ(truths.size(), 3U);
  EXPECT_EQ(truths[0].picture, 0);
  EXPECT_EQ(truths[0].category, 0);
  EXPECT_EQ(truths[1].picture, 1);
  EXPECT_EQ(truths[1].area, 150.5);
  EXPECT_EQ(truths[1].box.bottom, 22.5);
  EXPECT_TRUE(truths[2].crowd);
}

TEST_F(Coco, AllowsBoxesOnTheEdgeAndWithoutArea) {
  json document = example();
  document["annotations"][0]["bbox"] = {-0.5, 0, 40.9, 30.75};
  document["annotations"][1]["bbox"] = {5, 5, 1.03, 0.0};
  EXPECT_EQ(error_of(document), "");
}

TEST_F(Coco, ThatIsMissingOrBrokenIsNamed) {
  try {
    (void)read_coco("/nowhere/instances.json", "/nowhere");
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "cannot read '/nowhere/instances.json': it cannot be opened");
  }
  const std::string whole = example().dump();
  for (const std::size_t size : {std::size_t{0}, whole.size() / 2, whole.size() - 1}) {
    EXPECT_THAT(error_of(std::string(whole, 0, size)), HasSubstr("parse error")) << size;
  }
  EXPECT_EQ(error_of(json::array()), "it is no object");
}

TEST_F(Coco, WithoutAKeyIsNamed) {
  for (const std::string key : {"images", "annotations", "categories"}) {
    json document = example();
    document.erase(key);
    EXPECT_THAT(error_of(document), HasSubstr("key '" + key + "' not found"));
    document[key] = 5;
    EXPECT_EQ(error_of(document), "'" + key + "' is no list");
  }
  for (const std::string key : {"image_id", "category_id", "bbox", "area", "iscrowd"}) {
    json document = example();
    document["annotations"][1].erase(key);
    const std::string error = error_of(document);
    EXPECT_THAT(error, HasSubstr("annotation 502: "));
    EXPECT_THAT(error, HasSubstr("key '" + key + "' not found"));
  }
  for (const std::string key : {"file_name", "width", "height"}) {
    json document = example();
    document["images"][0].erase(key);
    EXPECT_THAT(error_of(document), HasSubstr("picture 70: "));
  }
  json document = example();
  document["annotations"][1].erase("id");
  EXPECT_THAT(error_of(document), HasSubstr("annotation at place 1: "));
}

TEST_F(Coco, WithAnIdThatThereIsNotIsNamed) {
  json document = example();
  document["annotations"][2]["category_id"] = 2;
  EXPECT_EQ(error_of(document), "annotation 900: there is no category 2");
  document = example();
  document["annotations"][2]["image_id"] = 71;
  EXPECT_EQ(error_of(document), "annotation 900: there is no picture 71");
}

TEST_F(Coco, WithAnIdThatOccursTwiceIsNamed) {
  json document = example();
  document["annotations"][2]["id"] = 501;
  EXPECT_EQ(error_of(document), "annotation 501: its id occurs twice");
  document = example();
  document["images"][1]["id"] = 70;
  EXPECT_EQ(error_of(document), "picture 70: its id occurs twice");
  document = example();
  document["categories"][1]["id"] = 90;
  EXPECT_EQ(error_of(document), "category 90: its id occurs twice");
}

TEST_F(Coco, WithABoxThatIsNotInItsPictureIsNamed) {
  const auto error_with = [&](const json& box) {
    json document = example();
    document["annotations"][0]["bbox"] = box;
    return error_of(document);
  };
  EXPECT_EQ(
      error_with({31, 2.5, 10, 20}),
      "annotation 501: its box, x 31, y 2.5, width 10, height 20, is not inside picture 70 of "
      "40 x 30");
  for (const json& box : std::vector<json>{
           {-1, 0, 5, 5}, {0, -1, 5, 5}, {0, 0, 5, 31}, {5, 5, -1, 5}, {5, 5, 5, -1}}) {
    EXPECT_THAT(error_with(box), HasSubstr("is not inside picture 70")) << box;
  }
  EXPECT_EQ(error_with({1, 2, 3}), "annotation 501: 'bbox' has no four numbers");
  EXPECT_EQ(error_with("box"), "annotation 501: 'bbox' has no four numbers");
  EXPECT_EQ(error_with({1, 2, 3, "4"}), "annotation 501: 'bbox' is no number");
}

TEST_F(Coco, WithValuesOfTheWrongTypeIsNamed) {
  json document = example();
  document["annotations"][0]["area"] = "much";
  EXPECT_EQ(error_of(document), "annotation 501: 'area' is no number");
  document = example();
  document["annotations"][0]["image_id"] = 70.5;
  EXPECT_EQ(error_of(document), "annotation 501: 'image_id' is no integer");
  document = example();
  document["images"][0]["width"] = 0;
  EXPECT_EQ(error_of(document), "picture 70: 'width' is 0");
}

TEST_F(Coco, IsFoundInTheDirectoriesOfItsArchives) {
  EXPECT_THROW((void)read_part(directory_.path(), "val"), std::runtime_error);
  directory_.write("annotations/instances_val.json", example().dump());
  try {
    (void)read_part(directory_.path(), "val");
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("there is no '"));
    EXPECT_THAT(error.what(), HasSubstr("/val2017'"));
  }
  directory_.write("images/val/a.jpg", "");
  EXPECT_EQ(read_part(directory_.path(), "val").pictures[0].file,
            directory_.path() / "images/val/a.jpg");

  directory_.write("annotations/instances_val2017.json", example().dump());
  directory_.write("val2017/a.jpg", "");
  EXPECT_EQ(read_part(directory_.path(), "val").pictures[0].file,
            directory_.path() / "val2017/a.jpg");
}

}  // namespace
