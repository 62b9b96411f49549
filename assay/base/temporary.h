#pragma once

#include <string>
#include <string_view>

namespace assay {

/// First part of the name of every temporary file or folder that Assay creates beside an output.
inline constexpr std::string_view kTemporaryPrefix = ".assay-tmp-";

/// ".assay-tmp-1f93ab…-NAME" in `folder`; the middle part is random.
std::string TemporaryPath(const std::string& folder, std::string_view name);

/// Takes the lock that tells others a temporary is in use; held until `descriptor` is closed, by
/// the end of the process at the latest. False when somebody removed `path` in between.
bool LockTemporary(int descriptor, const std::string& path);

/// Removes the temporaries in `folder` that nobody holds a lock on: left by a run that was killed.
/// Never throws: what cannot be removed stays.
void RemoveStaleTemporaries(const std::string& folder) noexcept;

/// The folder a path lies in, "." for a bare name.
std::string FolderOf(const std::string& path);

/// Makes renames in a folder durable. Errors: input.
void SyncFolder(const std::string& folder);

}  // namespace assay
