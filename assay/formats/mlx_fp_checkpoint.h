#pragma once

namespace assay {

class CheckpointSource;
struct Recognition;

/// The weights of an MLX checkpoint that are in mode "mxfp4", "mxfp8" or "nvfp4". Their scales are
/// U8 in every mode: without a config they are left alone.
void RecogniseMlxFp(const CheckpointSource& source, Recognition& found);

}  // namespace assay
