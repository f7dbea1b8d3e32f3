#include "pipeline/checkpoint/deepening.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace hadal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<CheckpointParameter> Model(int encoder_layers, int decoder_layers, int64_t width = 4) {
  std::vector<CheckpointParameter> model = {{.name = "encoder.embed_tokens.weight", .rows = 9, .columns = width}};
  for (int l = 0; l < encoder_layers; ++l) {
    model.push_back({.name = "encoder.layers." + std::to_string(l) + ".fc1.bias", .rows = width, .is_vector = true});
  }
  model.push_back({.name = "encoder.layer_norm.weight", .rows = width, .is_vector = true});
  for (int l = 0; l < decoder_layers; ++l) {
    model.push_back({.name = "decoder.layers." + std::to_string(l) + ".fc2.weight", .rows = 2, .columns = width});
  }
  return model;
}

std::string Refusal(const std::vector<CheckpointParameter>& from, const std::vector<CheckpointParameter>& model) {
  return std::string(DeepenedParameters(from, model).status().message());
}

TEST(DeepeningTest, CopiesOfALayerFollowOneAnother) {
  // Numbers of one and of two digits; a number of layers that divides the other, and others.
  EXPECT_THAT(DeepenedParameters(Model(2, 3), Model(5, 3)).value(), ElementsAre(0, 1, 1, 1, 2, 2, 3, 4, 5, 6));
  EXPECT_THAT(DeepenedParameters(Model(11, 1), Model(12, 2)).value(),
              ElementsAre(0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 13));
}

TEST(DeepeningTest, WhatDoesNotFitIsNamed) {
  EXPECT_THAT(Refusal(Model(2, 3), Model(2, 2)), HasSubstr("decoder has 3 layers, more than"));
  EXPECT_THAT(Refusal(Model(2, 3), Model(2, 0)), HasSubstr("decoder has 3 layers, more than"));
  EXPECT_THAT(Refusal(Model(0, 3), Model(2, 3)), HasSubstr("the checkpoint has no encoder.layers.0.fc1.bias"));
  std::vector<CheckpointParameter> admin = Model(2, 3);
  admin.push_back({.name = "decoder.layers.2.fc_omega", .rows = 4, .is_vector = true});
  EXPECT_THAT(Refusal(admin, Model(4, 3)), HasSubstr("no place for the checkpoint's decoder.layers.2.fc_omega"));
  EXPECT_THAT(Refusal(Model(2, 3), Model(4, 3, 8)), HasSubstr("encoder.embed_tokens.weight has the shape [9, 4]"));
  std::vector<CheckpointParameter> more_words = Model(4, 3);
  more_words[0].rows = 10;
  EXPECT_THAT(Refusal(Model(2, 3), more_words), HasSubstr("[9, 4], the model's encoder.embed_tokens.weight [10, 4]"));
}

}  // namespace
}  // namespace hadal
