// The library: Java classes, a Flow of pieces for Kotlin, and libsatchel_jni.so for 64-bit Arm.
plugins {
    id("com.android.library")
    id("org.jetbrains.kotlin.android")
}

android {
    namespace = "dev.satchel"
    compileSdk = 35
    defaultConfig {
        minSdk = 28
        ndk { abiFilters += "arm64-v8a" }
        externalNativeBuild {
            cmake {
                arguments += listOf("-DSATCHEL_DEVICE=ON", "-DSATCHEL_JNI=ON", "-DANDROID_STL=c++_static")
                targets += "satchel_jni"
            }
        }
    }
    externalNativeBuild { cmake { path = file("../../CMakeLists.txt") } }
    compileOptions {
        sourceCompatibility = JavaVersion.VERSION_11
        targetCompatibility = JavaVersion.VERSION_11
    }
    kotlinOptions { jvmTarget = "11" }
}

dependencies {
    api("org.jetbrains.kotlinx:kotlinx-coroutines-core:1.9.0")
}
