// The options of translation, and the sizes planned from them (decode_capacity.h).
#pragma once

#include <cstdint>

#include "pipeline/decode/beam_search.h"

namespace hadal {

struct DecoderOptions {
  BeamOptions beam;
  int64_t cache_limit_bytes = 0;  // for a rank's caches; 0: 512 MiB, or more if one sentence needs it
  int32_t longest_source = 512;   // longest source accepted, with </s>; at most the model's positions
  int32_t sentences = 0;          // most translated together per lane; 0: as many as are efficient
  bool graphs = true;             // on a device, launch a step and a group's encoding as graphs: the same bits
};

struct DecodeCapacity {
  int32_t lanes = 1;
  int32_t sentences = 1;       // of a group
  int64_t rows = 0;            // of a step: sentences · beam, padded; on a device every step has so many
  int64_t source_rows = 0;     // of a group's sources together, padded; on a device every group has so many
  int64_t longest_source = 0;  // rows of one sentence, with </s>
  int64_t longest_path = 0;    // positions of one hypothesis, with the leading </s>
  int64_t cache_rows = 0;      // the pool of a lane; row 0 is for padding rows
};

}  // namespace hadal
