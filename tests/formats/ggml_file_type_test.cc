#include "assay/formats/ggml_file_type.h"

#include <gtest/gtest.h>

#include "assay/formats/ggml_type.h"

namespace assay {
namespace {

TEST(GgmlFileType, NumbersAreThoseOfLlamaCpp) {
  EXPECT_EQ(FindGgmlFileType(0)->name, "F32");
  EXPECT_EQ(FindGgmlFileType(15)->name, "Q4_K_M");
  EXPECT_EQ(FindGgmlFileType(15)->type, "Q4_K");
  EXPECT_EQ(FindGgmlFileType(38)->name, "MXFP4_MOE");
  for (const int id : {-1, 4, 5, 6, 33, 34, 35, 42, 1024}) {
    EXPECT_EQ(FindGgmlFileType(id), nullptr) << id;
  }
}

TEST(GgmlFileType, EveryOneIsOfAType) {
  int found = 0;
  for (int id = 0; id < 64; ++id) {
    const GgmlFileType* file_type = FindGgmlFileType(id);
    if (file_type == nullptr) continue;
    ++found;
    EXPECT_EQ(file_type->id, id);
    EXPECT_NE(FindGgmlType(file_type->type), nullptr) << file_type->name;
  }
  EXPECT_EQ(found, 36);
}

TEST(GgmlFileType, ATypeGivesItsPlainestMixture) {
  const auto number = [](const char* type) { return FileTypeOf(*FindGgmlType(type))->id; };
  EXPECT_EQ(number("Q3_K"), 11);
  EXPECT_EQ(number("Q4_K"), 14);
  EXPECT_EQ(number("Q5_K"), 16);
  EXPECT_EQ(number("IQ3_S"), 26);
  EXPECT_EQ(number("Q8_0"), 7);
  for (const char* type : {"Q8_1", "Q8_K", "I32"}) {
    EXPECT_EQ(FileTypeOf(*FindGgmlType(type)), nullptr) << type;
  }
}

}  // namespace
}  // namespace assay
