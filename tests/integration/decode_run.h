// Translates with a small random model on ranks that are threads of this process.
#pragma once

#include "layers/model_options.h"
#include "pipeline/decode/decoder.h"
#include "pipeline/options/train_options.h"

namespace hadal::testing {

struct DecodeSpec {
  ModelOptions model;
  PipelineOptions pipeline;
  DecoderOptions decoder;
  Storage compute_storage = Storage::kFloat32;  // what products read and write; bf16 needs a device
  int ranks = 1;
  int threads = 1;
  int32_t batch_rows = 128;  // of a micro-batch of the evaluation, on each side
  uint64_t seed = 11;
  int64_t update = 3;
  // The decoder translates them so often, the weights' update one higher each time; the last is the outcome.
  int times = 1;
  int64_t stop_after_steps = 0;     // a translation that is stopped after so many steps comes first; 0: none
  bool moved = false;               // weights are moved off their start (tests/support/moved_parameters.h); on the CPU
  std::vector<OutputStart> starts;  // of the outputs; none: Decoder::Translate's
  std::function<std::unique_ptr<Device>(int rank)> make_device;  // the device of each rank; empty: the CPU
};

struct DecodeOutcome {
  std::vector<Translation> translations;  // the same on every rank (checked)
  // [sources] nll of every token of the best translation, </s> included, by a full forward.
  std::vector<std::vector<float>> evaluated;
  std::vector<int64_t> bytes;     // [ranks] of the decoder's arena
  std::vector<int64_t> launches;  // [ranks] by the device, of the last translation; 0 on the CPU
  int64_t residual_bytes = 0;     // that all ranks sent over borders, in all translations
  DecodeCapacity capacity;
};

// Random sources of 1 … `longest` tokens.
std::vector<std::vector<int32_t>> RandomSources(int count, int longest, int vocabulary, uint32_t seed);

// `evaluate`: fills `evaluated`. A language model's sources are empty.
DecodeOutcome Decode(const DecodeSpec& spec, const std::vector<std::vector<int32_t>>& sources, bool evaluate = false);

// "" when both hold the same tokens and the same bits of every score, else the first difference.
std::string FirstDifference(const std::vector<Translation>& a, const std::vector<Translation>& b);

}  // namespace hadal::testing
