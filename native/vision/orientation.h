// How a picture is to be turned, as cameras write it.
#pragma once

#include "image.h"

namespace satchel::vision {

// Of a block of EXIF (TIFF), with or without "Exif\0\0" before it; 0 if it does not say.
int exif_orientation(Bytes block);

// Of a packet of XMP; 0 if it does not say.
int xmp_orientation(Bytes packet);

}  // namespace satchel::vision
