// Token embedding on the CPU: the forward splits rows over threads, the backward columns, so that no two threads meet in a
// row of the table. Arguments are checked by the caller (kernels/embedding.cc).
#pragma once

#include "kernels/embedding.h"

namespace hadal::cpu {

void EmbeddingForward(const Stream& stream, const EmbeddingForwardArgs& args);
void EmbeddingBackward(const Stream& stream, const EmbeddingBackwardArgs& args);

}  // namespace hadal::cpu
