// What a caller says of translation, and the sizes that follow (decode_capacity.h).
#pragma once

#include <cstdint>

#include "pipeline/decode/beam_search.h"

namespace hadal {

struct DecoderOptions {
  BeamOptions beam;
  int64_t cache_limit_bytes = 0;  // of a rank's caches; 0: 512 MiB, or what one sentence needs where that is more
  int32_t longest_source = 512;   // longest source accepted, </s> counted; at most the model's positions
  int32_t sentences = 0;          // translated together a lane, at most; 0: as many as are efficient
  bool graphs = true;             // on a device a step and a group's encoding are launched as graphs: the same bits
};

struct DecodeCapacity {
  int32_t lanes = 1;
  int32_t sentences = 1;       // a group's
  int64_t rows = 0;            // of a step: sentences · beam, filled up; on a device every step has so many
  int64_t source_rows = 0;     // of a group's sources together, filled up; on a device every group has so many
  int64_t longest_source = 0;  // rows of one sentence, </s> counted
  int64_t longest_path = 0;    // positions of one hypothesis, the leading </s> counted
  int64_t cache_rows = 0;      // the pool of a lane; row 0 belongs to the rows that only fill a step up
};

}  // namespace hadal
