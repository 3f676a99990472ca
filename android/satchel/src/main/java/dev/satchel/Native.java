package dev.satchel;

import java.nio.charset.StandardCharsets;

/** The native library; {@code native/jni/satchel_jni.cpp} has the other side. Texts are UTF-8. */
final class Native {
    static {
        // A desktop may name the file itself: -Ddev.satchel.library=/path/libsatchel_jni.so
        String file = System.getProperty("dev.satchel.library");
        if (file == null) {
            System.loadLibrary("satchel_jni");
        } else {
            System.load(file);
        }
    }

    private Native() {}

    static native long modelOpen(byte[] path, int threads, long cacheMemory, boolean verify, byte[] target);

    static native void modelClose(long model);

    static native long[] modelInfo(long model);

    static native byte[] modelMetadata(long model);

    static native int[] tokenize(long model, byte[] text, int flags);

    static native byte[] detokenize(long model, int[] tokens, int flags);

    static native long sessionOpen(long model, byte[] adapter);

    static native void sessionClose(long session);

    static native void sessionClear(long session);

    static native void addMessage(long session, byte[] role, byte[] content);

    static native long begin(
            long session,
            byte[] text,
            boolean chats,
            int maxNewTokens,
            int given,
            double[] numbers,
            int topK,
            long seed,
            byte[][] stop,
            boolean slide);

    static native byte[] next(long generation);

    static native double[] stats(long generation, byte[][] stopReason);

    static native void generationClose(long generation);

    static native byte[] version();

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] utf8) {
        return new String(utf8, StandardCharsets.UTF_8);
    }
}
