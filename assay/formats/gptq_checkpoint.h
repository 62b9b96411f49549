#pragma once

namespace assay {

class CheckpointSource;
struct Recognition;

/// Weights whose config (quantization_config, or quantize_config.json) has quant_method "gptq".
void RecogniseGptq(const CheckpointSource& source, Recognition& found);

}  // namespace assay
