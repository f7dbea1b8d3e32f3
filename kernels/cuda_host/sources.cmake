# The operations: for GPUs (CMakeLists.txt) and for the emulated device (tests/support).
set(HADAL_OPERATION_SOURCES
  attention_operation.cc
  batch_block.cc
  launch_memory.cc
  linear_operation.cc
  operations.cc
  weight_gradients_operation.cc)
# What opens a GPU and runs the operations on it: over CUDA's runtime, and over the emulated one (tests/support).
set(HADAL_CUDA_DEVICE_SOURCES
  cublas_library.cc
  cublas_matmul.cc
  cuda_device.cc
  cuda_queues.cc
  held_streams.cc)
