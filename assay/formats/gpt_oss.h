#pragma once

namespace assay {

class CheckpointSource;
struct Recognition;

/// The MXFP4 experts of gpt-oss checkpoints.
/// Layout:   X_blocks U8 [experts, rows, blocks, 16] and X_scales U8 [experts, rows, blocks] under
///           quant_method "mxfp4" (Hugging Face; the weight is called X); or X.blocks and X.scales
///           (the original files, whose config.json has no quantisation key: the configuration of
///           the model, num_experts and experts_per_token, names it, and the stored names do).
///           16 bytes are a block of 32 values, even element in the low nibble.
void RecogniseGptOss(const CheckpointSource& source, Recognition& found);

}  // namespace assay
