#pragma once

namespace assay {

class CheckpointForm;
class CheckpointSource;
struct Recognition;

/// The weights of an NVIDIA ModelOpt export, by the quant_algo of hf_quant_config.json or of
/// quantization_config: NVFP4, W4A16_NVFP4, NVFP4_AWQ, MXFP4, MXFP8, FP8,
/// FP8_PER_CHANNEL_PER_TOKEN, W4A16_AWQ, and MIXED_PRECISION of these. Excluded modules are left
/// alone; other algorithms are noted.
void RecogniseModelOpt(const CheckpointSource& source, Recognition& found);

/// P.weight, P.weight_scale, P.weight_scale_2; hf_quant_config.json and quantization_config as
/// ModelOpt 0.47 writes them for weights alone. Serves nvfp4, mxfp4:modelopt and mxfp8:modelopt.
const CheckpointForm* ModelOptForm();

}  // namespace assay
