# Cross-compilation from Debian for 64-bit Arm: what `scripts/install-deps --arm64` installs.
# gcc, because Highway 1.0 chooses between NEON and SVE at run time under gcc alone.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
# Every Arm target that Highway knows runs on this one emulated CPU.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -cpu max)
set(dnnl_DIR "${CMAKE_CURRENT_LIST_DIR}")
