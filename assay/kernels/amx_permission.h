#pragma once

namespace assay {

/// The CPU multiplies bf16 tiles, the kernel granted this process the tile state (asked once), and
/// the active target is avx512_dl.
bool HasAmxBF16();

}  // namespace assay
