#pragma once

namespace assay {

class CheckpointSource;
struct Recognition;

/// The weights of an MLX checkpoint that are in mode "affine". A file with such planes but no
/// config that says so is only noted: the planes do not tell bits and group size apart.
void RecogniseAffine(const CheckpointSource& source, Recognition& found);

}  // namespace assay
