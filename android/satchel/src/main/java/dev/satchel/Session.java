package dev.satchel;

/** A conversation. It makes one text at a time: one that is begun later ends those before it. */
public final class Session implements AutoCloseable {
    private final long handle;

    Session(long handle) {
        this.handle = handle;
    }

    /** Adds a message of "system", "user" or "assistant" without answering it. */
    public void addMessage(String role, String content) {
        Native.addMessage(handle, Native.utf8(role), Native.utf8(content));
    }

    /** Answers a message of the user. */
    public Generation chat(String text) {
        return chat(text, new Options());
    }

    public Generation chat(String text, Options options) {
        return new Generation(options.begin(handle, text, true));
    }

    /** Continues a text as it is. */
    public Generation complete(String text, Options options) {
        return new Generation(options.begin(handle, text, false));
    }

    /** Begins a new conversation. */
    public void clear() {
        Native.sessionClear(handle);
    }

    @Override
    public void close() {
        Native.sessionClose(handle);
    }
}
