#pragma once

namespace assay {

class CheckpointForm;
class CheckpointSource;
struct Recognition;

/// The floating-point weights of a compressed-tensors checkpoint, by the "format" of each module's
/// config group: nvfp4-pack-quantized, mxfp4-pack-quantized, mxfp6-pack-quantized, mxfp8-quantized,
/// and fp8 under float-quantized or naive-quantized. Modules on the ignore list, and integer
/// formats, are left alone.
void RecogniseCompressedTensors(const CheckpointSource& source, Recognition& found);

/// P.weight_packed (fp8: P.weight), P.weight_scale, P.weight_global_scale; quantization_config as
/// compressed-tensors 0.20 writes it. Serves mxfp4, mxfp6e2m3, mxfp8 under every scale rule, and
/// nvfp4:ct. `packed`: codes smaller than a byte.
const CheckpointForm* CompressedTensorsForm(bool packed);

}  // namespace assay
