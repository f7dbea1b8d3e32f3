#include "kernels/attention_residual.h"

#include "kernels/check_shape.h"
#include "kernels/cpu/operations.h"
#include "kernels/device_kernels.h"
#include "runtime/check.h"

namespace hadal {
namespace {

void CheckReader(const SourceReader& reader, int64_t width) {
  if (reader.query.empty()) return;
  HADAL_CHECK_EQ(reader.query.size, width);
  HADAL_CHECK_EQ(reader.scale.size, width);
}

void CheckGradients(const SourceReader& reader, int64_t width) {
  CheckReader(reader, width);
  HADAL_CHECK_EQ(reader.d_query.size, reader.query.size);
  HADAL_CHECK_EQ(reader.d_scale.size, reader.scale.size);
}

// `y`: of all readers. Returns R.
int64_t CheckSources(const ConstMatrix& x, const ConstMatrix& y, int64_t readers, const ConstMatrix& logits,
                     const ConstMatrix& statistics, const ConstVector& inverse_rms) {
  HADAL_CHECK_GE(readers, 1);
  HADAL_CHECK_LE(readers, kMostReaders);
  const int64_t rows = y.rows / readers, sources = x.rows / rows;
  HADAL_CHECK_GE(sources, 1);
  CheckShape(y, readers * rows, y.columns);
  CheckShape(x, sources * rows, y.columns);
  CheckShape(logits, y.rows, sources);
  CheckShape(statistics, y.rows, kReaderStatistics);
  HADAL_CHECK_EQ(inverse_rms.size, x.rows);
  return rows;
}

}  // namespace

void ReadSourcesForward(const Stream& stream, const ReadSourcesForwardArgs& args) {
  if (args.y.rows == 0) return;
  CheckSources(args.x, args.y, std::ssize(args.readers), args.logits, args.statistics, args.inverse_rms);
  for (const SourceReader& reader : args.readers) CheckReader(reader, args.y.columns);
  RunKernel(stream, &DeviceKernels::read_sources_forward, cpu::ReadSourcesForward, args);
}

void ReadOpenForward(const Stream& stream, const ReadOpenForwardArgs& args) {
  if (args.y.rows == 0) return;
  CheckShape(args.open, args.y.rows, args.y.columns);
  CheckShape(args.statistics, args.y.rows, kReaderStatistics);
  CheckReader(args.reader, args.y.columns);
  RunKernel(stream, &DeviceKernels::read_open_forward, cpu::ReadOpenForward, args);
}

void ReadOpenBackward(const Stream& stream, const ReadOpenBackwardArgs& args) {
  if (args.dh.rows == 0) return;
  for (const ConstMatrix& m : {args.open, ConstMatrix(args.h), ConstMatrix(args.d_open)}) {
    CheckShape(m, args.dh.rows, args.dh.columns);
  }
  CheckShape(args.statistics, args.dh.rows, kReaderStatistics);
  CheckGradients(args.reader, args.dh.columns);
  HADAL_CHECK_GE(args.partials.size, ReaderPartials(args.dh.rows, args.dh.columns, 1));
  RunKernel(stream, &DeviceKernels::read_open_backward, cpu::ReadOpenBackward, args);
}

void ReadSourcesBackward(const Stream& stream, const ReadSourcesBackwardArgs& args) {
  if (args.dh.rows == 0) return;
  const int64_t readers = std::ssize(args.readers);
  const int64_t rows = CheckSources(args.x, args.dh, readers, args.logits, args.statistics, args.inverse_rms);
  CheckShape(args.d_logits, args.logits.rows, args.logits.columns);
  CheckShape(args.dx, args.x.rows, args.x.columns);
  for (const SourceReader& reader : args.readers) CheckGradients(reader, args.dh.columns);
  HADAL_CHECK_GE(args.partials.size, ReaderPartials(rows, args.dh.columns, readers));
  RunKernel(stream, &DeviceKernels::read_sources_backward, cpu::ReadSourcesBackward, args);
}

}  // namespace hadal
