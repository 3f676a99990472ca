package dev.satchel;

/**
 * A language model from a {@code .satchel} file. Any thread may use it; sessions outlive it.
 *
 * <pre>{@code
 * try (Model model = Model.open("model.satchel"); Session session = model.session()) {
 *     System.out.println(session.chat("Name a river.").text());
 * }
 * }</pre>
 */
public final class Model implements AutoCloseable {
    private static final int ADD_SURROUNDINGS = 1;
    private static final int SHOW_SPECIAL = 4;

    private final long handle;
    private final long[] info;

    private Model(long handle) {
        this.handle = handle;
        this.info = Native.modelInfo(handle);
    }

    /** With a thread for each core, and half of the memory for conversations at most. */
    public static Model open(String path) {
        return open(path, 0, 0, false);
    }

    /** {@code verify} checks every byte first; zeros are what {@link #open(String)} chooses. */
    public static Model open(String path, int threads, long cacheMemory, boolean verify) {
        return open(path, threads, cacheMemory, verify, null);
    }

    /**
     * Where it runs: {@code "vulkan"} is the first GPU, and the CPU runs what that cannot;
     * {@code "qnn:SM8750"} an NPU that the file is for; null the CPU.
     */
    public static Model open(
            String path, int threads, long cacheMemory, boolean verify, String target) {
        byte[] where = target == null ? null : Native.utf8(target);
        return new Model(Native.modelOpen(Native.utf8(path), threads, cacheMemory, verify, where));
    }

    /** A conversation, or texts one after the other. */
    public Session session() {
        return session(null);
    }

    /** The same with one of the program's adapters. */
    public Session session(String adapter) {
        return new Session(
                Native.sessionOpen(handle, adapter == null ? null : Native.utf8(adapter)));
    }

    /** The most tokens of a text. */
    public int context() {
        return (int) info[0];
    }

    public int vocabulary() {
        return (int) info[1];
    }

    public boolean hasChatTemplate() {
        return info[2] != 0;
    }

    public int threads() {
        return (int) info[3];
    }

    public long fileSize() {
        return info[4];
    }

    /** What the program says of itself, as JSON. */
    public String metadata() {
        return Native.text(Native.modelMetadata(handle));
    }

    /** A text's tokens; {@code surroundings}: with BOS and the like, as a prompt has them. */
    public int[] tokenize(String text, boolean surroundings) {
        return Native.tokenize(handle, Native.utf8(text), surroundings ? ADD_SURROUNDINGS : 0);
    }

    /** The text of tokens, with special ones or without. */
    public String detokenize(int[] tokens, boolean special) {
        return Native.text(Native.detokenize(handle, tokens, special ? SHOW_SPECIAL : 0));
    }

    /** Satchel's version. */
    public static String version() {
        return Native.text(Native.version());
    }

    @Override
    public void close() {
        Native.modelClose(handle);
    }
}
