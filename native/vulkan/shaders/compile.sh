#!/usr/bin/env bash
# Makes the SPIR-V that is committed beside its sources again (Debian: apt-get install glslc).
set -euo pipefail
cd "$(dirname "$0")"
for source in *.comp; do
  glslc --target-env=vulkan1.1 -O -I . "$source" -o "${source%.comp}.spv"
done
